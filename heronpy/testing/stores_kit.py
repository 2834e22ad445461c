"""What every store of live views must do, as tests.

A store of your own passes the kit like this:

    class TestMine(StoresKit):
        @pytest.fixture
        def store(self):
            return MyStore()

Each test reads and writes a view of a name of its own, with a directory of its own. Other processes are real ones
(`python -m heronpy.testing.stores_kit`).
"""

from __future__ import annotations

import base64
import contextlib
import os
import queue
import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heronpy.errors import StateError
from heronpy.runtime import PARENT_ENV, die_with_parent
from heronpy.stores import Store, StoreContext, StoreReader, StoreWriter
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.monoid import Max, SetUnion, Sum
from heronpy.streamlet.window import Window
from heronpy.testing import eventually_sync

WITHIN_S = 120.0
"""How long the kit waits for something that must happen."""

_KEYS = [f"key-{n}" for n in range(300)]

Write = Callable[..., StoreWriter]


class Committer:
    """Another process that commits +1 for each of 300 keys, again and again, until it is killed or has done enough."""

    def __init__(self, store: Store, context: StoreContext, writer_id: str, commits: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "heronpy.testing.stores_kit"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, PARENT_ENV: str(os.getpid())},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # By a pipe: what describes a store may have a password in it.
        order = cloudpickle.dumps((store, context, writer_id, commits))
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(base64.b64encode(order) + b"\n")
            self.process.stdin.close()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def committed(self) -> int:
        """How many commits it has reported so far; waits for the next report. It is dead if there is none in time."""
        count = int(self._lines.get(timeout=WITHIN_S))
        while not self._lines.empty():
            count = int(self._lines.get())
        return count

    def wait(self) -> None:
        """Wait for its end, which must be a good one."""
        assert self.process.wait(WITHIN_S) == 0
        self._tidy()

    def kill(self) -> int:
        """SIGKILL; the last number of commits that it reported, 0 if none since the last call."""
        self.process.kill()
        self.process.wait(WITHIN_S)
        self._tidy()
        count = 0
        while not self._lines.empty():
            count = int(self._lines.get())
        return count

    def _tidy(self) -> None:
        self._thread.join(WITHIN_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def _commit_again_and_again() -> None:
    die_with_parent()
    store, context, writer_id, commits = cloudpickle.loads(base64.b64decode(sys.stdin.readline()))
    writer = store.writer(context, writer_id)
    for count in range(1, commits + 1):
        for key in _KEYS:
            writer.merge(key, 1, count % 3)
        writer.commit()
        print(count, flush=True)
    writer.close()


class StoresKit:
    """Tests for any store; a subclass has the fixture `store`."""

    @pytest.fixture
    def context(self, tmp_path: Path) -> StoreContext:
        """Of a view that was never written."""
        return StoreContext(view=f"view-{uuid.uuid4().hex[:8]}", monoid=Sum(), directory=tmp_path)

    @pytest.fixture
    def write(self, store: Store, context: StoreContext) -> Iterator[Write]:
        """Opens writers; all are closed at the end."""
        with contextlib.ExitStack() as stack:

            def open_one(writer_id: str = "0", context: StoreContext = context) -> StoreWriter:
                return stack.enter_context(contextlib.closing(store.writer(context, writer_id)))

            yield open_one

    @pytest.fixture
    def reader(self, store: Store, context: StoreContext) -> Iterator[StoreReader]:
        with contextlib.closing(store.reader(context)) as reader:
            yield reader

    def test_a_view_that_was_never_written_is_empty(self, reader: StoreReader) -> None:
        assert reader.get("a") is None
        assert reader.batches() == []
        assert list(reader.items(0)) == []
        assert reader.drop(7) == 0

    def test_a_commit_is_read_at_once_and_nothing_before_it(self, write: Write, reader: StoreReader) -> None:
        writer = write()
        writer.merge("a", 1)
        assert reader.get("a") is None
        writer.commit()
        assert reader.get("a") == 1
        writer.merge("a", 2)
        writer.merge("a", 3)
        writer.commit()
        writer.commit()
        assert reader.get("a") == 6

    def test_what_is_not_committed_is_gone_with_its_writer(self, write: Write, reader: StoreReader) -> None:
        writer = write()
        writer.merge("a", 1)
        writer.commit()
        writer.merge("a", 10)
        writer.close()
        again = write()
        again.merge("b", 1)
        again.commit()
        assert (reader.get("a"), reader.get("b")) == (1, 1)

    def test_a_restarted_writer_goes_on_where_it_was(self, write: Write, reader: StoreReader) -> None:
        for _ in range(3):
            writer = write()
            writer.merge("a", 1)
            writer.commit()
            writer.close()
        assert reader.get("a") == 3

    def test_what_is_committed_once_is_there_once(self, store: Store, write: Write, reader: StoreReader) -> None:
        if not store.exactly_once:
            pytest.skip(f"{store!r} is not written exactly once")
        first, other = write(), write("1")
        for _ in range(2):
            first.merge("a", 1)
            first.commit_once("run", 1)
        first.close()
        again = write()
        again.merge("a", 10)
        again.commit_once("run", 1)
        again.merge("a", 100)
        again.commit_once("run", 2)
        again.merge("a", 1000)
        again.commit_once("another run", 1)
        again.commit_once("run", 3)
        again.merge("a", 10)
        again.commit_once("run", 3)
        other.merge("a", 10_000)
        other.commit_once("run", 1)
        assert reader.get("a") == 11_101

    def test_rows_of_another_monoid_are_refused(self, write: Write, store: Store, context: StoreContext) -> None:
        writer = write()
        writer.merge("a", 1)
        writer.commit()
        other = replace(context, monoid=Max())

        def read() -> None:
            with contextlib.closing(store.reader(other)) as reader:
                reader.get("a")

        def write_more() -> None:
            with contextlib.closing(store.writer(other, "another")) as second:
                second.merge("a", 1)
                second.commit()

        for use in (read, write_more):
            with pytest.raises(StateError, match=r"holds values of Sum\(\), the program has Max\(\)") as e:
                use()
            assert "\n" not in str(e.value)

    def test_a_reader_merges_over_all_writers_and_sees_new_ones(self, write: Write, reader: StoreReader) -> None:
        for n in range(3):
            writer = write(f"task-{n}")
            writer.merge("a", 1)
            writer.merge(("only", n), 5)
            writer.commit()
            assert reader.get("a") == n + 1
        assert dict(reader.items(0)) == {"a": 3, ("only", 0): 5, ("only", 1): 5, ("only", 2): 5}

    def test_batches_are_kept_apart(self, write: Write, reader: StoreReader) -> None:
        writer = write()
        for batch in (-3, 5, 4, 1_400_000_000):
            writer.merge("a", 1, batch)
            writer.merge(batch, 1, batch)
        writer.commit()
        assert reader.batches() == [-3, 4, 5, 1_400_000_000]
        assert dict(reader.items(5)) == {"a": 1, 5: 1}
        assert dict(reader.items(6)) == {}
        assert [reader.get("a", after) for after in (None, -3, 4, 5, 1_400_000_000)] == [4, 3, 2, 1, None]

    def test_dropped_batches_are_gone_and_later_ones_stay(self, write: Write, reader: StoreReader) -> None:
        writer = write("0")
        other = write("1")
        for batch in range(4):
            writer.merge("a", 1, batch)
            other.merge("a", 1, batch)
            other.merge("b", 1, batch)
        writer.commit()
        other.commit()
        assert reader.drop(2) == 9
        assert reader.batches() == [3]
        assert reader.get("a") == 2
        writer.merge("a", 1, 1)
        writer.commit()
        assert reader.get("a") == 3, "what comes late begins anew: the writer remembers nothing of what was dropped"

    def test_replaced_rows_are_the_only_ones_of_their_batch(self, write: Write, reader: StoreReader) -> None:
        writer = write("0")
        other = write("1")
        for batch in (1, 2):
            writer.merge("a", 100, batch)
            other.merge("b", 100, batch)
        writer.commit()
        other.commit()
        reader.replace(1, [("a", 1), ("c", 3)])
        assert dict(reader.items(1)) == {"a": 1, "c": 3}
        assert dict(reader.items(2)) == {"a": 100, "b": 100}
        assert reader.get("a") == 101
        reader.replace(1, iter([("d", 4)]))
        assert dict(reader.items(1)) == {"d": 4}
        reader.replace(1, [])
        assert reader.batches() == [2]

    def test_what_running_writers_commit_after_a_replacement_counts(self, write: Write, reader: StoreReader) -> None:
        writer = write()
        writer.merge("a", 100, 1)
        writer.commit()
        writer.merge("b", 5, 1)
        reader.replace(1, [("a", 1)])
        writer.merge("a", 2, 1)
        writer.commit()
        assert dict(reader.items(1)) == {"a": 3, "b": 5}
        assert reader.get("a") == 3

    def test_equal_keys_are_one_key(self, write: Write, reader: StoreReader) -> None:
        writer = write()
        window = KeyedWindow("a", Window(0.0, 60.0))
        for key in (1, 1.0, True, window, ("a", (0, 60))):
            writer.merge(key, 1)
            writer.commit()
        assert reader.get(1) == 3
        assert reader.get(window) == 2
        assert dict(reader.items(0)) == {1: 3, window: 2}

    def test_a_key_that_cannot_be_stored_is_refused_by_merge(self, write: Write, reader: StoreReader) -> None:
        writer = write()
        writer.merge("a", 1)
        with pytest.raises(TypeError, match="cannot be a key"):
            writer.merge(object(), 1)
        writer.commit()
        assert reader.get("a") == 1

    def test_an_accumulator_that_cannot_be_stored_leaves_the_view_as_it_was(
        self, write: Write, reader: StoreReader
    ) -> None:
        writer = write()
        writer.merge("a", 1)
        writer.commit()
        writer.merge("b", 1)
        writer.merge("a", "text")  # no sum with the number that is there
        with pytest.raises(TypeError):
            writer.commit()
        assert (reader.get("a"), reader.get("b")) == (1, None)

    def test_what_cannot_be_merged_with_what_is_stored_is_told_and_the_rest_is_stored(
        self, write: Write, context: StoreContext, reader: StoreReader
    ) -> None:
        failures: list[tuple[Any, Any, str]] = []
        noting = replace(context, failed=lambda key, delta, error: failures.append((key, delta, type(error).__name__)))
        writer = write("0", noting)
        writer.merge("a", 1)
        writer.commit()
        for key, delta in (("b", 1), ("a", "text"), ("c", 1)):
            writer.merge(key, delta)
        writer.commit()
        writer.merge("a", 1)
        writer.commit()
        assert dict(reader.items(0)) == {"a": 2, "b": 1, "c": 1}
        assert failures == [("a", "text", "TypeError")]

    def test_accumulators_of_any_type_are_merged(self, store: Store, write: Write, context: StoreContext) -> None:
        sets = StoreContext(view=f"{context.view}-sets", monoid=SetUnion(), directory=context.directory)
        for task, values in (("0", {1, "a"}), ("1", {"a", ("t", 2)})):
            writer = write(task, sets)
            for value in values:
                writer.merge("k", {value}, 1)
                writer.commit()
        with contextlib.closing(store.reader(sets)) as reader:
            assert reader.get("k") == {1, "a", ("t", 2)}
            assert list(reader.items(1)) == [("k", {1, "a", ("t", 2)})]

    def test_many_keys_in_one_commit(self, write: Write, reader: StoreReader) -> None:
        writer = write()
        for _ in range(2):
            for n in range(5000):
                writer.merge(f"word-{n}", n)
            writer.commit()
        assert dict(reader.items(0)) == {f"word-{n}": 2 * n for n in range(5000)}

    def test_any_sequence_of_operations_equals_a_dict(self, store: Store, tmp_path: Path) -> None:
        @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(_OPERATIONS, max_size=25))
        def check(operations: list[tuple[Any, ...]]) -> None:
            view = f"view-{uuid.uuid4().hex[:12]}"
            with Played(store, StoreContext(view=view, monoid=Sum(), directory=tmp_path)) as played:
                for operation in operations:
                    played.play(*operation)
                played.check()

        check()

    def test_concurrent_writers_lose_nothing(self, store: Store, context: StoreContext, reader: StoreReader) -> None:
        committers = [Committer(store, context, f"task-{n}", 20) for n in range(3)]
        try:
            committers[0].committed()
            seen = [reader.get(_KEYS[0]) for _ in range(50)]
            assert seen == sorted(seen), "what was committed once is there"
        finally:
            for committer in committers:
                committer.wait()
        assert {reader.get(key) for key in _KEYS} == {60}
        assert sum(dict(reader.items(batch))[_KEYS[7]] for batch in reader.batches()) == 60

    def test_a_writer_killed_at_any_moment_keeps_whole_commits(
        self, store: Store, context: StoreContext, reader: StoreReader
    ) -> None:
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        rng = random.Random(seed)
        before = 0
        for _ in range(4):
            committer = Committer(store, context, "task-0", 1_000_000)
            reported = committer.committed()
            threading.Event().wait(rng.random() * 0.1)  # any moment: that is what is tested
            reported = max(reported, committer.kill())

            def whole(least: int = before + reported) -> int:
                counts = {reader.get(key) for key in _KEYS}
                assert len(counts) == 1, "one of the commits is there in part"
                count = counts.pop()
                assert least <= count <= least + 1, f"{count} commits, and {least} were reported"
                return int(count)

            before = eventually_sync(whole, within_s=WITHIN_S)

    def test_replacing_and_dropping_while_writers_run_leaves_what_was_meant(
        self, store: Store, context: StoreContext, reader: StoreReader
    ) -> None:
        committer = Committer(store, context, "task-0", 60)
        try:
            committer.committed()
            for n in range(5):
                reader.replace(50, [(key, n) for key in _KEYS])
                assert set(dict(reader.items(50)).values()) == {n}
                reader.replace(1, [])
                counts = set(dict(reader.items(1)).values())
                assert len(counts) <= 1, f"rows from before the replacement are among those from after it: {counts}"
        finally:
            committer.wait()
        assert reader.get(_KEYS[0], 1) == 20 + 4
        reader.drop(49)
        assert reader.batches() == [50]


