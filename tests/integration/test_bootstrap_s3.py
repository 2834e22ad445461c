"""What topologies begin with if the files of their job are in S3: a real server, and no Spark."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.connectors import ListSource
from heronpy.errors import AlreadyExistsError, StateError
from heronpy.filesystem import UrlPath, files_of, location
from heronpy.pipeline import Job, Manifest, bootstrap
from heronpy.pipeline.exchange import Layout
from heronpy.pipeline.reductions import StateReducer, state_directory
from heronpy.streamlet import Builder, Config
from heronpy.streamlet.bootstrap import name_bootstrap, read_cut, read_states, write_states
from heronpy.streamlet.graph import ReduceByKeyNode
from heronpy.streamlet.runner import Program
from heronpy.testing.servers import S3Server, s3_missing

pytestmark = pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def place(server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> UrlPath:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    root = location("it", server.url("jobs"))
    assert isinstance(root, UrlPath)
    return root / request.node.name


def written(place: UrlPath, folder: str, states: dict[str, dict[Any, Any]], before_ms: int) -> None:
    for stage, pairs in states.items():
        write_states(place / folder, stage, pairs.items())
    name_bootstrap(place, folder, dict.fromkeys(states, ""), before_ms)


def test_the_folder_that_is_named_last_counts_as_a_whole(place: UrlPath) -> None:
    assert read_cut(place) is None
    assert list(read_states(place, "sums")) == []
    many = {n: (n, "x" * 2000) for n in range(2500)}
    written(place, "bootstraps/1", {"sums": many, "Größen / all": {"a": 1}}, 42)
    assert read_cut(place) == 42
    assert dict(read_states(place, "sums")) == many
    assert dict(read_states(place, "Größen / all")) == {"a": 1}
    write_states(place / "bootstraps/2", "sums", [("b", 2)])
    assert (read_cut(place), len(list(read_states(place, "sums")))) == (42, 2500), "nobody has named it yet"
    name_bootstrap(place, "bootstraps/2", {"sums": ""}, 43)
    assert (read_cut(place), dict(read_states(place, "sums"))) == (43, {"b": 2})
    assert list(read_states(place, "Größen / all")) == []


def test_a_state_that_is_missing_or_damaged_is_not_taken_for_none(place: UrlPath) -> None:
    written(place, "bootstraps/1", {"sums": dict.fromkeys(range(10), 1)}, 42)
    files = files_of(place)
    (path,) = files.below(place / "bootstraps/1")
    files.write(path, files.read(path)[:-5])
    with pytest.raises(StateError, match="run the bootstrap again"):
        list(read_states(place, "sums"))
    files.delete([path])
    with pytest.raises(StateError, match=r"sums\.pickle is missing: run the bootstrap again"):
        list(read_states(place, "sums"))
    files.write(place / "bootstrap.json", b'{"folder": 1}')
    with pytest.raises(StateError, match="run the bootstrap again"):
        read_cut(place)


def job_at(place: UrlPath) -> Job:
    builder = Builder()
    builder.new_source(ListSource(["a"])).archive()
    config = Config()
    config.set_pipeline(place, batch_length=10)
    return Job.of(Program("Words", config, builder.graph))


def test_a_bootstrap_is_named_when_it_is_whole_and_the_one_before_is_removed(
    place: UrlPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_at(place)
    with pytest.raises(StateError, match="no closed batch"):
        bootstrap(job)
    manifest = Manifest.load(place, job.batch_length_ms)
    manifest.committed_watermark = 2
    manifest.save(place)
    written(place, "bootstraps/old", {"sums": {"a": 1}}, 10_000)
    second: list[BaseException] = []

    def meanwhile(_step: str) -> None:
        try:
            bootstrap(job)
        except AlreadyExistsError as e:
            second.append(e)

    monkeypatch.setattr("heronpy.pipeline._bootstrap_job.load_live_views", lambda *_, **__: meanwhile("") or {})
    assert bootstrap(job).before_ms == 30_000
    assert [str(e).partition(",")[0] for e in second] == ["another bootstrap of Words runs"]
    assert read_cut(place) == 30_000
    assert list(read_states(place, "sums")) == []
    assert files_of(place).below(place / "bootstraps") == []


def test_states_of_reductions_are_written_to_the_store(place: UrlPath) -> None:
    layout = Layout(1000, None, None, 0, {"sums": 1}, {"sums": 1}, {}, 1, place, "v1")
    task: Any = SimpleNamespace(index=3, report=SimpleNamespace(parts=[]))
    node = ReduceByKeyNode(parents=(), partitions=1, name="sums", function=max)
    reducer = StateReducer(node, task, layout)
    reducer.state = {n: n * n for n in range(5000)}
    reducer.finish()
    (part,) = task.report.parts
    assert (part.stage, part.number, part.rows) == ("sums", 3, 5000)
    assert str(part.written).startswith(str(state_directory(place, "v1")))
    found: list[Any] = []
    with files_of(part.written).opened(part.written) as (file, _), contextlib.suppress(EOFError):
        while True:
            found += pickle.load(file)
    assert dict(found) == reducer.state
