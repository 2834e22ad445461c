"""Comparing the live views of a job with its batch views, over the closed batches that the live stores still have."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from heronpy.errors import NotFoundError, TopologyError, UnavailableError, nearest
from heronpy.pipeline.blocks import BLOCK_ROWS, sliced
from heronpy.pipeline.drift import Difference, Pair, Totals, ViewDrift, view_drift
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Manifest
from heronpy.pipeline.memory import LIMIT_BYTES, Memory
from heronpy.pipeline.plan import live_only
from heronpy.pipeline.spill import Overflow
from heronpy.stores import StoreContext, StoreReader
from heronpy.streamlet.graph import StoreNode
from heronpy.streamlet.live_length import check_length
from heronpy.streamlet.monoid import Monoid

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
        limit: how many keys of each view to report.

    Raises:
        NotFoundError: no such view; the nearest is named.
        TopologyError: no batch run computes it. Of all views, such ones are left out.
        HeronError: a store or a view cannot be read.
    """
    alone = live_only(job)
    if view is None:
        chosen = [node for name, node in job.stores().items() if name not in alone]
    else:
        chosen = [node_of(job, view)]
        if view in alone:
            raise TopologyError(f"view {view} has nothing to be compared with: {alone[view]}")
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


def drop_live_rows(job: Job) -> int:
    """Drop live rows of batches that were closed longer ago than the program keeps; how many rows.

    Raises:
        HeronError: a live store cannot be reached. The batches are done all the same, and the next run drops the rows.
    """
    first = Manifest.load(job.directory, job.batch_length_ms).live_from(job.config.keep_live_batches)
    if first is None:
        return 0
    dropped, alone = 0, live_only(job)
    for view, node in job.stores().items():
        if view not in alone:  # else it is all that there is
            with live_reader(job, node) as live:
                dropped += live.drop(first - 1)
    return dropped


@contextlib.contextmanager
def _readable(node: StoreNode) -> Iterator[None]:
    try:
        yield
    except OSError as e:  # also that there is no space for what does not fit in memory
        raise UnavailableError(f"view {node.store_name} cannot be compared: {e}") from e


def _compare(job: Job, node: StoreNode, manifest: Manifest, limit: int) -> ViewDrift:
    from heronpy.pipeline.views import ViewReader
    from heronpy.stores import decode_key, encode_key

    with _readable(node), live_reader(job, node) as live:
        batches = _comparable(live.batches(), manifest)
        with contextlib.closing(ViewReader(job.directory, node.store_name, node.monoid, manifest)) as truth:
            rows = (
                Row(encode_key(key), side, batch, acc)
                for side, items in enumerate((live.items, truth.items))
                for batch in batches
                for key, acc in items(batch)
            )
            groups = ((decode_key(key), pairs) for key, pairs in grouped(rows, node.monoid))
            return view_drift(node.store_name, node.monoid, groups, batches, limit=limit)


class Row(NamedTuple):
    """What one side says about a key in a batch."""

    key: bytes
    """Encoded."""
    side: int
    """0: the live view, 1: the batch view."""
    batch: int
    acc: Any


def grouped(
    rows: Iterable[Row], monoid: Monoid, memory: Memory | None = None
) -> Iterator[tuple[bytes, dict[int, Pair]]]:
    """Every key, once, with what both sides say about it by batch; on disk what does not fit in memory.

    Args:
        rows: of both sides.
        monoid: the view's.
        memory: what this process may use.

    Raises:
        OSError: the disk is full.
    """
    with Overflow(lambda: _Groups(monoid), memory or Memory(LIMIT_BYTES), None) as groups:
        for some in sliced(rows, BLOCK_ROWS):
            groups.add(False, some)
        yield from groups.results()


class _Groups:
    """Accumulators by key and batch. The head of rows says whether these are encoded."""

    def __init__(self, monoid: Monoid) -> None:
        self._monoid = monoid
        self._groups: dict[bytes, dict[int, Pair]] = {}

    def add(self, encoded: bool, rows: list[Row]) -> None:
        groups, decode = self._groups, self._monoid.decode
        for key, side, batch, acc in rows:
            pair = groups.setdefault(key, {}).setdefault(batch, [None, None])
            pair[side] = decode(acc) if encoded else acc

    def dump(self) -> Iterator[tuple[bool, Iterable[Row]]]:
        encode = self._monoid.encode
        yield (
            True,
            (
                Row(key, side, batch, encode(acc))
                for key, batches in self._groups.items()
                for batch, pair in batches.items()
                for side, acc in enumerate(pair)
                if acc is not None
            ),
        )

    def results(self) -> Iterator[tuple[bytes, dict[int, Pair]]]:
        return iter(self._groups.items())


def _comparable(live: list[int], manifest: Manifest) -> list[int]:
    """Closed batches from the first that the live store still has, which drops them from the beginning."""
    if manifest.committed_watermark is None or not live:
        return []
    done = (batch for batch, _ in manifest.batches.between(min(live), manifest.committed_watermark))
    return sorted({*done, *(batch for batch in live if batch <= manifest.committed_watermark)})


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
