"""A stranger's program defines a topology, and gets nothing for it."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from heronpy import loader
from heronpy.cli.parts import pack_program
from heronpy.errors import HeronError, NotFoundError, NoTopologyError, StateError, UsageError, UserCodeError
from heronpy.host import find_by_environment
from heronpy.loader import Definition, stage
from heronpy.sandbox import Limits, Program, check_archive, define

TOPOLOGY = """
from heronpy.api.bolt import Bolt
from heronpy.api.spout import Spout
from heronpy.api.topology import Topology
class Numbers(Spout):
    outputs = ["number"]
    def initialize(self, config, context): pass
    def next_tuple(self): pass
class Print(Bolt):
    def initialize(self, config, context): pass
    def process(self, tup): pass
class Words(Topology):
    numbers = Numbers.spec()
    printed = Print.spec(inputs=[numbers])
"""

Run = Callable[..., Definition]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Defines the topology of some files."""

    def run(
        files: dict[str, str], file: str = "main.py", cls: str = "Words", **limits: float | int | str
    ) -> Definition:
        archive = tmp_path / "program.zip"
        with zipfile.ZipFile(archive, "w") as out:
            for name, text in files.items():
                out.writestr(name, text)
        scratch = tmp_path / "scratch"
        scratch.mkdir(mode=0o700)
        program = Program(archive=archive, file=file, cls=cls)
        return define(program, scratch, Limits(**limits))  # type: ignore[arg-type]  # as the test has them

    return run


def test_a_program_is_defined_and_its_files_are_those_that_came(run: Run, tmp_path: Path) -> None:
    spoil = "\nfor name in ('main.py', 'helper.py'):\n    open(name, 'w').write('spoilt')\n"
    definition = run({"main.py": "import helper\n" + TOPOLOGY + spoil, "helper.py": "X = 1\n", "data.txt": "x"})
    assert definition.name == "Words"
    stage(definition, tmp_path / "staged")
    package = tmp_path / "staged" / "package"
    assert (package / "helper.py").read_text() == "X = 1\n"
    assert (package / "main.py").read_text().endswith(spoil)
    assert not (package / "data.txt").exists()


def test_modules_and_archives_are_programs_too(run: Run, tmp_path: Path) -> None:
    definition = run({"pkg/__init__.py": "", "pkg/words.py": TOPOLOGY}, "pkg.words")
    assert sorted(definition.sources) == ["pkg"]
    (tmp_path / "scratch").rename(tmp_path / "first")
    definition = run({"words.py": TOPOLOGY}, "", "words.Words")
    stage(definition, tmp_path / "staged")
    assert (tmp_path / "staged" / "package" / "words.py").exists()


@pytest.mark.parametrize(
    ("file", "cls", "args"),
    [("main.py", "Words", ()), ("main.py", "-", ("x",)), ("main", "Words", ()), ("main", "-", ()), ("z.zip", "-", ())],
)
def test_a_program_has_the_same_version_wherever_it_is_and_through_an_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, cls: str, args: tuple[str, ...]
) -> None:
    ends = "\nif __name__ == '__main__':\n    Words.write()\n"
    files = {"main.py": "import helper\n" + TOPOLOGY + ends, "helper.py": "import pack\n", "pack/__init__.py": ""}
    versions = set()
    for place in ("a", "deeper/b"):
        directory = tmp_path / place
        for name, text in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)
        with zipfile.ZipFile(directory / "z.zip", "w") as out:
            for name, text in files.items():
                out.writestr("__main__.py" if name == "main.py" else name, text)
        monkeypatch.chdir(directory)
        given = str(directory / file) if "." in file else file
        versions.add(version(loader.define(given, cls, args), directory / "direct"))
        archive, scratch = directory / "program.zip", directory / "scratch"
        with archive.open("w+b") as packed:
            within = pack_program(given, cls, packed)
        scratch.mkdir(mode=0o700)
        program = Program(archive=archive, file=within, cls=cls, args=args)
        versions.add(version(define(program, scratch, Limits()), directory / "served"))
    assert len(versions) == 1
    (directory / "helper.py").write_text("import pack, json\n")
    if file != "z.zip":
        assert version(loader.define(given, cls, args), directory / "changed") not in versions


