"""What every process shares: how it starts and ends, where its files are, and how it talks."""

from heronpy.runtime._diagnosis import memory_path, stack_path
from heronpy.runtime._launch import Launch, StatemgrSpec
from heronpy.runtime._process import PARENT_ENV, Service, die_with_parent, log_to, main, running
from heronpy.runtime._rpc import (
    ID_KEY,
    MESSAGE_BYTES_MAX,
    TOKEN_KEY,
    TokenInterceptor,
    channel,
    metadata,
    server,
)
from heronpy.runtime._stream import StreamLost, raise_if_cancelled, read_message, wait_connected, write_message

__all__ = [
    "ID_KEY",
    "MESSAGE_BYTES_MAX",
    "PARENT_ENV",
    "TOKEN_KEY",
    "Launch",
    "Service",
    "StatemgrSpec",
    "StreamLost",
    "TokenInterceptor",
    "channel",
    "die_with_parent",
    "log_to",
    "main",
    "memory_path",
    "metadata",
    "raise_if_cancelled",
    "read_message",
    "running",
    "server",
    "stack_path",
    "wait_connected",
    "write_message",
]
