"""A simulated cluster that runs the real cores of Stream Managers, Topology Masters and instances, from a seed.

Time, links, the state manager and deaths are simulated; what is decided is decided by the code that runs in a cluster.
The same seed and the same faults give the same run, step by step. A campaign draws a setup and faults from each seed:

    python -m heronpy.testing.simulation --seeds 1000

A run that breaks a promise (`Broken`, or an invariant of a core) is made smaller, and printed as a test:

    def test_data_flows_after_a_restore_while_the_topology_master_is_dead():
        run(4711, [(2.0, Restore()), (2.1, Kill("tmaster-0", 8.0))])

What is promised: every number that a spout emits is acked in the end, and acked only after everything made of it has
arrived; between two tasks order is kept, across streams, and nothing is executed twice under one id; backpressure ends
when all is done; acks come again soon after the last fault on the path of the data; a plan version has one content; a
Topology Master writes in its own term only; no tuple is executed in another restore epoch than the one that it was
emitted in.

With `at_least_once=True` (`--at-least-once`) there are checkpoints, too, and spouts that emit again what is not acked.
Promised are then that everything is acked in the end; that what was acked is in all that is committed from then on; and
that what is committed, and what is there in the end, is what some numbers make, each as often as it was executed first.

With `checkpoints=True` (`--checkpoints`) the topology is effectively once, and instances are stand-ins with the real
alignment, which count what they execute. Promised are then exact counts: those of every committed checkpoint and those
in the end are what a run without faults has after as many numbers. A restore takes what was committed last, or the
newest that is intact where checkpoints were damaged; what was asked for as a savepoint has no logs.
"""

from heronpy.testing.simulation._campaign import failure_of, run, schedule_of, test_of
from heronpy.testing.simulation._cluster import Cluster
from heronpy.testing.simulation._faults import (
    Break,
    Cut,
    Damage,
    Detach,
    Expire,
    Fault,
    Kill,
    Pause,
    Replace,
    Restore,
    Save,
    Scale,
    Schedule,
    StateAway,
    StateEmptied,
    Stop,
    StorageAway,
    shrunk,
)
from heronpy.testing.simulation._loop import Loop, Process
from heronpy.testing.simulation._network import End, Network
from heronpy.testing.simulation._programs import CYCLE, JOIN, LINE, Broken, Ledger
from heronpy.testing.simulation._setup import Setup
from heronpy.testing.simulation._state_store import MemoryStateManager, MemoryStore

__all__ = [
    "CYCLE",
    "JOIN",
    "LINE",
    "Break",
    "Broken",
    "Cluster",
    "Cut",
    "Damage",
    "Detach",
    "End",
    "Expire",
    "Fault",
    "Kill",
    "Ledger",
    "Loop",
    "MemoryStateManager",
    "MemoryStore",
    "Network",
    "Pause",
    "Process",
    "Replace",
    "Restore",
    "Save",
    "Scale",
    "Schedule",
    "Setup",
    "StateAway",
    "StateEmptied",
    "Stop",
    "StorageAway",
    "failure_of",
    "run",
    "schedule_of",
    "shrunk",
    "test_of",
]
