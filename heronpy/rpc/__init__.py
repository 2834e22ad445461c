"""How processes talk: gRPC servers, channels and streams, for those who prove who they are.

Not a part of `heronpy.runtime`, because executors are to stay small and have no gRPC.
"""

from heronpy.rpc._channel import MESSAGE_BYTES_MAX, channel
from heronpy.rpc._listen import CONTROL_BYTES_MAX, Listener, caller_of, incarnation_of, listen
from heronpy.rpc._stream import read_message, wait_connected, write_message
from heronpy.rpc._unix_server import UnixServer

__all__ = [
    "CONTROL_BYTES_MAX",
    "MESSAGE_BYTES_MAX",
    "Listener",
    "UnixServer",
    "caller_of",
    "channel",
    "incarnation_of",
    "listen",
    "read_message",
    "wait_connected",
    "write_message",
]
