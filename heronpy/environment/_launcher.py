"""Runs on a host that has a Python, and nothing else: makes the environment that was shipped, and becomes its Python.

    python3 -c "<this file>" PATH SHA256 BYTES TAG ARGUMENTS...

Standard library only, and no other file. The environment is made once per user, host and content, in HERON_PYTHON_CACHE
or ~/.cache/heron/python; it appears there by a rename, so that of several containers that start at once one wins and
no reader sees a half. Exit code 75 says that the same command may succeed later.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from typing import NoReturn


def _end(why: str, code: int = 1) -> NoReturn:
    sys.stderr.write(f"heron: {why}\n")
    sys.exit(code)


def _cache() -> str:
    place = os.environ.get("HERON_PYTHON_CACHE") or os.path.expanduser("~/.cache/heron/python")
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        found = os.lstat(place)
    except OSError as e:
        _end(f"{place} cannot be made: {e.strerror}; set HERON_PYTHON_CACHE to another directory")
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        _end(f"{place} belongs to another user, or others can write to it: set HERON_PYTHON_CACHE to one of your own")
    return place


def _fetch(path: str, sha256: str, size: int, into: str) -> None:
    digest, copied = hashlib.sha256(), 0
    try:
        with open(path, "rb") as source, open(into, "xb") as target:
            while piece := source.read(1 << 20):
                copied += len(piece)
                if copied > size:
                    break
                digest.update(piece)
                target.write(piece)
    except FileNotFoundError:
        _end(f"the shipped environment {path} is not there: kill the topology and submit it again")
    if copied != size or digest.hexdigest() != sha256:
        _end(f"the shipped environment {path} is damaged: kill the topology, delete that file and submit again")


def _unpack(archive: str, into: str) -> None:
    # It has been verified, so the topology's submitter has made it.
    with tarfile.open(archive, "r|gz") as members:
        for member in members:
            if not (member.isreg() or member.isdir()) or member.name.startswith("/") or ".." in member.name.split("/"):
                _end(f"the shipped environment has {member.name} in it: refused")
            members.extract(member, into)


def _make(path: str, sha256: str, size: int, place: str) -> None:
    scratch = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(place))
    try:
        made = os.path.join(scratch, "venv")
        # Without pip, which Debian's Python does not bring.
        command = [sys.executable, "-m", "venv", "--without-pip", made]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            _end(f"{sys.executable} can make no virtual environment: {' '.join(done.stderr.split())[-200:]}")
        archive = os.path.join(scratch, "archive")
        _fetch(path, sha256, size, archive)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        _unpack(archive, os.path.join(made, "lib", version, "site-packages"))
        try:
            os.rename(made, place)
        except OSError:
            if not os.path.isdir(place):  # else another container was faster
                raise
    except OSError as e:
        _end(f"the shipped environment cannot be made in {place}: {e.strerror or e}", 75)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _main() -> None:
    path, sha256, size, tag = sys.argv[1:5]
    own = f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"
    if own != tag:
        _end(f"this host's Python is {own}, and the shipped environment is for {tag}: submit with such a Python")
    place = os.path.join(_cache(), sha256)
    if not os.path.isdir(place):
        _make(path, sha256, int(size), place)
    python = os.path.join(place, "bin", "python")
    os.execv(python, [python, *sys.argv[5:]])


_main()
