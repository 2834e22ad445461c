from heronpy.proto import topology_pb2 as _topology_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Resources(_message.Message):
    __slots__ = ("cpu", "ram_bytes", "disk_bytes")
    CPU_FIELD_NUMBER: _ClassVar[int]
    RAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpu: float
    ram_bytes: int
    disk_bytes: int
    def __init__(self, cpu: _Optional[float] = ..., ram_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ...) -> None: ...

class InstancePacking(_message.Message):
    __slots__ = ("component", "task_id", "component_index", "resources", "ram_given", "cpu_given")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    RAM_GIVEN_FIELD_NUMBER: _ClassVar[int]
    CPU_GIVEN_FIELD_NUMBER: _ClassVar[int]
    component: str
    task_id: int
    component_index: int
    resources: Resources
    ram_given: bool
    cpu_given: bool
    def __init__(self, component: _Optional[str] = ..., task_id: _Optional[int] = ..., component_index: _Optional[int] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., ram_given: _Optional[bool] = ..., cpu_given: _Optional[bool] = ...) -> None: ...

class ContainerPacking(_message.Message):
    __slots__ = ("id", "instances", "required", "code")
    ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    id: int
    instances: _containers.RepeatedCompositeFieldContainer[InstancePacking]
    required: Resources
    code: str
    def __init__(self, id: _Optional[int] = ..., instances: _Optional[_Iterable[_Union[InstancePacking, _Mapping]]] = ..., required: _Optional[_Union[Resources, _Mapping]] = ..., code: _Optional[str] = ...) -> None: ...

class CodeVersion(_message.Message):
    __slots__ = ("version", "package_paths", "definition", "package_url", "package_sha256", "package_bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_PATHS_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_URL_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_SHA256_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: str
    package_paths: _containers.RepeatedScalarFieldContainer[str]
    definition: bytes
    package_url: str
    package_sha256: str
    package_bytes: int
    def __init__(self, version: _Optional[str] = ..., package_paths: _Optional[_Iterable[str]] = ..., definition: _Optional[bytes] = ..., package_url: _Optional[str] = ..., package_sha256: _Optional[str] = ..., package_bytes: _Optional[int] = ...) -> None: ...

class PackingPlan(_message.Message):
    __slots__ = ("id", "containers", "highest_task_id", "master", "codes", "trial", "revision")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_TASK_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    id: str
    containers: _containers.RepeatedCompositeFieldContainer[ContainerPacking]
    highest_task_id: int
    master: Resources
    codes: _containers.RepeatedCompositeFieldContainer[CodeVersion]
    trial: CodeTrial
    revision: int
    def __init__(self, id: _Optional[str] = ..., containers: _Optional[_Iterable[_Union[ContainerPacking, _Mapping]]] = ..., highest_task_id: _Optional[int] = ..., master: _Optional[_Union[Resources, _Mapping]] = ..., codes: _Optional[_Iterable[_Union[CodeVersion, _Mapping]]] = ..., trial: _Optional[_Union[CodeTrial, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class CodeTrial(_message.Message):
    __slots__ = ("fallback", "timeout_s")
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    fallback: str
    timeout_s: float
    def __init__(self, fallback: _Optional[str] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class StmgrLocation(_message.Message):
    __slots__ = ("id", "container", "host", "port", "pid", "incarnation", "container_incarnation")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    container: int
    host: str
    port: int
    pid: int
    incarnation: int
    container_incarnation: int
    def __init__(self, id: _Optional[str] = ..., container: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., pid: _Optional[int] = ..., incarnation: _Optional[int] = ..., container_incarnation: _Optional[int] = ...) -> None: ...

class PhysicalPlan(_message.Message):
    __slots__ = ("version", "topology", "packing", "stmgrs", "restore_epoch")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    STMGRS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    version: int
    topology: _topology_pb2.Topology
    packing: PackingPlan
    stmgrs: _containers.RepeatedCompositeFieldContainer[StmgrLocation]
    restore_epoch: int
    def __init__(self, version: _Optional[int] = ..., topology: _Optional[_Union[_topology_pb2.Topology, _Mapping]] = ..., packing: _Optional[_Union[PackingPlan, _Mapping]] = ..., stmgrs: _Optional[_Iterable[_Union[StmgrLocation, _Mapping]]] = ..., restore_epoch: _Optional[int] = ...) -> None: ...
