"""Batch runs where something is missing, damaged or full: one line that names it, and the rest is computed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from pipeline_program import archive, job_at

from heronpy.archive import ArchiveWriter
from heronpy.errors import DamagedInputError, HeronError, UnavailableError
from heronpy.pipeline import Job, Manifest, Progress, ViewReader, computing, run
from heronpy.pipeline.compaction import compact
from heronpy.pipeline.duplicates import file_hashes
from heronpy.pipeline.session import check_java
from heronpy.pipeline.vacuum import vacuum
from heronpy.streamlet import Sum
from heronpy.testing import eventually_sync

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark]

END_MS = 100_000
Rows = list[tuple[str, int, str]]


def rows_of(commit: int, count: int = 400) -> Rows:
    """Lines of one commit, a tenth of them in each batch."""
    return [(f"c{commit} w{i % 7} w{i % 3}", i * END_MS // count, f"{commit}-{i}") for i in range(count)]


def counted(*commits: Rows) -> Counter[str]:
    return Counter(word for rows in commits for line, _, _ in rows for word in line.split())


def total(job: Job) -> Counter[str]:
    return Counter(dict(ViewReader(job.directory, "counts", Sum()).totals()))


def files_of(directory: Path) -> list[Path]:
    """The archive's files, those of a commit together."""
    return sorted((directory / "archive" / "events").glob("batch=*/*.parquet"), key=lambda path: path.stat().st_mtime)


def complete(directory: Path) -> None:
    """Say that the archive has everything: only complete batches are compacted."""
    path = directory / "archive" / "events"
    writer = ArchiveWriter(path, task="t-0", batch_length_ms=10_000, codec="columns", dead_letter=print, run="r")
    writer.progress(None)


# What is missing


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


def java(folder: Path, version: str) -> None:
    file = folder / "java"
    file.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-14' >&2\n")
    file.chmod(0o755)


def test_without_java_it_says_what_to_install(path: Path):
    with pytest.raises(
        UnavailableError, match=r"needs Java, and there is none on the PATH: install Java 17.*openjdk-17"
    ):
        check_java()


def test_java_home_is_looked_into(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    java(path, "21.0.1")
    check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(UnavailableError, match=f"there is none in {tmp_path / 'jdk'}"):
        check_java()


@pytest.mark.parametrize(("version", "major"), [("11.0.2", "11"), ("1.8.0_292", "8"), ("?", "of no known version")])
def test_a_java_that_is_too_old_is_named_with_its_version(path: Path, version: str, major: str):
    java(path, version)
    with pytest.raises(UnavailableError, match=f"Spark needs Java 17, and {path}/java is Java {major}: install"):
        check_java()


RUN = """
import sys
from pathlib import Path
from heronpy.pipeline import run
from pipeline_program import job_at
run(job_at(Path(sys.argv[1])), until_ms=int(sys.argv[2]))
"""


def test_a_run_without_java_changes_nothing(path: Path, tmp_path: Path):
    archive(tmp_path, rows_of(0))
    # In a process of its own: in this one a session may run, and that needs Java no more.
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", RUN, str(tmp_path), str(END_MS)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "heronpy.errors.UnavailableError: Spark needs Java, and there is none"
    )
    assert not (tmp_path / "manifest.json").exists()


PROGRAM = f"""
import sys
from pathlib import Path
from heronpy.pipeline import run
from pipeline_program import job_at
run({{job}}, master="local[1]", until_ms={END_MS}, conf={{conf}})
"""


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        pytest.param(
            "spark.scheduler.mode",
            "odd",
            "ConfigError: Spark does not start on local[1]: ",
            marks=pytest.mark.long,
        ),
        (
            "spark.driver.memory",
            "odd",
            "ConfigError: Spark does not start on local[1]: Invalid maximum heap size: -Xmxodd",
        ),
        ("spark.default.parallelism", "odd", "HeronError: Spark has failed: "),
    ],
)
def test_a_setting_that_spark_cannot_have_is_one_line_that_names_it(
    tmp_path: Path, key: str, value: str, error: str
) -> None:
    archive(tmp_path, rows_of(0))
    program = PROGRAM.format(job="job_at(Path(sys.argv[1]))", conf={key: value})
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", program, str(tmp_path)]  # in a process of its own, as above
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"heronpy.errors.{error}"), done.stderr
    assert key in line
    assert "spark: " not in done.stderr
    assert not Manifest.load(tmp_path).batches


def test_a_jvm_that_cannot_write_a_file_as_it_starts_is_ended_and_said(tmp_path: Path) -> None:
    archive(tmp_path, rows_of(0))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", PROGRAM.format(job="job_at(Path(sys.argv[1]))", conf={}), str(tmp_path)]
    with psutil.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            eventually_sync(lambda: check("java" in {child.name() for child in process.children()}), within_s=120)
            (jvm,) = process.children()
            jvm.rlimit(psutil.RLIMIT_FSIZE, (0, 0))  # as a full disk
            _, said = process.communicate(timeout=120)
        finally:
            if process.poll() is None:
                jvm.kill()
                process.kill()
    assert said.splitlines()[-1] == (
        "heronpy.errors.UnavailableError: Spark does not start on local[1]: File too large"
    )
    assert not jvm.is_running()


