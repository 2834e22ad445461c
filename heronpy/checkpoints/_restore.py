"""Which objects, and which parts of them, make the state of one task; and reading them.

What is kept by key is divided by key group: a task reads its range of groups out of the objects of all tasks that owned
them, whatever their number was. For each group the newest base that covers it counts, and what is newer than that.

What a task was to have soon may have been read before (`ReadAhead`): then only what is newer is read.

Everything else is complete in the objects of one generation, that is between two changes of the number of tasks: after
such a change every task writes all of it again. So only the newest generation counts; how it is divided among another
number of tasks is for the owner of the state (`heronpy.state`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heronpy.checkpoints._header import Kind
from heronpy.checkpoints._manifest import Manifest, ObjectRef
from heronpy.checkpoints._object import Block, ObjectReader
from heronpy.errors import CheckpointError
from heronpy.hashing import groups_of

Opened = Callable[[ObjectRef], ObjectReader]
"""Opens an object of a manifest."""


@dataclass(frozen=True, slots=True)
class Part:
    """Key groups of an object that are needed of it."""

    ref: ObjectRef
    groups: frozenset[int]


@dataclass(slots=True)
class StoredBlocks:
    """Blocks that were checked, and are read again whenever they are iterated."""

    state: str
    parts: list[tuple[ObjectReader, frozenset[int]]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Block]:
        for reader, groups in self.parts:
            yield from reader.blocks(lambda state: state.kind == Kind.KEYED and state.name == self.state, groups)


@dataclass(slots=True)
class SavedState:
    """What a checkpoint has of one state of one task."""

    name: str
    kind: Kind
    blocks: Iterable[Block] = ()
    """For state by key: to be applied in this order."""
    tasks: int = 1
    """For other kinds: how many tasks had it."""
    by_task: dict[int, list[Block]] = field(default_factory=dict)
    """For other kinds: the blocks of each of those tasks by index, to be applied in this order."""

    def take_blocks(self) -> Iterator[Block]:
        """The blocks, once: each is let go as soon as it was taken."""
        blocks, self.blocks = self.blocks, _Taken()
        if not isinstance(blocks, list):
            yield from blocks
            return
        blocks.reverse()
        while blocks:
            yield blocks.pop()


class _Taken:
    """In the place of blocks that were taken."""

    def __iter__(self) -> Iterator[Block]:
        raise AssertionError("the blocks were taken already: to go on without them would lose state")


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint has of one task."""

    checkpoint_id: int
    """0: nothing; the component is new."""
    generation: int
    """The one that the task writes from now on."""
    since: int
    """What its next changes are relative to."""
    rescaled: bool
    """Whether the number of tasks is another one than at the checkpoint."""
    states: Mapping[str, SavedState]
    index: int = 0
    """The task that it was read for."""
    tasks: int = 0
    groups: int = 0
    """Number of key groups; 0: nothing is saved."""

    def elsewhere(self) -> Saved:
        """The same, as what another topology begins with: what it writes first is a base."""
        return replace(self, generation=0, since=0)


@dataclass(frozen=True, slots=True)
class MergedBlock(Block):
    """All entries of a state, each key once: `merged`, and nothing in `keys` and `values`."""

    merged: dict[Any, Any]
    """Values by key, decoded as far as that could be. The caller owns the block."""
    encoded: dict[Any, None]
    """The keys of the others."""


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """State by key of one task as of a committed checkpoint, read before anybody knew whether it would be needed."""

    checkpoint_id: int
    epoch: int
    """A restore epoch in which that was the newest committed checkpoint."""
    index: int
    tasks: int
    """The task's index, and how many there are: what it was read for."""
    blocks: Mapping[str, MergedBlock]
    """By name of the state."""

    def precedes(self, checkpoint_id: int, epoch: int) -> bool:
        """Whether a checkpoint that was taken in a restore epoch has all that this one has, and what came after it.

        What is committed in one epoch follows one another. Before another epoch an older checkpoint may be restored.
        """
        return checkpoint_id == self.checkpoint_id or (checkpoint_id > self.checkpoint_id and epoch == self.epoch)

    def fits(self, manifest: Manifest, index: int, tasks: int, parts: Iterable[Part]) -> bool:
        """Whether this and the changes since then are what a task restores of a checkpoint that has these parts."""
        newer = (part.ref for part in parts if part.ref.checkpoint_id > self.checkpoint_id)
        return (
            (index, tasks) == (self.index, self.tasks)
            and self.precedes(manifest.checkpoint_id, manifest.epoch)
            and all(ref.since > 0 for ref in newer)  # of a newer base it is not known what it has no more
        )