_BATCHES = st.integers(0, 3)
_WRITERS = st.integers(0, 2)
_SOME_KEYS = st.sampled_from(["a", "b", 1, ("a", 1), None])
_OPERATIONS = st.one_of(
    st.tuples(st.just("merge"), _WRITERS, _SOME_KEYS, st.integers(-5, 5), _BATCHES),
    st.tuples(st.just("merge"), _WRITERS, _SOME_KEYS, st.integers(-5, 5), _BATCHES),
    st.tuples(st.just("commit"), _WRITERS),
    st.tuples(st.just("die"), _WRITERS),
    st.tuples(st.just("replace"), _BATCHES, st.dictionaries(_SOME_KEYS, st.integers(-5, 5), max_size=3)),
    st.tuples(st.just("drop"), _BATCHES),
)


class Played:
    """A view and a dict that the same is done to."""

    def __init__(self, store: Store, context: StoreContext) -> None:
        self._store = store
        self._context = context
        self._writers: dict[int, StoreWriter] = {}
        self._pending: dict[int, list[tuple[int, Any, int]]] = {}
        self._rows: dict[int, dict[Any, int]] = {}
        self._reader = store.reader(context)

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()
        self._reader.close()

    def play(self, operation: str, *args: Any) -> None:
        getattr(self, operation)(*args)

    def merge(self, writer: int, key: Any, delta: int, batch: int) -> None:
        self._writer(writer).merge(key, delta, batch)
        self._pending.setdefault(writer, []).append((batch, key, delta))

    def commit(self, writer: int) -> None:
        self._writer(writer).commit()
        for batch, key, delta in self._pending.pop(writer, []):
            rows = self._rows.setdefault(batch, {})
            rows[key] = rows.get(key, 0) + delta

    def die(self, writer: int) -> None:
        if writer in self._writers:
            self._writers.pop(writer).close()
        self._pending.pop(writer, None)

    def replace(self, batch: int, rows: dict[Any, int]) -> None:
        self._reader.replace(batch, rows.items())
        self._rows[batch] = dict(rows)

    def drop(self, upto: int) -> None:
        self._reader.drop(upto)
        self._rows = {batch: rows for batch, rows in self._rows.items() if batch > upto}

    def check(self) -> None:
        filled = {batch: rows for batch, rows in self._rows.items() if rows}
        assert self._reader.batches() == sorted(filled)
        for batch in range(4):
            assert dict(self._reader.items(batch)) == filled.get(batch, {})
        for after in (None, 0, 2):
            for key in ("a", "b", 1, ("a", 1), None):
                parts = [
                    rows[key] for batch, rows in filled.items() if key in rows and (after is None or batch > after)
                ]
                assert self._reader.get(key, after) == (sum(parts) if parts else None)

    def _writer(self, writer: int) -> StoreWriter:
        if writer not in self._writers:
            self._writers[writer] = self._store.writer(self._context, f"task-{writer}")
        return self._writers[writer]


if __name__ == "__main__":
    _commit_again_and_again()
