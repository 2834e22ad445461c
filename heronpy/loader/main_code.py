"""The user's script or module as a `__main__`: what `python file` and `python -m module` would run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from heronpy.errors import HeronError, NotFoundError, UserCodeError
from heronpy.loader._traceback import user_traceback
from heronpy.shown import said


def script_main(path: Path, shown: str) -> tuple[ModuleType, CodeType]:
    """The `__main__` of a script, and the code to execute in it.

    Args:
        path: The file.
        shown: What to call it in errors.

    Raises:
        UserCodeError: it is not Python.
        OSError: it cannot be read.
    """
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(path), __package__=None, __cached__=None)
    try:
        return module, compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as e:
        raise UserCodeError(f"{shown} failed: {said(e)}", user_traceback(e)) from e


def module_main(name: str, where: str | Path) -> tuple[ModuleType, CodeType]:
    """The `__main__` of a module that can be imported, and the code to execute in it.

    Args:
        name: Its dotted name.
        where: In which directory it is looked for besides what is installed, for errors.

    Raises:
        NotFoundError: there is no such module, or it is a package.
        UserCodeError: a package above it cannot be imported, or it is not Python.
    """
    try:
        spec = importlib.util.find_spec(name)
    except HeronError:
        raise
    except ModuleNotFoundError as e:
        if e.name is None or not (name == e.name or name.startswith(f"{e.name}.")):
            raise UserCodeError(f"{name} cannot be imported: {e}", user_traceback(e)) from e
        spec = None
    except (Exception, SystemExit) as e:
        # Finding a module imports its packages, which are the user's and may raise anything.
        raise UserCodeError(f"{name} cannot be imported: {said(e)}", user_traceback(e)) from e
    if spec is None:
        raise NotFoundError(f"no module {name!r} in {where}, and none is installed")
    loader: Any = spec.loader
    if spec.submodule_search_locations is not None or loader is None or not hasattr(loader, "get_code"):
        raise NotFoundError(f"{name} is a package and cannot be run: name a module in it")
    try:
        code = loader.get_code(name)
    except (SyntaxError, ValueError) as e:
        raise UserCodeError(f"{name} failed: {said(e)}", user_traceback(e)) from e
    if not isinstance(code, CodeType):
        raise NotFoundError(f"{name} has no Python code to run")
    module = ModuleType("__main__")
    module.__spec__, module.__loader__ = spec, loader
    module.__file__, module.__package__ = spec.origin, spec.parent
    return module, code
