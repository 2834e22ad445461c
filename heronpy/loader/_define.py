"""Running the user's code to define a topology, in a process of its own.

Their code may print, fork, change the working directory or crash; none of that must touch the submitter. Request and
result travel in files, so that whatever the code prints goes to the terminal untouched.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heronpy
from heronpy import errors
from heronpy.api import exceptions
from heronpy.api.topology import INSTANCE_ENV, OPTIONS_ENV
from heronpy.child import Child
from heronpy.config import check_name
from heronpy.errors import (
    ConfigError,
    HeronError,
    NotFoundError,
    TopologyError,
    UsageError,
    UserCodeError,
    nearest,
)
from heronpy.loader import _archive
from heronpy.loader.definition import Definition, MainModule, rename_main, script_module
from heronpy.loader.sources import collect
from heronpy.parent import PARENT_ENV
from heronpy.plan import LogicalPlan
from heronpy.proto import topology_pb2

TIMEOUT_S = 120.0
_STACKS_S = 2.0
"""So long before the end of that, the process writes what its threads are doing."""

# The engine's own directory stands first on sys.path only while the engine is imported: whatever heronpy the user's
# path holds, the one that is loaded is ours.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from heronpy.loader._child import main; del sys.path[0]; main()"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class _Target:
    """What the user named, and how the child process has to run it."""

    shown: str
    """What messages call it."""
    package: Path
    paths: tuple[str, ...]
    """Directories to put first on sys.path."""
    module: str
    """The module to run or to import; `` for the one that `cls` names."""
    file: Path | None
    """The module's file, when it is not imported by its name."""
    cls: str
    """The class within the module, or `-` to run the module as a script."""
    function: str = ""
    """A function to call instead of running the module."""


def define(
    file: str | Path,
    cls: str,
    args: Sequence[str] = (),
    *,
    name: str | None = None,
    initial_state: str = "RUNNING",
    timeout_s: float = TIMEOUT_S,
) -> Definition:
    """Run the user's code, and return the topology that it defines.

    Args:
        file: a `.py` file, a `.pex` or `.zip` archive, or a dotted module.
        cls: a Topology subclass, as `module.Class` or only `Class`; or `-` to run the file as a script.
        args: `sys.argv[1:]` of the user's code.
        name: a name for the topology, instead of its own.
        initial_state: RUNNING or PAUSED.
        timeout_s: how long the code may run.

    Raises:
        NotFoundError: no such file, module or class; the nearest is named.
        UserCodeError: the code failed, took too long, or ended the process; with the user's traceback, or what its
            threads were doing.
        TopologyError: the topology is not valid, or there is none, or more than one.
        ConfigError: an unknown configuration key or a wrong value.
        UsageError: the file is nothing that can be run.
    """
    if initial_state not in ("RUNNING", "PAUSED"):
        raise ConfigError(f"the initial state must be RUNNING or PAUSED, not {initial_state!r}")
    if name is not None:
        check_name("topology name", name)
    with tempfile.TemporaryDirectory(prefix="heron-define-") as scratch:
        directory = Path(scratch)
        archive, target = _target(str(file), cls, directory)
        options = _options(directory, name, initial_state)
        result = _run(target, list(args), directory, options, timeout_s)
        proto = _read_defn(target, directory / "defn")
        main = _main(target, list(args), is_archive=archive is not None, extracted=directory / "package")
        if main is not None and main.was_main:
            rename_main(proto, main.module)
        LogicalPlan.from_proto(proto)
        if archive is not None:
            return Definition(proto, target.package, {}, archive.package_paths, main)
        scripts = {target.file.name: target.file} if target.file else {}
        named = [] if target.file else [target.module.partition(".")[0]]
        sources = collect([*named, *result["names"]], [Path(p) for p in result["roots"]], scripts)
        return Definition(proto, target.package, sources, (".",), main)


def _target(file: str, cls: str, scratch: Path) -> tuple[_archive.Archive | None, _Target]:
    path = Path(file)
    if path.is_file():
        path = path.resolve()
        if path.suffix == ".py":
            return None, _script(path, cls)
        if path.suffix in (".pex", ".zip"):
            return _archived(path, cls, scratch / "package")
        raise UsageError(f"{file} is nothing that can be run: use a .py, a .pex or a .zip file, or a dotted module")
    if file and path.is_dir() and not _MODULE.fullmatch(file):
        raise UsageError(f"{file} is a directory: name a .py, a .pex or a .zip file, or a dotted module")
    if path.suffix in (".py", ".pex", ".zip") or "/" in file:
        near = [str(p) for p in path.parent.glob(f"*{path.suffix}")] if path.parent.is_dir() else []
        raise NotFoundError(f"no file {file}{nearest(file, near)}")
    if not _MODULE.fullmatch(file):
        raise NotFoundError(f"no file {file!r}, and no name of a module")
    cwd = Path.cwd()
    return None, _Target(file, cwd, (str(cwd),), file, None, cls.removeprefix(f"{file}."))


