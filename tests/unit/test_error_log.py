"""The log of what user code raises stays readable, whatever it raises."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from heronpy.instance.task import KINDS_MAX, PER_SECOND, ErrorLog

SECOND_NS = 1_000_000_000


class Clock:
    now_ns = SECOND_NS

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def errors(clock: Clock) -> ErrorLog:
    return ErrorLog(logging.getLogger("count.3"), "count", clock)


def raised(value: object) -> Exception:
    try:
        raise ValueError(f"bad value {value}")
    except ValueError as error:
        return error


def log(errors: ErrorLog, error: Exception, times: int = 1) -> None:
    for _ in range(times):
        errors.log("process()", error, f"Traceback: {error}")


def test_a_few_exceptions_are_all_logged(errors: ErrorLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(PER_SECOND):
        log(errors, raised(number))
    assert [r.getMessage() for r in caplog.records] == [
        f"exception in process() of count:\nTraceback: bad value {number}" for number in range(PER_SECOND)
    ]


def test_of_a_thousand_a_second_ten_are_logged_and_the_rest_is_counted(
    errors: ErrorLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        log(errors, raised(number))
    assert len(caplog.records) == PER_SECOND
    clock.now_ns += SECOND_NS
    log(errors, raised("later"))
    told, last = (r.getMessage() for r in caplog.records[PER_SECOND:])
    assert told.startswith(f"{1000 - PER_SECOND} more like this one were not logged: ValueError in process(), ")
    assert told.rpartition(":")[0].endswith(__file__)
    assert "bad value later" in last


def test_another_kind_of_exception_is_logged_all_the_same(errors: ErrorLog, caplog: pytest.LogCaptureFixture) -> None:
    log(errors, raised(1), 100)
    before = len(caplog.records)
    log(errors, KeyError("another"))
    assert "another" in caplog.records[before].getMessage()


def test_the_number_of_kinds_is_bounded(errors: ErrorLog) -> None:
    makers: list[Callable[[], Exception]] = [type(f"E{n}", (Exception,), {}) for n in range(2 * KINDS_MAX)]
    for make in makers:
        log(errors, make(), 20)
    assert len(errors._kinds) == KINDS_MAX
