"""Copying the user's code into a topology's directory."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from heronpy.api.topology import INSTANCE_ENV
from heronpy.api.topology_context import PACKAGE_ENV
from heronpy.errors import AlreadyExistsError, NotFoundError, StateError
from heronpy.files import user_path
from heronpy.loader import _archive
from heronpy.loader._load import MAIN_RECORD, PACKAGE, add_script, arguments, import_user_module
from heronpy.loader.definition import Definition

VERSION_DIGITS = 12
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", ".hg", ".svn", ".venv", "node_modules")


@dataclass(frozen=True, slots=True)
class Staged:
    """What a Launch says of the package: relative to the topology's directory."""

    package_paths: tuple[str, ...]
    main_file: str


def stage(definition: Definition, directory: Path) -> Staged:
    """Copy a definition's code into `directory`/package, which is made.

    Raises:
        AlreadyExistsError: there is a package already.
        NotFoundError: a source has gone since the definition.
        StateError: something in a source cannot be read, or there is no room for it.
        UsageError: the archive is damaged, or would write outside of the package.
    """
    package = directory / PACKAGE
    try:
        package.mkdir(parents=True)
    except FileExistsError:
        raise AlreadyExistsError(f"{package} exists already") from None
    try:
        if definition.package is not None and not definition.sources and definition.package.is_file():
            _archive.extract(definition.package, package)
        for place, source in definition.sources.items():
            if source.is_dir():
                shutil.copytree(source, package / place, ignore=_NOT_COPIED)
            else:
                shutil.copy2(source, package / place)
    except FileNotFoundError as e:
        raise NotFoundError(f"{e.filename} has gone since the topology was defined") from e
    except shutil.Error as e:  # of a directory: an OSError with a list, and without a reason
        (source, _, why), *more = e.args[0]
        others = f", nor {len(more)} others" if more else ""
        raise StateError(f"{source} cannot be copied into the package{others}: {why}") from e
    if definition.main is not None:
        (package / MAIN_RECORD).write_text(json.dumps(dataclasses.asdict(definition.main)))
    return Staged(
        package_paths=tuple(str(PurePosixPath(PACKAGE) / path) for path in definition.package_paths),
        main_file=f"{PACKAGE}/{definition.main_file}" if definition.main_file else "",
    )


def version_of(directory: Path, requirements: str = "") -> str:
    """The version of the package that was staged into `directory`: the same files make the same one.

    Wherever they were, that is, and whether or not an API server has staged them.

    Args:
        directory: Where it was staged.
        requirements: The requirements file of pip that comes with it, of which the content counts; empty: none.

    Raises:
        NotFoundError: there is no such file, or it cannot be read.
    """
    package, digest = directory / PACKAGE, hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        with path.open("rb") as file:
            if path == package / MAIN_RECORD:
                content = hashlib.sha256(_without_place(file.read())).digest()
            else:
                content = hashlib.file_digest(file, "sha256").digest()
        digest.update(repr((path.relative_to(package).as_posix(), content)).encode())
    if requirements:
        path = user_path(requirements)
        try:
            digest.update(repr(("requirements", path.read_bytes())).encode())
        except OSError as e:
            raise NotFoundError(f"the requirements file {path} cannot be read: {e.strerror}") from e
    return digest.hexdigest()[:VERSION_DIGITS]


def _without_place(record: bytes) -> bytes:
    """A record of the main module without its `sys.argv[0]`, which is where the script was when it was submitted."""
    try:
        values = json.loads(record)
        return json.dumps({**values, "argv": values["argv"][1:]}).encode()
    except (ValueError, RecursionError, LookupError, TypeError):  # a file of the user's
        return record


@contextmanager
def importable(definition: Definition) -> Iterator[None]:
    """The definition's code can be imported in this process for the duration of the block.

    From where it is, so that a debugger's breakpoints and coverage's lines are those of the user's files. Only archives
    are extracted.

    Raises:
        UserCodeError: the script cannot be imported.
    """
    before = list(sys.path), sys.modules["__main__"]
    environment = {name: os.environ.get(name) for name in (INSTANCE_ENV, PACKAGE_ENV)}
    with tempfile.TemporaryDirectory(prefix="heron-") as scratch:
        if definition.sources or definition.package is None:
            places = dict.fromkeys(str(path.parent) for path in definition.sources.values())
        else:
            places = dict.fromkeys(str(Path(scratch) / path) for path in stage(definition, Path(scratch)).package_paths)
        sys.path[:0] = places
        os.environ[INSTANCE_ENV] = "simulator"
        os.environ[PACKAGE_ENV] = sys.path[0]
        importlib.invalidate_caches()
        try:
            if (main := definition.main) is not None:
                if main.file in definition.sources:
                    add_script(main.module, definition.sources[main.file])
                elif main.file:
                    add_script(main.module, Path(scratch) / PACKAGE / main.file)
                if main.was_main:
                    with arguments(main.argv):
                        sys.modules["__main__"] = import_user_module(main.module)
            yield
        finally:
            sys.path[:], sys.modules["__main__"] = before
            for name, value in environment.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
