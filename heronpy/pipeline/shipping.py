"""What executors on other machines are sent: heronpy, the program's own modules and, if wanted, the packages of both.

    ship(sc, packages=True)

Spark brings archives to every executor, also to those that come later, and unpacks them into its working directory. The
workers' PYTHONPATH begins there, so what is sent goes before what is installed. A compiled package works from there as
well; only Spark itself is not sent, which brings its own Python part.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import heronpy
from heronpy.environment import pack_distributions
from heronpy.loader.definition import script_module
from heronpy.loader.sources import collect, imports, roots, top_level_names
from heronpy.uploader import pack

if TYPE_CHECKING:
    from pyspark import SparkContext

NEEDED = ("cloudpickle", "google.protobuf.message", "msgspec", "numpy", "psutil", "pyarrow")
"""What heronpy imports in tasks. Of protobuf a part that no jar of Spark has, which are on the path of its workers."""
_CLIENTS = ("boto3", "confluent_kafka", "datasketches")
_BY_SPARK = frozenset(("pyspark", "py4j"))
"""Packages that executors have from Spark."""
_PROGRAM_BYTES_MAX = 1 << 30
_NOT_SENT = frozenset(("__pycache__", ".git", ".hg", ".svn", ".venv", "node_modules"))
_DIGITS = 16
_SUFFIX = ".tar.gz"


def needed_packages() -> tuple[str, ...]:
    """Packages that tasks import: clients of stores, if this process has opened one with them."""
    return (*NEEDED, *(name for name in _CLIENTS if name in sys.modules))


def ship(sc: SparkContext, *, packages: bool) -> None:
    """Send executors what their tasks import. Once per session and content: what was sent stays.

    Args:
        sc: Spark, with executors on other machines.
        packages: whether to send installed packages, too.

    Raises:
        UsageError: it is too large, or has something in it that is neither a file nor a directory.
        StateError: a file cannot be read.
    """
    from pyspark import SparkFiles

    sources = program_sources()
    # Spark serves it to executors from there as long as the session lives.
    code = pack_code(sources, Path(SparkFiles.getRootDirectory()))
    archives = [code]
    if packages:
        names = {
            *(name.partition(".")[0] for name in (*NEEDED, *_CLIENTS)),
            *(name for path in sources.values() for name in imports(path)),
        }
        archives.append(pack_distributions(_cache(), names, without=_BY_SPARK))
    places = [archive.name.removesuffix(_SUFFIX) for archive in archives]
    for archive, place in zip(archives, places, strict=True):
        if not any(place in one for one in sc.listArchives):
            sc.addArchive(f"{archive}#{place}")
    environment = sc.environment
    before = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one and one not in places]
    environment["PYTHONPATH"] = os.pathsep.join([*places, *before])
    environment["HERON_INSTANCE"] = "1"  # a worker that imports the script must not run it


def program_sources() -> dict[str, Path]:
    """The script and the modules of the user's own that this process has imported, and what these import in turn.

    Functions travel by value, but elements of archives may name classes, and modules may be imported when functions
    run.

    Returns:
        Files and directories, by the name that they are imported by.
    """
    main = sys.modules["__main__"]
    path = Path(getattr(main, "__file__", None) or "")
    ours = Path(heronpy.__file__).parent
    is_script = path.suffix == ".py" and path.is_file() and not main.__package__ and ours not in path.resolve().parents
    scripts = {f"{script_module(path)}.py": path} if is_script else {}
    where = roots()
    return collect(top_level_names(where), where, scripts)


def pack_code(sources: Mapping[str, Path], into: Path) -> Path:
    """heronpy and the program's own files, in one package that is named by its content."""
    with tempfile.TemporaryDirectory(prefix="heron-ship-") as scratch:
        loose = Path(scratch) / "files"
        loose.mkdir()
        directories = [("heronpy", Path(heronpy.__file__).parent), ("", loose)]
        for place, source in sources.items():
            if source.is_dir():
                directories.append((place, source))
            else:
                shutil.copy2(source, loose / place)
        made = pack(directories, Path(scratch) / "code", left_out=_is_left_out, bytes_max=_PROGRAM_BYTES_MAX)
        with made.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
        archive = into / f"heron-code-{digest}{_SUFFIX}"
        if not archive.exists():  # else executors may be fetching it
            shutil.move(made, archive)
        return archive


def _is_left_out(path: PurePosixPath) -> bool:
    if path.name in _NOT_SENT:
        return True
    return path.parts[0] == "heronpy" and path.suffix not in ("", ".py")  # what the web UI shows is not for executors


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heronpy" / "packages"
