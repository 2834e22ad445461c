"""Manifests of formats 1 and 2, all batches in one file: they are read, and become the newest when saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from heronpy.pipeline.batch import Batch, Parts, Tier, level_of

FORMATS = (1, 2)


@dataclass
class Base:
    """A view's batches up to one, rolled up."""

    version: str
    upto: int
    """The last batch in it."""
    batches: dict[int, str]
    """The versions it was made of: when one of them is replaced, the base no longer counts."""
    parts: Parts = field(default_factory=Parts)


@dataclass
class FormerManifest:
    """What is in the file."""

    batch_length_ms: int
    committed_watermark: int | None = None
    batches: dict[int, Batch] = field(default_factory=dict)
    bases: dict[str, Base] = field(default_factory=dict)
    """By view."""
    unread: dict[str, str] = field(default_factory=dict)
    letters: list[str] = field(default_factory=list)
    run: str = ""

    def tier_of(self, view: str) -> Tier | None:
        """The roll-up of a view; None if it no longer counts."""
        base = self.bases[view]
        current = {n: batch.version for n, batch in self.batches.items() if n <= base.upto and view in batch.views}
        return (
            Tier(base.version, None, base.upto, level_of(len(current)), base.parts) if current == base.batches else None
        )


def decoded(content: bytes) -> FormerManifest:
    """A manifest of a former format.

    Raises:
        msgspec.DecodeError, ValueError: it is none.
    """
    raw: dict[str, Any] = msgspec.json.decode(content)
    if raw.get("format") == 1:  # there the watermark has another name
        raw["committed_watermark"] = raw.pop("closed_upto", None)
    return msgspec.convert(raw, FormerManifest, str_keys=True)
