"""Telling the topologies of a job how its batch side is."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tmaster_world import topology

pytest.importorskip("pyarrow", reason="archives are Parquet files")

from heronpy import cli
from heronpy.connectors import ListSource
from heronpy.errors import AlreadyExistsError, DamagedInputError, FencedError, UnavailableError, UserCodeError
from heronpy.pipeline import Job, Manifest, RunReport
from heronpy.pipeline.manifest import Batch, Parts
from heronpy.pipeline.publish import failed, publish, try_publish
from heronpy.pipeline.record import Reconciled, Record, Run, read_record
from heronpy.plan import key_value
from heronpy.proto import state_pb2, topology_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import FileStateManager, Kind
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.config import DIRECTORY_KEY
from heronpy.streamlet.runner import Program

RUN = Run(began_at_s=5.0, seconds=2.0, batches=3)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    builder, config = Builder(), Config()
    builder.new_source(ListSource([("a", 1)], times=[1.0])).archive().to_store("counts", Sum())
    config.set_pipeline(tmp_path / "job", batch_length=60)
    return Job.of(Program("words", config, builder.graph))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileStateManager]:
    """The state manager of a topology `words` that was submitted from this home."""
    launch = Launch(
        topology="words",
        topology_id="words-1",
        cluster="local",
        role="me",
        environ="default",
        statemgr=StatemgrSpec(type="file", root=str(tmp_path / "state")),
        dir=tmp_path / "topology",
    )
    monkeypatch.setattr("heronpy.submit.running", lambda home: [launch])
    with contextlib.closing(FileStateManager(str(tmp_path / "state"))) as state:
        yield state


def submitted(state: FileStateManager, directory: object) -> None:
    definition = topology_pb2.Topology.FromString(topology())
    definition.topology_config.kvs.append(key_value(DIRECTORY_KEY, str(directory), pickle.dumps))
    execution = state_pb2.ExecutionState(topology="words", topology_id="words-1")
    state.set(Kind.EXECUTIONSTATE, "words", execution.SerializeToString())
    state.set(Kind.TOPOLOGIES, "words", definition.SerializeToString())


def told(state: FileStateManager) -> Record | None:
    value = state.get(Kind.PIPELINES, "words")
    return None if value is None else read_record(value)


def test_what_a_run_has_told_stays_when_a_reconciliation_tells_more(job: Job, state: FileStateManager) -> None:
    submitted(state, job.directory)
    assert publish(Path("home"), job, run=RUN) == ["words-1"]
    assert publish(Path("home"), job, reconciled=Reconciled(at_s=9.0)) == ["words-1"]
    record = told(state)
    assert record is not None
    assert (record.topology_id, record.run, record.reconciled) == ("words-1", RUN, Reconciled(at_s=9.0))
    assert [one.archive for one in record.archives] == ["events"]
    state.set(Kind.PIPELINES, "words", b"{")
    assert publish(Path("home"), job, run=RUN) == ["words-1"], "what is damaged is replaced"
    assert told(state) is not None


def test_a_topology_with_another_batch_side_and_one_that_is_gone_are_not_told(
    job: Job, state: FileStateManager
) -> None:
    submitted(state, f"{job.directory}-of-another")
    assert publish(Path("home"), job, run=RUN) == []
    assert told(state) is None
    submitted(state, job.directory)
    state.remove_topology("words")
    assert publish(Path("home"), job, run=RUN) == []
    assert told(state) is None, "nobody would remove it"


def test_a_tracker_that_cannot_be_told_fails_no_run(
    job: Job, state: FileStateManager, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(state, job.directory)
    state.set(Kind.TOPOLOGIES, "words", b"\xff")
    try_publish(Path("home"), job, run=RUN)
    assert capsys.readouterr().err.startswith("heron: this could not be reported to the Tracker: ")


def test_a_run_that_failed_as_nothing_can_be_read_is_told_beside_what_was_known(
    job: Job, state: FileStateManager, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(state, job.directory)
    publish(Path("home"), job, run=RUN)
    known = told(state)
    assert known is not None
    (job.directory / "manifest.json").mkdir(parents=True)
    run = failed(0.0, UnavailableError("the store does not answer"))
    try_publish(Path("home"), job, run=run)
    assert capsys.readouterr().err == "", "the run itself says why"
    assert told(state) == msgspec.structs.replace(known, run=run)
    try_publish(Path("home"), job, run=RUN)
    assert "manifest.json cannot be read" in capsys.readouterr().err, "what a run has done is in no other line"


def test_why_a_run_failed_is_told_in_one_bounded_line_without_secrets() -> None:
    run = failed(0.0, UserCodeError(f"it failed\nat s3://me:hunter22@host/x {'y' * 1000}"))
    assert run is not None
    assert "hunter22" not in run.error
    assert (len(run.error), run.error.count("\n")) == (500, 0)
    assert run.seconds > 0


def test_a_run_that_left_out_what_is_damaged_has_done_the_others() -> None:
    error = DamagedInputError("batch 3 cannot be done")
    error.report = RunReport("words", batches=[1, 2])
    run = failed(0.0, error)
    assert run is not None
    assert (run.batches, run.error) == (2, "batch 3 cannot be done")


@pytest.mark.parametrize("error", [AlreadyExistsError("another batch run works on it"), FencedError("it took over")])
def test_a_run_that_leaves_the_work_to_another_has_not_failed(error: AlreadyExistsError | FencedError) -> None:
    assert failed(0.0, error) is None, "it would hide how the other ends"


def test_what_was_found_earlier_cannot_replace_what_was_found_later(
    job: Job, state: FileStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(state, job.directory)

    def found(of: Job, now_ms: int) -> Record:
        with pytest.raises(UnavailableError, match="held by"), state.lock("words", "pipeline", timeout_s=0):
            pass  # another command, which has something to tell at the same time
        return Record(job=of.name, at_ms=now_ms, batch_length_ms=60_000, done=7)

    monkeypatch.setattr("heronpy.pipeline.publish.look", found)
    assert publish(Path("home"), job, run=RUN) == ["words-1"]
    record = told(state)
    assert record is not None
    assert record.done == 7


SCRIPT = """
from heronpy.connectors import ListSource
from heronpy.errors import UnavailableError
from heronpy.stores import SqliteStore
from heronpy.streamlet import Builder, Config, Runner, Sum

class Away(SqliteStore):
    def reader(self, context):
        reader = super().reader(context)
        def drop(upto):
            raise UnavailableError("the live store is away")
        reader.drop = drop
        return reader

builder, config = Builder(), Config()
builder.new_source(ListSource([("a", 1)], times=[1.0])).archive().to_store("counts", Sum(), Away())
config.set_pipeline("job", batch_length=60, keep_live_batches=0)
Runner().run("words", config, builder)
"""


def test_live_rows_that_cannot_be_dropped_are_an_error_of_the_command_and_none_of_the_run(
    tmp_path: Path,
    job: Job,
    state: FileStateManager,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pyspark", reason="batch runs are Spark's")
    submitted(state, job.directory)
    manifest = Manifest(60_000, committed_watermark=3)
    manifest.batches[3] = Batch("1a-00000001", "f", views={"counts": Parts()}, monoids={"counts": Sum().signature})
    job.directory.mkdir(parents=True)
    manifest.save(job.directory)
    (tmp_path / "words.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERON_HOME", str(tmp_path / "home"))
    assert cli.run(["pipeline", "run", "words.py"]) == UnavailableError.exit_code
    assert "the live store is away" in capsys.readouterr().err
    record = told(state)
    assert record is not None
    assert record.run is not None
    assert (record.run.error, record.run.batches) == ("", 0)
