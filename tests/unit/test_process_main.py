"""How a process ends."""

from __future__ import annotations

import asyncio
import logging

import pytest

from heronpy.errors import StateError
from heronpy.runtime import main


class Ending:
    """A service that ends with an error."""

    def __init__(self, error: Exception) -> None:
        self.started = asyncio.Event()
        self.error = error

    async def run(self) -> None:
        raise self.error


def end(error: Exception, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    async def make() -> Ending:
        return Ending(error)

    with pytest.raises(SystemExit) as ended:
        main(make, name="a-process")
    assert ended.value.code == 1
    (record,) = caplog.records
    return record


def test_an_error_that_was_foreseen_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    record = end(StateError("the disk is full"), caplog)
    assert record.getMessage() == "a-process ends: the disk is full"
    assert not record.exc_info


def test_an_unexpected_error_shows_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    record = end(KeyError("ours"), caplog)
    assert "unexpected" in record.getMessage()
    assert record.exc_info
