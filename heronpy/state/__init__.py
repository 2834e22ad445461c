"""The state of a task: dicts that are saved at checkpoints, and divided again when the number of tasks changes.

    states = TaskStates(Place("wordcount-1", "count", index=0, tasks=4), saved)
    counts = states.keyed_state("counts", default=0)     # behaves as a dict of this task's keys
    counts["heron"] += 1

| kind | for | when the number of tasks changes |
|---|---|---|
| `KeyedState` | inputs grouped by the key | each key goes to the task that gets its tuples |
| `SplitState` | positions of a source, by partition or file | each split goes to its task |
| `TaskState` | anything else: one value | merged by the user's `merge`, divided by `split` |
| `BroadcastState` | inputs grouped `all` | every task has it |
| `ComponentState` | Heron's `init_state` | it cannot change |

State by key may be larger than memory: with a `Memory`, what is committed and does not fit goes to a file.

The contract with the engine, see `TaskStates`: `begin` at the marker is O(1) in the size of the state; `write`, called
between batches, writes in slices of 2 ms what has changed since the last *committed* checkpoint, with the values of
the marker, while the task goes on; an aborted checkpoint gives its changes back. A value that cannot be saved fails the
checkpoint, named by component, state and key, and never the tuple at hand.

The contract with user code: a mutable value that was read may be changed until the call of user code ends in which it
was read. Code that keeps it for longer must read it again before changing it; else the change may be missing in the
next checkpoint, or be in one that is being written. States belong to the task's thread.

`write` makes objects in the format of `heronpy.checkpoints`, which also finds what task i of m restores. Knows no
threads, asyncio, gRPC or processes.
"""

from heronpy.state._keyed import BoundedKeyedState, KeyedState
from heronpy.state._other_kinds import BroadcastState, ComponentState, SplitState, TaskState
from heronpy.state._place import Place
from heronpy.state._read_ahead import ReadEntries, read_entries
from heronpy.state._schema import Schema
from heronpy.state._spill import Memory
from heronpy.state._stored import StoredEntry, Undecoded, stored_entries
from heronpy.state._task_states import SLICE_S, TaskStates

__all__ = [
    "SLICE_S",
    "BoundedKeyedState",
    "BroadcastState",
    "ComponentState",
    "KeyedState",
    "Memory",
    "Place",
    "ReadEntries",
    "Schema",
    "SplitState",
    "StoredEntry",
    "TaskState",
    "TaskStates",
    "Undecoded",
    "read_entries",
    "stored_entries",
]
