"""Loading jobs: from files, modules and names; what goes wrong is told in one line."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from heronpy import cli
from heronpy.errors import (
    ConfigError,
    HeronError,
    NotFoundError,
    StateError,
    TopologyError,
    UnavailableError,
    UsageError,
    UserCodeError,
)
from heronpy.pipeline import RunReport
from heronpy.pipeline.load import is_known, load_job
from heronpy.pipeline.record import Run
from heronpy.pipeline.registry import Remembered, names, recall, remember
from heronpy.stores import SqliteStore, StoreContext
from heronpy.streamlet import Sum
from heronpy.streamlet.graph import MapNode

SCRIPT = """
import sys
from beside_{n} import double
from heronpy.streamlet import Builder, Config, Runner, Sum

OFFSET = 7

def plus(value):
    return (value, double(value) + OFFSET)

def main():
    print("noise")
    for name in sys.argv[2:]:
        builder = Builder()
        builder.new_source(lambda: 1).map(plus).to_store("sums", Sum())
        config = Config()
        config.set_pipeline(sys.argv[1])
        Runner().run(name, config, builder)

if __name__ == "__main__":
    main()
"""


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path) -> Iterator[None]:
    """Scripts stay loaded in a process; here others follow."""
    modules, path, cwd = dict(sys.modules), list(sys.path), Path.cwd()
    yield
    for module in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.unregister_pickle_by_value(sys.modules[module])
    for name in set(sys.modules) - set(modules):
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):  # not heronpy's, typer's, …
            del sys.modules[name]
    sys.modules["__main__"] = modules["__main__"]
    sys.path[:] = path
    os.chdir(cwd)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    n = tmp_path.name.replace("-", "_")
    work = tmp_path / "work"
    work.mkdir()
    (work / f"beside_{n}.py").write_text("def double(value):\n    return 2 * value\n")
    path = work / f"job_{n}.py"
    path.write_text(SCRIPT.format(n=n))
    return path


def function_of(job: Any) -> Any:
    return next(node.function for node in job.graph.nodes() if isinstance(node, MapNode))


def test_a_script_is_run_with_its_arguments_up_to_its_runner(
    home: Path, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sys.argv
    loaded = load_job(str(script), [str(tmp_path / "d"), "A"], home=home)
    assert sys.argv is before
    assert (loaded.job.name, loaded.job.directory, list(loaded.job.stores())) == ("A", tmp_path / "d", ["sums"])
    assert capsys.readouterr() == ("", "noise\n")  # --json has stdout for itself


def test_functions_of_a_script_and_of_its_neighbours_reach_a_process_that_has_neither(
    home: Path, script: Path, tmp_path: Path
) -> None:
    loaded = load_job(str(script), [str(tmp_path / "d"), "A"], home=home)
    (tmp_path / "function").write_bytes(cloudpickle.dumps(function_of(loaded.job)))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))(5))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "function")], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout == "(5, 17)\n"


def test_what_a_topology_pickled_by_the_scripts_name_is_found(home: Path, script: Path, tmp_path: Path) -> None:
    script.write_text(script.read_text() + "\nclass Event:\n    pass\n")
    load_job(str(script), [str(tmp_path / "d"), "A"], home=home)
    as_in_an_instance = f"c{script.stem}\nEvent\n.".encode()
    assert pickle.loads(as_in_an_instance) is sys.modules["__main__"].Event  # type: ignore[attr-defined]  # the script's


def test_a_job_keeps_its_name_where_another_directory_has_nothing_of_it(
    home: Path, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(script.parent)
    load_job(script.name, ["relative", "A"], home=home)
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    capsys.readouterr()
    load_job(str(script), ["relative", "A"], home=home)
    said = f"nothing is archived in {other / 'relative'}: the name A stays that of {script}, loaded in {script.parent}"
    assert said in capsys.readouterr().err
    assert load_job("A", home=home).job.directory == script.parent / "relative"
    (other / "relative").mkdir()
    (other / "relative/manifest.json").write_text("{}")
    load_job(str(script), ["relative", "A"], home=home)
    assert load_job("A", home=home).job.directory == other / "relative"


def test_a_loaded_job_is_found_by_its_name_from_elsewhere(
    home: Path, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    load_job(script.name, ["relative", "A"], home=home)
    monkeypatch.chdir("/")
    assert names(home) == ["A"]
    assert is_known(home, "A")
    loaded = load_job("A", home=home)
    assert loaded.job.directory == script.parent / "relative"
    assert loaded.cwd == script.parent
    assert Path.cwd() == Path("/")
    with pytest.raises(UsageError, match="arguments of its own"):
        load_job("A", ["x"], home=home)
    script.unlink()
    with pytest.raises(NotFoundError, match="which the job was loaded from"):
        load_job("A", home=home)


def test_a_dotted_module_of_the_working_directory_is_a_job(
    home: Path, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    loaded = load_job(script.stem, ["d", "A"], home=home)
    assert loaded.job.directory == script.parent / "d"
    assert recall(home, "A") == Remembered(script.stem, ("d", "A"), str(script.parent))


def test_of_several_programs_one_is_chosen_by_name(home: Path, script: Path) -> None:
    with pytest.raises(TopologyError, match=r"2 programs \(A, B\): choose one with --name"):
        load_job(str(script), ["d", "A", "B"], home=home)
    assert load_job(str(script), ["d", "A", "B"], home=home, name="B").job.name == "B"
    assert load_job("B", home=home).job.name == "B"
    with pytest.raises(NotFoundError, match="no program 'C'"):
        load_job(str(script), ["d", "A", "B"], home=home, name="C")


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("import nowhere_at_all", UserCodeError, "nowhere_at_all"),
        ("1 / 0", UserCodeError, "ZeroDivisionError"),
        ("def f(:", UserCodeError, "SyntaxError"),
        ("import sys; sys.exit('no input')", UserCodeError, "no input"),
        ("x = 1", TopologyError, "runs no streamlet program"),
        ("from heronpy.streamlet import *; Runner().run('A', Config(), Builder())", HeronError, "A"),
    ],
)
def test_a_script_that_fails_says_why(tmp_path: Path, home: Path, code: str, error: type, words: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(code)
    with pytest.raises(error, match=words) as raised:
        load_job(str(path), home=home)
    assert "\n" not in str(raised.value)
    assert not home.exists()


def test_a_traceback_shows_the_scripts_frames_only(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def f():\n    raise KeyError('k')\nf()\n")
    with pytest.raises(UserCodeError) as raised:
        load_job(str(path), home=home)
    assert "bad.py" in raised.value.traceback
    assert "_load.py" not in raised.value.traceback


def test_argparse_ends_with_its_own_exit_code(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import argparse; p = argparse.ArgumentParser(); p.add_argument('x'); p.parse_args()")
    with pytest.raises(SystemExit) as raised:
        load_job(str(path), home=home)
    assert raised.value.code == 2


def test_what_is_no_job_is_named_with_what_is_near(
    tmp_path: Path, home: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)  # a name is looked for there, too, where anything may be
    load_job(str(script), ["d", "Words"], home=home)
    for ref, words in [
        ("Wrods", "did you mean 'Words'"),
        (f"{script.parent}/jib_{script.stem[4:]}.py", f"did you mean '{script}'"),
        ("no.such.module", "no module 'no.such.module'"),
        ("heronpy.examples", "is a package"),
        ("no/x", "no file no/x"),
        ("Numbers", "load it once"),
        ("a b", "no job 'a b', and no file or module of that name: name its file instead"),
    ]:
        with pytest.raises(NotFoundError, match=words.replace(".", r"\.")):
            load_job(ref, home=home)
    with pytest.raises(UsageError, match="is a directory"):
        load_job(f"{tmp_path}/", home=home)


def test_a_damaged_note_says_what_to_do(home: Path) -> None:
    remember(home, "A", Remembered("/x.py", ("a",), "/"))
    (home / "pipelines" / "A.json").write_text("{")
    with pytest.raises(StateError, match="remove it"):
        recall(home, "A")
    remember(home, "A", Remembered("/x.py", ("a",), "/"))
    assert recall(home, "A").args == ("a",)
    assert [path.name for path in (home / "pipelines").iterdir()] == ["A.json"]
    assert json.loads((home / "pipelines" / "A.json").read_text())["job"] == "/x.py"


def test_a_name_that_is_no_file_name_is_refused(home: Path) -> None:
    with pytest.raises(ConfigError):
        remember(home, "../x", Remembered("/x.py", (), "/"))


def test_a_good_run_after_which_live_rows_cannot_be_dropped_is_reported_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Any) -> int:
        raise UnavailableError("the live store is away")

    def compute(*_: Any, **_which: Any) -> RunReport:
        return RunReport("cli-told", batches=[1, 2], batch_length_ms=1000)

    told: list[Run] = []
    (tmp_path / "beside_told.py").write_text("def double(value): return 2 * value\n")
    script = tmp_path / "told.py"
    script.write_text(SCRIPT.replace("{n}", "told"))
    monkeypatch.setenv("HERON_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("heronpy.pipeline._cli_run.batch_run", compute)
    monkeypatch.setattr("heronpy.pipeline._cli_run.drop_live_rows", fails)
    monkeypatch.setattr("heronpy.pipeline.publish.try_publish", lambda home, job, *, run: told.append(run))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert cli.run(["pipeline", "run", str(script), str(tmp_path / "job"), "cli-told"]) != 0
    assert "the live store is away" in capsys.readouterr().err
    assert [(run.batches, run.error) for run in told] == [(2, "")]


def test_a_command_reads_live_views_where_it_is_told(
    script: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERON_HOME", str(home))
    elsewhere = tmp_path / "elsewhere"
    context = StoreContext(view="sums", monoid=Sum(), directory=None)
    with contextlib.closing(SqliteStore(elsewhere).writer(context, "0")) as writer:
        writer.merge(1, 5)
        writer.commit()
    query = ["pipeline", "query", "--json", "--live"]
    of = [str(script), "1", str(tmp_path / "job"), "cli-live"]
    assert cli.run([*query, str(elsewhere), *of]) == 0
    assert capsys.readouterr().out == "5\n"
    (tmp_path / "nothing").mkdir()
    assert cli.run([*query, str(tmp_path / "nothing"), *of]) == 3
    assert cli.run([*query, "mysql://ada:swordfish@host/db", *of]) != 0
    told = capsys.readouterr().err
    assert "live views are kept at redis://" in told
    assert "swordfish" not in told
