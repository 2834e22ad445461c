"""What processes log and print: files of bounded size, JSON lines, levels that change."""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.cli.parts import Follower
from heronpy.config import EngineConfig, LoggingConfig
from heronpy.errors import ConfigError, NotFoundError, UsageError
from heronpy.proto import loglevels_pb2, tmaster_pb2
from heronpy.runtime import LevelSwitch, level_for, log_to, rotate
from heronpy.tmaster.parts import changed_levels, check_level, levels_in_force

Level = loglevels_pb2.LogLevel
Levels = loglevels_pb2.LogLevels


@pytest.fixture
def own_logging() -> Iterator[logging.Logger]:
    """The root logger, which is as it was afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield root
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def config(**values: object) -> LoggingConfig:
    return EngineConfig.from_keys({f"heron.logging.{key.replace('_', '.')}": v for key, v in values.items()}).logging


def test_log_files_are_rotated_within_their_bounds_and_lose_nothing_that_is_kept(
    own_logging: logging.Logger, tmp_path: Path
) -> None:
    path = tmp_path / "p.log"
    log_to(path, config(maximum_size_mb=1000 / 2**20, maximum_files=3))
    for n in range(500):
        logging.getLogger("x").info("line %d", n)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["p.log", "p.log.1", "p.log.2", "p.log.3"]
    assert all(f.stat().st_size <= 1000 for f in tmp_path.iterdir())
    lines = "".join((tmp_path / f"p.log{end}").read_text() for end in (".3", ".2", ".1", "")).splitlines()
    numbers = [int(line.rpartition(" ")[2]) for line in lines]
    assert numbers == list(range(numbers[0], 500))


def test_a_process_whose_directory_was_removed_does_not_make_it_again(tmp_path: Path) -> None:
    container = tmp_path / "topology" / "1"
    with pytest.raises(FileNotFoundError):
        log_to(container / "log-files" / "stmgr-1.log", config())
    assert not container.exists()


def test_a_line_that_is_too_large_is_alone_in_its_file(own_logging: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    log_to(path, config(maximum_size_mb=100 / 2**20, maximum_files=2))
    for text in ("small", "x" * 500, "last"):
        logging.getLogger("x").warning(text)
    assert path.read_text().endswith("last\n")
    assert (tmp_path / "p.log.1").read_text().count("\n") == 1
    assert (tmp_path / "p.log.2").read_text().endswith("small\n")


@given(st.text(), st.text())
@settings(max_examples=50)
def test_every_line_of_json_is_an_object_whatever_is_logged(
    tmp_path_factory: pytest.TempPathFactory, message: str, argument: str
) -> None:
    path = tmp_path_factory.mktemp("json") / "container_1_x_2.log"
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        log_to(path, config(format="json"), topology="words")
        logging.getLogger("of.user").info(message.replace("%", "%%") + "%s", argument + "\udc80")
        try:
            raise ValueError(argument)
        except ValueError:
            logging.getLogger("of.user").exception("failed")
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
    first, second = (json.loads(line) for line in path.read_bytes().splitlines())
    assert first["message"] == message + argument + "\udc80"
    assert (first["level"], first["logger"], first["process"]) == ("INFO", "of.user", "container_1_x_2")
    assert (first["topology"], first["pid"]) == ("words", os.getpid())
    assert first["ts"].endswith("+00:00")
    assert "exc" not in first
    assert second["exc"].startswith("Traceback")
    assert "ValueError" in second["exc"]


def test_a_full_disk_costs_lines_that_are_counted_and_ends_nothing(
    own_logging: logging.Logger, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.log"
    log_to(path, config(format="json", maximum_size_mb=1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        for n in range(20):
            logging.getLogger("x").info("line %d", n)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    logging.getLogger("x").info("again")
    *whole, torn, note, last = path.read_text().splitlines()
    assert [json.loads(line)["message"] for line in whole] == [f"line {n}" for n in range(len(whole))]
    assert torn.startswith("{")
    assert json.loads(note)["message"] == f"{20 - len(whole)} lines were lost here: File too large"
    assert json.loads(last)["message"] == "again"
    assert capfd.readouterr().err == f"{path} cannot be written: File too large; lines are lost until it can\n"


def test_processes_that_share_a_file_do_not_mix_their_lines(own_logging: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    log_to(path, config(maximum_size_mb=4000 / 2**20, maximum_files=100))
    children = []
    for child in range(3):
        if (pid := os.fork()) == 0:
            for n in range(100):
                logging.getLogger("x").info("%s", f"{child}-{n} " * 30)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    written = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    lines = [line.rpartition(": ")[2] for line in written if " py4j" not in line]  # what another test left may log, too
    assert sorted(lines) == sorted(f"{child}-{n} " * 30 for child in range(3) for n in range(100))


def test_files_without_bounds_are_refused() -> None:
    for key, value in (("maximum_size_mb", 0), ("maximum_files", 0), ("maximum_files", 101), ("format", "xml")):
        with pytest.raises(ConfigError, match=f"heron.logging.{key.replace('_', '.')} must be"):
            config(**{key: value})


def test_rotation_goes_on_where_a_kill_left_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for name, text in (("x", "new"), ("x.2", "old"), ("x.3", "oldest")):
        (tmp_path / name).write_text(text)
    rotate(path, 3)
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == {"x.1": "new", "x.3": "old"}


PRINTING = """
import sys
from pathlib import Path
from heronpy.runtime import rotate_output
out = Path(sys.argv[1])
for n in range(2000):
    print("line", n, file=sys.stderr if n % 2 else sys.stdout, flush=True)
    if n % 100 == 0:
        rotate_output(out, file_bytes=500, files=50)
