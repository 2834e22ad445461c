"""Merged reads: batch views up to batch N ⊕ live views after N, where N is the last batch that the manifest calls done.

A read takes N once and uses it for both sides, so that no batch counts twice and none is missed. Batch runs go on
meanwhile: they replace the manifest first and remove what it no longer names afterwards (old versions of views, live
rows of closed batches). So a read is right if the manifest was the same before and after it, and is repeated otherwise.
(Boykin et al., Summingbird, PVLDB 7(13), 2014, section 3.)
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from heronpy.errors import NotFoundError, StateError, TopologyError, UnavailableError, nearest
from heronpy.pipeline.blocks import BLOCK_ROWS, sliced
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Manifest, manifest_stamp
from heronpy.pipeline.memory import LIMIT_BYTES, Memory
from heronpy.pipeline.plan import live_only
from heronpy.pipeline.spill import Overflow
from heronpy.pipeline.window_keys import batch_of, key_type
from heronpy.stores import StoreContext, StoreReader, decode_key, encode_key
from heronpy.streamlet.live_length import check_length
from heronpy.streamlet.monoid import Monoid

if TYPE_CHECKING:
    from heronpy.pipeline.views import ViewReader

_DISTURBED_S = 30.0
_Found = TypeVar("_Found")
_MISSING = object()


@dataclass(frozen=True)
class Explained:
    """Where the value of a key comes from."""

    key: Any
    upto: int | None
    """N: the batch part covers all batches up to it, the live part all later ones. None: no batch is done."""
    batch: Any
    """The result of the batch part; None: the key is not in it."""
    live: Any
    """The result of the live part, which may be too high; None: the key is not in it, or it was not read."""
    merged: Any
    """The result of both; None: the key has no value."""


class MergedStore:
    """A view of a job, read over its batch and its live side. A context manager; may be shared by threads.

    The batch part is exact. The live part, of batches that are not done, is whatever the topology has merged so far:
    replayed events count again, and a `reduce_by_key` without window hands on each intermediate result, which a view
    with `Sum` adds up, so that a running count may read several times too high. Both end when the batch is done.
    With `exact_only` the live part is left out: values are exact, and as old as `committed_watermark` says. A view that
    no batch run computes (see `plan.live_only`) is its live part.
    """

    def __init__(self, job: Job, view: str, *, exact_only: bool = False) -> None:
        """Open a view for reading.

        Args:
            job: whose view.
            view: its name.
            exact_only: read the batch side only; the live store is not even opened.

        Raises:
            NotFoundError: the job has no such view.
            TopologyError: no batch run computes it, and `exact_only`.
            ConfigError: it has live views of another batch length.
            HeronError: its live store cannot be opened.
        """
        stores = job.stores()
        if view not in stores:
            raise NotFoundError(f"job {job.name} has no view {view!r}{nearest(view, stores)}")
        node = stores[view]
        self.view = view
        self.monoid = node.monoid
        self._directory = job.directory
        self._batch_length_ms = job.batch_length_ms
        self._typed_key = key_type(node)
        self._batch_of = batch_of(node, job.batch_length_ms) or (lambda key: None)
        self._live_only = live_only(job).get(view)
        if self._live_only is not None and exact_only:
            raise TopologyError(f"nothing of view {view} is exact: {self._live_only}")
        self._live: StoreReader | None = None
        if not exact_only:
            check_length(job.directory, job.batch_length_ms)
            self._live = node.store.reader(StoreContext(view=view, monoid=node.monoid, directory=job.directory))
        self._mutex = threading.Lock()
        self._stamp: object = ()
        self._manifest = Manifest(job.batch_length_ms)
        self._batch: ViewReader | None = None

    @property
    def committed_watermark(self) -> int | None:
        """N, as of now: batches up to it are read from the batch side."""
        with self._mutex:
            self._refresh()
            return self._manifest.committed_watermark

    def get(self, key: Any) -> Any:
        """The value of a key: the monoid's result over all that is known; None if that is nothing.

        It is exact up to `committed_watermark` only, see `MergedStore`.

        Raises:
            TypeError: a key that no view can have.
            HeronError: one of the sides cannot be read.
        """
        acc = self.get_acc(key)
        return None if acc is None else self.monoid.result(acc)

    def get_acc(self, key: Any) -> Any:
        """The accumulator of a key; None if it has none."""
        _, batch, live = self._parts(key)
        return self._merged(batch, live)

    def explain(self, key: Any) -> Explained:
        """What `get` says, with the parts that it is made of."""
        upto, batch, live = self._parts(key)
        # Results first: merging may change the accumulators.
        of_batch, of_live = (None if acc is None else self.monoid.result(acc) for acc in (batch, live))
        merged = self._merged(batch, live)
        return Explained(key, upto, of_batch, of_live, None if merged is None else self.monoid.result(merged))

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Every key with its value, in no order; as of one moment between two batch runs.

        Keys that do not fit in memory are collected on disk, where temporary files are.

        Raises:
            HeronError: one of the sides cannot be read, or the disk is full.
        """
        try:
            with self._collected() as collected:
                for key, acc in collected.results():
                    yield self._typed_key(decode_key(key)), self.monoid.result(acc)
        except OSError as e:
            raise UnavailableError(f"view {self.view} cannot be read: {e}") from e

    def close(self) -> None:
        """Let go of files and connections."""
        with self._mutex:
            if self._live is not None:
                self._live.close()
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _parts(self, key: Any) -> tuple[int | None, Any, Any]:
        """N, the batch part and the live part."""

        def read() -> tuple[int | None, Any, Any]:
            upto = self._manifest.committed_watermark
            batch = None if self._batch is None else self._batch.get(key, upto, self._batch_of(key))
            return upto, batch, None if self._live is None else self._live.get(key, upto)

        with self._mutex:
            return self._consistent(read)

    def _collected(self) -> Overflow:
        """Both sides, merged; the caller closes it."""
        for _ in self._attempts():
            before = self._stamp_now()
            manifest = self._loaded()
            with contextlib.ExitStack() as stack:
                made = stack.enter_context(Overflow(lambda: _Merged(self.monoid), Memory(LIMIT_BYTES), None))
                try:
                    # The live side first: its rows are few, and what a run drops cannot be read any more. Versions of
                    # batch views that the manifest named stay right for as long as they are there.
                    _add_all(made, self._live_after(manifest.committed_watermark))
                    if self._stamp_now() == before:
                        _add_all(made, self._done(manifest))
                        stack.pop_all()
                        return made
                except (OSError, NotFoundError, StateError):
                    if self._stamp_now() == before:
                        raise
        raise AssertionError("the last attempt raises")

    def _live_after(self, upto: int | None) -> Iterator[tuple[Any, Any]]:
        if (live := self._live) is None:
            return
        for batch in live.batches():
            if upto is None or batch > upto:
                yield from live.items(batch)

    def _done(self, manifest: Manifest) -> Iterator[tuple[Any, Any]]:
        if manifest.committed_watermark is None:
            return
        with contextlib.closing(self._open_batch(manifest)) as reader:
            yield from reader.pieces(manifest.committed_watermark)

    def _consistent(self, read: Callable[[], _Found]) -> _Found:
        """What `read` finds while the manifest stays as it is."""
        for _ in self._attempts():
            self._refresh()
            before = self._stamp
            try:
                found = read()
            except (OSError, NotFoundError, StateError):
                if self._stamp_now() == before:
                    raise
                continue  # a version that the manifest named when we began may be gone
            if self._stamp_now() == before:
                return found
        raise AssertionError("the last attempt raises")

    def _attempts(self) -> Iterator[int]:
        """Numbers from 1 until a read has been disturbed for too long."""
        deadline_s = time.monotonic() + _DISTURBED_S
        for attempt in itertools.count(1):
            yield attempt
            if time.monotonic() > deadline_s:
                raise UnavailableError(f"view {self.view}: batch runs replaced it during {attempt} reads; try again")

    def _refresh(self) -> None:
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._let_go()
        self._manifest = self._loaded()
        if self._manifest.committed_watermark is not None:
            self._batch = self._open_batch(self._manifest)
        self._stamp = stamp  # as it was before the load: a newer one is seen by the next look

    def _loaded(self) -> Manifest:
        """The manifest; an empty one for a view that no batch run computes: all of it is live."""
        manifest = Manifest.load(self._directory, self._batch_length_ms)
        is_live = self._live_only is not None and not manifest.newest_has(self.view)
        return Manifest(self._batch_length_ms) if is_live else manifest

    def _open_batch(self, manifest: Manifest) -> ViewReader:
        from heronpy.pipeline.views import ViewReader  # its files need pyarrow, which a live view alone does not

        return ViewReader(self._directory, self.view, self.monoid, manifest)

    def _stamp_now(self) -> object:
        """Changes whenever the manifest is replaced."""
        try:
            return manifest_stamp(self._directory)
        except OSError as e:
            raise UnavailableError(f"{self._directory} cannot be read: {e}") from e

    def _let_go(self) -> None:
        self._stamp = ()
        if self._batch is not None:
            self._batch.close()
            self._batch = None

    def _merged(self, batch: Any, live: Any) -> Any:
        if batch is None or live is None:
            return live if batch is None else batch
        return self.monoid.merge(batch, live)


def _add_all(to: Overflow, items: Iterable[tuple[Any, Any]]) -> None:
    for some in sliced(items, BLOCK_ROWS):
        to.add(False, [(encode_key(key), acc) for key, acc in some])


class _Merged:
    """Accumulators by encoded key, merged. The head of rows says whether they are encoded."""

    def __init__(self, monoid: Monoid) -> None:
        self._monoid = monoid
        self._accs: dict[bytes, Any] = {}

    def add(self, encoded: bool, rows: list[tuple[bytes, Any]]) -> None:
        accs, decode, merge = self._accs, self._monoid.decode, self._monoid.merge
        for key, found in rows:
            acc = decode(found) if encoded else found
            before = accs.get(key, _MISSING)
            accs[key] = acc if before is _MISSING else merge(before, acc)

    def dump(self) -> Iterator[tuple[bool, Iterable[tuple[bytes, Any]]]]:
        encode = self._monoid.encode
        yield True, ((key, encode(acc)) for key, acc in self._accs.items())

    def results(self) -> Iterator[tuple[bytes, Any]]:
        return iter(self._accs.items())
