from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RestartRequest(_message.Message):
    __slots__ = ("container",)
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    container: int
    def __init__(self, container: _Optional[int] = ...) -> None: ...

class SchedulerRequest(_message.Message):
    __slots__ = ("keep_state",)
    KEEP_STATE_FIELD_NUMBER: _ClassVar[int]
    keep_state: bool
    def __init__(self, keep_state: _Optional[bool] = ...) -> None: ...

class SchedulerReply(_message.Message):
    __slots__ = ("job_links",)
    JOB_LINKS_FIELD_NUMBER: _ClassVar[int]
    job_links: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_links: _Optional[_Iterable[str]] = ...) -> None: ...
