"""The state that a topology has stored: seen from outside, without any of its processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from heronpy.errors import CheckpointError, NotFoundError, StateError, UsageError
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, StateManager, open_statemgr, records

if TYPE_CHECKING:
    from heronpy.checkpoints import CheckpointStorage, Manifest
    from heronpy.state import StoredEntry

# heronpy.checkpoints and heronpy.state are imported in functions: most commands need nothing of them.

_ATTEMPTS = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StateName:
    """A state in a checkpoint."""

    component: str
    name: str
    kind: str
    """keyed, split, task, broadcast."""
    codec: str
    version: int
    tasks: int
    """Of the component."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """The entries of one state in a checkpoint."""

    checkpoint: int
    kind: str
    entries: Sequence[StoredEntry]


def stored_states(launch: Launch, component: str | None = None) -> tuple[int, list[StateName]]:
    """The states in the newest committed checkpoint, by their names; with its id.

    Args:
        launch: The topology.
        component: Only of this one.

    Raises:
        UsageError: the topology takes no checkpoints.
        NotFoundError: there is no checkpoint, or no such component in it.
        CheckpointError: it is damaged.
        StateError, UnavailableError: the state manager or the storage cannot be read.
    """
    return _read_newest(launch, component, lambda storage, manifest: _states(storage, manifest, component))


def _states(storage: CheckpointStorage, manifest: Manifest, component: str | None) -> list[StateName]:
    from heronpy.checkpoints import open_object

    found: dict[tuple[str, str], StateName] = {}
    for ref in manifest.objects:
        if component in (None, ref.component):
            tasks = manifest.components[ref.component].tasks
            for one in open_object(storage, ref).header.states:
                state = StateName(ref.component, one.name, one.kind.value, one.codec, one.version, tasks)
                found[ref.component, one.name] = state
    return [found[key] for key in sorted(found)]


def stored_state(launch: Launch, component: str, name: str, *, keys: Sequence[Any] | None = None) -> StoredState:
    """The entries of a state in the newest committed checkpoint.

    Args:
        launch: The topology.
        component: Whose state.
        name: Of the state.
        keys: Of state by key, only what is stored together with one of these is read, which has it if it is there.

    What it has of classes of the topology is unpickled when it is asked for, and that runs code that the checkpoint
    names. So a storage in a directory must be the caller's own.

    Raises:
        UntrustedError: others could have written the storage.
        NotFoundError: there is no checkpoint, or nothing of this component or state in it.
        Otherwise as `stored_states`.
    """
    from heronpy.checkpoints import open_object, read_saved
    from heronpy.hashing import key_group
    from heronpy.state import stored_entries

    def read(storage: CheckpointStorage, manifest: Manifest) -> StoredState:
        storage.check_own()
        kind = next((one.kind for one in _states(storage, manifest, component) if one.name == name), None)
        if kind is None:
            known = ", ".join(one.name for one in _states(storage, manifest, component)) or "none"
            raise NotFoundError(
                f"component {component!r} has no state {name!r} in checkpoint {manifest.checkpoint_id}; it has: {known}"
            )
        parts = [(0, 1)]
        if keys is not None and kind == "keyed":  # each group as the only one of a task
            parts = [(group, manifest.groups) for group in sorted({key_group(key, manifest.groups) for key in keys})]
        entries: list[StoredEntry] = []
        for index, tasks in parts:
            saved = read_saved(manifest, component, index, tasks, lambda ref: open_object(storage, ref), only=name)
            if name in saved.states:
                entries += stored_entries(saved.states[name])
        return StoredState(manifest.checkpoint_id, kind, entries)

    return _read_newest(launch, component, read)[1]


def _read_newest(
    launch: Launch, component: str | None, read: Callable[[CheckpointStorage, Manifest], T]
) -> tuple[int, T]:
    """What `read` finds in the newest committed checkpoint, and its id."""
    from heronpy.checkpoints import open_storage

    if not launch.checkpoints:
        raise UsageError(f"topology {launch.topology} takes no checkpoints: there is no state to see")
    with (
        contextlib.closing(open_statemgr(launch.statemgr)) as statemgr,
        open_storage(launch.checkpoints) as storage,
    ):
        for _ in range(_ATTEMPTS):
            newest = _newest(statemgr, launch)
            try:
                manifest = _manifest_of(storage, newest)
                if component is not None and component not in manifest.components:
                    known = ", ".join(sorted(manifest.components)) or "none"
                    raise NotFoundError(f"checkpoint {newest} has no component {component!r}; it has: {known}")
                return newest, read(storage, manifest)
            except (NotFoundError, CheckpointError):
                if _newest(statemgr, launch) == newest:
                    raise
    raise StateError(f"checkpoints of {launch.topology} are deleted faster than they can be read: try again")


def _manifest_of(storage: CheckpointStorage, checkpoint: int) -> Manifest:
    from heronpy.checkpoints import manifest_name, read_manifest

    try:
        return read_manifest(storage, manifest_name(checkpoint))
    except NotFoundError as e:
        raise CheckpointError(f"checkpoint {checkpoint} was committed and is gone: {e}") from e


def _newest(statemgr: StateManager, launch: Launch) -> int:
    record = records.checkpoints(launch.topology, statemgr.get(Kind.STATEFULCHECKPOINTS, launch.topology))
    if record.topology_id != launch.topology_id or not record.committed:
        raise NotFoundError(f"{launch.topology} has no checkpoint yet")
    return record.committed[-1]
