"""What every process shares: how it starts and ends, where its files are, and how it talks."""

from heronpy.runtime._diagnosis import memory_path, stack_path
from heronpy.runtime._launch import Launch, StatemgrSpec
from heronpy.runtime._log_levels import ENGINE, LEVELS, LevelSwitch, level_for
from heronpy.runtime._logging import log_to, rotate
from heronpy.runtime._process import PARENT_ENV, Service, die_with_parent, essential, main, running
from heronpy.runtime._rpc import (
    ID_KEY,
    MESSAGE_BYTES_MAX,
    TOKEN_KEY,
    TokenInterceptor,
    channel,
    metadata,
    server,
)
from heronpy.runtime._stream import StreamLost, read_message, until_one_ends, wait_connected, write_message

__all__ = [
    "ENGINE",
    "ID_KEY",
    "LEVELS",
    "MESSAGE_BYTES_MAX",
    "PARENT_ENV",
    "TOKEN_KEY",
    "Launch",
    "LevelSwitch",
    "Service",
    "StatemgrSpec",
    "StreamLost",
    "TokenInterceptor",
    "channel",
    "die_with_parent",
    "essential",
    "level_for",
    "log_to",
    "main",
    "memory_path",
    "metadata",
    "read_message",
    "rotate",
    "running",
    "server",
    "stack_path",
    "until_one_ends",
    "wait_connected",
    "write_message",
]
