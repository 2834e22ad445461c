"""The containers of an update where no scheduler service follows the packing plan: the command does its part."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

import heron_scheduler

from heronpy.errors import HeronError, UnavailableError
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch
from heronpy.statemgr import open_statemgr
from heronpy.submit._control import plans

log = logging.getLogger(__name__)

_POLL_S = 0.2


@contextlib.contextmanager
def updated_containers(
    launch: Launch, before: PackingPlan, after: PackingPlan, *, deadline_s: float, on_step: Callable[[str], None]
) -> Iterator[None]:
    """Run the containers of both plans during the block, and afterwards those of the plan that is in force then.

    So containers that are added wait for the plan that has them, and those that are removed have nothing to do when
    they end. A command that dies in the middle leaves some too many, which the next update or kill ends.

    Raises:
        UnavailableError: the cluster lacks resources until `deadline_s` (monotonic clock), or refuses: nothing was
            changed. Or somebody else changes the topology just now.
    """
    if heron_scheduler.has_service(launch):
        yield
        return
    both = before.joined(after)
    with (
        contextlib.closing(open_statemgr(launch.statemgr)) as state,
        state.lock(launch.topology, heron_scheduler.LOCK, heron_scheduler.LOCK_TIMEOUT_S),
    ):
        try:
            added = {c.id for c in after.containers} - {c.id for c in before.containers}
            if added:
                on_step("starting containers")
            heron_scheduler.update(launch, before, both)
            _wait_until_they_run(launch, added, deadline_s)
            yield
        except BaseException:
            try:
                heron_scheduler.update(launch, both, plans(launch)[1])
            except HeronError as e:  # the first error is the one to report
                log.error("containers of %s that are not needed may be left: %s", launch.topology, e)
            raise
        heron_scheduler.update(launch, both, plans(launch)[1])


def _wait_until_they_run(launch: Launch, added: set[int], deadline_s: float) -> None:
    while added:
        found = {one.container: one for one in heron_scheduler.containers(launch)}
        waiting = [
            f"container {n} {f'is {one.phase.value}' if (one := found.get(n)) else 'is gone'}"
            f"{f': {one.reason}' if one is not None and one.reason else ''}"
            for n in sorted(added)
            if n not in found or found[n].phase is not heron_scheduler.ContainerPhase.RUNNING
        ]
        if not waiting:
            return
        failed = [n for n in added if n in found and found[n].phase is heron_scheduler.ContainerPhase.FAILED]
        if failed or time.monotonic() > deadline_s:
            raise UnavailableError(f"{launch.topology} is not updated: {'; '.join(waiting[:3])}")
        time.sleep(_POLL_S)
