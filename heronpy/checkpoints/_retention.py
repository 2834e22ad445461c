"""Which objects may be deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from heronpy.checkpoints._manifest import Manifest
from heronpy.checkpoints._names import manifest_id, object_checkpoint_id

KEPT: Final = 5
"""How many checkpoints are kept."""


def references(manifests: Iterable[Manifest]) -> Counter[str]:
    """By object or log, how many of the manifests name it."""
    return Counter(name for manifest in manifests for name in manifest.names)


def removable_manifests(stored: Iterable[str], *, keep: int = KEPT, savepoints: Collection[int] = ()) -> list[str]:
    """Names of manifests that are not kept: all but the newest ones and the savepoints. The oldest is the first.

    Args:
        stored: Names of everything that is stored.
        keep: How many of the newest stay; at least one does.
        savepoints: Ids of checkpoints that stay however old they are.
    """
    found = sorted((of, name) for name in stored if (of := manifest_id(name)) is not None)
    return [name for of, name in found[: -max(1, keep)] if of not in savepoints]


def removable_objects(
    stored: Iterable[str], kept: Iterable[Manifest], before: int, pinned: Collection[str] = ()
) -> list[str]:
    """Names of objects that no checkpoint needs, now or later. Delete the manifests that are not kept before them.

    Args:
        stored: Names of everything that is stored. Only what has the name of an object is ever returned.
        kept: All manifests that stay.
        before: What is of this checkpoint, or of a newer one, may belong to one under way, and stays.
        pinned: Objects that a merge is writing, or that no manifest names yet.
    """
    named = references(kept)
    return [
        name
        for name in stored
        if name not in named and name not in pinned and (of := object_checkpoint_id(name)) is not None and of < before
    ]
