"""Comparing the live views of a job with its batch views, over the closed batches that the live stores still have."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heronpy.errors import NotFoundError, nearest
from heronpy.pipeline.drift import Difference, Totals, ViewDrift, view_drift
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Manifest
from heronpy.pipeline.spill import Coding, Row, grouped
from heronpy.stores import StoreContext, StoreReader
from heronpy.streamlet.graph import StoreNode
from heronpy.streamlet.live_length import check_length

_SHOWN_CHARS = 80


@dataclass(frozen=True)
class Reconciliation:
    """What both sides of a job say."""

    job: str
    batch_length_ms: int
    committed_watermark: int | None
    made_at_s: float
    views: list[ViewDrift]

    @property
    def drifted(self) -> int:
        """Keys, over all views, that the two sides do not agree on."""
        return sum(view.total.drifted for view in self.views)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `json.dumps`."""
        return {
            "job": self.job,
            "batch_length_ms": self.batch_length_ms,
            "committed_watermark": self.committed_watermark,
            "drifted": self.drifted,
            "views": [
                {
                    "view": view.view,
                    **_totals(view.total),
                    "batches": [{"batch_id": batch, **_totals(totals)} for batch, totals in view.batches.items()],
                    "distribution": {**view.buckets, "different": view.other},
                    "worst": [_difference(d) for d in view.worst],
                }
                for view in self.views
            ],
        }


def reconcile(job: Job, *, view: str | None = None, limit: int = 20) -> Reconciliation:
    """Compare all views of a job, or one.

    Millions of keys need disk space for a while, not memory.

    Args:
        job: whose views.
        view: only this one.
        limit: how many keys of each view to tell.

    Raises:
        NotFoundError: no such view; the nearest is named.
        HeronError: a store or a view cannot be read.
    """
    nodes = job.stores()
    chosen = list(nodes.values()) if view is None else [node_of(job, view)]
    manifest = Manifest.load(job.directory, job.batch_length_ms)
    found = [_compare(job, node, manifest, limit) for node in chosen]
    return Reconciliation(job.name, job.batch_length_ms, manifest.committed_watermark, time.time(), found)


def node_of(job: Job, view: str) -> StoreNode:
    """The view of this name.

    Raises:
        NotFoundError: the job has none; the nearest is named.
    """
    nodes = job.stores()
    if view not in nodes:
        known = ", ".join(nodes) or "none"
        raise NotFoundError(f"{job.name} has no view {view!r}{nearest(view, nodes) or f': it has {known}'}")
    return nodes[view]


@contextlib.contextmanager
def live_reader(job: Job, node: StoreNode) -> Iterator[StoreReader]:
    """The live view, open for the duration of the block."""
    check_length(job.directory, job.batch_length_ms)
    reader = node.store.reader(StoreContext(view=node.store_name, monoid=node.monoid, directory=job.directory))
    with contextlib.closing(reader):
        yield reader


def _compare(job: Job, node: StoreNode, manifest: Manifest, limit: int) -> ViewDrift:
    from heronpy.pipeline.views import ViewReader
    from heronpy.stores import decode_key, encode_key

    coding = Coding(node.monoid.encode, node.monoid.decode)
    with live_reader(job, node) as live:
        batches = _comparable(live.batches(), manifest)
        with contextlib.closing(ViewReader(job.directory, node.store_name, node.monoid, manifest)) as truth:
            rows = itertools.chain.from_iterable(
                (Row(side, batch, encode_key(key), acc) for key, acc in items(batch))
                for side, items in enumerate((live.items, truth.items))
                for batch in batches
            )
            groups = ((decode_key(key), pairs) for key, pairs in grouped(rows, coding))
            return view_drift(node.store_name, node.monoid, groups, batches, limit=limit)


def _comparable(live: list[int], manifest: Manifest) -> list[int]:
    """Closed batches from the first that the live store still has, which drops them from the beginning."""
    if manifest.committed_watermark is None or not live:
        return []
    both = {*live, *manifest.batches}
    return sorted(batch for batch in both if min(live) <= batch <= manifest.committed_watermark)


def shown(value: Any) -> str:
    """A key or a result in one line, cut where it is long."""
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: _SHOWN_CHARS + 1])
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def plain(value: Any) -> Any:
    """A key or a result as JSON has it: tuples and sets as lists, what JSON does not know as its text."""
    if isinstance(value, (set, frozenset)):
        return sorted((plain(v) for v in value), key=json.dumps)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k if isinstance(k, str) else shown(k): plain(v) for k, v in value.items()}
    if isinstance(value, float) and value - value != 0:
        return str(value)  # JSON has no nan and no infinity
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _totals(totals: Totals) -> dict[str, Any]:
    return {
        "keys": totals.keys,
        "equal": totals.equal,
        "different": totals.different,
        "live_only": totals.live_only,
        "batch_only": totals.batch_only,
        "live": totals.live,
        "batch": totals.batch,
        "drift": totals.drift,
        "percent": totals.percent,
    }


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "key": plain(found.key),
        "live": plain(found.live),
        "batch": plain(found.batch),
        "state": found.state,
        "drift": found.drift,
        "percent": found.percent,
    }
