"""Fetch the code that the packing plan needs, remove what nothing needs, and say so in the container's record.

`python -m heronpy.container.codes --dir DIRECTORY --container N [--tidy]`, started by the executor, beside
processes that run. Exit code 75: something is missing, and may come.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from heronpy.container._ending import TRY_AGAIN, ending
from heronpy.environment import install
from heronpy.errors import HeronError, NotFoundError, ReadFailedError, StateError, UnavailableError
from heronpy.loader import PACKAGE
from heronpy.plan import CodeVersion, PackingPlan
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, die_with_parent, own_incarnation
from heronpy.statemgr import Kind, StateManager, container_node, container_record, open_statemgr, records


def main() -> None:
    die_with_parent()
    parser = argparse.ArgumentParser(prog="python -m heronpy.container.codes", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the topology's directory on this host")
    parser.add_argument("--container", type=int, required=True)
    parser.add_argument("--tidy", action="store_true", help="remove what nothing needs")
    args = parser.parse_args()
    launch = Launch.load(args.dir)
    with ending(f"container {args.container} of {launch.topology}") as say:
        with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as state:
            if (plan := packing_plan(state, launch)) is None:
                sys.exit(TRY_AGAIN)
            if args.tidy:
                remove_unneeded(launch, plan.needed_codes)
            found = list(_installed(launch, plan, args.container))
            _announce(state, launch, args.container, found)
        for one in found:
            if one.problem:
                say(f"code {one.version or '(submitted)'}: {one.problem}")
        sys.exit(TRY_AGAIN if any(one.problem for one in found) else 0)


def packing_plan(state: StateManager, launch: Launch) -> PackingPlan | None:
    """The packing plan; None: the state manager has none.

    Raises:
        StateError: it cannot be read, or is damaged.
    """
    value = state.get(Kind.PACKINGPLANS, launch.topology)
    return None if value is None else records.packing_plan(launch.topology, value)


def needed_codes(plan: PackingPlan, container: int) -> list[CodeVersion | None]:
    """The code that a container's host needs, what the container runs first; None: what was submitted."""
    own = plan.code_of(container)
    submitted = [None] if "" in plan.versions or (plan.trial is not None and not plan.trial.fallback) else []
    return list(dict.fromkeys([own, *plan.codes, *submitted]))


def remove_unneeded(launch: Launch, needed: frozenset[str]) -> None:
    """Remove code from this host."""
    for directory in launch.code_dir("").glob("*"):
        if directory.name not in needed:
            shutil.rmtree(directory, ignore_errors=True)
    if "" not in needed:
        shutil.rmtree(launch.dir / PACKAGE, ignore_errors=True)


def _installed(launch: Launch, plan: PackingPlan, container: int) -> Iterator[state_pb2.HostedCode]:
    for code in needed_codes(plan, container):
        hosted = state_pb2.HostedCode(version=code.version if code is not None else "")
        try:
            install(launch, code)
        except OSError as e:
            hosted.problem, hosted.retried = f"{e.filename or launch.dir}: {e.strerror or e}", True
        except HeronError as e:
            hosted.problem = str(e)
            hosted.retried = isinstance(e, UnavailableError | ReadFailedError | NotFoundError)
        yield hosted


def _announce(state: StateManager, launch: Launch, container: int, found: list[state_pb2.HostedCode]) -> None:
    """Write it into the record of this incarnation, unless there is another by now."""
    node = container_node(launch.topology, container)
    try:
        while True:
            value = state.get(Kind.CONTAINERS, node)
            record = container_record(value)
            if (record.topology_id, record.incarnation) != (launch.topology_id, own_incarnation()):
                return
            del record.codes[:]
            record.codes.extend(found)
            if state.set_if(Kind.CONTAINERS, node, record.SerializeToString(), expected=value):
                return
    except StateError as e:
        raise UnavailableError(str(e)) from e


if __name__ == "__main__":
    main()
