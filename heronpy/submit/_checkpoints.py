"""The checkpoints of a topology, as they are stored: seen and removed from outside, without any of its processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.errors import CheckpointError, HeronError, NotFoundError, StateError, UnavailableError, UsageError
from heronpy.files import remove_empty
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, open_statemgr, records

if TYPE_CHECKING:
    from heronpy.checkpoints import CheckpointStorage

# heronpy.checkpoints is imported in functions: most commands need nothing of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint that has a manifest, or should have one."""

    id: int
    committed: bool
    """Whether it can be restored; if not, it is under way, or was aborted."""
    epoch: int = 0
    """Restore epoch in which it was taken."""
    created_ms: int = 0
    """Since 1970; 0: not known."""
    duration_ms: int = 0
    """0: not known."""
    size: int = 0
    """Bytes of all that it names."""
    added: int = 0
    """Bytes that the one before did not have."""
    components: Mapping[str, int] = field(default_factory=dict)
    """Of each component with state, the bytes of it."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """Of each component with state, how many tasks it had."""
    by_task: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of each component with state, the bytes that each task has written of it, by index."""
    logged: int = 0
    """Bytes that tasks had yet to execute."""
    error: str = ""
    """Why it cannot be restored, as far as was looked at; empty: it can."""


def checkpoints(
    launch: Launch, *, newest: int | None = None, known: Iterable[StoredCheckpoint] = (), verify: bool = False
) -> list[StoredCheckpoint]:
    """The checkpoints of a topology, the newest last.

    Args:
        launch: The topology.
        newest: Only so many.
        known: What an earlier call has returned: manifests do not change, so those that were intact are not read again.
        verify: Read all that the manifests name, which takes as long as to restore it, and check it.

    Raises:
        UsageError: it takes none.
        StateError, UnavailableError: the state manager or the storage cannot be read.
    """
    from heronpy.checkpoints import MANIFESTS, manifest_id, manifest_name, open_storage

    if not launch.checkpoints:
        raise UsageError(
            f"topology {launch.topology} takes no checkpoints: topology.reliability.mode EFFECTIVELY_ONCE would"
        )
    committed = _committed(launch)
    with open_storage(launch.checkpoints) as storage:
        names = {of: name for name in storage.names(MANIFESTS) if (of := manifest_id(name)) is not None}
        gone = committed - names.keys()
        gone = gone and gone & _committed(launch)  # the others were deleted meanwhile, as they are kept no longer
        intact = {one.id: one for one in known if not one.error}
        found = []
        for id in sorted({*names, *gone})[-newest if newest else None :]:
            if id in gone:
                error = f"checkpoint {id} was committed and is gone: there is no {manifest_name(id)}"
                found.append(StoredCheckpoint(id=id, committed=True, error=error))
                continue
            if id in intact:
                found.append(replace(intact[id], committed=id in committed))
                continue
            with contextlib.suppress(NotFoundError):  # deleted meanwhile
                found.append(_stored(storage, names[id], id, committed=id in committed, verify=verify))
    return found


def _committed(launch: Launch) -> frozenset[int]:
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        value = state.get(Kind.STATEFULCHECKPOINTS, launch.topology)
    record = records.checkpoints(launch.topology, value)
    return frozenset(record.committed) if record.topology_id == launch.topology_id else frozenset()


def _stored(storage: CheckpointStorage, name: str, id: int, *, committed: bool, verify: bool) -> StoredCheckpoint:
    from heronpy.checkpoints import check_intact, read_manifest

    try:
        manifest = read_manifest(storage, name)
    except CheckpointError as e:
        return StoredCheckpoint(id=id, committed=committed, error=str(e))
    error = ""
    if verify:
        try:
            check_intact(storage, manifest)
        except CheckpointError as e:
            read_manifest(storage, name)  # deleted meanwhile, with what it names: no damage
            error = str(e)
    by_task = {name: [0] * manifest.components[name].tasks for name in sorted(manifest.components)}
    for ref in manifest.objects:
        sizes = by_task[ref.component]
        sizes += [0] * (ref.index + 1 - len(sizes))  # of a task that there was before the last rescaling
        sizes[ref.index] += ref.size
    return StoredCheckpoint(
        id=id,
        committed=committed,
        epoch=manifest.epoch,
        created_ms=manifest.created_ms,
        duration_ms=manifest.duration_ms,
        size=manifest.size,
        added=manifest.added,
        components={component: sum(sizes) for component, sizes in by_task.items()},
        tasks={component: entry.tasks for component, entry in manifest.components.items()},
        by_task=by_task,
        logged=manifest.logged,
        error=error,
    )


def check_reachable(launch: Launch) -> None:
    """Refuse a topology whose checkpoints would be where they cannot even be listed: it would run without any.

    Raises:
        StateError, UnavailableError: says why.
    """
    if not launch.checkpoints:
        return
    from heronpy.checkpoints import MANIFESTS, open_storage

    try:
        with open_storage(launch.checkpoints) as storage:
            storage.names(MANIFESTS)
    except (StateError, UnavailableError) as e:
        raise type(e)(f"checkpoints cannot be kept where heron.statefulstorage.url says: {e}") from e


def remove_checkpoints(launch: Launch) -> None:
    """Remove all checkpoints of a topology that has ended.

    Raises:
        StateError: some are left; names the place.
    """
    if not launch.checkpoints:
        return
    from heronpy.checkpoints import open_storage

    with open_storage(launch.checkpoints) as storage:
        try:
            storage.clear()
        except HeronError as e:
            raise StateError(
                f"{launch.topology} has ended, but its checkpoints in {storage} are not removed: {e}; remove them by "
                "hand"
            ) from e
    if not launch.config.checkpoints.url:  # they were in HERON_HOME, in directories like that of the topology
        remove_empty(Path(launch.checkpoints).parents[1:4])
