"""`heron pipeline` through the real command: what it computes and tells, and what is left when it goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from heron_command import heron_command

from heronpy.host import find_by_environment
from heronpy.pipeline.manifest import MANIFEST_FILE, Manifest
from heronpy.stores import SqliteStore, StoreContext
from heronpy.streamlet import Sum
from heronpy.streamlet.bootstrap import read_cut, read_states
from heronpy.testing import eventually_sync

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.spark,
]

SCRIPT = """
import argparse, os, time
from beside import words_of
from heronpy.connectors import JsonLines
from heronpy.streamlet import Builder, Config, Runner, Sum

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--directory", default="job")
    parser.add_argument("--slow", type=float, default=0)
    parser.add_argument("--bad", action="store_true")
    a = parser.parse_args()
    def slowly(pair):
        time.sleep(a.slow)
        return pair[9] if a.bad else pair
    builder = Builder()
    lines = builder.new_source(JsonLines("none.jsonl")).event_time(lambda e: e["t"]).archive()
    words = lines.flat_map(words_of).map(slowly)
    words.to_store("counts", Sum())
    words.reduce_by_key(lambda x, y: x + y).set_name("totals").map(lambda kv: ("n", 1)).to_store("changes", Sum())
    config = Config()
    config.set_pipeline(a.directory, batch_length=60, keep_live_batches=3)
    Runner().run(a.name, config, builder)

if __name__ == "__main__":
    main()
"""
BESIDE = """
def words_of(e):
    from late import ONE  # imported by the workers only
    return [(word, ONE) for word in e["text"].split()]
"""
FIRST, BATCHES, LINES = 100, 4, 10
UNTIL = str((FIRST + BATCHES) * 60)


class Place:
    """A script, its job's directory, and the command with a home of its own."""

    def __init__(self, root: Path) -> None:
        self.work, self.home = root / "work", root / "home"
        self.job = self.work / "job"
        self.work.mkdir(parents=True)
        self.script = self.work / "counts.py"
        self.script.write_text(SCRIPT)
        (self.work / "beside.py").write_text(BESIDE)
        (self.work / "late.py").write_text("ONE = 1\n")

    def fill(self) -> None:
        """Archive some lines, one of each batch twice, and count all of these live."""
        from heronpy.archive import ArchiveWriter

        bad: list[Any] = []
        archive = ArchiveWriter(
            self.job / "archive" / "events",
            task="t",
            batch_length_ms=60_000,
            codec="columns",
            dead_letter=lambda *letter: bad.append(letter),
        )
        live = SqliteStore().writer(StoreContext(view="counts", monoid=Sum(), directory=self.job), "w")
        for batch in range(FIRST, FIRST + BATCHES + 1):
            for n in range(LINES):
                time_ms = batch * 60_000 + n * 1000
                for _ in range(2 if n == 3 else 1):
                    archive.add(f"{batch}-{n}", time_ms, {"t": time_ms / 1000, "text": "the cow"})
                    for word in ("the", "cow"):
                        live.merge(word, 1, batch)
        archive.commit()
        archive.close()
        live.commit()
        live.close()
        assert not bad

    def start(self, *args: str, command: tuple[str, ...] = (), env: Mapping[str, str] = {}) -> subprocess.Popen[str]:
        heron = (sys.executable, "-c", "from heronpy.cli import main; main()", "pipeline")
        return subprocess.Popen(
            [*(command or heron), *args],
            cwd=self.work,
            env={**os.environ, "HERON_HOME": str(self.home), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self,
        *args: str,
        command: tuple[str, ...] = (),
        env: Mapping[str, str] = {},
        timeout_s: float = 600,
        spark: bool | None = None,
    ) -> subprocess.CompletedProcess[str]:
        if spark is None:
            spark = args[0] == "run"
        if not command and not env and not spark:  # whatever starts Spark is a process of its own
            return heron_command("pipeline", *args, home=self.home, cwd=self.work, timeout_s=timeout_s)
        process = self.start(*args, command=command, env=env)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def ok(self, *args: str, **options: Any) -> str:
        done = self(*args, **options)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    def answer(self, *args: str) -> Any:
        return json.loads(self.ok(*args))

    def fails(self, code: int, *args: str, words: str, **options: Any) -> None:
        """It fails with this exit code, and a single line with these words."""
        done = self(*args, **options)
        told = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (code, ""), (done.stdout, done.stderr)
        assert len(told) == 1, told
        assert told[0].startswith("heron: ")
        assert words in told[0]

    def check_no_process_is_left(self) -> None:
        def none() -> None:
            left = [str(process) for process, _ in find_by_environment({"HERON_HOME": str(self.home)})]
            assert not left

        eventually_sync(none)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, subprocess.CompletedProcess[str]]:
    """A job whose first run was interrupted, and what that run said."""
    made = Place(tmp_path_factory.mktemp("pipeline"))
    made.fill()
    process = made.start("run", "--master", "local[2]", "--until", UNTIL, "counts.py", "Words", "--slow", "3")
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("compute"):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    return made, subprocess.CompletedProcess((), process.returncode, out, err)


