"""What a checkpoint has of one state, divided into parts that can be read apart: by ranges of key groups."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heronpy.checkpoints import (
    CheckpointStorage,
    Kind,
    Manifest,
    check_complete,
    manifest_name,
    newest_intact,
    open_object,
    open_storage,
    read_manifest,
    read_saved,
)
from heronpy.errors import CheckpointError, NotFoundError, UsageError
from heronpy.redaction import redacted
from heronpy.state import StoredEntry, Undecoded, stored_entries

PART_BYTES = 32 * 1024 * 1024
"""About so many bytes of a component's objects are read at once; in memory they are several times as many."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatePart:
    """The entries of a state in some key groups; all of them, if it is not kept by key."""

    url: str
    checkpoint: int
    component: str
    state: str
    kind: Kind
    index: int
    parts: int

    def value(self, entry: StoredEntry) -> Any:
        """The value of an entry; of a split that is its position, and None if it is finished.

        Raises:
            CheckpointError: it cannot be decoded here.
        """
        value = entry.value
        if isinstance(value, Undecoded):
            raise CheckpointError(
                f"component {self.component!r}, state {self.state!r}: the value of key {str(entry.key)[:80]!r} cannot "
                f"be decoded: {value.why}"
            )
        if self.kind == Kind.SPLIT:
            return value[0] if value else None
        return value

    def entries(self) -> Iterator[StoredEntry]:
        """Read them. They are in memory together.

        Unpickling runs code that the checkpoint names: only for what the caller's own topologies have stored.

        Raises:
            NotFoundError: the checkpoint is kept no longer.
            CheckpointError: it is damaged.
            UntrustedError: others could have written to the storage.
            StateError, UnavailableError: the storage cannot be read.
        """
        with open_storage(self.url) as storage:
            storage.check_own()
            manifest = read_manifest(storage, manifest_name(self.checkpoint))
            saved = read_saved(
                manifest,
                self.component,
                self.index,
                self.parts,
                lambda ref: open_object(storage, ref),
                only=self.state,
            )
            found = saved.states.get(self.state)
            if found is not None:
                yield from stored_entries(found)


def state_parts(
    url: str, component: str, state: str, *, checkpoint: int | None = None, parts: int | None = None
) -> list[StatePart]:
    """Divide a state of a checkpoint.

    Args:
        url: A storage, for `heronpy.checkpoints.open_storage`.
        component: Whose state.
        state: Its name.
        checkpoint: Its id; None: the newest that is intact.
        parts: How many; None: by size, and at least as many as there were tasks.

    Raises:
        NotFoundError: there is no such checkpoint, component or state.
        UsageError: there are less key groups than parts.
        CheckpointError: the checkpoint cannot be restored.
        StateError, UnavailableError: the storage cannot be read.
    """
    with open_storage(url) as storage:
        manifest = _manifest(storage, checkpoint)
        where = f"checkpoint {manifest.checkpoint_id} in {redacted(url)}"
        if component not in manifest.components:
            known = ", ".join(sorted(manifest.components)) or "none"
            raise NotFoundError(f"{where} has no component {component!r}; it has: {known}")
        kinds = _kinds(storage, manifest, component)
    if state not in kinds:
        known = ", ".join(sorted(kinds)) or "none"
        raise NotFoundError(f"component {component!r} has no state {state!r} in {where}; it has: {known}")
    if manifest.logs:
        log.warning("%s: tasks had yet to execute %d bytes of tuples, which are in no state", where, manifest.logged)
    if parts is not None and not 1 <= parts <= manifest.groups:
        raise UsageError(f"{where} has {manifest.groups} key groups, and cannot be divided into {parts} parts")
    if kinds[state] != Kind.KEYED:
        parts = 1
    if parts is None:
        size = sum(ref.size for ref in manifest.objects if ref.component == component)
        parts = min(manifest.groups, max(manifest.components[component].tasks, -(-size // PART_BYTES)))
    return [
        StatePart(url, manifest.checkpoint_id, component, state, kinds[state], index, parts) for index in range(parts)
    ]


def _manifest(storage: CheckpointStorage, checkpoint: int | None) -> Manifest:
    if checkpoint is None:
        manifest, refused = newest_intact(storage, blocks=False)
        for each in refused:
            log.warning("%s", each)
        return manifest
    manifest = read_manifest(storage, manifest_name(checkpoint))
    check_complete(manifest)
    return manifest


def _kinds(storage: CheckpointStorage, manifest: Manifest, component: str) -> dict[str, Kind]:
    refs = [ref for ref in manifest.objects if ref.component == component]
    return {state.name: state.kind for ref in refs for state in open_object(storage, ref).header.states}
