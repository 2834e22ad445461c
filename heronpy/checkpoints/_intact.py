"""The newest checkpoint that can be restored."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from heronpy.checkpoints._log import LogRef, decode_log
from heronpy.checkpoints._manifest import MANIFEST_BYTES_MAX, Manifest, ObjectRef
from heronpy.checkpoints._names import MANIFESTS, manifest_id, manifest_name
from heronpy.checkpoints._object import ObjectReader
from heronpy.checkpoints._restore import check_complete
from heronpy.checkpoints._storage import CheckpointStorage, StoredObject
from heronpy.errors import CheckpointError, NotFoundError, UnavailableError


@dataclass(frozen=True, slots=True)
class Refused:
    """A checkpoint that cannot be restored."""

    manifest: str
    """Its name."""
    why: str
    """One line."""
    logged_tasks: Mapping[str, int] = field(default_factory=dict)
    """If its logs are the only reason: how many tasks the components that have some must have for it."""

    def __str__(self) -> str:
        return f"{self.manifest} is not restored: {self.why}"


def read_manifest(storage: CheckpointStorage, name: str) -> Manifest:
    """Read and check a manifest, not its objects.

    Raises:
        NotFoundError: there is none of this name.
        CheckpointError: it is damaged.
    """
    size = storage.size(name)
    if size > MANIFEST_BYTES_MAX:
        raise CheckpointError(f"{name}: it has {size} bytes, and {MANIFEST_BYTES_MAX} are allowed")
    return Manifest.decode(storage.read(name), name)


def open_object(storage: CheckpointStorage, ref: ObjectRef) -> ObjectReader:
    """Open an object that a manifest names.

    Raises:
        CheckpointError: it is missing, of another size, or damaged.
    """
    return ObjectReader(check_stored(storage, ref))


def check_stored(storage: CheckpointStorage, ref: ObjectRef | LogRef) -> StoredObject:
    """Find an object or a log that a manifest names, without reading it.

    Raises:
        CheckpointError: it is missing, or of another size.
    """
    try:
        source = StoredObject.find(storage, ref.name)
    except NotFoundError as e:
        raise CheckpointError(f"checkpoint object {ref.name}: it is missing") from e
    if source.size != ref.size:
        raise CheckpointError(f"checkpoint object {ref.name}: it has {source.size} bytes, not {ref.size}: truncated?")
    return source


def check_intact(storage: CheckpointStorage, manifest: Manifest, *, blocks: bool = True) -> None:
    """Check that a checkpoint can be restored.

    Args:
        storage: Where it is.
        manifest: Of the checkpoint.
        blocks: Whether to read everything. Without it only the ends of the objects are read: what is torn, truncated,
            missing or another object is found, and flipped bits are not, before they are restored.

    Raises:
        CheckpointError: why not.
    """
    check_complete(manifest)
    for ref in manifest.objects:
        reader = open_object(storage, ref)
        manifest.check(ref, reader)
        if blocks:
            reader.verify()
    for log in manifest.logs:
        source = check_stored(storage, log)
        if blocks:
            decode_log(source.read(0, log.size), log, manifest.topology_id)


def newest_intact(
    storage: CheckpointStorage,
    *,
    topology_id: str | None = None,
    committed: Collection[int] | None = None,
    blocks: bool = True,
) -> tuple[Manifest, Sequence[Refused]]:
    """The newest checkpoint that can be restored, and why each newer one cannot. Say the latter loudly.

    Args:
        storage: Where they are.
        topology_id: As in `find_intact`.
        committed: As in `find_intact`.
        blocks: As in `check_intact`.

    Raises:
        NotFoundError: there is none at all.
        CheckpointError: there are some, and none can be restored; says why of each.
        UnavailableError, ReadFailedError: as `find_intact`.
    """
    manifest, refused = find_intact(storage, topology_id=topology_id, committed=committed, blocks=blocks)
    if manifest is not None:
        return manifest, refused
    if not refused:
        raise NotFoundError(f"there is no checkpoint in {storage}")
    raise CheckpointError(f"no checkpoint in {storage} can be restored: " + "; ".join(map(str, refused)))


def find_intact(
    storage: CheckpointStorage,
    *,
    topology_id: str | None = None,
    committed: Collection[int] | None = None,
    tasks: Mapping[str, int] | None = None,
    blocks: bool = True,
) -> tuple[Manifest | None, Sequence[Refused]]:
    """The newest checkpoint that can be restored, if there is one, and why each newer one cannot.

    Args:
        storage: Where they are.
        topology_id: Whose; None: anybody's.
        committed: The ids of those that were committed and are kept, where that is known: other manifests were never
            decided upon. A storage that is not there, as an unmounted directory, is not taken for damage then.
        tasks: How many each component will have: one with logs for another number is refused. None: any will do.
        blocks: As in `check_intact`.

    Raises:
        UnavailableError, ReadFailedError: the storage cannot be read now. That says nothing about a checkpoint, so no
            older one takes its place.
    """
    if committed and not storage.is_there():
        raise UnavailableError(f"{storage} is not there, and has had checkpoints: is it mounted?")
    if committed is None:
        names = [name for name in storage.names(MANIFESTS) if manifest_id(name) is not None]
    else:
        names = [manifest_name(id) for id in sorted(committed)]
    refused: list[Refused] = []
    for name in reversed(names):
        try:
            manifest = read_manifest(storage, name)
            if topology_id is not None and manifest.topology_id != topology_id:
                raise CheckpointError(f"{name}: it is of topology {manifest.topology_id}, not of {topology_id}")
            check_intact(storage, manifest, blocks=blocks)
        except (CheckpointError, NotFoundError) as e:
            refused.append(Refused(name, str(e)))
            continue
        if tasks is not None and (why := _logged_otherwise(manifest, tasks)):
            refused.append(Refused(name, why, {log.component: log.tasks for log in manifest.logs}))
            continue
        return manifest, refused
    return None, refused


def _logged_otherwise(manifest: Manifest, tasks: Mapping[str, int]) -> str:
    """Which logged batches are divided among another number of tasks; empty: none are."""
    logged = {log.component: log.tasks for log in manifest.logs}
    return ", ".join(
        f"it has batches in flight for {number} tasks of {component!r}, not for {tasks.get(component, 'any number')}"
        for component, number in sorted(logged.items())
        if tasks.get(component) != number
    )