def test_a_run_that_is_interrupted_leaves_nothing(
    interrupted: tuple[Place, subprocess.CompletedProcess[str]],
) -> None:
    place, done = interrupted
    assert done.returncode == 130, (done.stdout, done.stderr)
    assert done.stderr.splitlines()[-1] == "heron: interrupted"
    assert "Traceback" not in done.stderr
    assert not (place.job / MANIFEST_FILE).exists()
    place.check_no_process_is_left()


@pytest.fixture(scope="module")
def place(interrupted: tuple[Place, subprocess.CompletedProcess[str]]) -> Place:
    """The job with all but its last batch computed, by the run after the one that was interrupted."""
    made, _ = interrupted
    made.report = made.answer(  # type: ignore[attr-defined]  # for the test that looks at it
        "run", "--master", "local[2]", "--until", UNTIL, "--json", "counts.py", "Words"
    )
    return made


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.check_no_process_is_left()


def test_the_next_run_computes_all_closed_batches_once_and_drops_duplicates(place: Place) -> None:
    report = place.report  # type: ignore[attr-defined]  # see `place`
    assert (report["elements"], report["duplicates"], report["committed_watermark"]) == (40, 4, 103)
    assert report["batches"] == [100, 101, 102, 103]
    again = json.loads(place.ok("run", "Words", "--until", UNTIL, "--json", spark=False))
    assert again["batches"] == []
    place.check_no_process_is_left()


@pytest.mark.long
def test_live_rows_of_closed_batches_are_kept_as_long_as_the_program_says(place: Place) -> None:
    status = place.answer("status", "Words", "--json")
    counts = next(view for view in status["views"] if view["view"] == "counts")
    assert (counts["live_batches"], counts["live_rows"], counts["live_rows_open"]) == (4, 8, 2)  # 101 to 104
    assert status["committed_watermark"] == 103
    assert status["batches"] == {"done": 4, "elements": 40, "duplicates": 4, "open": [104], "damaged": {}}
    archive = status["archives"][0]
    assert (archive["done"]["rows"], archive["waiting"]["rows"]) == (44, 11)
    shown = place.ok("status", "Words")
    assert "4 batches done, all up to 1970-01-01 01:43 UTC (id 103)" in shown
    assert "next: batch 1970-01-01 01:44" in shown


def test_a_query_adds_batch_and_live(place: Place) -> None:
    parts = place.answer("query", "Words", "the", "--view", "counts", "--json", "--explain")
    assert (parts["batch"], parts["live"], parts["value"], parts["upto"]) == (40, 11, 51, 103)
    assert place.ok("query", "--view", "counts", "counts.py", "the", "Words").strip() == "51"
    place.fails(3, "query", "Words", "absent", "--view", "counts", words="no key 'absent'")
    place.fails(3, "query", "Words", "the", "--view", "conts", words="did you mean 'counts'?")
    place.fails(2, "query", "Words", "the", words="--view")
    place.fails(2, "query", "Words", '{"a": 1}', "--view", "counts", words="not a JSON object")


def test_an_export_has_batch_and_live_or_batch_only(place: Place, tmp_path: Path) -> None:
    for options, count in (((), 51), (("--exact-only",), 40)):
        out = tmp_path / "counts.csv"
        assert "rows in" in place.ok("export", "Words", "--view", "counts", "--out", str(out), *options)
        assert f"the,{count}" in out.read_text().splitlines()
    place.fails(2, "export", "Words", "--view", "counts", words="--out")
    place.fails(2, "export", "Words", "--view", "counts", "--out", str(tmp_path / "x.xlsx"), words=".parquet, .csv")
    place.fails(3, "export", "Words", "--view", "conts", "--out", str(out), words="did you mean 'counts'?")
    assert [file.name for file in tmp_path.iterdir()] == ["counts.csv"]


@pytest.mark.long
def test_reconcile_shows_what_was_counted_twice(place: Place, tmp_path: Path) -> None:
    found = place.answer("reconcile", "Words", "--json", "--limit", "1", "--html", str(tmp_path / "r.html"))
    counts = found["views"][0]
    assert (counts["live"], counts["batch"], counts["drift"], counts["keys"]) == (66, 60, 6, 2)
    assert [batch["batch_id"] for batch in counts["batches"]] == [101, 102, 103]
    assert [batch["drift"] for batch in counts["batches"]] == [2, 2, 2]
    assert len(counts["worst"]) == 1
    assert counts["worst"][0]["drift"] == 3
    assert "+6" in (tmp_path / "r.html").read_text()
    done = place("reconcile", "Words", "--fail-on-drift", "--view", "counts")
    assert done.returncode == 8
    assert "2 keys have drifted" in done.stderr
    assert "drift +6 (+10 %)" in done.stdout
    place.fails(2, "reconcile", "Words", "--html", "/no/such/r.html", words="there is no directory /no/such")