def version(definition: Definition, directory: Path) -> str:
    stage(definition, directory)
    return loader.version_of(directory)


def test_user_code_sees_nothing_of_the_servers_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    with pytest.raises(UserCodeError) as error:
        run({"main.py": "import os\nraise ValueError(sorted(os.environ), os.getcwd())"})
    assert "swordfish" not in str(error.value)
    assert "AWS" not in str(error.value)
    assert "'HOME'" in str(error.value)


def test_links_that_user_code_makes_lead_nowhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key.py").write_text("secret")
    link = f"\nimport os\nos.remove('helper.py'); os.symlink({str(tmp_path / 'key.py')!r}, 'helper.py')\n"
    definition = run({"main.py": "import helper\n" + TOPOLOGY + link, "helper.py": "X = 1\n"})
    stage(definition, tmp_path / "staged")
    assert (tmp_path / "staged" / "package" / "helper.py").read_text() == "X = 1\n"


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        ("while True: pass", UserCodeError, "2 s"),
        ("import time\ntime.sleep(1000)", UserCodeError, "2 s"),
        ("x = bytearray(4 << 30)", UserCodeError, "MemoryError"),
        ("open('large', 'wb').write(bytes(64 << 20))", UserCodeError, "File too large|ended the process"),
        ("import os\nos._exit(0)", UserCodeError, "ended"),
        ("import os\nos.kill(os.getpid(), 9)", UserCodeError, "signal 9"),
        ("1 / 0", UserCodeError, "ZeroDivisionError"),
        ("syntax error", UserCodeError, "SyntaxError"),
        ("x = 1", NotFoundError, "Words"),
    ],
)
def test_what_goes_wrong_is_one_line_and_nothing_is_left(
    run: Run, tmp_path: Path, code: str, kind: type[HeronError], reason: str
) -> None:
    with pytest.raises(kind, match=reason) as error:
        run({"main.py": code}, seconds=2.0 if reason == "2 s" else 60.0, file_bytes=1 << 20, memory_bytes=1 << 30)
    assert "\n" not in str(error.value)
    assert str(tmp_path) not in str(error.value)
    assert list((tmp_path / "scratch").glob("heron-sandbox-*")) == []


@pytest.mark.parametrize("end", ["", "\nraise ValueError", "\nimport time\ntime.sleep(1000)"])
def test_what_it_leaves_running_is_killed(run: Run, tmp_path: Path, end: str) -> None:
    daemons = """
import os, subprocess
subprocess.Popen(["sleep", "1000"], start_new_session=True)
subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"], start_new_session=True, env={"LEFT_BY": "%s"})
"""
    daemons %= tmp_path
    with pytest.raises(UserCodeError) if end else contextlib.nullcontext():
        run({"main.py": TOPOLOGY + daemons + end}, seconds=5.0 if "sleep" in end else 60.0)
    here = str(tmp_path / "scratch")
    assert [env for _, env in find_by_environment({}) if "HERON_SANDBOX" in env and here in env["HOME"]] == []
    assert list(find_by_environment({"LEFT_BY": str(tmp_path)})) == []


def test_an_answer_of_its_own_is_not_believed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    forged = """
import json, os, pathlib, time
work = pathlib.Path(os.environ["HOME"])
(work / "definition").write_bytes(b"\\xff" * 100)
(work / "answer.json").write_text(json.dumps({"sources": {"x": "../../../key"}, "main": None}))
os.kill(os.getppid(), 9)
time.sleep(100)
"""
    with pytest.raises(UserCodeError, match="cannot be used"):
        run({"main.py": forged})
    assert list((tmp_path / "scratch").glob("heron-sandbox-*")) == []


