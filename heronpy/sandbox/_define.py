"""The parent's side: starts the child, and believes nothing of what it says but its form."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from google.protobuf.message import DecodeError

import heronpy
from heronpy.errors import (
    ConfigError,
    HeronError,
    NotFoundError,
    NoTopologyError,
    StateError,
    TopologyError,
    UsageError,
    UserCodeError,
)
from heronpy.host import sweep, sweep_below
from heronpy.loader import Definition, MainModule, extract_archive, package_paths_of
from heronpy.proto import topology_pb2
from heronpy.sandbox._archive import check_archive
from heronpy.sandbox._child import STARTED

MARK_ENV = "HERON_SANDBOX"
"""In the environment of all that a child has started, so that it is found again."""
ANSWER_BYTES_MAX = 1 << 20
DEFINITION_BYTES_MAX = 4 << 20
_MESSAGE_CHARACTERS_MAX = 2000
_SAID_BYTES_MAX = 2000
_TRACEBACK_CHARACTERS_MAX = 20_000
_START_S = 15.0
"""What the child may take beyond the time of the user's code."""
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from heronpy.sandbox._child import main; main(sys.argv[2])"
_KINDS: dict[str, type[HeronError]] = {
    kind.__name__: kind for kind in (NotFoundError, ConfigError, UsageError, TopologyError, NoTopologyError)
}
"""What a program may say of itself; all else is an error of its code."""
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What user code may take while it defines a topology."""

    seconds: float = 60.0
    memory_bytes: int = 2 << 30
    """Of address space, for each process."""
    file_bytes: int = 256 << 20
    """Of each file that it writes."""
    processes: int = 256
    """How many processes and threads it may start, beside those that its unix user has already. Root is not bound."""
    user: str = ""
    """The unix user that it runs as; this process must be root for that. Empty: the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a caller has sent."""

    archive: Path
    """A zip archive: the program itself (a zip or pex file), or the files of which `file` is one."""
    file: str
    """A script in the archive, or a dotted module in it; empty: the archive itself is the program."""
    cls: str
    args: tuple[str, ...] = ()
    name: str | None = None
    initial_state: str = "RUNNING"


def define(program: Program, scratch: Path, limits: Limits) -> Definition:
    """Run a program in a child process, and return the topology that it defines. The definition needs `scratch`.

    Args:
        program: What is run.
        scratch: An empty directory of this user's alone.
        limits: What it may take.

    Raises:
        HeronError: as `heronpy.loader.define`; or the archive is refused, or a limit was exceeded.
        StateError: there is no room for it on this host.
    """
    check_archive(program.archive)
    try:
        return _defined(program, scratch, limits)
    except UsageError as e:
        if (path := str(program.archive)) not in str(e):
            raise
        raise UsageError(str(e).replace(path, "the program")) from e  # the path is this host's
    except OSError as e:
        raise StateError(f"the program cannot be unpacked: {e.strerror or e}") from e


def _defined(program: Program, scratch: Path, limits: Limits) -> Definition:
    files = scratch / "files"
    if program.file:
        extract_archive(program.archive, files)
    owner = _owner(limits.user)
    # Another user could not come through this one's directories.
    above = Path(tempfile.mkdtemp(prefix="heron-sandbox-", dir=scratch if owner is None else None))
    work = above / secrets.token_hex(8)
    try:
        work.mkdir(mode=0o700)
        if owner is not None:
            # That user may go through it, but neither list nor change it: else `work` could be exchanged for a link to
            # what is another user's, which is read afterwards.
            above.chmod(0o711)
        answer, proto = _in_child(program, work, limits, owner)
    finally:
        shutil.rmtree(above, ignore_errors=True)
    return _definition(program, files, answer, proto)


def _in_child(
    program: Program, work: Path, limits: Limits, owner: tuple[int, int] | None
) -> tuple[dict[str, Any], bytes]:
    request = {
        "file": program.file,
        "cls": program.cls,
        "args": list(program.args),
        "name": program.name,
        "initial_state": program.initial_state,
        "seconds": limits.seconds,
        "memory_bytes": limits.memory_bytes,
        "file_bytes": limits.file_bytes,
        "processes": limits.processes,
    }
    shutil.copyfile(program.archive, work / "program.zip")
    (work / "request.json").write_text(json.dumps(request))
    (work / "tmp").mkdir()
    if owner is not None:
        # The directory last: from then on that user can exchange what is in it for links to files of root.
        for path in (*work.iterdir(), work):
            os.chown(path, *owner, follow_symlinks=False)
    mark = secrets.token_hex(16)
    environment = {
        "PATH": os.defpath,
        "HOME": str(work),
        "TMPDIR": str(work / "tmp"),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",  # each thread reserves address space, of which there is a limit
        MARK_ENV: mark,
    }
    identity: dict[str, Any] = {}
    if owner is not None:
        identity = {"user": owner[0], "group": owner[1], "extra_groups": []}
    engine = str(Path(heronpy.__file__).resolve().parents[1])
    who = limits.user or "this user"
    with tempfile.TemporaryFile() as said:
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, engine, str(work)],
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,  # until the child takes it away from user code
                start_new_session=True,
                umask=0o077,
                **identity,
            )
        except OSError as e:
            raise StateError(f"{who} cannot run {sys.executable} in {work}: {e.strerror}") from e
        try:
            code = child.wait(limits.seconds + _START_S)
        except subprocess.TimeoutExpired:
            sweep_below(child.pid)
            raise UserCodeError(f"the program did not define its topology within {limits.seconds:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            sweep({MARK_ENV: mark})
        if code and not (work / STARTED).exists():
            raise StateError(f"{who} cannot run heronpy with {sys.executable}: {_last_line(said) or _ended(code)}")
    try:
        answer = json.loads(_read(work / "answer.json", ANSWER_BYTES_MAX))
        if not isinstance(answer, dict):
            raise ValueError("the answer is not a map")
        if "error" in answer:
            raise _error(answer["error"], work)
        return answer, _read(work / "definition", DEFINITION_BYTES_MAX)
    except FileNotFoundError:
        raise UserCodeError(f"the program ended its process before it had defined a topology: {_ended(code)}") from None
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as e:
        raise UserCodeError(f"the definition that the program wrote cannot be used: {type(e).__name__}") from None


def _last_line(said: IO[bytes]) -> str:
    """What Python has said at last, which names what is wrong."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - _SAID_BYTES_MAX))
    lines = said.read().decode(errors="replace").split("\n")
    return next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")


