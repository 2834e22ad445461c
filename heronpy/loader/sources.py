"""Which files of the user's belong to a topology.

Modules that Python found in the script's directory, in the working directory or on PYTHONPATH are the user's own, and
go with the topology; modules of the standard library and of site-packages are expected where it runs. Modules that are
imported only later, inside a function, are found by reading the import statements. Files that no import names (data
beside a script) are not seen: put them into a package, or use an archive.
"""

from __future__ import annotations

import ast
import site
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from heronpy.errors import ReadFailedError
from heronpy.files import ABSENT

ENGINE = frozenset(("heronpy", "heron_scheduler", "heron_tracker"))
"""Top-level packages that are the engine's own, wherever they are."""

_INSTALLED_NAMES = frozenset(("site-packages", "dist-packages"))
_ARCHIVES_OF_SPARK = ("pyspark.zip", "-src.zip")
_EXTENSIONS = (".so", ".abi3.so", f".{sys.implementation.cache_tag}.so")


def roots(path: Iterable[str] | None = None) -> list[Path]:
    """The directories of sys.path that hold the user's own modules.

    A directory called `site-packages` or `dist-packages` never does, whichever environment it belongs to.
    """
    installed = {Path(p).resolve() for p in _installed()}
    found: list[Path] = []
    for entry in sys.path if path is None else path:
        directory = Path(entry or ".").resolve()
        if directory.name in _INSTALLED_NAMES or directory in installed:
            continue
        if directory.is_dir() and directory not in found:
            found.append(directory)
    return found


def archives() -> list[Path]:
    """The zip files of sys.path that hold the user's own modules: neither Python's nor Spark's."""
    prefixes = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    found: list[Path] = []
    for path in map(Path, sys.path):
        if path.is_file() and not path.name.endswith(_ARCHIVES_OF_SPARK) and zipfile.is_zipfile(path):
            archive = path.resolve()
            if archive not in found and prefixes.isdisjoint(archive.parents):
                found.append(archive)
    return found


def collect(names: Iterable[str], where: list[Path], scripts: Mapping[str, Path]) -> dict[str, Path]:
    """The files and directories of top-level modules, and of what they import in turn, by their place in the package.

    Args:
        names: top-level modules to begin with; those that are not below `where` are left out.
        where: directories to look in, first first.
        scripts: files that are copied in any case, by their place in the package.
    """
    sources = dict(scripts)
    waiting = list(names)
    # What was imported may be called like a module of the standard library; what is only named must not be.
    trusted = set(waiting)
    for script in scripts.values():
        waiting += imports(script)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name in ENGINE or (name in sys.stdlib_module_names and name not in trusted):
            continue
        seen.add(name)
        found = _find(name, where, imported=name in trusted)
        if found is not None and found.name not in sources:
            sources[found.name] = found
            waiting += imports(found)
    return sources


def top_level_names(root_paths: list[Path], among: Iterable[str] | None = None) -> list[str]:
    """Top-level modules of this process, or those `among` them, that were imported from one of the directories."""
    modules = sys.modules.copy()
    names = []
    for name in modules if among is None else modules.keys() & set(among):
        module = modules[name]
        if "." in name or name in ENGINE or name == "__main__":
            continue
        found = _find(name, root_paths, imported=True)
        if found is not None and found.resolve() in _origins(module):
            names.append(name)
    return sorted(names)


def _origins(module: object) -> Iterator[Path]:
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        yield Path(file).resolve()
    for path in list(getattr(module, "__path__", ())):
        yield Path(path).resolve()


def _find(name: str, where: list[Path], *, imported: bool) -> Path | None:
    """Where a module is, under the name that it is imported by: a symbolic link is not resolved."""
    for root in where:
        package = root / name
        # A directory that is only called like a module is one if it has Python files.
        if package.is_dir() and (imported or next(package.glob("*.py"), None) is not None):
            return package
        for suffix in (".py", *_EXTENSIONS):
            if (root / f"{name}{suffix}").is_file():
                return root / f"{name}{suffix}"
    return None


def imports(path: Path) -> list[str]:
    """The top-level modules that the files of a module name in import statements, wherever those stand.

    Raises:
        ReadFailedError: a file cannot be read now; what it imports must not be missing from the package for that.
    """
    names: list[str] = []
    for file, read in _modules(path):
        try:
            tree = ast.parse(read())
        except (SyntaxError, ValueError, PermissionError, *ABSENT):
            continue  # not importable here, and its importer gets the reason
        except (OSError, zipfile.BadZipFile) as e:
            raise ReadFailedError(f"{file} cannot be read: {getattr(e, 'strerror', None) or e}") from e
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names += [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.append(node.module.partition(".")[0])
    return names


def _modules(path: Path) -> Iterator[tuple[Path, Callable[[], bytes]]]:
    """The Python files of a module, or of an archive of modules, and what reads each."""
    if path.is_dir():
        yield from ((file, file.read_bytes) for file in path.rglob("*.py"))
    elif path.suffix == ".py":
        yield path, path.read_bytes
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            for name in packed.namelist():
                if name.endswith(".py"):
                    yield path / name, partial(packed.read, name)


def _installed() -> Iterator[str]:
    paths = sysconfig.get_paths()
    yield from (paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield str(Path(paths["stdlib"]) / "lib-dynload")
    yield from site.getsitepackages()
    yield site.getusersitepackages()
    # Debian's own packages, and the standard library of a virtual environment's base.
    yield "/usr/lib/python3/dist-packages"
    yield str(Path(sys.base_prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}")