INTERPRETER_IS_PRIVATE = any(
    not path.stat().st_mode & 1
    for python in (Path(sys.executable).absolute(), Path(sys.executable).resolve())
    for path in python.parents
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run user code as another user")
@pytest.mark.skipif(INTERPRETER_IS_PRIVATE, reason=f"other users cannot run {sys.executable}")
def test_it_can_run_as_another_user(run: Run, tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and str(directory).startswith("/tmp/"):
            directory.chmod(0o711)
    (tmp_path / "key").write_text("secret")
    (tmp_path / "key").chmod(0o600)
    code = f"import os\ntry:\n    open({str(tmp_path / 'key')!r})\nexcept PermissionError:\n    "
    definition = run({"main.py": code + "pass\nassert os.getuid() != 0\n" + TOPOLOGY}, user="nobody")
    assert definition.name == "Words"


LIMITED = """
import os, resource
for kind, most in (("AS", 1 << 30), ("CPU", 8), ("FSIZE", 1 << 20), ("NOFILE", 1024), ("CORE", 0), ("NPROC", 50_000)):
    soft, hard = resource.getrlimit(getattr(resource, "RLIMIT_" + kind))
    assert 0 <= soft == hard <= most, (kind, soft, hard)
"""


def test_all_that_it_may_take_is_limited(run: Run) -> None:
    code = LIMITED + TOPOLOGY
    assert run({"main.py": code}, seconds=7.0, memory_bytes=1 << 30, file_bytes=1 << 20).name == "Words"


BOMB = """
import os, time
children = 0
try:
    while children < 1000:
        if os.fork() == 0:
            time.sleep(1000)
        children += 1
except BlockingIOError:
    pass
assert 0 < children < 100, children
"""


@pytest.mark.skipif(os.geteuid() == 0 and INTERPRETER_IS_PRIVATE, reason="root is not bound, and others have no Python")
def test_a_fork_bomb_comes_to_its_end(run: Run) -> None:
    user = "nobody" if os.geteuid() == 0 else ""
    assert run({"main.py": BOMB + TOPOLOGY}, processes=50, user=user).name == "Words"
    assert [env for _, env in find_by_environment({}) if "HERON_SANDBOX" in env] == []


HIDDEN = """
import os, resource, subprocess, sys, threading
from heronpy.sandbox.task_count import tasks_counted
threads, end = int(sys.argv[1]), threading.Event()
os.setuid(61_234)
for _ in range(threads):
    threading.Thread(target=end.wait, daemon=True).start()
print(tasks_counted(), resource.getrlimit(resource.RLIMIT_NPROC)[0], flush=True)
sys.stdin.readline()
os._exit(0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a container")
def test_processes_in_other_containers_count() -> None:
    contained = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with contextlib.ExitStack() as stack:
        counted = []
        for threads in (30, 1):
            command = [*contained, sys.executable, "-c", HIDDEN, str(threads)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            child = stack.enter_context(subprocess.Popen(command, **pipes))  # type: ignore[call-overload]
            stack.callback(child.kill)
            counted.append(int(child.stdout.readline().split()[0]))
        assert counted == [31, 33]


SWAP = """
import os
home = os.environ["HOME"]
try:
    os.rename(home, home + "-moved")
except PermissionError:
    pass
else:
    os.symlink("/etc", home)
    raise AssertionError("the directory that is read afterwards can be exchanged")
try:
    os.listdir(os.path.dirname(home))
except PermissionError:
    pass
else:
    raise AssertionError("names of other programs' directories can be read")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run user code as another user")
@pytest.mark.skipif(INTERPRETER_IS_PRIVATE, reason=f"other users cannot run {sys.executable}")
def test_the_directory_of_its_answer_cannot_be_exchanged(run: Run) -> None:
    assert run({"main.py": SWAP + TOPOLOGY}, user="nobody").name == "Words"


@pytest.mark.parametrize(
    ("user", "reason"),
    [("root", "is root|not root"), ("no-such-user", "no user|not root"), ("nobody", "cannot run|not root")],
)
def test_a_user_that_cannot_run_it_is_said(run: Run, monkeypatch: pytest.MonkeyPatch, user: str, reason: str) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(HeronError, match=reason) as error:
        run({"main.py": TOPOLOGY}, user=user)
    assert "\n" not in str(error.value)


def test_archives_that_are_traps_are_not_opened(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^the program is refused: its member '../main\.py' would be"):
        run({"../main.py": TOPOLOGY})
    (tmp_path / "bad.zip").write_bytes(b"PK\x05\x06" + b"\xff" * 18)
    with pytest.raises(UsageError):
        check_archive(tmp_path / "bad.zip")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as out:
        for number in range(50_001):
            out.writestr(str(number), "")
    (tmp_path / "many.zip").write_bytes(data.getvalue())
    with pytest.raises(UsageError, match="50000 files"):
        check_archive(tmp_path / "many.zip")


def test_an_archive_that_is_damaged_is_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "program.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("main.py", TOPOLOGY)
    data = bytearray((tmp_path / "program.zip").read_bytes())
    data[data.index(b"main.py") + 7] = 0xFF  # of the compressed data, the kind of the first block
    (tmp_path / "program.zip").write_bytes(data)
    (tmp_path / "scratch").mkdir(mode=0o700)
    with pytest.raises(UsageError, match=r"^the program is .* damaged"):
        define(Program(archive=tmp_path / "program.zip", file="main.py", cls="Words"), tmp_path / "scratch", Limits())


def test_the_directory_of_a_larger_archive_is_not_read_either(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "small.zip", "w") as out:
        out.writestr("main.py", TOPOLOGY)
    data = (tmp_path / "small.zip").read_bytes()
    at = data.rindex(b"PK\x05\x06")
    directory = data.index(b"PK\x01\x02")
    entries = data[directory:at] * 60_000  # its own end says that there is one
    larger = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 60_000, 60_000, len(entries), directory)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, directory + len(entries), 1)
    (tmp_path / "trap.zip").write_bytes(data[:directory] + entries + larger + locator + data[at:])
    with zipfile.ZipFile(tmp_path / "trap.zip") as trap:
        assert len(trap.infolist()) == 60_000
    with pytest.raises(UsageError, match="ZIP64"):
        check_archive(tmp_path / "trap.zip")
    (tmp_path / "commented.zip").write_bytes(
        data[:directory] + entries + larger + locator + data[at : at + 20] + struct.pack("<H", 0xFFFF) + b" " * 0xFFFF
    )
    with pytest.raises(UsageError, match="ZIP64"):
        check_archive(tmp_path / "commented.zip")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run user code as another user")
def test_a_link_of_another_user_gets_no_file_of_roots(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").touch(0o600)
    chown, exchanged = os.chown, list[Path]()

    def chown_to_an_attacker(path: Path, *owner: int, follow_symlinks: bool = True) -> None:
        chown(path, *owner, follow_symlinks=follow_symlinks)
        if (path / "request.json").exists():
            exchanged.append(path)
            for file in (path / "request.json", path / "program.zip"):
                file.unlink()
                file.symlink_to(tmp_path / "key")

    monkeypatch.setattr(os, "chown", chown_to_an_attacker)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(HeronError):
        run({"main.py": TOPOLOGY}, user="nobody")
    assert exchanged
    assert (tmp_path / "key").stat().st_uid == 0


def test_a_script_without_a_topology_is_said(run: Run) -> None:
    with pytest.raises(NoTopologyError):
        run({"main.py": "x = 1"}, cls="-")


def test_an_interpreter_that_cannot_import_heronpy_is_named_with_what_it_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\necho Traceback >&2\necho \"ModuleNotFoundError: No module named 'heronpy'\" >&2\nexit 1\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(StateError) as error:
        run({"main.py": TOPOLOGY})
    assert str(error.value) == (
        f"this user cannot run heronpy with {python}: ModuleNotFoundError: No module named 'heronpy'"
    )


def test_how_the_process_that_watches_a_program_ended_is_said_and_what_the_program_printed_is_not(run: Run) -> None:
    with pytest.raises(UserCodeError) as error:
        run({"main.py": "import os\nos.write(2, b'of the program')\nos.kill(os.getppid(), 9)\n"})
    assert str(error.value).startswith("the program ended its process before it had defined a topology: killed by")
