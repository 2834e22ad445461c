"""Writing the record of a job's batch side where the Tracker reads it: the state manager of its topology.

One node, replaced after every run. Topologies of the job's name get it that were submitted from this HERON_HOME and
whose batch side is in the job's directory. That it cannot be published is no reason for a run to fail.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError

from heronpy.errors import AlreadyExistsError, DamagedInputError, FencedError, HeronError, StateError
from heronpy.pipeline.job import Job
from heronpy.pipeline.look import look
from heronpy.pipeline.record import TEXT_MAX, Reconciled, Record, Run, plain_text, read_record
from heronpy.redaction import redacted
from heronpy.runtime import Launch

_LOCK = "pipeline"
_LOCK_TIMEOUT_S = 60.0
"""Somebody else may look at the batch side meanwhile."""
_CALL_TIMEOUT_S = 5.0


def failed(began_at_s: float, error: HeronError) -> Run | None:
    """A run that failed just now; None: it left the work to another one, which says itself how it ends."""
    if isinstance(error, (AlreadyExistsError, FencedError)):
        return None
    text = plain_text(redacted(" ".join(str(error).split())), TEXT_MAX)
    report = error.report if isinstance(error, DamagedInputError) else None
    return Run(
        began_at_s=began_at_s,
        seconds=max(0.0, time.time() - began_at_s),
        batches=len(report.batches) if report is not None else 0,
        error=text or type(error).__name__,
    )


def try_publish(home: Path, job: Job, *, run: Run | None = None, reconciled: Reconciled | None = None) -> None:
    """The same, with one line on stderr where it cannot be published."""
    try:
        publish(home, job, run=run, reconciled=reconciled)
    except (HeronError, OSError, ValueError, DecodeError) as e:  # also of a definition that is damaged
        print(f"heron: this could not be reported to the Tracker: {e}", file=sys.stderr)


def publish(home: Path, job: Job, *, run: Run | None = None, reconciled: Reconciled | None = None) -> list[str]:
    """Publish the state of a job's batch side to its topologies; their ids.

    Args:
        home: where they were submitted from.
        job: its batch side.
        run: the last batch run; None: as published before.
        reconciled: the last reconciliation; None: as published before.

    Raises:
        HeronError: the job's files, or a state manager, cannot be read or written.
    """
    from heronpy.submit import running

    launches = [launch for launch in running(home) if launch.topology == job.name]
    return [launch.topology_id for launch in launches if _publish_to(launch, job, run, reconciled)]


def _publish_to(launch: Launch, job: Job, run: Run | None, reconciled: Reconciled | None) -> bool:
    """False: that topology has another batch side, or is gone."""
    from heronpy.statemgr import Kind, open_statemgr

    name = launch.topology
    opened = open_statemgr(launch.statemgr, call_timeout_s=_CALL_TIMEOUT_S, parents=False)
    with contextlib.closing(opened) as state, state.lock(name, _LOCK, _LOCK_TIMEOUT_S):
        execution = state.get(Kind.EXECUTIONSTATE, name)
        if execution is None or _directory(name, state.get(Kind.TOPOLOGIES, name)) != str(job.directory):
            return False
        before = _before(state.get(Kind.PIPELINES, name))
        try:
            record = look(job, time.time_ns() // 1_000_000)  # under the lock, or an older one could replace a newer one
        except HeronError:
            if before is None or run is None or not run.error:
                raise
            record = before  # why the run failed: its figures say how old they are
        if before is not None:
            run, reconciled = run or before.run, reconciled or before.reconciled
        whole = msgspec.structs.replace(record, topology_id=launch.topology_id, run=run, reconciled=reconciled)
        # Only while the topology is there: nothing would remove the node of one that is being killed.
        return state.set_if(Kind.PIPELINES, name, whole.encode(), expected=execution, of=Kind.EXECUTIONSTATE)


def _before(value: bytes | None) -> Record | None:
    if value is None:
        return None
    try:
        return read_record(value)
    except StateError:
        return None  # it is replaced


def _directory(name: str, definition: bytes | None) -> str:
    from heronpy.plan import LogicalPlan
    from heronpy.statemgr import records
    from heronpy.streamlet.config import DIRECTORY_KEY

    if definition is None:
        return ""
    return str(LogicalPlan.from_proto(records.definition(name, definition)).config.get(DIRECTORY_KEY, ""))