def _ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


def _definition(program: Program, files: Path, answer: dict[str, Any], data: bytes) -> Definition:
    try:
        proto = topology_pb2.Topology.FromString(data)
        main = _main(answer["main"], program)
        if not program.file:
            return Definition(proto, program.archive, {}, package_paths_of(program.archive), main)
        sources = {}
        for place, where in answer["sources"].items():
            if _relative(place) != PurePosixPath(place).name:
                raise ValueError("a place is not a name")
            sources[place] = files / _relative(where)
        if not sources or not all(path.exists() for path in sources.values()):
            raise ValueError("a source is not in the archive")
        return Definition(proto, files, sources, (".",), main)
    except (DecodeError, KeyError, TypeError, ValueError, AttributeError) as e:
        raise UserCodeError(f"the definition that the program wrote cannot be used: {e}") from None


def _main(values: Any, program: Program) -> MainModule | None:
    if values is None:
        return None
    module, file = values["module"], values["file"]
    if not isinstance(module, str) or not _MODULE.fullmatch(module):
        raise ValueError("the main module has no name")
    argv = (program.file or program.archive.name, *program.args)
    return MainModule(module, _relative(file) if file else "", argv, bool(values["was_main"]))


def _relative(text: Any) -> str:
    """A path that leads nowhere else."""
    if not isinstance(text, str) or "\0" in text:
        raise ValueError("a path is not text")
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("a path leads out of the archive")
    return str(path)


def _read(path: Path, bytes_max: int) -> bytes:
    """A regular file that user code may have written."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as f:
        data = f.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError("too large")
    return data


def _error(values: Any, work: Path) -> HeronError:
    message = " ".join(str(values["message"]).replace(f"{work}/program/", "").replace(str(work), "").split())
    message = message[:_MESSAGE_CHARACTERS_MAX]
    if (kind := _KINDS.get(str(values["type"]))) is not None:
        return kind(message)
    trace = str(values.get("traceback") or "").replace(f"{work}/program/", "").replace(str(work), "")
    return UserCodeError(message, trace[-_TRACEBACK_CHARACTERS_MAX:])


def _owner(user: str) -> tuple[int, int] | None:
    if not user:
        return None
    if os.geteuid() != 0:
        raise StateError(f"user code cannot run as {user}: this process is not root's")
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"there is no user {user}") from None
    if found.pw_uid == 0:
        raise ConfigError(f"user code cannot run as {user}, who is root")
    return found.pw_uid, found.pw_gid
