from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RpcRequestHeader(_message.Message):
    __slots__ = ("rpc_kind", "rpc_op", "call_id", "client_id", "retry_count")
    RPC_KIND_FIELD_NUMBER: _ClassVar[int]
    RPC_OP_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    rpc_kind: int
    rpc_op: int
    call_id: int
    client_id: bytes
    retry_count: int
    def __init__(self, rpc_kind: _Optional[int] = ..., rpc_op: _Optional[int] = ..., call_id: _Optional[int] = ..., client_id: _Optional[bytes] = ..., retry_count: _Optional[int] = ...) -> None: ...

class RpcResponseHeader(_message.Message):
    __slots__ = ("call_id", "status", "exception_class_name", "error_msg")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_MSG_FIELD_NUMBER: _ClassVar[int]
    call_id: int
    status: int
    exception_class_name: str
    error_msg: str
    def __init__(self, call_id: _Optional[int] = ..., status: _Optional[int] = ..., exception_class_name: _Optional[str] = ..., error_msg: _Optional[str] = ...) -> None: ...

class RpcSasl(_message.Message):
    __slots__ = ("state", "token", "auths")
    class Auth(_message.Message):
        __slots__ = ("method", "mechanism", "protocol", "server_id", "challenge")
        METHOD_FIELD_NUMBER: _ClassVar[int]
        MECHANISM_FIELD_NUMBER: _ClassVar[int]
        PROTOCOL_FIELD_NUMBER: _ClassVar[int]
        SERVER_ID_FIELD_NUMBER: _ClassVar[int]
        CHALLENGE_FIELD_NUMBER: _ClassVar[int]
        method: str
        mechanism: str
        protocol: str
        server_id: str
        challenge: bytes
        def __init__(self, method: _Optional[str] = ..., mechanism: _Optional[str] = ..., protocol: _Optional[str] = ..., server_id: _Optional[str] = ..., challenge: _Optional[bytes] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    AUTHS_FIELD_NUMBER: _ClassVar[int]
    state: int
    token: bytes
    auths: _containers.RepeatedCompositeFieldContainer[RpcSasl.Auth]
    def __init__(self, state: _Optional[int] = ..., token: _Optional[bytes] = ..., auths: _Optional[_Iterable[_Union[RpcSasl.Auth, _Mapping]]] = ...) -> None: ...

class ConnectionContext(_message.Message):
    __slots__ = ("protocol",)
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    protocol: str
    def __init__(self, protocol: _Optional[str] = ...) -> None: ...

class RequestHeader(_message.Message):
    __slots__ = ("method_name", "protocol_name", "protocol_version")
    METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_NAME_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    method_name: str
    protocol_name: str
    protocol_version: int
    def __init__(self, method_name: _Optional[str] = ..., protocol_name: _Optional[str] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("identifier", "password", "kind", "service")
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    identifier: bytes
    password: bytes
    kind: str
    service: str
    def __init__(self, identifier: _Optional[bytes] = ..., password: _Optional[bytes] = ..., kind: _Optional[str] = ..., service: _Optional[str] = ...) -> None: ...

class ApplicationId(_message.Message):
    __slots__ = ("id", "cluster_timestamp")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    id: int
    cluster_timestamp: int
    def __init__(self, id: _Optional[int] = ..., cluster_timestamp: _Optional[int] = ...) -> None: ...

class ApplicationAttemptId(_message.Message):
    __slots__ = ("application_id", "attempt_id")
    APPLICATION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    application_id: ApplicationId
    attempt_id: int
    def __init__(self, application_id: _Optional[_Union[ApplicationId, _Mapping]] = ..., attempt_id: _Optional[int] = ...) -> None: ...

class ContainerId(_message.Message):
    __slots__ = ("app_id", "app_attempt_id", "id")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    APP_ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    app_id: ApplicationId
    app_attempt_id: ApplicationAttemptId
    id: int
    def __init__(self, app_id: _Optional[_Union[ApplicationId, _Mapping]] = ..., app_attempt_id: _Optional[_Union[ApplicationAttemptId, _Mapping]] = ..., id: _Optional[int] = ...) -> None: ...

class NodeId(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class NodeToken(_message.Message):
    __slots__ = ("node_id", "token")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    node_id: NodeId
    token: Token
    def __init__(self, node_id: _Optional[_Union[NodeId, _Mapping]] = ..., token: _Optional[_Union[Token, _Mapping]] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("memory_mb", "vcores")
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    VCORES_FIELD_NUMBER: _ClassVar[int]
    memory_mb: int
    vcores: int
    def __init__(self, memory_mb: _Optional[int] = ..., vcores: _Optional[int] = ...) -> None: ...

class Priority(_message.Message):
    __slots__ = ("priority",)
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    priority: int
    def __init__(self, priority: _Optional[int] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("id", "node_id", "resource", "container_token", "allocation_request_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    id: ContainerId
    node_id: NodeId
    resource: Resource
    container_token: Token
    allocation_request_id: int
    def __init__(self, id: _Optional[_Union[ContainerId, _Mapping]] = ..., node_id: _Optional[_Union[NodeId, _Mapping]] = ..., resource: _Optional[_Union[Resource, _Mapping]] = ..., container_token: _Optional[_Union[Token, _Mapping]] = ..., allocation_request_id: _Optional[int] = ...) -> None: ...

class ContainerStatus(_message.Message):
    __slots__ = ("container_id", "diagnostics", "exit_status")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    container_id: ContainerId
    diagnostics: str
    exit_status: int
    def __init__(self, container_id: _Optional[_Union[ContainerId, _Mapping]] = ..., diagnostics: _Optional[str] = ..., exit_status: _Optional[int] = ...) -> None: ...

class ResourceRequest(_message.Message):
    __slots__ = ("priority", "resource_name", "capability", "num_containers", "relax_locality", "node_label_expression", "allocation_request_id")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    NUM_CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    RELAX_LOCALITY_FIELD_NUMBER: _ClassVar[int]
    NODE_LABEL_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    priority: Priority
    resource_name: str
    capability: Resource
    num_containers: int
    relax_locality: bool
    node_label_expression: str
    allocation_request_id: int
    def __init__(self, priority: _Optional[_Union[Priority, _Mapping]] = ..., resource_name: _Optional[str] = ..., capability: _Optional[_Union[Resource, _Mapping]] = ..., num_containers: _Optional[int] = ..., relax_locality: _Optional[bool] = ..., node_label_expression: _Optional[str] = ..., allocation_request_id: _Optional[int] = ...) -> None: ...

class EnvironmentEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ContainerLaunchContext(_message.Message):
    __slots__ = ("tokens", "environment", "command")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    tokens: bytes
    environment: _containers.RepeatedCompositeFieldContainer[EnvironmentEntry]
    command: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tokens: _Optional[bytes] = ..., environment: _Optional[_Iterable[_Union[EnvironmentEntry, _Mapping]]] = ..., command: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterApplicationMasterRequest(_message.Message):
    __slots__ = ("host", "rpc_port", "tracking_url")
    HOST_FIELD_NUMBER: _ClassVar[int]
    RPC_PORT_FIELD_NUMBER: _ClassVar[int]
    TRACKING_URL_FIELD_NUMBER: _ClassVar[int]
    host: str
    rpc_port: int
    tracking_url: str
    def __init__(self, host: _Optional[str] = ..., rpc_port: _Optional[int] = ..., tracking_url: _Optional[str] = ...) -> None: ...

class RegisterApplicationMasterResponse(_message.Message):
    __slots__ = ("maximum_capability", "containers_from_previous_attempts", "nm_tokens_from_previous_attempts")
    MAXIMUM_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FROM_PREVIOUS_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NM_TOKENS_FROM_PREVIOUS_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    maximum_capability: Resource
    containers_from_previous_attempts: _containers.RepeatedCompositeFieldContainer[Container]
    nm_tokens_from_previous_attempts: _containers.RepeatedCompositeFieldContainer[NodeToken]
    def __init__(self, maximum_capability: _Optional[_Union[Resource, _Mapping]] = ..., containers_from_previous_attempts: _Optional[_Iterable[_Union[Container, _Mapping]]] = ..., nm_tokens_from_previous_attempts: _Optional[_Iterable[_Union[NodeToken, _Mapping]]] = ...) -> None: ...

class AllocateRequest(_message.Message):
    __slots__ = ("ask", "release", "response_id", "progress")
    ASK_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ask: _containers.RepeatedCompositeFieldContainer[ResourceRequest]
    release: _containers.RepeatedCompositeFieldContainer[ContainerId]
    response_id: int
    progress: float
    def __init__(self, ask: _Optional[_Iterable[_Union[ResourceRequest, _Mapping]]] = ..., release: _Optional[_Iterable[_Union[ContainerId, _Mapping]]] = ..., response_id: _Optional[int] = ..., progress: _Optional[float] = ...) -> None: ...

class AllocateResponse(_message.Message):
    __slots__ = ("am_command", "response_id", "allocated_containers", "completed_container_statuses", "nm_tokens", "am_rm_token", "containers_from_previous_attempts")
    AM_COMMAND_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOCATED_CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_CONTAINER_STATUSES_FIELD_NUMBER: _ClassVar[int]
    NM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    AM_RM_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FROM_PREVIOUS_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    am_command: int
    response_id: int
    allocated_containers: _containers.RepeatedCompositeFieldContainer[Container]
    completed_container_statuses: _containers.RepeatedCompositeFieldContainer[ContainerStatus]
    nm_tokens: _containers.RepeatedCompositeFieldContainer[NodeToken]
    am_rm_token: Token
    containers_from_previous_attempts: _containers.RepeatedCompositeFieldContainer[Container]
    def __init__(self, am_command: _Optional[int] = ..., response_id: _Optional[int] = ..., allocated_containers: _Optional[_Iterable[_Union[Container, _Mapping]]] = ..., completed_container_statuses: _Optional[_Iterable[_Union[ContainerStatus, _Mapping]]] = ..., nm_tokens: _Optional[_Iterable[_Union[NodeToken, _Mapping]]] = ..., am_rm_token: _Optional[_Union[Token, _Mapping]] = ..., containers_from_previous_attempts: _Optional[_Iterable[_Union[Container, _Mapping]]] = ...) -> None: ...

class FinishApplicationMasterRequest(_message.Message):
    __slots__ = ("diagnostics", "tracking_url", "final_application_status")
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    TRACKING_URL_FIELD_NUMBER: _ClassVar[int]
    FINAL_APPLICATION_STATUS_FIELD_NUMBER: _ClassVar[int]
    diagnostics: str
    tracking_url: str
    final_application_status: int
    def __init__(self, diagnostics: _Optional[str] = ..., tracking_url: _Optional[str] = ..., final_application_status: _Optional[int] = ...) -> None: ...

class FinishApplicationMasterResponse(_message.Message):
    __slots__ = ("is_unregistered",)
    IS_UNREGISTERED_FIELD_NUMBER: _ClassVar[int]
    is_unregistered: bool
    def __init__(self, is_unregistered: _Optional[bool] = ...) -> None: ...

class StartContainerRequest(_message.Message):
    __slots__ = ("container_launch_context", "container_token")
    CONTAINER_LAUNCH_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    container_launch_context: ContainerLaunchContext
    container_token: Token
    def __init__(self, container_launch_context: _Optional[_Union[ContainerLaunchContext, _Mapping]] = ..., container_token: _Optional[_Union[Token, _Mapping]] = ...) -> None: ...

class StartContainersRequest(_message.Message):
    __slots__ = ("start_container_request",)
    START_CONTAINER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    start_container_request: _containers.RepeatedCompositeFieldContainer[StartContainerRequest]
    def __init__(self, start_container_request: _Optional[_Iterable[_Union[StartContainerRequest, _Mapping]]] = ...) -> None: ...

class SerializedException(_message.Message):
    __slots__ = ("message", "class_name")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    message: str
    class_name: str
    def __init__(self, message: _Optional[str] = ..., class_name: _Optional[str] = ...) -> None: ...

class ContainerException(_message.Message):
    __slots__ = ("container_id", "exception")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    container_id: ContainerId
    exception: SerializedException
    def __init__(self, container_id: _Optional[_Union[ContainerId, _Mapping]] = ..., exception: _Optional[_Union[SerializedException, _Mapping]] = ...) -> None: ...

class StartContainersResponse(_message.Message):
    __slots__ = ("succeeded_requests", "failed_requests")
    SUCCEEDED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    succeeded_requests: _containers.RepeatedCompositeFieldContainer[ContainerId]
    failed_requests: _containers.RepeatedCompositeFieldContainer[ContainerException]
    def __init__(self, succeeded_requests: _Optional[_Iterable[_Union[ContainerId, _Mapping]]] = ..., failed_requests: _Optional[_Iterable[_Union[ContainerException, _Mapping]]] = ...) -> None: ...