def reads_on(manifest: Manifest, component: str, index: int, tasks: int, ahead: ReadAhead) -> bool:
    """Whether `read_saved` reads only what is newer than what was read before.

    Raises:
        CheckpointError: a part is missing.
    """
    refs = [ref for ref in manifest.objects if ref.component == component]
    parts = parts_for(refs, groups_of(index, tasks, manifest.groups), manifest.name) if refs else []
    return ahead.fits(manifest, index, tasks, parts)


NOTHING_SAVED = Saved(checkpoint_id=0, generation=0, since=0, rescaled=False, states={})
"""For a task that starts for the first time."""


def order(refs: Iterable[ObjectRef]) -> list[ObjectRef]:
    """Objects in the order in which they are applied. A base of a checkpoint comes after the delta that is in it."""
    return sorted(refs, key=lambda ref: (ref.checkpoint_id, ref.since == 0, ref.index))


def parts_for(refs: Iterable[ObjectRef], groups: range, manifest: str) -> list[Part]:
    """What makes up the state by key of some key groups, in the order in which it is applied.

    Args:
        refs: All objects of one component.
        groups: The wanted key groups.
        manifest: What to call it in errors.

    Raises:
        CheckpointError: for some group there is no base, or a delta between two is missing.
    """
    missing = set(groups)
    after: dict[int, int] = {}  # by group, the checkpoint that the next newer object is relative to
    parts = []
    for ref in reversed(order(refs)):
        wanted = frozenset(missing.intersection(ref.groups))
        if not wanted:
            continue
        broken = next((group for group in wanted if after.get(group, 0) > ref.checkpoint_id), None)
        if broken is not None:
            raise CheckpointError(
                f"{manifest}: component {ref.component!r}, key group {broken}: changes since checkpoint "
                f"{after[broken]} are named, and nothing of that checkpoint"
            )
        after.update(dict.fromkeys(wanted, ref.since))
        parts.append(Part(ref, wanted))
        if ref.since == 0:
            missing -= wanted
    if missing:
        raise CheckpointError(f"{manifest}: there is no base of key group {min(missing)} ({len(missing)} in all)")
    return parts[::-1]


def check_complete(manifest: Manifest) -> None:
    """Check by names alone that a checkpoint has all that its components restore.

    Raises:
        CheckpointError: an object is missing.
    """
    for component, entry in manifest.components.items():
        refs = [ref for ref in manifest.objects if ref.component == component]
        parts_for(refs, range(manifest.groups), manifest.name)
        own = {ref.index for ref in refs if ref.generation == entry.generation}
        for task in range(entry.tasks):
            if task not in own:
                raise _missing(manifest, component, task)


