"""What a streamlet program has for its batch side, for those who show it: as plain data in a topology's configuration.

Anybody may have written that, so it is checked when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

BATCH_SIDE_KEY = "streamlet.pipeline"
"""Configuration key of a topology: its `BatchSide`, as JSON."""
COMPLETE_BEFORE_METRIC = "__pipeline-archive-complete-before-ms"
"""Gauge of a task that writes an archive, ms since the epoch: every element before it that came here is archived."""
_PARTS_MAX = 50
"""So many archives and views are reported."""
_TEXT_MAX = 255
_JSON_MAX = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSide:
    """A topology's archives and views."""

    batch_length_ms: int
    archives: Mapping[str, str] = field(default_factory=dict)
    """Each archive, and the component that writes it."""
    views: tuple[str, ...] = ()

    def to_value(self) -> str:
        """The configuration's value: of a program that has more than 50 archives or views, the first of them."""
        return json.dumps(asdict(_first(self)))


def _first(side: BatchSide) -> BatchSide:
    archives = dict(islice(side.archives.items(), _PARTS_MAX))
    return replace(side, archives=archives, views=side.views[:_PARTS_MAX])


def batch_side_of(config: Mapping[str, Any]) -> BatchSide | None:
    """The batch side in a topology's configuration; None: it has none, or the value is damaged."""
    raw = config.get(BATCH_SIDE_KEY)
    if not isinstance(raw, str) or len(raw) > _JSON_MAX:
        return None
    try:
        found = json.loads(raw)
        length_ms, archives, views = (found[name] for name in BatchSide.__dataclass_fields__)
        side = _first(BatchSide(batch_length_ms=length_ms, archives=archives, views=tuple(views)))
        texts = [*side.archives, *side.archives.values(), *side.views]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    sound = isinstance(views, list) and type(length_ms) is int and length_ms > 0
    if not sound or not all(isinstance(text, str) and len(text) <= _TEXT_MAX for text in texts):
        return None
    return side
