"""What every sink that writes exactly once must do, as tests.

One of your own passes it like this:

    class TestMine(TransactionalSinkKit):
        @pytest.fixture
        def sink(self, tmp_path):
            return MySink(...)

        @pytest.fixture
        def elements(self):
            return [...]

        def visible(self):
            return [...]

Each test gets a fresh sink. `run_until_killed` drives a sink as the engine does, in a process that ends before a given
call; so every protocol step is tried, and every call that a sink of heronpy.connectors makes within one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors import Sink, TransactionalSinkWriter
from heronpy.errors import ConfigError, FencedError, HeronError
from heronpy.testing._sink_runs import OfTopology, open_transactional, prepared, run_to_the_end, run_until_killed
from heronpy.testing.connectors_kit import counted

__all__ = [
    "KILLS_MAX",
    "AtLeastOnceSinkKit",
    "TransactionalSinkKit",
    "open_transactional",
    "prepared",
    "run_to_the_end",
    "run_until_killed",
]

KILLS_MAX = 40
"""So many calls are tried; of more, evenly many."""


class TransactionalSinkKit:
    """For sinks that write exactly once. A subclass gives `sink`, `elements` and `visible`."""

    kills_max = KILLS_MAX
    races = 20

    @pytest.fixture
    def sink(self) -> Sink:
        """Writes to where nothing is yet."""
        raise NotImplementedError

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        """At least 10, all different."""
        raise NotImplementedError

    @pytest.fixture
    def expected(self, elements: Sequence[Any]) -> Sequence[Any]:
        """`elements` as they are read back."""
        return elements

    @pytest.fixture
    def unfit(self) -> Any:
        """An element that it cannot hold; None: it can hold all."""
        return None

    def visible(self) -> Sequence[Any]:
        """What readers see."""
        raise NotImplementedError

    def leftovers(self) -> Sequence[Any]:
        """What writers of former epochs have left."""
        return ()

    def check(self, expected: Iterable[Any]) -> None:
        assert counted(self.visible()) == counted(expected)

    @pytest.fixture(autouse=True)
    def prerequisites(self, elements: Sequence[Any]) -> None:
        assert len({repr(element) for element in elements}) == len(elements) >= 10

    def test_it_says_that_it_writes_exactly_once(self, sink: Sink) -> None:
        assert sink.exactly_once

    # Commit and abort

    def test_nothing_is_visible_before_the_commit(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writer = open_transactional(sink)
        output = prepared(writer, 1, elements[:5])
        for element in elements[5:]:
            writer.write(element)
        self.check([])
        writer.commit(output)
        self.check(expected[:5])
        writer.commit(prepared(writer, 2, []))
        self.check(expected)

    def test_nothing_prepares_as_none(self, sink: Sink, elements: Sequence[Any]) -> None:
        writer = open_transactional(sink)
        assert writer.prepare(1) is None
        output = prepared(writer, 2, elements[:1])
        assert output is not None
        assert writer.prepare(3) is None

    def test_a_commit_may_be_repeated(self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]) -> None:
        writer = open_transactional(sink)
        outputs = [prepared(writer, number, [elements[number]]) for number in range(3)]
        for _ in range(2):
            for output in outputs:
                writer.commit(output)
        for epoch in (2, 3):
            open_transactional(sink, epoch=epoch).recover(outputs)
        self.check(expected[:3])

    def test_a_failed_checkpoint_is_committed_with_the_next(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writer = open_transactional(sink)
        outputs = [prepared(writer, 1, elements[:2]), prepared(writer, 2, elements[2:4])]
        for output in outputs:
            writer.commit(output)
        self.check(expected[:4])

    def test_what_was_aborted_is_never_visible(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writer = open_transactional(sink)
        aborted = prepared(writer, 1, elements[:2])
        for _ in range(2):
            writer.abort(aborted)
        writer.commit(prepared(writer, 2, elements[2:4]))
        self.check(expected[2:4])

    def test_an_abort_after_the_commit_changes_nothing(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writer = open_transactional(sink)
        output = prepared(writer, 1, elements[:2])
        writer.commit(output)
        writer.abort(output)
        self.check(expected[:2])
        writer.commit(output)
        open_transactional(sink, epoch=2).abort(output)
        self.check(expected[:2])

    def test_what_was_not_prepared_is_gone_with_its_writer(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writer = open_transactional(sink)
        writer.write(elements[0])
        writer.close()
        again = open_transactional(sink, epoch=2)
        again.recover([])
        again.commit(prepared(again, 1, elements[1:2]))
        self.check(expected[1:2])

    def test_an_element_that_does_not_fit_is_refused_and_the_rest_is_committed(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any], unfit: Any
    ) -> None:
        if unfit is None:
            pytest.skip("it can hold everything")
        writer = open_transactional(sink)
        with pytest.raises(ValueError, match="cannot hold"):
            writer.write(unfit)
        assert writer.prepare(1) is None
        writer.write(elements[0])
        with pytest.raises(ValueError, match="cannot hold"):
            writer.write(unfit)
        writer.commit(prepared(writer, 2, elements[1:]))
        self.check(expected)

    # Others commit

    def test_another_writer_commits_it(self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]) -> None:
        output = prepared(open_transactional(sink), 1, elements[:5])
        open_transactional(sink, epoch=2)  # restores an older checkpoint, and dies
        self.check([])
        writer = open_transactional(sink, epoch=3)
        writer.recover([output])
        self.check(expected[:5])
        writer.commit(prepared(writer, 2, elements[5:]))
        self.check(expected)

    def test_another_number_of_tasks_commits_it(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        tasks = [open_transactional(sink, task=task) for task in range(3)]
        outputs = [prepared(writer, 1, [elements[task]]) for task, writer in enumerate(tasks)]
        tasks[1].commit(outputs[1])
        fewer = [open_transactional(sink, task=task, epoch=2) for task in range(2)]
        fewer[0].recover([outputs[1], outputs[2]])
        fewer[1].recover([outputs[0]])
        for task, writer in enumerate(fewer):
            writer.commit(prepared(writer, 2, [elements[3 + task]]))
        self.check(expected[:5])

    def test_an_older_checkpoint_is_restored_again(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        first = open_transactional(sink)
        output = prepared(first, 1, elements[:2])
        first.commit(output)
        second = open_transactional(sink, epoch=2)
        second.recover([output])
        second.commit(prepared(second, 2, elements[2:4]))
        open_transactional(sink, epoch=3).recover([output])
        self.check(expected[:4])

    def test_tasks_do_not_mind_each_other(self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]) -> None:
        writers = [open_transactional(sink, task=task) for task in range(3)]
        outputs = [prepared(writer, 1, elements[task::3]) for task, writer in enumerate(writers)]
        for writer, output in zip(writers, outputs, strict=True):
            writer.commit(output)
        self.check(expected)

    def test_another_submission_begins_anew(self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]) -> None:
        first = open_transactional(sink, epoch=7)
        first.commit(prepared(first, 5, elements[:3]))
        other = open_transactional(sink, topology="words-2")
        other.recover([])
        other.commit(prepared(other, 5, elements[3:5]))
        self.check(expected[:5])

    def test_another_submission_starts_from_a_savepoint(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        first = open_transactional(sink, epoch=7)
        outputs = [prepared(first, number, [elements[number]]) for number in range(2)]
        first.commit(outputs[0])
        other = open_transactional(sink, topology="words-2")
        other.recover(outputs)
        self.check(expected[:2])

    def test_two_submissions_start_from_one_savepoint(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        output = prepared(open_transactional(sink, epoch=7), 1, elements[:2])
        others = [open_transactional(sink, topology=f"words-{number}") for number in (2, 3)]
        for number, other in enumerate(others):
            other.recover([output])
            other.commit(prepared(other, 2, [elements[2 + number]]))
        self.check(expected[:4])

    def test_a_topology_goes_on_beside_one_from_its_savepoint(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        first = open_transactional(sink, epoch=7)
        outputs = [prepared(first, 1, elements[:2])]
        other = open_transactional(sink, topology="words-2")
        first.commit(outputs[0])
        other.recover(outputs)
        outputs.append(prepared(first, 2, [elements[2]]))
        open_transactional(sink, topology="words-3").recover(outputs)
        first.commit(outputs[1])
        first.commit(prepared(first, 3, [elements[3]]))
        other.commit(prepared(other, 3, [elements[4]]))
        self.check(expected[:5])

    # Two at once

    def test_a_fenced_writer_cannot_commit(self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]) -> None:
        old = open_transactional(sink)
        committed = prepared(old, 1, elements[:1])
        old.commit(committed)
        before = prepared(old, 2, elements[1:2])
        old.write(elements[2])
        new = open_transactional(sink, epoch=2)
        new.recover([committed])
        after = None
        with contextlib.suppress(FencedError):
            after = prepared(old, 3, elements[3:4])
        for output in (before, after):
            if output is not None:
                with pytest.raises(FencedError):
                    old.commit(output)
        new.commit(prepared(new, 4, elements[1:3]))
        for output in (before, after):
            if output is not None:
                with pytest.raises(FencedError):
                    old.commit(output)
        self.check(expected[:3])

    def test_tasks_that_are_no_more_are_fenced_too(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        old = [open_transactional(sink, task=task) for task in range(3)]
        outputs = [prepared(writer, 1, [elements[task]]) for task, writer in enumerate(old)]
        open_transactional(sink, epoch=2).recover(outputs[:1])
        for writer, output in zip(old[1:], outputs[1:], strict=True):
            with pytest.raises(FencedError):
                writer.commit(output)
        self.check(expected[:1])

    def test_a_commit_that_comes_late_from_a_fenced_writer_counts_once(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        old = open_transactional(sink)
        output = prepared(old, 1, elements[:2])
        new = open_transactional(sink, epoch=2)
        new.recover([output])
        with contextlib.suppress(FencedError):
            old.commit(output)
        self.check(expected[:2])

    def test_a_writer_of_an_older_epoch_is_refused(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        new = open_transactional(sink, epoch=2)
        output = prepared(new, 1, elements[:2])
        with pytest.raises(FencedError):
            open_transactional(sink, epoch=1)
        with pytest.raises(FencedError):
            open_transactional(sink, epoch=1, task=1)
        new.commit(output)
        self.check(expected[:2])

    def test_of_two_in_one_epoch_the_second_writes(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        first, second = open_transactional(sink), open_transactional(sink)
        with pytest.raises(FencedError):
            first.commit(prepared(first, 1, elements[:2]))
        second.commit(prepared(second, 1, elements[2:4]))
        self.check(expected[2:4])

    def test_a_commit_of_one_task_spares_what_another_has_to_recover(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        first, second = open_transactional(sink), open_transactional(sink, task=1)
        outputs = [prepared(writer, 1, [elements[task]]) for task, writer in enumerate((first, second))]
        again = open_transactional(sink, task=1)  # the second died just after the checkpoint was committed
        first.commit(outputs[0])
        again.recover(outputs[1:])
        self.check(expected[:2])

    def test_a_race_between_two_commits_once(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        done: list[Any] = []
        for number in range(self.races):
            old = open_transactional(sink, epoch=2 * number + 1)
            output = prepared(old, number + 1, [elements[number % len(elements)]])
            barrier = threading.Barrier(2)
            failures: list[BaseException] = []

            def commit_late(
                old: TransactionalSinkWriter = old,
                output: Any = output,
                barrier: threading.Barrier = barrier,
                failures: list[BaseException] = failures,
            ) -> None:
                barrier.wait()
                try:
                    with contextlib.suppress(FencedError):
                        old.commit(output)
                except BaseException as e:
                    failures.append(e)

            thread = threading.Thread(target=commit_late)
            thread.start()
            barrier.wait()
            open_transactional(sink, epoch=2 * number + 2).recover([output])
            thread.join()
            assert failures == []
            done.append(expected[number % len(elements)])
            self.check(done)

    # Deaths

    def test_the_output_is_exact_wherever_the_process_is_killed(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any], tmp_path: Path
    ) -> None:
        """With one sink for all: each run writes as a submission of its own, and what is visible grows by it."""
        calls = run_until_killed(sink, elements, _made(tmp_path / "whole"))
        assert calls > 20
        self.check(expected)
        done = list(expected)
        for number, call in enumerate(range(0, calls, max(1, calls // self.kills_max))):
            directory = _made(tmp_path / str(call))
            mine = OfTopology(sink, f"words-{call}")
            run_until_killed(mine, elements, directory, call)
            run_until_killed(mine, elements, directory, (7 * number) % calls)
            assert run_until_killed(mine, elements, directory), "it did not come to its end"
            done += expected
            assert counted(self.visible()) == counted(done), f"killed before call {call} of {calls}"

    def test_what_older_writers_left_is_removed(
        self, sink: Sink, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        for epoch in (1, 2):
            killed = open_transactional(sink, epoch=epoch)
            prepared(killed, epoch, elements[:2])
            killed.write(elements[2])
        writer = open_transactional(sink, epoch=3)
        writer.recover([])
        writer.commit(prepared(writer, 3, elements[:4]))
        self.check(expected[:4])
        assert list(self.leftovers()) == []


class AtLeastOnceSinkKit:
    """For sinks that write at least once: they say so. A subclass gives `sink`."""

    @pytest.fixture
    def sink(self) -> Sink:
        raise NotImplementedError

    def test_it_says_that_it_writes_at_least_once(self, sink: Sink) -> None:
        assert not sink.exactly_once
        with pytest.raises(ConfigError, match="at least once") as refused:
            open_transactional(sink)
        assert isinstance(refused.value, HeronError)


def _made(path: Path) -> Path:
    path.mkdir()
    return path
