"""What of a topology is stored for hosts that do not share the submitter's files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import heron_scheduler

from heronpy.errors import HeronError, StateError, UnavailableError
from heronpy.files import user_path
from heronpy.loader import PACKAGE
from heronpy.redaction import redacted
from heronpy.runtime import Launch

# heronpy.uploader and heronpy.environment are imported in functions: most commands need nothing of them.


def add_requirements(launch: Launch, requirements: str) -> Launch:
    """Add what a requirements file names to a staged package; nothing, if there is none.

    Raises:
        NotFoundError, ConfigError, UsageError, UnavailableError: as `heronpy.environment.collect_requirements`.
    """
    if not requirements:
        return launch
    from heronpy.environment import REQUIREMENTS_PATH, collect_requirements, install_requirements

    package = launch.dir / PACKAGE
    collect_requirements(user_path(requirements), package)
    if heron_scheduler.has_service(launch):  # its containers run in this very directory
        install_requirements(package, launch.dir / REQUIREMENTS_PATH)
    return replace(launch, package_paths=(*launch.package_paths, REQUIREMENTS_PATH))


def store_packages(launch: Launch, undo: Callable[[Callable[[Launch], None], Launch], object]) -> Launch:
    """Store the staged package, and the environment if it is shipped. Nothing, if the cluster has no uploader.

    Args:
        launch: The topology, staged.
        undo: Called with `remove_packages` and what it is to remove, before each step.

    Raises:
        ConfigError: no such uploader.
        StateError, UnavailableError: it cannot be written, or does not answer.
    """
    if not launch.config.package.url:
        return launch
    from heronpy.environment import PYTHON, own_tag, pack_environment
    from heronpy.uploader import open_uploader, pack

    with tempfile.TemporaryDirectory(prefix=".stored-", dir=launch.dir) as scratch:  # goes with that if this is killed
        archives = {PACKAGE: pack(launch.dir / PACKAGE, Path(scratch) / f"{PACKAGE}.tar.gz")}
        if launch.config.package.python == "ship":
            archives[PYTHON] = pack_environment(Path(scratch) / f"{PYTHON}.tar.gz")
        for place, archive in archives.items():
            try:
                with open_uploader(launch.config.package.url) as uploader:
                    ref = uploader.store(archive, topology_id=launch.topology_id).to_json()
            except (StateError, UnavailableError) as e:
                raise type(e)(f"the package cannot be stored where heron.uploader.url says: {e}") from e
            tag = {"tag": own_tag()} if place == PYTHON else {}
            launch = replace(launch, packages={**launch.packages, place: {**ref, **tag}})
            undo(remove_packages, launch)
    return launch


def remove_packages(launch: Launch) -> None:
    """Remove what is stored of a topology that has ended, unless others use it, too.

    Raises:
        StateError: something is left; names it.
    """
    if not launch.config.package.url:
        return
    from heronpy.uploader import open_uploader

    try:  # also code that has come since, and what a submitter that has died had not written down
        with open_uploader(launch.config.package.url) as uploader:
            uploader.remove_all(topology_id=launch.topology_id)
    except HeronError as e:
        urls = ", ".join(str(values.get("url")) for values in launch.packages.values())
        where = urls or redacted(launch.config.package.url)
        raise StateError(
            f"{launch.topology} has ended, but its package {where} is not removed: {e}; remove it by hand"
        ) from e