@pytest.mark.long
def test_a_jvm_that_is_killed_is_named_and_the_next_run_is_exact(tmp_path: Path, spark: Any) -> None:
    archive(tmp_path, rows := rows_of(0))
    marker = tmp_path.with_name("computing")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    program = PROGRAM.format(job="job_at(Path(sys.argv[1]), Path(sys.argv[2]))", conf={})
    command = [sys.executable, "-c", program, str(tmp_path), str(marker)]
    with psutil.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            eventually_sync(lambda: check(marker.exists()), within_s=120)
            (jvm,) = (child for child in process.children() if child.name() == "java")
            started = process.children(recursive=True)
            jvm.kill()
            _, said = process.communicate(timeout=120)
        finally:
            if process.poll() is None:
                process.kill()
    marker.unlink(missing_ok=True)  # a worker waits for that
    assert said.splitlines()[-1] == (
        "heronpy.errors.UnavailableError: Spark's JVM has ended (SIGKILL), perhaps for lack of memory: what was done "
        "before stays done; run again"
    )
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
    run(job_at(tmp_path), until_ms=END_MS)
    assert total(job_at(tmp_path)) == counted(rows)
    assert not vacuum(job_at(tmp_path), dry_run=True).leftovers


def check(holds: bool) -> None:
    assert holds


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_without_a_package_it_says_what_to_install(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, package, None)  # Python's way to say that it cannot be imported
    with pytest.raises(UnavailableError, match=rf"^batch runs need {package}: pip install 'heron-engine\[spark\]'$"):
        run(job_at(tmp_path), until_ms=END_MS)


# What is damaged


