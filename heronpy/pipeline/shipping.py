"""What executors on other machines are sent: heronpy, the program's own modules and, if wanted, the packages of both.

    ship(sc, packages=True)

Spark brings archives to every executor, also to those that come later, and unpacks them into its working directory. The
workers' PYTHONPATH begins there, so what is sent goes before what is installed. A compiled package works from there as
well; only Spark itself is not sent, which brings its own Python part.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import heronpy
from heronpy.environment import pack_distributions
from heronpy.loader.definition import script_module
from heronpy.loader.sources import ENGINE, archives, collect, imports, roots, top_level_names
from heronpy.uploader import pack

if TYPE_CHECKING:
    from pyspark import SparkContext

NEEDED = ("cloudpickle", "google.protobuf.message", "msgspec", "numpy", "psutil", "pyarrow")
"""What heronpy imports in tasks. Of protobuf a part that no jar of Spark has, which are on the path of its workers."""
_CLIENTS = ("boto3", "confluent_kafka", "datasketches")
_BY_SPARK = frozenset(("pyspark", "py4j"))
"""Packages that executors have from Spark."""
_PROGRAM_BYTES_MAX = 1 << 30
_NOT_SENT = frozenset(("__pycache__", "node_modules", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"))
_KEY_STORES = frozenset((".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"))
_CODE = frozenset((".py", ".so"))
_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY")
_KEY_IN_BYTES = 64 * 1024
"""So much of the beginning of a file is searched for a key."""
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
    root = Path(SparkFiles.getRootDirectory())
    packed = [pack_code(sources, root)]
    if packages:
        names = {
            *(name.partition(".")[0] for name in (*NEEDED, *_CLIENTS)),
            *(name for path in sources.values() for name in imports(path)),
        }
        made = pack_distributions(_cache(), names, without=_BY_SPARK)
        packed.append(_kept(made, root / made.name))
    places = [archive.name.removesuffix(_SUFFIX) for archive in packed]
    for archive, place in zip(packed, places, strict=True):
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
        Files and directories, by the name that they are imported by; archives on the path, by theirs.
    """
    main = sys.modules["__main__"]
    path = Path(getattr(main, "__file__", None) or "")
    ours = Path(heronpy.__file__).parent
    is_script = path.suffix == ".py" and path.is_file() and not main.__package__ and ours not in path.resolve().parents
    scripts = {f"{script_module(path)}.py": path} if is_script else {}
    where = roots()
    scripts |= {str(archive): archive for archive in archives()}
    return collect(top_level_names(where), where, scripts)


def pack_code(sources: Mapping[str, Path], into: Path) -> Path:
    """heronpy and the program's own files, in one package that is named by its content."""
    with tempfile.TemporaryDirectory(prefix="heron-ship-") as scratch:
        loose = Path(scratch) / "files"
        loose.mkdir()
        places = {"heronpy": Path(heronpy.__file__).parent}
        zips = [path for path in sources.values() if path.suffix not in _CODE and zipfile.is_zipfile(path)]
        taken = set(ENGINE)
        for place, source in sources.items():
            if source in zips:
                continue
            taken.add(place.partition(".")[0])
            if source.is_dir():
                places[place] = source
            else:
                shutil.copy2(source, loose / place)
        for path in zips:
            _unzip(path, loose, taken)
        directories = [*places.items(), ("", loose)]
        made = pack(
            directories, Path(scratch) / "code", left_out=_left_out(places, loose), bytes_max=_PROGRAM_BYTES_MAX
        )
        with made.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
        return _kept(made, into / f"heron-code-{digest}{_SUFFIX}")


def _unzip(archive: Path, into: Path, taken: Collection[str]) -> None:
    """Unpack modules that are imported from an archive; of those of one name the first on the path counts."""
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            top = PurePosixPath(name).parts[0].partition(".")[0]
            if top not in taken and not (into / name).exists():
                packed.extract(name, into)


def _kept(package: Path, kept: Path) -> Path:
    """A package in the session's own directory: executors may fetch it as long as that lives. Returns `kept`."""
    if not kept.exists():  # else executors may be fetching it
        scratch = kept.with_name(f".{kept.name}.{secrets.token_hex(4)}")
        try:
            os.link(package, scratch)
        except OSError:  # on another filesystem
            shutil.copyfile(package, scratch)
        scratch.rename(kept)
    return kept


def _left_out(places: Mapping[str, Path], loose: Path) -> Callable[[PurePosixPath], bool]:
    """What is not sent: secrets as far as they are known as such, what is hidden, virtual environments."""

    def left_out(path: PurePosixPath) -> bool:
        if path.name.startswith(".") or path.name in _NOT_SENT or path.suffix in _KEY_STORES:
            return True
        top, *below = path.parts
        if top == "heronpy":
            return path.suffix not in ("", ".py")  # what the web UI shows is not for executors
        source = places[top].joinpath(*below) if top in places else loose / path
        return (source / "pyvenv.cfg").exists() or (source.suffix not in _CODE and _has_key(source))

    return left_out


def _has_key(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _KEY.search(file.read(_KEY_IN_BYTES)) is not None
    except OSError:  # a directory; what cannot be read is an error when it is packed
        return False


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heronpy" / "packages"
