"""A transactional sink driven as the engine does it, by hand and in a process that is killed at a given call."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import heronpy
from heronpy.connectors import Sink, SinkContext, TransactionalSinkWriter
from heronpy.files import replace_file

TOPOLOGY = "words-1"
_ELEMENTS_PER_CHECKPOINT = 3


def open_transactional(
    sink: Sink, *, task: int = 0, epoch: int = 1, topology: str = TOPOLOGY
) -> TransactionalSinkWriter:
    """A writer as a task of a topology opens it, from a pickled copy."""
    copy: Sink = pickle.loads(pickle.dumps(sink))
    return copy.open_transactional(
        SinkContext(name="sink", task_index=task, config={}, topology_id=topology, epoch=epoch)
    )


def prepared(writer: TransactionalSinkWriter, checkpoint_id: int, elements: Iterable[Any]) -> Any:
    """What a writer prepares of some elements, as a checkpoint gives it back."""
    for element in elements:
        writer.write(element)
    return pickle.loads(pickle.dumps(writer.prepare(checkpoint_id)))


def run_to_the_end(sink: Sink, elements: Sequence[Any], directory: Path) -> None:
    """Be the engine: restore, and write the rest of the elements with a checkpoint after every few.

    Every third checkpoint fails: what was prepared for it is committed with the next.

    Args:
        sink: The sink.
        elements: All of them, also those that are written.
        directory: What outlives a process: the restore epoch, and the newest checkpoint.
    """
    epoch_file, checkpoint_file = directory / "epoch", directory / "checkpoint"
    epoch = 1 + (int(epoch_file.read_text()) if epoch_file.exists() else 0)
    replace_file(epoch_file, str(epoch))
    position, pending = pickle.loads(checkpoint_file.read_bytes()) if checkpoint_file.exists() else (0, [])
    checkpoint_id = 1000 * epoch  # an id is never used twice
    writer = open_transactional(sink, epoch=epoch)
    writer.recover(pending)
    pending = []
    while position < len(elements):
        some = elements[position : position + _ELEMENTS_PER_CHECKPOINT]
        for element in some:
            writer.write(element)
        position += len(some)
        checkpoint_id += 1
        if (output := writer.prepare(checkpoint_id)) is not None:
            pending.append(output)
        if checkpoint_id % 3 == 0 and position < len(elements):
            continue
        replace_file(checkpoint_file, pickle.dumps((position, pending)))
        for each in pending:
            writer.commit(each)
        pending = []
    writer.close()


def run_until_killed(sink: Sink, elements: Sequence[Any], directory: Path, call: int | None = None) -> int:
    """`run_to_the_end` in a child, killed (SIGKILL) just before a call that the sink or the engine makes.

    Args:
        sink: As of `run_to_the_end`, and so are elements and directory.
        elements: As above.
        directory: As above.
        call: Which one, from 0; None: it is not killed.

    Returns:
        How many calls there were; 0 if it was killed.
    """
    count, failure = directory / "count", directory / "failure"
    count.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            calls = _Calls(-1 if call is None else call)
            sys.setprofile(calls.event)
            run_to_the_end(sink, elements, directory)
            sys.setprofile(None)
            count.write_text(str(calls.made))
        except BaseException:
            sys.setprofile(None)
            failure.write_text(traceback.format_exc())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not failure.exists(), failure.read_text()
    return int(count.read_text()) if count.exists() else 0


class _Calls:
    """Counts the calls into and out of the sink's modules, and ends the process before one of them."""

    def __init__(self, last: int) -> None:
        self.made = 0
        self._last = last
        package = Path(heronpy.__file__).parent
        self._places = (f"{package}/connectors/", f"{package}/files/")

    def event(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "c_call"):
            return
        caller = frame.f_back if event == "call" else None
        if self._is_in(frame) or (caller is not None and self._is_in(caller)):
            if self.made == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
            self.made += 1

    def _is_in(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._places)


class OfTopology(Sink):
    """A sink as another submission opens it."""

    exactly_once = True

    def __init__(self, sink: Sink, topology: str) -> None:
        self._sink = sink
        self._topology = topology

    def open(self, context: SinkContext) -> Any:
        raise NotImplementedError

    def open_transactional(self, context: SinkContext) -> TransactionalSinkWriter:
        return self._sink.open_transactional(
            SinkContext(
                name=context.name,
                task_index=context.task_index,
                config=context.config,
                topology_id=self._topology,
                epoch=context.epoch,
            )
        )