def _script(path: Path, cls: str) -> _Target:
    parts = cls.split(".")
    own = path.with_suffix("").parts
    # `a.b.Class` in …/a/b.py is the class of a module in a package, so its imports may be absolute or relative.
    for length in range(len(parts) - 1, 1, -1):
        if own[-length:] == tuple(parts[:length]):
            root = path.parents[length - 1]
            return _Target(str(path), root, (str(root),), ".".join(parts[:length]), None, ".".join(parts[length:]))
    within = cls.removeprefix(f"{path.stem}.") if cls != "-" else cls
    return _Target(str(path), path, (str(path.parent),), script_module(path), path, within)


def _archived(path: Path, cls: str, extracted: Path) -> tuple[_archive.Archive, _Target]:
    archive = _archive.read(path)
    _archive.extract(path, extracted)
    paths = tuple(str(extracted / p) for p in archive.package_paths)
    module, _, function = archive.entry_point.partition(":")
    if cls != "-":
        inside = "" if "." in cls else module
        if "." not in cls and not module:
            raise UsageError(f"{path} has no entry point: name the class with its module, like module.{cls}")
        return archive, _Target(str(path), path, paths, inside, None, cls)
    if archive.is_pex and not module:
        raise UsageError(f"{path} has no entry point to run: name a class instead of -")
    if archive.is_pex:
        return archive, _Target(str(path), path, paths, module, None, "-", function)
    if not archive.has_main:
        raise UsageError(f"{path} has no __main__.py to run: name a class instead of -")
    main = extracted / "__main__.py"
    return archive, _Target(str(path), path, paths, script_module(main), main, "-")


def _main(target: _Target, args: list[str], *, is_archive: bool, extracted: Path) -> MainModule | None:
    was_main = target.cls == "-" and not target.function
    if not was_main and target.file is None:
        return None
    file = ""
    if target.file is not None:
        file = str(target.file.relative_to(extracted)) if is_archive else target.file.name
    return MainModule(target.module, file, (target.shown, *args), was_main)


def _options(directory: Path, name: str | None, initial_state: str) -> str:
    defn = directory / "defn"
    defn.mkdir()
    if "," in str(defn):
        raise ConfigError(f"the directory for temporary files must have no comma in its name: {defn}")
    options = {"cmdline.topologydefn.tmpdirectory": str(defn), "cmdline.topology.initial.state": initial_state}
    if name is not None:
        options["cmdline.topology.name"] = name
    return ",".join(f"{key}={value}" for key, value in options.items()).replace(" ", "%%%%")


def _run(target: _Target, args: list[str], directory: Path, options: str, timeout_s: float) -> dict[str, Any]:
    result = directory / "result.json"
    stacks = directory / "stacks"
    request = directory / "request.json"
    request.write_text(
        json.dumps(
            {
                "shown": target.shown,
                "paths": list(target.paths),
                "module": target.module,
                "file": str(target.file or ""),
                "cls": target.cls,
                "function": target.function,
                "argv": [target.shown, *args],
                "definitions": str(directory / "defn"),
                "result": str(result),
                "stacks": str(stacks),
                "stacks_after_s": timeout_s - min(_STACKS_S, timeout_s / 4),
            }
        )
    )
    environment = {**os.environ, OPTIONS_ENV: options, PARENT_ENV: str(os.getpid())}
    environment.pop(INSTANCE_ENV, None)
    engine = str(Path(heronpy.__file__).resolve().parents[1])
    child = Child(
        # -P: neither the working directory nor that of the script comes onto sys.path by itself.
        [sys.executable, "-P", "-c", _BOOT, engine, str(request)],
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        why = f"{target.shown} did not define its topology within {timeout_s:g} s"
        raise UserCodeError(why, stacks.read_text() if stacks.exists() else "") from None
    finally:
        if child.poll() is None:
            # Its process group, because the user's code may have started others.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    try:
        answer: dict[str, Any] = json.loads(result.read_text())
    except FileNotFoundError:
        how = f"by signal {-status}" if status < 0 else f"with exit code {status}"
        raise UserCodeError(f"{target.shown} ended the process {how} before it had defined a topology") from None
    if "error" in answer:
        raise _error(answer["error"])
    return answer


def _error(answer: dict[str, str]) -> HeronError:
    kind = getattr(errors, answer["type"], None) or getattr(exceptions, answer["type"], None)
    if not isinstance(kind, type) or not issubclass(kind, HeronError) or kind is UserCodeError:
        return UserCodeError(answer["message"], answer["traceback"])
    return kind(answer["message"])


def _read_defn(target: _Target, directory: Path) -> topology_pb2.Topology:
    written = sorted(directory.glob("*.defn"))
    if len(written) > 1:
        names = ", ".join(path.stem for path in written)
        raise TopologyError(f"{target.shown} defined {len(written)} topologies ({names}): submit one at a time")
    return topology_pb2.Topology.FromString(written[0].read_bytes())
