"""How a process ends."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

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


FORKS = """
import asyncio, multiprocessing, signal, time
from heronpy.runtime import main

def ended(after_s):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    time.sleep(after_s)
    child.terminate()
    child.join(30)
    code = child.exitcode
    child.kill()
    return code

class Forks:
    def __init__(self):
        self.started = asyncio.Event()

    async def run(self):
        for after_s in [0.0] * 20 + [0.2]:
            print(await asyncio.to_thread(ended, after_s), end=" ")
        print("done", flush=True)

async def make():
    return Forks()

main(make, name="forks")
"""


def test_a_signal_to_a_child_that_user_code_has_forked_ends_that_child_alone() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["-15"] * 21 + ["done"], done.stderr[-2000:]
