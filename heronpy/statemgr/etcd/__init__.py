"""The state manager in etcd v3. `open_statemgr` opens it; only those import it who use it."""

from heronpy.statemgr.etcd._gateway import Gateway, NoAnswerError, NotSentError, RefusedError
from heronpy.statemgr.etcd._manager import EtcdStateManager

__all__ = ["EtcdStateManager", "Gateway", "NoAnswerError", "NotSentError", "RefusedError"]
