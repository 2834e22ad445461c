"""Loading the user's classes, in the processes that run them."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from heronpy.api.topology import INSTANCE_ENV
from heronpy.api.topology_context import PACKAGE_ENV
from heronpy.errors import HeronError, NotFoundError, UserCodeError, nearest
from heronpy.loader._traceback import user_traceback
from heronpy.loader.definition import MainModule
from heronpy.shown import said

if TYPE_CHECKING:
    from heronpy.runtime import Launch

MAIN_RECORD = ".heron-main.json"
"""Written by `stage` into the package: the fields of MainModule."""
PACKAGE = "package"
"""The directory of the package within the topology's directory."""


def activate(launch: Launch) -> None:
    """Make the topology's package importable in this process. Call it once, before the first `load_class`.

    Marks the process as an instance (HERON_INSTANCE), so that a script that is imported here submits nothing. A script
    that was run to define the topology is imported at once, and becomes `__main__`.

    Raises:
        UserCodeError: the script cannot be imported.
    """
    os.environ.setdefault(INSTANCE_ENV, "1")
    os.environ[PACKAGE_ENV] = str(launch.dir / (launch.package_paths[0] if launch.package_paths else PACKAGE))
    for path in reversed(launch.package_paths):
        entry = str(launch.dir / path)
        if entry not in sys.path:
            sys.path.insert(0, entry)
    importlib.invalidate_caches()
    package = launch.dir / PACKAGE
    try:
        record = json.loads((package / MAIN_RECORD).read_text())
    except FileNotFoundError:
        return
    main = MainModule(record["module"], record["file"], tuple(record["argv"]), record["was_main"])
    if main.file:
        add_script(main.module, package / main.file)
    if main.was_main:
        with arguments(main.argv):
            sys.modules["__main__"] = import_user_module(main.module)


def load_class(path: str) -> type[Any]:
    """The class at `module.Class` or `module.Outer.Inner`.

    Raises:
        NotFoundError: no such module or class; the nearest class is named.
        UserCodeError: the module cannot be imported; with the user's traceback.
    """
    module, qualname = _split(path)
    found: Any = module
    for name in qualname:
        if not hasattr(found, name):
            known = [n for n, v in vars(found).items() if isinstance(v, type)]
            raise NotFoundError(f"{found.__name__} has no class {name!r}{nearest(name, known)}")
        found = getattr(found, name)
    if not isinstance(found, type):
        raise NotFoundError(f"{path} is not a class{nearest(qualname[-1] if qualname else path, _classes(module))}")
    return found


def import_user_module(name: str) -> ModuleType:
    """Import a module.

    Raises:
        NotFoundError: there is none with this name.
        UserCodeError: it raised, or ended the process.
    """
    try:
        return importlib.import_module(name)
    except HeronError:
        raise
    except ModuleNotFoundError as e:
        if e.name is not None and (name == e.name or name.startswith(f"{e.name}.")):
            raise NotFoundError(f"no module {name!r}: {e}") from e
        raise UserCodeError(f"{name} cannot be imported: {e}", user_traceback(e)) from e
    except (Exception, SystemExit) as e:
        # The user's module may raise whatever it likes while it is imported.
        raise UserCodeError(f"{name} cannot be imported: {said(e)}", user_traceback(e)) from e


def add_script(name: str, file: Path) -> None:
    """Have `import name` load this file."""
    sys.meta_path.insert(0, _ScriptFinder(name, file))


@contextmanager
def arguments(argv: Sequence[str]) -> Iterator[None]:
    """These are `sys.argv` for the duration of the block."""
    before = sys.argv
    sys.argv = list(argv)
    try:
        yield
    finally:
        sys.argv = before


class _ScriptFinder(importlib.abc.MetaPathFinder):
    """Finds one module, whatever its file is called."""

    def __init__(self, name: str, file: Path) -> None:
        self._name = name
        self._file = file

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._file)


def _split(path: str) -> tuple[ModuleType, list[str]]:
    """The module of a class path, imported, and the rest of the path: the longest module that there is."""
    parts = path.split(".")
    if len(parts) < 2 or not all(parts):
        raise NotFoundError(f"{path!r} is not a class path like 'module.Class'")
    for end in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:end])
        try:
            return import_user_module(name), parts[end:]
        except NotFoundError:
            if end == 1:
                raise
    raise AssertionError("the loop returns or raises")


def _classes(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, type)]
