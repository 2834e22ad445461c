"""Checkpoints that are kept apart from a topology, and topologies that begin with one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from heronpy.config import ALLOW_DROPPED_STATE, MIB, START_CLEAN, is_set, takes_checkpoints
from heronpy.errors import AlreadyExistsError, ConfigError, NotFoundError, StateError, UsageError
from heronpy.files import user_path
from heronpy.plan import LogicalPlan, StateOwner, state_owners
from heronpy.redaction import redacted
from heronpy.runtime import Launch
from heronpy.submit._control import CHECKPOINT_TIMEOUT_S, take_checkpoint
from heronpy.submit._state_owners import misplaced

if TYPE_CHECKING:
    from heronpy.checkpoints import CheckpointStorage, Manifest

# heronpy.checkpoints is imported in functions: most commands need nothing of it.

log = logging.getLogger(__name__)

_PIECE_BYTES: Final = 4 * MIB
_ATTEMPTS: Final = 3


def storage_url(text: str) -> str:
    """The URL of a storage that a user has named; a path may be relative.

    Raises:
        UsageError: it is empty, as an unset variable of a shell is: that must not mean no checkpoint.
    """
    if not text:
        raise UsageError("the place of a checkpoint is empty: name a URL or a path")
    return text if "://" in text else str(user_path(text).absolute())


def save_checkpoint(launch: Launch, url: str, *, timeout_s: float = CHECKPOINT_TIMEOUT_S) -> int:
    """Take a checkpoint and copy it to another storage, where it stays whatever becomes of the topology.

    Args:
        launch: The topology.
        url: An empty storage, for `heronpy.checkpoints.open_storage`.
        timeout_s: For how long a checkpoint is tried; the copy may take longer.

    Returns:
        The checkpoint's id.

    Raises:
        AlreadyExistsError: there are checkpoints in that storage.
        StateError: there was no checkpoint in time, or it cannot be copied.
        UnavailableError: the Topology Master or a storage does not answer.
    """
    from heronpy.checkpoints import MANIFESTS, check_intact, manifest_name, open_storage, read_manifest

    with open_storage(launch.checkpoints) as source, open_storage(url) as target:
        if target.names(MANIFESTS):
            raise AlreadyExistsError(f"{redacted(url)} has checkpoints: choose an empty place")
        for _ in range(_ATTEMPTS):
            checkpoint = take_checkpoint(launch, divisible=True, timeout_s=timeout_s)
            try:
                manifest = read_manifest(source, manifest_name(checkpoint))
                for ref in manifest.objects:
                    target.put(ref.name, _pieces(source, ref.name, ref.size))
            except NotFoundError as e:
                log.info("checkpoint %d is kept no longer: %s", checkpoint, e)
                continue
            target.create(manifest.name, manifest.encode())
            check_intact(target, manifest)
            return checkpoint
    raise StateError(
        f"checkpoints of {launch.topology} are deleted faster than they can be copied: "
        "set heron.statefulstorage.max.checkpoints to more"
    )


def _pieces(storage: CheckpointStorage, name: str, size: int) -> Iterator[bytes]:
    for offset in range(0, size, _PIECE_BYTES):
        yield storage.read(name, offset, min(_PIECE_BYTES, size - offset))


def starting_checkpoint(logical: LogicalPlan, url: str) -> int:
    """The newest checkpoint of a storage, if a topology can begin with it.

    Raises:
        ConfigError: it cannot: it takes no checkpoints itself, or component, state or key groups do not fit.
        CheckpointError: no checkpoint there can be restored.
        NotFoundError: there is none.
        StateError, UnavailableError: the storage cannot be read.
    """
    from heronpy.checkpoints import newest_intact, open_storage

    where = redacted(url)
    if not takes_checkpoints(logical.config):
        raise ConfigError(
            f"{logical.name} keeps no state in checkpoints, and is to begin with {where}: set "
            "topology.reliability.mode to EFFECTIVELY_ONCE"
        )
    if is_set(logical.config, START_CLEAN):
        raise ConfigError(f"{logical.name} is to begin with {where}, and {START_CLEAN} says without state")
    with open_storage(url) as storage:
        manifest, refused = newest_intact(storage, blocks=False)
        for each in refused:
            log.warning("%s", each)
        _check_fits(storage, manifest, logical, f"{where}, checkpoint {manifest.checkpoint_id}")
    return manifest.checkpoint_id


def _check_fits(storage: CheckpointStorage, manifest: Manifest, logical: LogicalPlan, where: str) -> None:
    if manifest.logs:
        raise ConfigError(
            f"{where}: it has tuples in flight, which are for tasks of that topology: take one with "
            "`heron checkpoint NAME --to URL`, or end the topology with `heron kill --keep-state`"
        )
    if manifest.components and manifest.groups != logical.key_groups:
        raise ConfigError(
            f"{where}: it has {manifest.groups} key groups, and {logical.name} {logical.key_groups}: set "
            f"topology.state.key.groups to {manifest.groups}"
        )
    for name in manifest.components:
        component = logical.components.get(name)
        if component is not None and component.parallelism > manifest.groups:
            raise ConfigError(f"{where}: component {name!r} has more tasks than the {manifest.groups} key groups")
        if component is None and (states := _states(storage, manifest, name)):
            named = f"{where}: component {name!r} has state {', '.join(map(repr, states))}"
            if not is_set(logical.config, ALLOW_DROPPED_STATE):
                raise ConfigError(
                    f"{named}, and {logical.name} no such component: --allow-dropped-state leaves it behind"
                )
            log.warning("%s, which is dropped", named)
    _check_owners(manifest, logical, where)


def _check_owners(manifest: Manifest, logical: LogicalPlan, where: str) -> None:
    """Refuse state for operators of a streamlet program that have not left it."""
    known = {name: entry for name, entry in manifest.components.items() if name in logical.components}
    saved = [
        StateOwner(component, name, operator.kind, operator.place)
        for component, entry in known.items()
        for name, operator in entry.operators.items()
    ]
    program = state_owners(logical)
    drops = is_set(logical.config, ALLOW_DROPPED_STATE)
    refused = []
    for each in misplaced(saved, program):
        if each.droppable and drops:
            log.warning("%s: %s: its state is dropped", where, each.text)
        else:
            refused.append(f"{each.text}{': --allow-dropped-state leaves its state behind' if each.droppable else ''}")
    if refused:
        raise ConfigError(f"{where}: {'; '.join(refused)}")
    unknown = sorted(o.name for o in program if o.place and o.component in known and not known[o.component].operators)
    if unknown:
        log.warning(
            "%s: it does not say where in the program operators were: those without a name must be where they were: %s",
            where,
            ", ".join(unknown),
        )


def _states(storage: CheckpointStorage, manifest: Manifest, component: str) -> list[str]:
    from heronpy.checkpoints import open_object

    refs = [ref for ref in manifest.objects if ref.component == component]
    return sorted({state.name for ref in refs for state in open_object(storage, ref).header.states})