"""


def test_a_process_that_prints_gets_new_files_and_loses_no_line(tmp_path: Path) -> None:
    out = tmp_path / "p.out"
    with out.open("ab") as f:
        subprocess.run([sys.executable, "-c", PRINTING, str(out)], stdout=f, stderr=f, timeout=300, check=True)
    files = [out, *(Path(f"{out}.{n}") for n in range(1, 51))]
    lines = b"".join(f.read_bytes() for f in reversed(files) if f.exists()).decode().splitlines()
    assert lines == [f"line {n}" for n in range(2000)]
    assert len([f for f in files if f.exists()]) > 10


PRINTING_WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from heronpy.config import LoggingConfig
from heronpy.runtime import log_to
log_to(Path(sys.argv[1]).with_suffix(".log"), LoggingConfig())
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
for n in range(20):
    print("line", n)
    print("line", n, "über", file=sys.stderr)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print("again")
"""


def test_a_full_disk_does_not_fail_who_prints(tmp_path: Path) -> None:
    out = tmp_path / "p.out"
    with out.open("ab") as f:
        command = [sys.executable, "-u", "-c", PRINTING_WITHOUT_ROOM, str(out)]
        subprocess.run(command, stdout=f, stderr=f, timeout=300, check=True)
    printed = out.read_text()
    assert printed.startswith("line 0\nline 0 über\nline 1\n")
    assert printed.endswith("again\n")
    assert "line 19" not in printed


def test_the_output_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    from heronpy.runtime import rotate_output

    out = tmp_path / "p.out"
    assert not rotate_output(out, file_bytes=1, files=2)
    out.write_bytes(b"x" * 100)
    assert not rotate_output(out, file_bytes=1, files=2)
    assert [f.name for f in tmp_path.iterdir()] == ["p.out"]


def test_last_lines_are_found_in_rotated_files_too(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    for name, text in (("x.log", "7\n8\nre"), ("x.log.1", "5\n6\n"), ("x.log.3", "1\n2\n")):
        (tmp_path / name).write_text(text)
    follower = Follower(path)
    assert follower.last(3) == b"6\n7\n8\n"
    assert follower.last(100) == b"1\n2\n5\n6\n7\n8\n"
    assert follower.last(0) == b""
    with path.open("ab") as f:
        f.write(b"st\n")
    assert follower.read() == b"rest\n"
    follower.close()


def test_the_closest_target_wins() -> None:
    levels = Levels(levels=[Level(target=t, level=x) for t, x in (("count", "INFO"), ("c_2", "DEBUG"))])
    assert level_for(levels, process="c_2", component="count") == "DEBUG"
    assert level_for(levels, process="c_3", component="count") == "INFO"
    assert level_for(levels, process="w_1", component="words") is None
    engine = Levels(levels=[Level(target="__engine__", level="ERROR")])
    assert level_for(engine, process="stmgr-1", component="__stmgr__") == "ERROR"
    assert level_for(engine, process="c_2", component="count") is None


def test_a_level_cuts_off_what_is_below_it_and_goes_back(own_logging: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    log_to(path, LoggingConfig())
    noisy, quiet, plain = (logging.getLogger(f"test.levels.{name}") for name in ("noisy", "quiet", "plain"))
    noisy.setLevel(logging.DEBUG)
    quiet.setLevel(logging.ERROR)
    switch = LevelSwitch(process="c_2", component="count")

    def logged(level: str | None) -> list[str]:
        before = path.stat().st_size if path.exists() else 0
        switch.follow(Levels(levels=[Level(target="count", level=level)] if level else []))
        for log in (noisy, quiet, plain):
            log.debug("%s debug", log.name.rpartition(".")[2])
            log.info("%s info", log.name.rpartition(".")[2])
        lines = path.read_bytes()[before:].decode().splitlines()
        return [line.rpartition(": ")[2] for line in lines]

    normal = ["noisy debug", "noisy info", "plain info"]
    assert logged(None) == normal
    assert logged("ERROR") == ["log level INFO -> ERROR"]
    assert logged("DEBUG") == ["log level ERROR -> DEBUG", "noisy debug", "noisy info", "plain debug", "plain info"]
    assert logged("DEBUG") == ["noisy debug", "noisy info", "plain debug", "plain info"]
    assert logged(None) == ["log level DEBUG -> INFO", *normal]


def request(target: str, level: str, for_s: int = 0) -> tmaster_pb2.LogLevelRequest:
    return tmaster_pb2.LogLevelRequest(target=target, level=level, for_s=for_s)


def test_one_level_for_each_target_until_its_time_is_over() -> None:
    levels = changed_levels(Levels(), request("b", "DEBUG", 10), now_ms=1000)
    levels = changed_levels(levels, request("a", "INFO"), now_ms=2000)
    assert [(x.target, x.level, x.until_ms) for x in levels.levels] == [("a", "INFO", 0), ("b", "DEBUG", 11_000)]
    assert levels_in_force(levels, 10_999) == levels
    assert [x.target for x in levels_in_force(levels, 11_000).levels] == ["a"]
    assert not changed_levels(levels_in_force(levels, 11_000), request("a", ""), now_ms=0).levels


def test_requests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'count'"):
        check_level(request("coun", "DEBUG"), ["count"])
    with pytest.raises(UsageError, match="no log level 'LOUD'"):
        check_level(request("count", "LOUD"), ["count"])
    with pytest.raises(UsageError, match="cannot hold"):
        check_level(request("count", "DEBUG", -1), ["count"])
