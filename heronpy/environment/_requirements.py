"""Requirements of the user's code: resolved once, at submit, and stored as wheels in the package.

A host resolves nothing and asks no index: it installs exactly these wheels. So all containers run the same versions,
those that were there when the topology was submitted, and a package index that is away stops no container.

What the engine itself is made of is a constraint: it is imported before the user's code, so another version of it would
be installed for nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from heronpy.child import Child
from heronpy.errors import ConfigError, NotFoundError, StateError, UnavailableError, UsageError

WHEELS = ".heron-wheels"
"""The directory of the wheels in the package."""
REQUIREMENTS_PATH = "requirements/site-packages"
"""Where they are installed, relative to the topology's directory. Called like what it is: nothing in it is taken for a
module of the user's own."""
COLLECT_TIMEOUT_S = 900.0
INSTALL_TIMEOUT_S = 300.0
_ENGINE = "heron-engine"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def collect_requirements(file: Path, package: Path, *, timeout_s: float = COLLECT_TIMEOUT_S) -> None:
    """Put what a requirements file names, and what that needs, into a package. The index is pip's own configuration's.

    Args:
        file: A requirements file of pip.
        package: The directory of the package.
        timeout_s: How long pip may take.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: this Python has no pip.
        UsageError: pip refuses; says why.
        UnavailableError: pip does not end in time.
    """
    if not file.is_file():
        raise NotFoundError(f"there is no requirements file {file}")
    wheels = package / WHEELS
    wheels.mkdir()
    with tempfile.TemporaryDirectory(prefix="heron-requirements-") as scratch:
        constraints = Path(scratch) / "constraints.txt"
        constraints.write_text("".join(f"{line}\n" for line in _constraints()))
        arguments = ["wheel", "--requirement", str(file), "--constraint", str(constraints), "--wheel-dir", str(wheels)]
        _pip(arguments, f"the requirements {file}", timeout_s)


def has_requirements(package: Path) -> bool:
    """Whether a package brings any."""
    return (package / WHEELS).is_dir()


def install_requirements(package: Path, into: Path, *, timeout_s: float = INSTALL_TIMEOUT_S) -> None:
    """Install a package's requirements, if it has any. The directory is there whole on return, or not at all.

    Args:
        package: The directory of the package.
        into: The directory to make; if it is there, nothing is done.
        timeout_s: How long pip may take.

    Raises:
        ConfigError: this Python has no pip.
        UsageError: a wheel is not for this host; says which.
        StateError: the directory cannot be written.
        UnavailableError: pip does not end in time.
    """
    wheels = sorted((package / WHEELS).glob("*.whl"))
    if not has_requirements(package) or into.exists():
        return
    scratch = into.with_name(f".{into.name}.{os.getpid()}")
    try:
        scratch.mkdir(parents=True)
        if wheels:
            names = [str(wheel) for wheel in wheels]
            _pip(
                ["install", "--no-index", "--no-deps", "--no-compile", "--target", str(scratch), *names],
                "the package's requirements",
                timeout_s,
            )
        scratch.rename(into)
    except OSError as e:
        raise StateError(f"{into} cannot be written: {e.strerror or e}") from e
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _pip(arguments: Sequence[str], what: str, timeout_s: float) -> None:
    command = [sys.executable, "-m", "pip", *arguments]
    command += ["--quiet", "--no-input", "--disable-pip-version-check", "--no-color"]
    pipe = subprocess.PIPE
    with Child(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace", process_group=0
    ) as pip:
        try:
            _, said = pip.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{what} cannot be installed: pip does not end within {timeout_s:g} s") from None
        finally:
            if pip.poll() is None:
                os.killpg(pip.pid, signal.SIGKILL)  # builds of wheels are processes of their own
    if pip.returncode == 0:
        return
    if "No module named pip" in said:
        raise ConfigError(f"{what} cannot be installed: {sys.executable} has no pip")
    raise UsageError(f"{what} cannot be installed: {_reason(said) or f'pip ended with {pip.returncode}'}")


def _reason(said: str) -> str:
    """The line that says why: pip's last one often only says that something has failed."""
    errors = [line.removeprefix("ERROR: ").strip() for line in said.splitlines() if line.startswith("ERROR: ")]
    specific = [line for line in errors if not line.startswith(("No matching distribution", "ResolutionImpossible"))]
    return (specific or errors or [""])[0]


def _constraints() -> Iterator[str]:
    """The versions of what the engine needs."""
    try:
        needed = importlib.metadata.requires(_ENGINE) or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return
    for requirement in needed:
        found = _NAME.match(requirement)
        if found is None or "extra ==" in requirement:
            continue
        try:
            yield f"{found[0]}=={importlib.metadata.version(found[0])}"
        except importlib.metadata.PackageNotFoundError:
            continue
