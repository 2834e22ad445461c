from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogLevel(_message.Message):
    __slots__ = ("target", "level", "until_ms")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    target: str
    level: str
    until_ms: int
    def __init__(self, target: _Optional[str] = ..., level: _Optional[str] = ..., until_ms: _Optional[int] = ...) -> None: ...

class LogLevels(_message.Message):
    __slots__ = ("levels",)
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedCompositeFieldContainer[LogLevel]
    def __init__(self, levels: _Optional[_Iterable[_Union[LogLevel, _Mapping]]] = ...) -> None: ...