def read_saved(
    manifest: Manifest,
    component: str,
    index: int,
    tasks: int,
    opened: Opened,
    *,
    only: str | None = None,
    kept: bool = True,
    ahead: ReadAhead | None = None,
) -> Saved:
    """What a checkpoint has for task `index` of `tasks`, whatever the number of tasks was that wrote it.

    Args:
        manifest: Of the checkpoint.
        component: The task's component.
        index: Of the task in it.
        tasks: How many the component has now.
        opened: Opens an object; the header is checked against the manifest here.
        only: The name of a state; others are not read.
        kept: Whether blocks of state by key are kept in memory; else they are checked, and read again when needed.
        ahead: What was read before; used if it fits.

    Raises:
        CheckpointError: a part is missing, damaged or another object's; or the tasks are more than the key groups.
    """
    entry = manifest.components.get(component)
    if entry is None:
        return NOTHING_SAVED
    if not 0 <= index < tasks <= manifest.groups:
        raise CheckpointError(f"{manifest.name} has {manifest.groups} key groups, and this is task {index} of {tasks}")
    refs = order(ref for ref in manifest.objects if ref.component == component)
    readers: dict[str, ObjectReader] = {}

    def reader(ref: ObjectRef) -> ObjectReader:
        if ref.name not in readers:
            readers[ref.name] = opened(ref)
            manifest.check(ref, readers[ref.name])
        return readers[ref.name]

    parts = parts_for(refs, groups_of(index, tasks, manifest.groups), manifest.name)
    states: dict[str, SavedState] = {}
    if ahead is not None and not (kept and ahead.fits(manifest, index, tasks, parts)):
        ahead = None
    if ahead is not None:
        states = {name: SavedState(name, Kind.KEYED, [block]) for name, block in ahead.blocks.items()}
    for part in parts:
        read = ahead.blocks if ahead is not None and part.ref.checkpoint_id <= ahead.checkpoint_id else {}
        _add_keyed(states, reader(part.ref), part.groups, only, kept, read)
    rescaled = tasks != entry.tasks
    for task in range(entry.tasks) if rescaled else (index,):
        own = [ref for ref in refs if (ref.generation, ref.index) == (entry.generation, task)]
        if not own:
            raise _missing(manifest, component, task)
        bases = [at for at, ref in enumerate(own) if ref.since == 0]
        for ref in own[bases[-1] if bases else 0 :]:
            _add_otherwise(states, reader(ref), task, entry.tasks, only)
    newest: dict[int, int] = {}
    for part in parts:
        newest.update(dict.fromkeys(part.groups, part.ref.checkpoint_id))
    return Saved(
        checkpoint_id=manifest.checkpoint_id,
        generation=manifest.checkpoint_id if rescaled else entry.generation,
        since=min(newest.values()),
        rescaled=rescaled,
        states=states,
        index=index,
        tasks=tasks,
        groups=manifest.groups,
    )


def _missing(manifest: Manifest, component: str, task: int) -> CheckpointError:
    tasks = manifest.components[component].tasks
    return CheckpointError(f"{manifest.name}: no object of {component!r}, task {task} of {tasks}, is named")


def _add_keyed(
    states: dict[str, SavedState],
    reader: ObjectReader,
    groups: frozenset[int],
    only: str | None,
    kept: bool,
    read: Collection[str],
) -> None:
    """Add the blocks of some key groups, except of states that were read."""
    wanted = {
        state
        for state in reader.header.states
        if state.kind == Kind.KEYED and only in (None, state.name) and state.name not in read
    }
    for entry in wanted:
        blocks: Iterable[Block] = [] if kept else StoredBlocks(entry.name)
        found = states.setdefault(entry.name, SavedState(entry.name, entry.kind, blocks)).blocks
        if isinstance(found, StoredBlocks):
            found.parts.append((reader, groups))
    if not kept:
        reader.check(wanted.__contains__, groups)
        return
    for block in reader.blocks(wanted.__contains__, groups):
        of_state = states[block.state.name].blocks
        assert isinstance(of_state, list)
        of_state.append(block)


def _add_otherwise(
    states: dict[str, SavedState], reader: ObjectReader, task: int, tasks: int, only: str | None
) -> None:
    """Add the blocks of one of the tasks that is not divided by key."""
    wanted = {state for state in reader.header.states if state.kind != Kind.KEYED and only in (None, state.name)}
    for entry in wanted:
        saved = states.setdefault(entry.name, SavedState(entry.name, entry.kind, tasks=tasks))
        if saved.kind != entry.kind:
            raise CheckpointError(
                f"checkpoint object {reader.name}: its state {entry.name!r} is of another kind elsewhere"
            )
        saved.by_task.setdefault(task, [])
    for block in reader.blocks(wanted.__contains__):
        states[block.state.name].by_task[task].append(block)
