"""New code for containers that do not share the submitter's files: stored, and on every host before any runs it.

So what a host cannot fetch or install is known while everything goes on, and the trial interrupts the topology as
briefly as where files are shared.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from heronpy.errors import StateError, UnavailableError
from heronpy.loader import PACKAGE
from heronpy.plan import CodeVersion, LogicalPlan, PackingPlan
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, container_node, container_record, open_statemgr
from heronpy.submit._control import plans

# heronpy.uploader is imported in functions: most commands need nothing of it.

T = TypeVar("T")

_POLL_S = 0.2


def stored(launch: Launch, code: CodeVersion) -> CodeVersion:
    """Store a version's package, which is in `launch.code_dir`. Returns the version with where it is.

    Raises:
        ConfigError: no such uploader.
        StateError, UnavailableError: it cannot be written, or does not answer.
    """
    from heronpy.uploader import open_uploader, pack

    with (
        tempfile.TemporaryDirectory(prefix=".stored-", dir=launch.code_dir("")) as scratch,  # goes with unused code
        open_uploader(launch.config.package.url) as uploader,
    ):
        archive = pack(launch.code_dir(code.version) / PACKAGE, Path(scratch) / f"{PACKAGE}.tar.gz")
        ref = uploader.store(archive, topology_id=launch.topology_id)
    return replace(code, package_url=ref.url, package_sha256=ref.sha256, package_bytes=ref.size)


def wait_until_hosted(launch: Launch, code: CodeVersion, timeout_s: float) -> None:
    """Wait until all containers have a version of the code that the packing plan has.

    Raises:
        StateError: a host cannot install it, or not in time; names it. Or somebody else has changed the plan.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        packing = plans_by(launch, deadline_s)[1]
        if code not in packing.codes:
            raise StateError(f"{launch.topology} was changed by somebody else")
        waiting = list(_waiting(launch, code, packing, deadline_s))
        if not waiting:
            return
        hopeless = [why for why, retried in waiting if not retried]
        if hopeless or time.monotonic() > deadline_s:
            late = "" if hopeless else f" after {timeout_s:g} s"
            why = (hopeless or [why for why, _ in waiting])[0]
            raise StateError(
                f"code {code.version} of {launch.topology} is not on all hosts{late}, and nothing was changed: {why}"
            )
        time.sleep(_POLL_S)


def plans_by(launch: Launch, deadline_s: float) -> tuple[LogicalPlan, PackingPlan]:
    """The same as `plans`, from a state manager that need not answer before `deadline_s` of the monotonic clock."""
    return _patiently(lambda: plans(launch), deadline_s)


def _patiently(read: Callable[[], T], deadline_s: float) -> T:
    while True:
        try:
            return read()
        except (StateError, UnavailableError):
            if time.monotonic() > deadline_s:
                raise
        time.sleep(_POLL_S)


def _waiting(launch: Launch, code: CodeVersion, packing: PackingPlan, deadline_s: float) -> Iterator[tuple[str, bool]]:
    """Of each container that has not the code: why, and whether that may still change."""

    def records() -> dict[int, bytes | None]:
        with contextlib.closing(open_statemgr(launch.statemgr)) as state:
            return {c.id: state.get(Kind.CONTAINERS, container_node(launch.topology, c.id)) for c in packing.containers}

    for container, value in _patiently(records, deadline_s).items():
        record = container_record(value)
        found = next((one for one in record.codes if one.version == code.version), None)
        if record.topology_id != launch.topology_id or found is None:
            yield f"container {container} has not answered", True
        elif found.problem:
            yield f"container {container} on {record.host}: {found.problem}", found.retried


def remove_stored(launch: Launch, packing: PackingPlan | None) -> None:
    """Remove the stored packages that a packing plan does not need; None: the topology is gone.

    Raises:
        StateError, UnavailableError: the store refuses, or does not answer.
    """
    from heronpy.environment import PYTHON
    from heronpy.uploader import PackageRef, open_uploader

    keep = []
    if packing is not None:
        places = [PYTHON, *([PACKAGE] if "" in packing.needed_codes else [])]
        keep = [PackageRef.from_json(launch.packages[place]) for place in places if place in launch.packages]
        keep += [
            PackageRef(code.package_url, code.package_sha256, code.package_bytes)
            for code in packing.codes
            if code.package_url
        ]
    with open_uploader(launch.config.package.url) as uploader:
        uploader.remove_all(topology_id=launch.topology_id, keep=keep)