def flip(path: Path) -> None:
    """Change a byte in a page: the footer is whole."""
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Take the footer away."""
    path.write_bytes(path.read_bytes()[:-20])


def of_batch(files: list[Path], batch: int) -> Path:
    return next(file for file in files if file.parent.name == f"batch={batch}")


@pytest.mark.usefixtures("spark")
def test_a_batch_with_damaged_input_is_not_done_and_all_others_are(tmp_path: Path):
    commits = [rows_of(0), rows_of(1), rows_of(2)]
    for commit in commits:
        archive(tmp_path, commit)
    files = files_of(tmp_path)
    cut(broken := of_batch(files[:10], 1))
    flip(flipped := of_batch(files[10:20], 6))
    before = {file: file.read_bytes() for file in files}
    job = job_at(tmp_path)
    with pytest.raises(DamagedInputError, match="--accept-damage") as refusal:
        run(job, until_ms=END_MS)
    blocked = [1, 2, 3, 6, 7, 8]  # windows are as long as one batch and a half
    named = "6 batches (1970-01-01 00:00:10 to 1970-01-01 00:01:20)"
    assert str(refusal.value).startswith(f"{named} cannot be done: {broken}: the file cannot be read")
    report = refusal.value.report
    assert report.blocked == blocked
    assert report.damaged[6] == f"{flipped}: a part of it cannot be read"
    assert report.batches == [0, 4, 5, 9]
    assert report.committed_watermark == 0
    assert total(job) == counted(*([row for row in rows if row[1] // 10_000 not in blocked] for rows in commits))
    assert {file: file.read_bytes() for file in files_of(tmp_path)} == before, "no file is moved or changed"
    with pytest.raises(DamagedInputError, match=r"^6 batches"):
        run(job, until_ms=END_MS)
    accepted = run(job, until_ms=END_MS, accept_damage=True)
    assert accepted.batches == blocked
    assert [note for note in accepted.notes if "damaged" in note] == [
        f"batch 1970-01-01 00:0{begin} was computed without what is damaged: {accepted.damaged[batch]}"
        for batch, begin in ((1, "0:10"), (6, "1:00"))
    ]
    done = Manifest.load(tmp_path).batches
    assert [batch for batch in sorted(done) if done[batch].damaged] == [1, 6]
    left = [[row for row in rows if row[1] // 10_000 != hurt] for rows, hurt in zip(commits, (1, 6, -1), strict=True)]
    assert total(job) == counted(*left)
    letters = "".join(path.read_text() for path in (tmp_path / "dead-letter").rglob("*.jsonl"))
    assert f"{flipped}, row group 0" in letters
    assert run(job, until_ms=END_MS).batches == [], "what was accepted stays so"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("damage", [flip, pytest.param(cut, marks=pytest.mark.long)])
def test_a_damaged_file_that_is_repaired_is_computed_again_and_only_then(
    tmp_path: Path, damage: Callable[[Path], None]
):
    archive(tmp_path, rows_of(0))
    damaged = of_batch(files_of(tmp_path), 4)
    whole = damaged.read_bytes()
    damage(damaged)
    job = job_at(tmp_path)
    assert run(job, until_ms=END_MS, accept_damage=True).elements == 360
    assert run(job, until_ms=END_MS).batches == []
    damaged.write_bytes(whole)
    again = run(job, until_ms=END_MS)
    assert 4 in again.batches
    assert again.batches != list(range(10))
    assert total(job) == counted(rows_of(0))
    assert run(job, until_ms=END_MS).batches == []
    assert not any(batch.damaged for batch in Manifest.load(tmp_path).batches.values())


@pytest.mark.usefixtures("spark")
def test_a_disk_that_has_read_damage_once_is_asked_again(tmp_path: Path):
    archive(tmp_path, rows_of(0))
    hurt = of_batch(files_of(tmp_path), 4)
    whole, times = hurt.read_bytes(), hurt.stat()
    flip(hurt)
    os.utime(hurt, ns=(times.st_atime_ns, times.st_mtime_ns))
    job = job_at(tmp_path)
    with pytest.raises(DamagedInputError):
        run(job, until_ms=END_MS)
    hurt.write_bytes(whole)
    os.utime(hurt, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if it had never been anything else
    assert run(job, until_ms=END_MS).committed_watermark == 9
    assert total(job) == counted(rows_of(0))
    assert Manifest.load(tmp_path).unread == {}


def test_ids_that_cannot_be_read_fail_a_run_and_damaged_ones_are_told(tmp_path: Path):
    archive(tmp_path, rows_of(0))
    file = files_of(tmp_path)[0]
    (whole,) = file_hashes(file)
    assert whole is not None
    assert len(whole) == 40
    content = bytearray(file.read_bytes())
    column = pq.ParquetFile(file).metadata.row_group(0).column(1)
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    file.write_bytes(content)
    assert list(file_hashes(file)) == [None]
    file.unlink()
    file.symlink_to(file)  # ELOOP, also for root
    with pytest.raises(HeronError, match="cannot read"):
        list(file_hashes(file))


@pytest.mark.usefixtures("spark")
def test_what_only_one_of_the_passes_could_read_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive(tmp_path, rows_of(0))
    archive(tmp_path, rows_of(0))  # all ids are there twice
    file = files_of(tmp_path)[0]
    found = computing.find_duplicate_candidates

    def damaged_for_a_moment(*args: Any) -> Any:
        whole = file.read_bytes()
        flip(file)
        try:
            return found(*args)
        finally:
            file.write_bytes(whole)

    monkeypatch.setattr(computing, "find_duplicate_candidates", damaged_for_a_moment)
    job = job_at(tmp_path)
    with pytest.raises(HeronError, match=f"{file} could not be read, and at another time it could: run again"):
        run(job, until_ms=END_MS)
    monkeypatch.undo()
    assert run(job, until_ms=END_MS).duplicates == 400
    assert total(job) == counted(rows_of(0))


# What happens beside it


@pytest.mark.usefixtures("spark")
def test_a_compaction_leaves_nothing_to_compute(tmp_path: Path):
    for commit in range(4):
        archive(tmp_path, rows_of(commit))
    job = job_at(tmp_path)
    run(job, until_ms=END_MS)
    manifest = Manifest.load(tmp_path)
    complete(tmp_path)
    before = len(files_of(tmp_path))
    report = compact(job, min_files=2, keep_replaced_s=0)
    compact(job, min_files=2, keep_replaced_s=0)  # removes what the first one has replaced
    assert (before, report.files_before, len(files_of(tmp_path))) == (40, 40, 10)
    assert run(job, until_ms=END_MS).batches == []
    assert Manifest.load(tmp_path) == manifest
    archive(tmp_path, [("late", 21_000, "late")])
    assert 2 in run(job, until_ms=END_MS).batches
    assert total(job) == counted(*map(rows_of, range(4)), [("late", 0, "")])


@pytest.mark.usefixtures("spark")
def test_progress_is_told_until_all_tasks_are_done(tmp_path: Path):
    archive(tmp_path, rows_of(0))
    told: list[Progress] = []
    run(job_at(tmp_path), until_ms=END_MS, progress=told.append)
    assert {one.phase for one in told} == {"duplicates", "compute"}
    last = [one for one in told if one.phase == "compute"][-1]
    assert last.done == last.total > 0
    assert last.batches == tuple(range(10))
    assert all(0 <= one.done <= one.total for one in told)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A job's directory whose views are on a disk of 256 KB."""
    views = tmp_path / "views"
    views.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(views)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    yield tmp_path
    subprocess.run(["umount", "-l", str(views)], check=True)


@pytest.mark.usefixtures("spark")
def test_a_full_disk_is_one_line_and_nothing_is_replaced(small_disk: Path):
    archive(small_disk, rows_of(0))
    job = job_at(small_disk)
    run(job, until_ms=END_MS)
    before, manifest = total(job), Manifest.load(small_disk)
    many: Rows = [(" ".join(f"{i}-{j}" for j in range(20)), i % END_MS, f"many-{i}") for i in range(4000)]
    archive(small_disk, many)
    with pytest.raises(HeronError, match="No space left on device") as caught:
        run(job, until_ms=END_MS)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    assert (total(job), Manifest.load(small_disk)) == (before, manifest)
