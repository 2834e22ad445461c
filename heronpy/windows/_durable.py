"""Engines whose windows are in checkpoints.

The state of an engine is a mapping of keys to plain values, as state by key is. What it knows besides is the watermark:
which windows have fired does not show in the values.

Windows without keys are those of a task. Their state is divided by number: the windows of a task that is no more are
finished by another, apart from its own.

At a checkpoint, the watermarks of two tasks may differ. When the number of tasks changes, keys of both meet in one
engine. It goes on with the later watermark; windows of the other that are due until then fire before anything else.

Accumulators cannot be divided anew: other windows than those of the checkpoint would be without what these have, or
never fire. So what the windows are is saved, too, and others are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Protocol

from msgspec.structs import replace

from heronpy.errors import CheckpointError
from heronpy.hashing import index_of_group, key_group
from heronpy.windows._engine import WindowEngine
from heronpy.windows._spans import NEVER

Engine = Callable[[MutableMapping[Any, Any], int], WindowEngine]
"""Makes an engine with a state and a watermark."""


class DeclaresState(Protocol):
    """What is used of `heronpy.api.TopologyContext`."""

    @property
    def keyed_state(self) -> Callable[..., Any]: ...
    @property
    def split_state(self) -> Callable[..., Any]: ...
    @property
    def task_state(self) -> Callable[..., Any]: ...


def check_kept(component: str, saved: str | None, kept: str) -> None:
    """Refuse what other windows have kept.

    Raises:
        CheckpointError: the checkpoint has such; names the component, and both.
    """
    if saved is not None and saved != kept:
        raise CheckpointError(
            f"component {component!r}: the checkpoint has {saved}, and the program {kept}: leave the windows as they "
            "were, or give these another name"
        )


def with_state(make: Engine, states: DeclaresState, name: str, *, keyed: bool, kept: str) -> WindowEngine:
    """An engine with its state in states of a task; see `heronpy.windows.durable_engine`."""
    state: MutableMapping[Any, Any]
    if keyed:
        state = by_key = states.keyed_state(name)
        place = by_key.place
    else:
        splits = states.split_state(name, index=int)
        state, place = _Unkeyed(splits), splits.entries.place

    def owner(key: Any, tasks: int) -> int:
        """Index of the task that has a key, if there are so many."""
        if keyed:
            return index_of_group(key_group(key, place.groups), tasks, place.groups)
        return (place.index if key is None else key) % tasks  # type: ignore[no-any-return]  # a number

    made = states.task_state(
        f"{name}.kept", default=None, merge=_first_known, split=lambda value, tasks: [value] * tasks
    )
    check_kept(place.component, made.value, kept)
    made.value = kept
    saved = states.task_state(f"{name}.watermark", default=NEVER, merge=tuple, split=_for_each)
    formers = saved.value if type(saved.value) is tuple else (saved.value,)
    watermarks = [former if type(former) is int else former[0] for former in formers]
    waiting: list[Any] = [effect for former in formers if type(former) is list for effect in former[1:]]
    overdue = [effect for effect in waiting if owner(effect.key, place.tasks) == place.index]
    watermark = max(watermarks)
    if min(watermarks) < watermark:
        behind: dict[int, dict[Any, Any]] = {}
        for key in list(state):
            if (former := watermarks[owner(key, len(watermarks))]) < watermark:
                behind.setdefault(former, {})[key] = state.pop(key)
        for former, part in behind.items():
            fired: Iterator[Any] = make(part, former).advance(watermark, NEVER)
            overdue += (replace(effect, key=place.index) if effect.key is None else effect for effect in fired)
            state.update(part)
    engine = make(state, watermark)
    engine.keep_watermark(saved, overdue)
    return engine


def _first_known(saved: Iterable[str | None]) -> str | None:
    """Of all tasks, which have the same; an older version has saved none."""
    return next((one for one in saved if one is not None), None)


def _for_each(formers: Any, tasks: int) -> list[Any]:
    """What all former tasks had for every task: its keys decide what it needs of it."""
    return [formers if type(formers) is tuple else (formers,)] * tasks


class _Unkeyed(MutableMapping[Any, Any]):
    """The windows of this task, under None, and those of tasks that are no more, under their numbers."""

    def __init__(self, splits: Any) -> None:
        self._splits = splits
        self._own: int = splits.entries.place.index

    def __getitem__(self, key: Any) -> Any:
        return self._splits[self._own if key is None else key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._splits[self._own if key is None else key] = value

    def __delitem__(self, key: Any) -> None:
        del self._splits[self._own if key is None else key]

    def __iter__(self) -> Iterator[Any]:
        return iter([None if split == self._own else split for split in self._splits])

    def __len__(self) -> int:
        return len(self._splits)


__all__ = ["DeclaresState", "check_kept", "with_state"]