@pytest.mark.long
def test_bootstrap_makes_the_batch_views_the_live_ones_and_leaves_state(place: Place, tmp_path: Path) -> None:
    copy = tmp_path / "job"
    shutil.copytree(place.job, copy)
    place.answer("bootstrap", "--master", "local[2]", "--json", "counts.py", "Warm", "--directory", str(copy))
    found = place.answer("reconcile", "Warm", "--json")
    assert found["drifted"] == 0
    assert found["views"][0]["live"] == 60
    assert read_cut(copy) == 104 * 60_000
    assert dict(read_states(copy, "totals")) == {"the": 40, "cow": 40}
    assert place.answer("query", "Warm", "the", "--view", "counts", "--json") == 51
    place.check_no_process_is_left()


@pytest.mark.long
def test_a_batch_is_computed_again_under_spark_submit(place: Place) -> None:
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    script = place.ok("script").strip()
    before = Manifest.load(place.job).batches
    options = ("--master", "local[1]", "--conf", "spark.ui.enabled=false")
    out = place.ok(
        *("backfill", "--batch", "101", "--json", "counts.py", "Words"),
        command=(str(submit), *options, script),
        env={"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert json.loads(out[out.index("{") :])["batches"] == [101]
    after = Manifest.load(place.job).batches
    assert {batch for batch in after if after[batch].version != before[batch].version} == {101}
    assert after[101].elements == 10
    place.check_no_process_is_left()


@pytest.mark.long  # test_pipeline_run.py shows the error, and test_cli_submit.py what a command makes of it
def test_user_code_that_raises_is_told_and_nothing_counts(empty: Place) -> None:
    empty.fill()
    done = empty("run", "--master", "local[2]", "--until", UNTIL, "counts.py", "Words", "--bad")
    assert done.returncode == 5, done.stderr
    assert "IndexError" in done.stderr.splitlines()[-1]
    assert "counts.py" in done.stderr
    assert not (empty.job / MANIFEST_FILE).exists()


def test_wrong_words_are_told_in_one_line(empty: Place) -> None:
    for code, args, words in [
        (2, ["runn", "x"], "did you mean 'run'?"),
        (2, ["run"], "JOB"),
        (3, ["run", "nowhere.py"], "no file nowhere.py"),
        (3, ["run", "nowhere"], "no job 'nowhere'"),
        (2, ["run", "--until", "soon", "counts.py", "W"], "--until 'soon'"),
        (2, ["run", "--conf", "x", "counts.py", "W"], "KEY=VALUE"),
        (2, ["run", "--conf", "x=1", "counts.py", "W"], "spark."),
        (2, ["run", "counts.py", "W", "--until", "now"], "--until stands after JOB"),
        (2, ["run", "--untill", "now", "counts.py", "W"], "No such option: --untill"),
        (2, ["query", "--veiw=counts", "--vew", "counts", "counts.py", "W"], "No such option: --veiw"),
        (2, ["backfill", "counts.py", "W"], "--batch B"),
        (2, ["backfill", "--batch", "soon", "counts.py", "W"], "--batch 'soon'"),
        (2, ["backfill", "--from", "60", "counts.py", "W"], "--to T"),
        (2, ["backfill", "--from", "600", "--to", "60", "counts.py", "W"], "later than --from"),
        (2, ["reconcile", "--limit", "-1", "counts.py", "W"], "--limit"),
    ]:
        empty.fails(code, *args, words=words, spark=False)
    done = empty("run", "counts.py", spark=False)  # argparse's own message, and its own exit code
    assert done.returncode == 2
    assert "the following arguments are required: name" in done.stderr
    assert not empty.job.exists()


def test_what_is_not_installed_is_told_with_the_command_that_installs_it(empty: Place) -> None:
    no_java = {"PATH": "/nowhere", "JAVA_HOME": ""}
    empty.fill()
    empty.fails(7, "run", "--until", UNTIL, "counts.py", "W", words="Java", env=no_java)
    for code, package, verb in [
        (7, "pyspark", ["run", "counts.py", "W"]),
        (2, "pyarrow", ["status", "counts.py", "W"]),
    ]:
        hidden = empty.work / f"without_{package}"  # one of its own: bytecode tells files by second and size
        hidden.mkdir()
        (hidden / "sitecustomize.py").write_text(
            "import sys\n"
            "class Hide:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            f"        if name.partition('.')[0] == {package!r}:\n"
            "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
            "sys.meta_path.insert(0, Hide())\n"
        )
        empty.fails(code, *verb, words="pip install 'heron-engine[spark]'", env={"PYTHONPATH": str(hidden)})


def test_a_directory_that_cannot_be_read_is_named(empty: Place) -> None:
    (empty.job).mkdir()
    (empty.job / MANIFEST_FILE).write_text("{")
    empty.fails(6, "status", "counts.py", "W", words=str(empty.job / MANIFEST_FILE))
    (empty.job / MANIFEST_FILE).unlink()
    empty.job.rmdir()
    empty.job.write_text("a file")
    empty.fails(1, "run", "counts.py", "W", words=str(empty.job))
