"""Errors of Spark's tasks: each reaches the driver, whatever is in it."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors import ListSource
from heronpy.errors import HeronError
from heronpy.pipeline import Job, running
from heronpy.pipeline.task_errors import sendable_errors
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program


def fail(error: Exception) -> None:
    """As a dead letter that cannot be written, for an element that user code has refused."""
    try:
        raise ValueError("no such key: \ud800")
    except ValueError:
        raise error from OSError("\ud800")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (HeronError("cannot write /\ud800"), HeronError, r"cannot write /\\ud800"),
        (KeyError("k"), RuntimeError, "KeyError: 'k'"),
        (OSError("\ud800"), RuntimeError, r"OSError: \\ud800"),
    ],
)
def test_the_traceback_of_a_task_can_be_encoded(error: Exception, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as raised, sendable_errors():
        fail(error)
    assert "".join(traceback.format_exception(raised.value)).encode()


def test_an_error_that_can_be_sent_stays_as_it_is() -> None:
    error = ValueError("plain")
    with pytest.raises(ValueError, match="plain") as raised, sendable_errors():
        raise error
    assert raised.value is error


def test_a_program_that_cannot_be_sent_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(job: Job) -> Any:
        raise pickle.PicklingError("Could not serialize object: MemoryError: ")

    builder, config = Builder(), Config()
    builder.new_source(ListSource([1])).to_store("counts", Sum())
    config.set_pipeline(tmp_path, batch_length=10)
    job = Job.of(Program("counting", config, builder.graph))
    monkeypatch.setattr(running, "plan_batch", fails)
    with pytest.raises(
        HeronError, match=r"cannot be sent to Spark's tasks: Could not serialize .*nothing was replaced"
    ):
        running.run(job)
