"""Campaigns: many seeds, and what becomes of one that fails."""

from __future__ import annotations

from collections.abc import Sequence

from heronpy.instance.task import TaskFailed
from heronpy.testing.simulation._cluster import Cluster
from heronpy.testing.simulation._faults import Damage, Fault, Schedule, StateEmptied, schedule, storage_schedule
from heronpy.testing.simulation._loop import Loop
from heronpy.testing.simulation._programs import Broken
from heronpy.testing.simulation._setup import Setup, hosts, processes
from heronpy.testing.simulation._trial import Trial


def schedule_of(seed: int, *, checkpoints: bool = False, at_least_once: bool = False) -> list[tuple[float, Fault]]:
    """The faults of a seed."""
    setup = Setup.of(seed, checkpoints=checkpoints, at_least_once=at_least_once)
    checkpoints = setup.checkpoints
    # A standby has no copy of what the active Topology Master has seen.
    without = [StateEmptied] if checkpoints and setup.standby else []
    made = schedule(Loop(seed).rng("faults"), hosts=hosts(setup), processes=processes(setup), without=without)
    if checkpoints:
        made += storage_schedule(Loop(seed).rng("faults of the storage"))
    # A fallback goes behind what was acked, which is said in the documentation.
    return [(at_s, fault) for at_s, fault in made if not (at_least_once and isinstance(fault, Damage))]


def run(
    seed: int,
    faults: Schedule | None = None,
    *,
    check_every: int = 1,
    checkpoints: bool = False,
    at_least_once: bool = False,
) -> Cluster:
    """Run the cluster of a seed.

    Args:
        seed: of the setup, and of every delay.
        faults: instead of the seed's own.
        check_every: after how many steps of a process the invariants of its core are checked.
        checkpoints: effectively once, with instances that count.
        at_least_once: at least once with checkpoints.

    Raises:
        AssertionError: a promise was not kept, or an invariant of a core is violated.
    """
    cluster = Cluster(seed, Setup.of(seed, checkpoints=checkpoints, at_least_once=at_least_once), check_every)
    if faults is None:
        faults = schedule_of(seed, checkpoints=checkpoints, at_least_once=at_least_once)
    try:
        Trial(cluster).run(faults)
    except TaskFailed as e:  # the ledger is called from user code: what it raises comes out wrapped
        raise e.__cause__ or Broken(f"a task failed: {e}") from None
    return cluster


def failure_of(
    seed: int,
    faults: Schedule | None = None,
    *,
    check_every: int = 1,
    checkpoints: bool = False,
    at_least_once: bool = False,
) -> str:
    """What is wrong with a run; empty: nothing. An exception of any kind in a core is a failure, too."""
    try:
        run(seed, faults, check_every=check_every, checkpoints=checkpoints, at_least_once=at_least_once)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return ""


def test_of(
    seed: int,
    faults: Sequence[tuple[float, Fault]],
    failure: str,
    *,
    checkpoints: bool,
    at_least_once: bool,
) -> str:
    """A test that repeats a run."""
    options = ", at_least_once=True" if at_least_once else ", checkpoints=True" if checkpoints else ""
    lines = [f"        ({at_s!r}, {fault!r})," for at_s, fault in faults]
    return "\n".join(
        [
            "def test_what_is_promised_here() -> None:",
            f"    # {failure[:160]}",
            "    schedule = [",
            *lines,
            "    ]",
            f"    run({seed}, schedule{options})",
        ]
    )


test_of.__test__ = False  # type: ignore[attr-defined]  # for pytest: it makes tests, it is none
