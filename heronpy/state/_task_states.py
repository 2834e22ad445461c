"""All states of one task: declared by the component, restored, and written at checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from heronpy.checkpoints import (
    NOTHING_SAVED,
    RUN_BYTES,
    Header,
    ObjectRef,
    ObjectWriter,
    Saved,
    SavedState,
    object_name,
)
from heronpy.errors import CheckpointError, ConfigError
from heronpy.shown import shown
from heronpy.state._dict_like import UNSET
from heronpy.state._keyed import BoundedKeyedState, KeyedState
from heronpy.state._layers import Clock
from heronpy.state._other_kinds import BroadcastState, ComponentState, Merge, Split, SplitState, TaskState
from heronpy.state._owed import ENTRIES_AT_ONCE
from heronpy.state._place import Place
from heronpy.state._restored import decoded, restored_component, restored_splits, restored_value, try_dividing
from heronpy.state._schema import Kind, Schema
from heronpy.state._tracked import BASE_FRACTION, Tracked

if TYPE_CHECKING:
    from heronpy.state._spill import Memory

SLICE_S: Final = 0.002
"""How long a task may be busy with a checkpoint between two batches."""

BOUNDED_RUN_BYTES: Final = 1 << 20
"""What a task with a bound on its memory puts in order together, of a checkpoint."""
COMPONENT_STATE: Final = "init_state"
"""Under this name an object has the state that `init_state` was given."""

Migrate = Callable[[int, Any], Any]


def wall_clock_ms() -> Callable[[], int]:
    """A clock of milliseconds since 1970 that setting the time does not move: it would have all keys expire at once."""
    offset_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset_ns) // 1_000_000


class TaskStates:
    """The states of one task. Used by its thread.

    The component declares them while it is initialized; each is restored as it is declared. Then the engine calls, for
    each checkpoint: `begin` at the marker, `write` between batches until it returns the object's reference, and
    `commit` or `abort` when it is notified; in between, `release` when there is time.
    """

    def __init__(
        self,
        place: Place,
        saved: Saved = NOTHING_SAVED,
        *,
        clock_ms: Callable[[], int] | None = None,
        entries_at_once: int = ENTRIES_AT_ONCE,
        memory: Memory | None = None,
    ) -> None:
        """Nothing is declared.

        Args:
            place: The task.
            saved: What it is restored from.
            clock_ms: For states with a `ttl_s`; `wall_clock_ms()` without it.
            entries_at_once: How many plain entries are written between two reads of the clock.
            memory: What state by key may take of memory, unless it has `max_keys`; None: all that it needs.

        Raises:
            CheckpointError: it was saved with another number of key groups.
        """
        if saved.groups and saved.groups != place.groups:
            raise CheckpointError(
                f"component {place.component!r}: checkpoint {saved.checkpoint_id} has {saved.groups} key groups, and "
                f"the topology {place.groups}: set topology.state.key.groups to {saved.groups}"
            )
        assert not saved.groups or (saved.index, saved.tasks) == (place.index, place.tasks), "another task's state"
        self.place = place
        self._saved = replace(saved, states={})  # else what was read would stay as long as the task does
        self._unclaimed: dict[str, SavedState] = dict(saved.states)
        self._clock_ms = wall_clock_ms() if clock_ms is None else clock_ms
        self._at_once = entries_at_once
        self._memory = memory
        self._states: dict[str, Tracked] = {}
        self._values: dict[str, TaskState] = {}
        self._divided: set[str] = set()
        """Those of them whose split and merge were tried."""
        self.misgrouped = ""
        """A state by key with one that several tasks would refuse, in words; empty: none is known."""
        self._since = saved.since
        self._must_write = saved.since == 0 or saved.rescaled
        self._writer: ObjectWriter | None = None
        self._writing: list[Tracked] = []
        self.whole = True
        """Whether the last checkpoint that was begun needs nothing that an earlier one has of the task."""
        self._begun: tuple[int, bool] | None = None
        """The checkpoint that is neither committed nor aborted, and whether it is written."""

    # --- What the component declares

    def keyed_state(
        self,
        name: str,
        *,
        default: Any = UNSET,
        ttl_s: float | None = None,
        max_keys: int | None = None,
        codec: str = "pickle",
        version: int = 1,
        migrate: Migrate | None = None,
    ) -> KeyedState:
        """State by key; every input must be grouped by the key.

        Raises:
            ConfigError: the name is taken, or an argument cannot be.
            CheckpointError: it cannot be restored.
        """
        schema = self._schema(name, Kind.KEYED, codec, version, migrate)
        if self._memory is not None and max_keys is None:
            return self._spilled_state(self._memory, schema, default, ttl_s)
        if ttl_s is None and max_keys is None:
            state = KeyedState(schema, self.place, default)
        else:
            state = BoundedKeyedState(
                schema, self.place, default, clock_ms=self._clock_ms, ttl_s=ttl_s, max_keys=max_keys
            )
        if saved := self._claim(schema):
            state.load(*decoded(schema, self.place, saved.take_blocks()))
        self._states[name] = state
        return state

    def _spilled_state(self, memory: Memory, schema: Schema, default: Any, ttl_s: float | None) -> KeyedState:
        from heronpy.state._spilled import SpilledExpiringState, SpilledKeyedState

        state: SpilledKeyedState | SpilledExpiringState
        if ttl_s is None:
            state = SpilledKeyedState(schema, self.place, default, memory)
        else:
            state = SpilledExpiringState(
                schema, self.place, default, memory=memory, clock_ms=self._clock_ms, ttl_s=ttl_s
            )
        if saved := self._claim(schema):
            state.load_blocks(saved.blocks)
        self._states[schema.name] = state
        return state

    def split_state(
        self,
        name: str,
        *,
        index: Callable[[Any], int] | None = None,
        codec: str = "pickle",
        version: int = 1,
        migrate: Migrate | None = None,
    ) -> SplitState:
        """State by split of a source. Raises like `keyed_state`."""
        schema = self._schema(name, Kind.SPLIT, codec, version, migrate)
        state = SplitState(schema, self.place, index)
        if saved := self._claim(schema):
            self._restore(state.entries, restored_splits(schema, self.place, state.owner, saved))
        self._states[name] = state.entries
        return state

    def task_state(
        self,
        name: str,
        *,
        default: Any = UNSET,
        split: Split | None = None,
        merge: Merge | None = None,
        codec: str = "pickle",
        version: int = 1,
        migrate: Migrate | None = None,
    ) -> TaskState:
        """One value of this task. Raises like `keyed_state`, also if it has only one of split and merge."""
        schema = self._schema(name, Kind.TASK, codec, version, migrate)
        state = TaskState(schema, self.place, default, split, merge)
        if saved := self._claim(schema):
            self._restore(state.entries, restored_value(state, schema, self.place, saved))
        self._states[name], self._values[name] = state.entries, state
        return state

    def broadcast_state(
        self,
        name: str,
        *,
        default: Any = UNSET,
        codec: str = "pickle",
        version: int = 1,
        migrate: Migrate | None = None,
    ) -> BroadcastState:
        """State that all tasks have alike. Raises like `keyed_state`."""
        schema = self._schema(name, Kind.BROADCAST, codec, version, migrate)
        state = BroadcastState(schema, self.place, default)
        if saved := self._claim(schema):
            # Its own where it had some; a task that is new takes those of one that was there.
            blocks = saved.by_task[self.place.index % saved.tasks]
            self._restore(state, decoded(schema, self.place, blocks)[0])
        self._states[name] = state
        return state

    def component_state(self) -> ComponentState:
        """The one state of a component that has `init_state`. Raises like `keyed_state`."""
        schema = Schema(COMPONENT_STATE, Kind.TASK)
        state = ComponentState(schema, self.place)
        if saved := self._claim(schema):
            self._restore(state, restored_component(schema, self.place, saved))
        self._states[schema.name] = state
        return state

    def _schema(self, name: str, kind: Kind, codec: str, version: int, migrate: Migrate | None) -> Schema:
        try:
            return Schema(name, kind, codec, version, migrate)
        except ConfigError as e:
            raise ConfigError(f"component {self.place.component!r}, {e}") from None

    def _claim(self, schema: Schema) -> SavedState | None:
        if schema.name in self._states:
            raise ConfigError(f"component {self.place.component!r} declares two states {schema.name!r}")
        saved = self._unclaimed.pop(schema.name, None)
        if saved is not None and saved.kind != schema.kind:
            raise CheckpointError(
                f"component {self.place.component!r}, state {schema.name!r}: the checkpoint has {saved.kind} state of "
                f"this name, and this is {schema.kind}"
            )
        return saved

    def _restore(self, state: Tracked, data: dict[Any, Any]) -> None:
        state.load(data, {})
        if self._saved.rescaled:
            state.touch_all()  # a generation of objects is complete in itself

    @property
    def undivided(self) -> str:
        """A state with a value that another number of tasks cannot restore, in words; empty: there is none."""
        for name, state in self._states.items():
            if not state:
                continue
            if isinstance(state, ComponentState):
                return f"the state of init_state(), for example {shown(next(iter(state)))}"
            if name in self._values and self._values[name].split is None:
                return f"state {name!r}, which has no split and merge"
        return self.misgrouped

    def new_keys_outside(self, group: int) -> Iterator[tuple[str, Any]]:
        """Keys that were new, or not there, since the last call, and are not of a key group; with their states.

        Only the last that was new of each state is looked at.
        """
        for state in self._states.values():
            if isinstance(state, KeyedState):
                key = state.take_checked()
                if key is not UNSET and self.place.group_of(key) != group:
                    yield state.schema.name, key

    @property
    def declared(self) -> list[str]:
        """The names of the states that the component has declared."""
        return sorted(self._states)

    @property
    def unclaimed(self) -> list[str]:
        """The names of what the checkpoint has and the component has not declared."""
        return sorted(self._unclaimed)

    def check_claimed(self, dropped: Collection[str] = ()) -> None:
        """After the component was initialized: refuse to lose a state that it no longer declares.

        Args:
            dropped: Names of those that may be lost.

        Raises:
            CheckpointError: the checkpoint has others.
        """
        if lost := sorted(self._unclaimed.keys() - set(dropped)):
            raise CheckpointError(
                f"component {self.place.component!r}: the checkpoint has state {', '.join(map(repr, lost))}, which the "
                "program does not declare"
            )
        self._unclaimed.clear()

    def relocate(self, place: Place) -> None:
        """The number of tasks has changed, and there are no checkpoints: other keys and splits belong to this task."""
        self.place = place
        for state in self._states.values():
            state.place = place

    def close(self) -> None:
        """It is not used any more: free what it has beside memory."""
        if self._memory is not None:
            self._memory.file.close()

    # --- Checkpoints

    @property
    def pending(self) -> bool:
        """Whether `write` has anything to do."""
        return self._writer is not None

    @property
    def object_name(self) -> str:
        """Of the object that is being written."""
        assert self._writer is not None, "no checkpoint is being written"
        return object_name(self._writer.header)

    def begin(self, checkpoint_id: int, epoch: int) -> bool:
        """The marker has come: what the states are now is what the checkpoint has. O(1) in their size.

        Returns:
            False if nothing has changed, or nothing is declared and nothing was saved: there is no object, and nothing
            to write.
        """
        assert self._writer is None, "the last checkpoint is still being written: abort it first"
        self._begun = (checkpoint_id, False)
        first = self._must_write and (bool(self._states) or self._saved.checkpoint_id != 0)
        states = self._states.values()
        changed = sum(state.changed for state in states)
        base = any(state.needs_base for state in states)
        if not (first or changed or base):
            self.whole = self._since == 0
            return False
        # What has changed would be merged with the rest if it is more than half of that. This is cheaper.
        base = base or self._since == 0 or changed >= BASE_FRACTION * sum(state.unchanged for state in states)
        self.whole = base
        own = self.place.own
        header = Header(
            topology_id=self.place.topology_id,
            component=self.place.component,
            index=self.place.index,
            tasks=self.place.tasks,
            generation=self._saved.generation,
            checkpoint_id=checkpoint_id,
            since=0 if base else self._since,
            epoch=epoch,
            groups=self.place.groups,
            first_group=own.start,
            end_group=own.stop,
            states=tuple(state.schema.entry() for state in self._states.values()),
        )
        self._writer = ObjectWriter(header, run_bytes=RUN_BYTES if self._memory is None else BOUNDED_RUN_BYTES)
        self._writing = list(self._states.values())
        for position, state in enumerate(self._writing):
            state.begin(self._writer, position, base=base, at_once=self._at_once)
        self._writing.reverse()
        return True

    def write(self, budget_s: float = SLICE_S, clock: Clock = perf_counter) -> tuple[list[bytes], ObjectRef | None]:
        """Write a slice of the object; a single value that takes longer than that is not divided.

        Args:
            budget_s: How long it may take by the clock.
            clock: In seconds.

        Returns:
            Pieces of the object, to be sent on in order; and when these are the last, how a manifest names it.

        Raises:
            CheckpointError: a value cannot be saved; names component, state and key. The checkpoint was aborted, and
                the states live on.
        """
        writer = self._writer
        assert writer is not None, "no checkpoint is being written"
        deadline_s = clock() + budget_s
        try:
            for name in self._values.keys() - self._divided:
                if try_dividing(self._values[name], self.place):
                    self._divided.add(name)
            while self._writing:
                if not self._writing[-1].write(deadline_s, clock):
                    return self._taken(), None
                self._writing.pop()
                if clock() >= deadline_s:
                    return self._taken(), None
        except CheckpointError:
            self._abort()
            raise
        if not writer.flush(deadline_s, clock):
            return self._taken(), None
        writer.finish()
        chunks = self._taken()
        self._writer = None
        assert self._begun is not None
        self._begun = (self._begun[0], True)
        return chunks, ObjectRef.of(writer, object_name(writer.header))

    def commit(self, checkpoint_id: int) -> None:
        """A checkpoint was committed, and all before it with it. A repeated or late call changes nothing."""
        if self._begun is None or checkpoint_id < self._begun[0]:
            return  # what is begun covers what was uncommitted then
        begun, written = self._begun
        assert begun == checkpoint_id, f"checkpoint {checkpoint_id} is committed, and {begun} is the last that began"
        for state in self._states.values():
            state.commit()
        if written:
            self._since = checkpoint_id
            self._must_write = False
        self._begun = None

    def abort(self, checkpoint_id: int) -> None:
        """A checkpoint will not be committed: its changes belong to the next. Repeated or late, it changes nothing."""
        if self._begun is not None and self._begun[0] == checkpoint_id:
            self._abort()

    def write_whole(self) -> None:
        """What was committed is lost: the next object needs no older one."""
        self._since, self._must_write = 0, True

    def keep(self, saved: Saved) -> None:
        """The others go back to a checkpoint, and these states stay as they are: the next object has all of them.

        Args:
            saved: What the checkpoint has of this task.
        """
        if self._begun is not None:
            self._abort()
        self._saved = replace(saved, states={})  # what is written belongs to the same generation as theirs
        self.write_whole()

    def saved_component_state(self, saved: Saved) -> dict[Any, Any]:
        """What a checkpoint has of the state of `init_state`, for this task as it is now.

        Raises:
            CheckpointError: it cannot be restored.
        """
        found = saved.states.get(COMPONENT_STATE)
        return {} if found is None else restored_component(Schema(COMPONENT_STATE, Kind.TASK), self.place, found)

    def release(self, budget_s: float = SLICE_S, clock: Clock = perf_counter) -> bool:
        """Free memory that earlier checkpoints needed. Whether none is left."""
        deadline_s = clock() + budget_s
        return all(state.release(deadline_s, clock) for state in self._states.values())

    def check_invariants(self) -> None:
        """What must hold between any two calls."""
        for state in self._states.values():
            state.check_invariants()
        assert self._writer is None or self._begun is not None

    def _abort(self) -> None:
        for state in self._states.values():
            state.abort()
        self._writer, self._writing, self._begun = None, [], None

    def _taken(self) -> list[bytes]:
        assert self._writer is not None
        chunks, self._writer.chunks = self._writer.chunks, []
        return chunks
