"""The child: takes away from itself what it must not have, then runs the program. See `_define`."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
from pathlib import Path
from typing import Any

from heronpy.errors import HeronError, NotFoundError, UserCodeError
from heronpy.host import reap_orphans, sweep_below
from heronpy.sandbox.task_count import tasks_counted

_FILES_MAX = 1024
STARTED = "started"
"""A file that is there when the interpreter and heronpy work: what ends the process from then on is user code."""


def main(directory: str) -> None:
    """Do what `request.json` in a directory says; the answer is there, too."""
    work = Path(directory)
    request = json.loads((work / "request.json").read_text())
    os.dup2(1, 2)  # stderr was for what keeps heronpy from being imported, and stdout leads nowhere
    (work / STARTED).touch()
    reap_orphans()
    _limit(request)
    answer: dict[str, Any]
    try:
        answer = _define(work, request)
    except HeronError as e:
        trace = e.traceback if isinstance(e, UserCodeError) else ""
        answer = {"error": {"type": type(e).__name__, "message": str(e), "traceback": trace}}
    sweep_below(os.getpid())  # whatever session and environment they have given themselves
    (work / "answer.json").write_text(json.dumps(answer))
    os._exit(0)


def _limit(request: dict[str, Any]) -> None:
    limits = {
        resource.RLIMIT_AS: request["memory_bytes"],
        resource.RLIMIT_CPU: int(request["seconds"]) + 1,
        resource.RLIMIT_FSIZE: request["file_bytes"],
        resource.RLIMIT_NOFILE: _FILES_MAX,
        resource.RLIMIT_NPROC: tasks_counted() + request["processes"],
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _define(work: Path, request: dict[str, Any]) -> dict[str, Any]:
    from heronpy import loader

    program = work / "program"
    program.mkdir()
    named = "program.zip"
    if request["file"]:
        loader.extract_archive(work / "program.zip", program)
        os.chdir(program)  # where modules are looked for
        named = request["file"]
        if named.endswith(".py") and not Path(named).is_file():
            raise NotFoundError(f"no file {named} in the program")
    found = loader.define(
        named,
        request["cls"],
        request["args"],
        name=request["name"],
        initial_state=request["initial_state"],
        timeout_s=request["seconds"],
    )
    (work / "definition").write_bytes(found.proto.SerializeToString())
    root = program.resolve()
    return {
        "sources": {place: str(path.relative_to(root)) for place, path in found.sources.items()},
        "main": dataclasses.asdict(found.main) if found.main is not None else None,
    }
