"""What happens to exceptions of user code, in methods, hooks and serializers."""

from __future__ import annotations

from typing import Any

import pytest
import user_code_world
from hostile_objects import ERRORS, LongError
from user_code_world import BasicWorker, BrokenHook, Script, World, passed_on

from heronpy.api import Tuple
from heronpy.api.exceptions import FailedException
from heronpy.config import InstanceConfig
from heronpy.instance.task import TaskFailed
from heronpy.proto import stmgr_pb2

script = user_code_world.script


class Unreadable:
    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise RuntimeError("not on this machine")


@pytest.mark.parametrize("drain_interval_ms", [0, 1000])  # alone, and in a batch with the others
def test_a_value_that_cannot_be_unpickled_is_an_error_of_user_code_and_its_tuple_is_failed(
    caplog: pytest.LogCaptureFixture, drain_interval_ms: int
) -> None:
    config = InstanceConfig(drain_interval_ms=drain_interval_ms)
    with World([1, Unreadable(), 3], config=config) as world:
        world.settle()
        assert world.source.failed == [1]
        assert sorted(world.source.acked) == [0, 2]
        assert "cannot be deserialized" in caplog.text
        assert "not on this machine" in caplog.text


@pytest.mark.parametrize("where", ["next_tuple", "ack", "fail", "activate", "process", "process_tick"])
def test_under_the_policy_fail_an_exception_is_reported_and_the_task_goes_on(where: str) -> None:
    raised: list[str] = []

    def once(*_args: Any) -> None:
        if not raised:
            raised.append(where)
            raise RuntimeError(f"in {where}")

    def process(bolt: Any, tup: Tuple) -> None:
        if where == "process" and tup["value"] == 2:
            once()
        if where == "fail" and tup["value"] == 2:
            bolt.fail(tup)
            return
        passed_on(bolt, tup)

    Script.process = process
    Script.tick = once if where == "process_tick" else Script.tick
    Script.on[where] = once
    with World([1, 2, 3], topology__tick__tuple__freq__ms=1) as world:
        world.settle()
        assert raised == [where]
        assert world.total("__exception-count") == 1
        ended = [*world.source.acked, *world.source.failed]
        assert sorted(ended) == [0, 1, 2]
        assert (1 in world.source.failed) == (where in ("process", "fail"))


@pytest.mark.parametrize("where", ["next_tuple", "ack", "fail", "process", "process_tick"])
def test_under_the_policy_restart_an_exception_ends_the_task(where: str) -> None:
    def always(*_args: Any) -> None:
        raise RuntimeError(f"in {where}")

    def process(bolt: Any, tup: Tuple) -> None:
        if where == "process":
            always()
        if where == "fail":
            bolt.fail(tup)
            return
        passed_on(bolt, tup)

    Script.process = process
    Script.tick = always if where == "process_tick" else Script.tick
    Script.on[where] = always
    keys = {"topology__exception__policy": "restart", "topology__tick__tuple__freq__ms": 1}
    with World([1, 2, 3], **keys) as world:
        with pytest.raises(TaskFailed, match=where):
            world.settle()
        assert world.total("__exception-count") == 1
        if where == "process":  # told at once, not after the timeout
            fails = [batch for batch in world.sent if batch.kind == stmgr_pb2.Batch.FAIL]
            assert len(fails) == 1


def test_exceptions_in_task_hooks_are_exceptions_of_user_code() -> None:
    def process(bolt: Any, tup: Tuple) -> None:
        if tup["value"] == 2:
            bolt.fail(tup)
        else:
            passed_on(bolt, tup)

    Script.process = process
    with World([1, 2], topology__auto__task__hooks=[f"{__name__}.{BrokenHook.__name__}"]) as world:
        world.settle()
        assert (world.source.acked, world.source.failed) == ([0], [1])
        # worker 2, sink 1, and one for each of ack and fail
        assert world.total("__exception-count") == 5


def test_what_was_acked_leaves_even_if_cleanup_raises() -> None:
    def broken(_bolt: Any) -> None:
        raise RuntimeError("in cleanup")

    Script.on["cleanup"] = broken
    with World([1], config=InstanceConfig(drain_interval_ms=1000)) as world:
        world.step()
        world.step()
        for task in world.tasks.values():
            if task.user_object is world.worker:
                world.sent.clear()
                with pytest.raises(RuntimeError, match="in cleanup"):
                    task.close()
        assert {batch.kind for batch in world.sent} == {stmgr_pb2.Batch.DATA, stmgr_pb2.Batch.ACK}
        Script.on.clear()


def test_failed_exception_fails_the_tuple_without_being_reported() -> None:
    def process(_bolt: Any, _tup: Tuple) -> None:
        raise FailedException("not today")

    Script.process = process
    with World([1], worker=BasicWorker) as world:
        world.settle()
        assert world.source.failed == [0]
        assert world.total("__exception-count") == 0


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("where", ["next_tuple", "ack", "process", "process_tick"])
def test_an_exception_that_cannot_be_shown_is_an_exception_as_any_other(where: str, error: type[Exception]) -> None:
    raised: list[str] = []

    def once(*_args: Any) -> None:
        if not raised:
            raised.append(where)
            raise error

    def process(bolt: Any, tup: Tuple) -> None:
        if where == "process":
            once()
        passed_on(bolt, tup)

    Script.process = process
    Script.tick = once if where == "process_tick" else Script.tick
    Script.on[where] = once
    with World([1, 2, 3], topology__tick__tuple__freq__ms=1) as world:
        reports: list[str] = []
        for task in world.tasks.values():
            task.core.report_exception = reports.append
        world.settle()
        assert raised == [where]
        assert sorted([*world.source.acked, *world.source.failed]) == [0, 1, 2]
    (report,) = reports
    assert error.__name__ in report
    assert "in once" in report, "the place is told as well"
    assert len(report.encode()) < 20_000


def test_the_cause_of_an_exception_that_says_too_much_is_told_with_it() -> None:
    def process(_bolt: Any, _tup: Tuple) -> None:
        try:
            raise LongError
        except LongError as cause:
            raise ValueError("the last word") from cause

    Script.process = process
    with World([1]) as world:
        reports: list[str] = []
        for task in world.tasks.values():
            task.core.report_exception = reports.append
        world.settle()
    assert "LongError: line" in reports[0]
    assert reports[0].endswith("ValueError: the last word\n")
