"""Making a topology's directory what it is at the submitter's, on a host that shares nothing with it."""

from __future__ import annotations

from heronpy.environment._requirements import REQUIREMENTS_PATH, install_requirements
from heronpy.environment._ship import PYTHON
from heronpy.errors import StateError
from heronpy.loader import PACKAGE
from heronpy.runtime import Launch
from heronpy.uploader import PackageRef, fetch


def install(launch: Launch) -> None:
    """Fetch the packages of a topology into its directory, and install what they require. What is there stays.

    Raises:
        NotFoundError: a package is not there any more.
        StateError: one is damaged, or the directory cannot be written.
        UsageError: a requirement is not for this host.
        UnavailableError: the store does not answer.
    """
    for place, values in launch.packages.items():
        if place == PYTHON or (launch.dir / place).exists():  # this process runs in that environment already
            continue
        if place != PACKAGE:
            raise StateError(f"topology {launch.topology} has a package {place!r}, which this release does not know")
        try:
            ref = PackageRef.from_json(values)
        except ValueError as e:
            raise StateError(f"topology {launch.topology}: {e}") from e
        fetch(ref, launch.dir / place)
    install_requirements(launch.dir / PACKAGE, launch.dir / REQUIREMENTS_PATH)
