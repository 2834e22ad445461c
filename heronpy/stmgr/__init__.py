"""The Stream Manager: routes batches between instances and peers. `python -m heronpy.stmgr --dir D --container N`.

`Stmgr` is the process. `StmgrCore` decides everything in it, from what is in `events`, and can be run by a simulator;
its parts are here to be tested alone.
"""

from heronpy.stmgr import events, flow
from heronpy.stmgr._core import StmgrCore
from heronpy.stmgr._culprits import Culprits
from heronpy.stmgr._feedback import FeedbackQueue
from heronpy.stmgr._in_flight import InFlightBound, frame_bytes
from heronpy.stmgr._metrics import TO_WORKERS, to_stmgr
from heronpy.stmgr._outbox import Outbox
from heronpy.stmgr._plans import SAVED_PLAN_WAIT_S, PlanIntake, peers_to_dial
from heronpy.stmgr._stmgr import Stmgr

__all__ = [
    "SAVED_PLAN_WAIT_S",
    "TO_WORKERS",
    "Culprits",
    "FeedbackQueue",
    "InFlightBound",
    "Outbox",
    "PlanIntake",
    "Stmgr",
    "StmgrCore",
    "events",
    "flow",
    "frame_bytes",
    "peers_to_dial",
    "to_stmgr",
]
