"""The newest checkpoint that can be restored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

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
        topology_id: Whose; None: anybody's.
        committed: The ids of those that were committed and are kept, where that is known: other manifests were never
            decided upon. A storage that is not there, as an unmounted directory, is not taken for damage then.
        blocks: As in `check_intact`.

    Raises:
        NotFoundError: there is none at all.
        CheckpointError: there are some, and none can be restored; says why of each.
        UnavailableError, ReadFailedError: the storage cannot be read now. That says nothing about a checkpoint, so no
            older one takes its place.
    """
    if committed and not storage.is_there():
        raise UnavailableError(f"{storage!r} is not there, and has had checkpoints: is it mounted?")
    if committed is None:
        names = [name for name in storage.names(MANIFESTS) if manifest_id(name) is not None]
    else:
        names = [manifest_name(id) for id in sorted(committed)]
    if not names:
        raise NotFoundError(f"there is no checkpoint in {storage!r}")
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
        return manifest, refused
    raise CheckpointError(f"no checkpoint in {storage!r} can be restored: " + "; ".join(map(str, refused)))
