"""How a task declares its states: the part of `TopologyContext` that has to do with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.config import state_memory_bytes
from heronpy.errors import TopologyError, UsageError

if TYPE_CHECKING:
    from heronpy.api.state import State
    from heronpy.api.timers import Timers
    from heronpy.checkpoints import Saved
    from heronpy.plan import PhysicalPlan
    from heronpy.state import BroadcastState, KeyedState, Place, SplitState, TaskState, TaskStates

log = logging.getLogger(__name__)


class StateContext:
    """Declares states, in `initialize()`. They live as long as the task does; effectively once, saved ones return.

    Each has a name, a codec (`pickle`; `msgpack`, which gives a list back for a tuple; `arrow` for tables of PyArrow)
    and a version: `migrate(old_version, value)` makes a value of this version of one that an older program saved.
    States belong to the thread that calls the component.
    """

    def __init__(self, plan: PhysicalPlan, task_id: int) -> None:
        self._plan = plan
        self._task_id = task_id
        self._instance = plan.tasks[task_id][1]
        self._states: TaskStates | None = None
        self._saved = False
        """Whether they are saved at checkpoints."""
        self._timers: Timers | None = None
        self._before_snapshot: list[Callable[[], None]] = []
        self._initialized = False

    def keyed_state(
        self,
        name: str,
        *,
        default: Any = ...,
        ttl_s: float | None = None,
        max_keys: int | None = None,
        codec: str = "pickle",
        version: int = 1,
        migrate: Callable[[int, Any], Any] | None = None,
    ) -> KeyedState:
        """State by key, a dict of the keys of this task.

        Every input of the bolt must be grouped by fields, and the key is what they are grouped by: the value of one
        field, or the tuple of several.

        A mutable value may be changed in place by the call of user code that reads it. It is taken for written then, so
        read it again in the next call: what is changed through a reference that was kept is not saved.

        Args:
            name: Of the state.
            default: What a missing key reads as, or a function that makes it; without one it is a KeyError.
            ttl_s: How long a key lives after it was written, also by changing its value in place; of a mutable value
                up to a tenth longer.
            max_keys: How many keys this task keeps: those that were used last.
            codec: As above, and so are version and migrate.
            version: As above.
            migrate: As above.

        Raises:
            TopologyError: an input is not grouped by fields, or there is none.
            ConfigError: the name is taken, or an argument cannot be.
            CheckpointError: what was saved cannot be restored.
        """
        self._check_grouped_by_key(name)
        options = {} if default is ... else {"default": default}
        return self._declaring(name).keyed_state(
            name, ttl_s=ttl_s, max_keys=max_keys, codec=codec, version=version, migrate=migrate, **options
        )

    def split_state(
        self,
        name: str,
        *,
        index: Callable[[Any], int] | None = None,
        codec: str = "pickle",
        version: int = 1,
        migrate: Callable[[int, Any], Any] | None = None,
    ) -> SplitState:
        """Positions of a source by split (a partition, a file), a dict of the splits of this task: ask `owns(split)`.

        Args:
            name: Of the state.
            index: The number of a split, where splits are to be divided among tasks by number instead of by key.
            codec: As of all states, and so are version and migrate.
            version: As of all states.
            migrate: As of all states.

        Raises:
            ConfigError: as of `keyed_state`, and so is CheckpointError.
        """
        return self._declaring(name).split_state(name, index=index, codec=codec, version=version, migrate=migrate)

    def task_state(
        self,
        name: str,
        *,
        default: Any = ...,
        split: Callable[[Any, int], Sequence[Any]] | None = None,
        merge: Callable[[Sequence[Any]], Any] | None = None,
        codec: str = "pickle",
        version: int = 1,
        migrate: Callable[[int, Any], Any] | None = None,
    ) -> TaskState:
        """One value of this task, whatever its inputs are: `state.value`. It may be held, and changed in place.

        Args:
            name: Of the state.
            default: The value before it is set, or a function that makes it.
            split: `split(value, n)`: n values of one, for another number of tasks.
            merge: `merge(values)`: one value of those of all tasks.
            codec: As of all states, and so are version and migrate.
            version: As of all states.
            migrate: As of all states.

        Raises:
            ConfigError: as of `keyed_state`, and so is CheckpointError.
        """
        options = {} if default is ... else {"default": default}
        return self._declaring(name).task_state(
            name, split=split, merge=merge, codec=codec, version=version, migrate=migrate, **options
        )

    def broadcast_state(
        self,
        name: str,
        *,
        default: Any = ...,
        codec: str = "pickle",
        version: int = 1,
        migrate: Callable[[int, Any], Any] | None = None,
    ) -> BroadcastState:
        """State that all tasks have alike, because what changes it comes by an input that is grouped `all`: a dict.

        Another number of tasks is restored from one of them: what only some tasks have is lost then.

        Args:
            name: Of the state.
            default: As of `keyed_state`.
            codec: As of all states, and so are version and migrate.
            version: As of all states.
            migrate: As of all states.

        Raises:
            ConfigError: as of `keyed_state`, and so is CheckpointError.
        """
        self._check_has_broadcast(name)
        options = {} if default is ... else {"default": default}
        return self._declaring(name).broadcast_state(name, codec=codec, version=version, migrate=migrate, **options)

    def before_snapshot(self, save: Callable[[], None]) -> None:
        """Have a function called just before each snapshot of the task, to bring its states up to date.

        For what keeps a part of its state elsewhere because it changes with every tuple. It must not raise.
        """
        self._before_snapshot.append(save)

    @property
    def timers(self) -> Timers:
        """The timers of a bolt that has `on_timer()`; see `heronpy.api.timers`.

        Raises:
            UsageError: it has not, or it is a spout.
        """
        if self._timers is None:
            raise UsageError(f"component {self._instance.component!r} has no timers: a bolt with on_timer() has them")
        return self._timers

    # For the engine

    def declare_timers(self, timers: Timers) -> None:
        """The component has timers."""
        self._timers = timers

    def snapshot_begins(self) -> None:
        """Bring all states up to date."""
        for save in self._before_snapshot:
            save()

    def key_fields(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """By component and stream of an input: the fields that it is grouped by. Empty if one is grouped otherwise."""
        from heronpy.plan import GroupingKind

        inputs = self._plan.logical.components[self._instance.component].inputs
        if any(decl.grouping is not GroupingKind.FIELDS for decl in inputs):
            return {}
        return {(decl.component, decl.stream): decl.fields for decl in inputs}

    def restore_states(self, saved: Saved) -> TaskStates:
        """Have states that are saved, and declared with what a checkpoint has of them. Before anything is declared.

        Raises:
            CheckpointError: it is of another number of key groups.
            ConfigError: it is to go to a file, and the package for that is not installed.
        """
        assert self._states is None, "a state is declared already"
        config = self._plan.logical.config_of(self._instance.component)
        self._states, self._saved = self._make(saved, state_memory_bytes(config)), True
        return self._states

    def component_state(self) -> State:
        """What `init_state` is given."""
        if self._states is None:
            from heronpy.api.state import HashMapState

            return HashMapState()
        state: Any = self._states.component_state()  # it has the methods of State
        return state  # type: ignore[no-any-return]

    def initialized(self) -> None:
        """The component is initialized: it has declared all its states."""
        self._initialized = True

    def _declaring(self, name: str) -> TaskStates:
        if self._initialized:
            raise UsageError(
                f"component {self._instance.component!r} declares state {name!r} too late: do it in initialize()"
            )
        if self._states is None:
            from heronpy.checkpoints import NOTHING_SAVED

            self._states = self._make(NOTHING_SAVED)
            if self._instance.component_index == 0:  # one warning is enough
                log.warning(
                    "component %s keeps state in memory only: it is lost with its process", self._instance.component
                )
        return self._states

    def replan(self, plan: PhysicalPlan) -> None:
        """Take a new plan of the same topology. For the engine."""
        self._plan = plan
        if self._states is not None and not self._saved:  # what is saved is restored for another number of tasks
            self._states.relocate(self._place())

    def _make(self, saved: Saved, memory_bytes: int | None = None) -> TaskStates:
        from heronpy.state import Memory, TaskStates  # by those who have state

        memory = None if memory_bytes is None else Memory(memory_bytes, Path.cwd())
        return TaskStates(self._place(), saved, memory=memory)

    def _place(self) -> Place:
        from heronpy.state import Place

        component, plan = self._instance.component, self._plan
        tasks = plan.component_tasks[component]
        logical = plan.logical
        index = tasks.index(self._task_id)
        return Place(logical.id, component, index, len(tasks), logical.key_groups, logical.lasting_key_groups)

    def _check_has_broadcast(self, name: str) -> None:
        from heronpy.plan import GroupingKind

        component = self._plan.logical.components[self._instance.component]
        if not any(decl.grouping is GroupingKind.ALL for decl in component.inputs):
            kind = "spout" if component.is_spout else "bolt"
            raise TopologyError(
                f"{kind} {component.name!r}, state {name!r}: state that all tasks have alike needs an input that is "
                "grouped ALL, and there is none: what they have apart would be lost with their number; use keyed_state "
                "or task_state"
            )

    def _check_grouped_by_key(self, name: str) -> None:
        from heronpy.plan import GroupingKind

        component = self._plan.logical.components[self._instance.component]
        if component.is_spout:
            raise TopologyError(
                f"spout {component.name!r}, state {name!r}: a spout has no input that is grouped by a key: use "
                "split_state or task_state"
            )
        for decl in component.inputs:
            if decl.grouping is not GroupingKind.FIELDS:
                raise TopologyError(
                    f"bolt {component.name!r}, state {name!r}: state by key needs every input to be grouped by fields, "
                    f"and {decl.component}:{decl.stream} is grouped {decl.grouping.name}: group it by the key, or use "
                    "task_state"
                )
