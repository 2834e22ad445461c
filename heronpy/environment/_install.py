"""Making a topology's directory what it is at the submitter's, on a host that shares nothing with it."""

from __future__ import annotations

from heronpy.environment._requirements import REQUIREMENTS_PATH, has_requirements, install_requirements
from heronpy.environment._ship import PYTHON
from heronpy.errors import NotFoundError, StateError
from heronpy.loader import PACKAGE
from heronpy.plan import CodeVersion
from heronpy.runtime import Launch
from heronpy.uploader import PackageRef, fetch


def install(launch: Launch, code: CodeVersion | None = None) -> None:
    """Fetch the user's code into a topology's directory, and install what it requires. What is there stays.

    Args:
        launch: The topology, with its directory on this host.
        code: What has come into it since it was submitted; None: what was submitted.

    Raises:
        NotFoundError: the package is not there any more.
        StateError: it is damaged, or the directory cannot be written.
        UsageError: a requirement is not for this host.
        UnavailableError: the store does not answer.
    """
    if unknown := sorted(set(launch.packages) - {PYTHON, PACKAGE}):  # this process runs in that Python already
        raise StateError(f"topology {launch.topology} has a package {unknown[0]!r}, which this release does not know")
    there = _of(launch, code)
    package = there.dir / PACKAGE
    if not package.exists() and (code is not None or PACKAGE in launch.packages):
        there.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        fetch(_ref(launch, code), package)
    install_requirements(package, there.dir / REQUIREMENTS_PATH)


def is_installed(launch: Launch, code: CodeVersion | None) -> bool:
    """Whether `install` has nothing left to do."""
    if code is None and PACKAGE not in launch.packages:
        return True
    there = _of(launch, code).dir
    package = there / PACKAGE
    return package.exists() and (not has_requirements(package) or (there / REQUIREMENTS_PATH).exists())


def _of(launch: Launch, code: CodeVersion | None) -> Launch:
    return launch if code is None else launch.with_code(code.version, code.package_paths)


def _ref(launch: Launch, code: CodeVersion | None) -> PackageRef:
    if code is not None and not code.package_url:
        raise NotFoundError(f"code {code.version} of {launch.topology} is not stored for other hosts")
    try:
        if code is None:
            return PackageRef.from_json(launch.packages[PACKAGE])
        return PackageRef.from_json(
            {"url": code.package_url, "sha256": code.package_sha256, "bytes": code.package_bytes}
        )
    except ValueError as e:
        raise StateError(f"topology {launch.topology}: {e}") from e
