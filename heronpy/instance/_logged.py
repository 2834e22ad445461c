"""Batches in the log of a checkpoint: what wrote their values, and whether that can still be read.

The values of a batch are bytes on the wire, and stay so in a log; the code may be another when they are executed. So a
log says which serializer has written them, and that one reads them. Whether it does is tried before a task is restored:
once it runs, a batch that cannot be read is a rollback to where it is in the log again. Where tuples can be read one by
one (a pickle, or tuples that were serialized alone) nothing is tried: those that cannot be read are set aside.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import TYPE_CHECKING

from heronpy.checkpoints import LoggedBatch
from heronpy.errors import CheckpointError, UnavailableError
from heronpy.instance._alignment import InputBatch
from heronpy.instance._gateway_checkpoints import TaskBatch
from heronpy.instance._set_aside import OUTAGES
from heronpy.proto import stmgr_pb2
from heronpy.shown import said
from heronpy.wire import DATA, MalformedBatch, decode_tuples

if TYPE_CHECKING:
    from heronpy.instance._core import TaskCore


class UnreadableLog(CheckpointError):
    """A log has batches that cannot be deserialized."""


class UnreadableNow(UnavailableError):
    """It is not known whether a log can be deserialized: something that this needs is out of reach."""


def logged(batch: InputBatch, serializer: str) -> LoggedBatch:
    """A batch as a log has it; `serializer` has written it, unless it is from a log that says otherwise."""
    assert isinstance(batch, TaskBatch)
    data = batch.batch.SerializeToString()
    if batch.batch.kind == DATA and not batch.batch.serializer:
        data += stmgr_pb2.Batch(serializer=serializer).SerializeToString()  # which is how messages are merged
    return LoggedBatch(batch.source, data, batch.skip)


def from_log(logged: LoggedBatch) -> TaskBatch:
    """A batch that a log has."""
    batch = stmgr_pb2.Batch.FromString(logged.data)
    return TaskBatch(logged.source, batch.body, logged.skip, batch)


def check_readable(core: TaskCore, batches: Iterable[stmgr_pb2.Batch]) -> None:
    """Try to deserialize what a log has. Runs code of the user.

    Raises:
        UnreadableLog: something cannot be.
        UnreadableNow: that is not known now.
    """
    own = core.settings.serializer
    for batch in batches:
        if batch.kind != DATA:
            continue
        name = batch.serializer or own
        try:
            deserialize, tuples = core.deserializer(name), decode_tuples(batch.body)
            alone = name == own and tuples.count == max(1, len(tuples.part_sizes))
            if deserialize is pickle.loads or alone:
                continue
            if (found := len(tuples.deserialized(deserialize))) != tuples.count:
                raise MalformedBatch(f"{tuples.count} tuples were serialized, and {found} were read")
        except OUTAGES as error:
            raise UnreadableNow(f"{name} cannot read what is in flight now: {said(error)}") from error
        except BaseException as error:  # also sys.exit() in it
            _, sender = core.plan.tasks[batch.src_task]
            raise UnreadableLog(
                f"component {core.component.name!r} had tuples of component {sender.component!r} in flight, which "
                f"{name} has written and cannot read: {said(error)}"
            ) from error
