"""Topologies whose scheduler has no service: commands call the scheduler themselves, under the topology's lock.

The cluster keeps the containers running, and the state manager says what is meant to run, so any machine that reaches
both will do. The scheduler's node there is written when a submission is complete, and emptied when a kill begins: a
topology whose node is missing or empty is never started again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from heron_scheduler._engine_state import is_ours, remove_engine_state
from heron_scheduler._spi import ContainerPhase, Scheduler, scheduler_of
from heronpy.errors import ConfigError, StateError, UnavailableError
from heronpy.files import make_private, outrace_removal
from heronpy.host import end_submission, remove_directory
from heronpy.plan import PackingPlan
from heronpy.proto import state_pb2
from heronpy.runtime import LAUNCH_FILE, TOKEN_FILE, Launch
from heronpy.security import write_secret
from heronpy.statemgr import Kind, StateManager, container_node, container_record, open_statemgr, records

if TYPE_CHECKING:
    from heronpy.container import Bootstrap

log = logging.getLogger(__name__)

LOCK = "submit"
"""The lock of a topology that commands hold while they change what runs."""
LOCK_TIMEOUT_S = 10.0
_REVIVE_LOCK_TIMEOUT_S = 0.5
_POLL_S = 0.2
_LOOK_S = 0.5
"""How often a cluster is asked about containers that it starts."""
_OF_PYTHON = re.compile(r"python|no module named", re.IGNORECASE)
"""Reasons of a container that fails for which the Python that it was given is to blame."""
_ADOPT_MAX_S = 3600.0
"""A copy of a topology's directory that is not complete after this time never will be."""


def schedule(launch: Launch, plan: PackingPlan) -> None:
    """Have the cluster run all containers of a topology that is being submitted.

    Raises:
        ConfigError, UnavailableError: the cluster refuses, or a host cannot run its container; the others run.
        StateError: the state manager cannot be written.
    """
    scheduler = _scheduler(launch)
    scheduler.on_schedule(plan)
    if launch.statemgr.type == "file":
        log.warning(
            "%s keeps its state in %s: all hosts must share that directory, and one shared over NFS is unproven; with "
            "several hosts set heron.class.state.manager to zookeeper or etcd",
            launch.topology,
            launch.statemgr.root,
        )
    _await_hosts(scheduler)
    location = state_pb2.SchedulerLocation(topology=launch.topology, job_link=next(iter(scheduler.job_links()), ""))
    end_submission(launch.dir)  # before: else a submitter that dies here leaves what runs, and counts as interrupted
    with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as statemgr:
        statemgr.set(Kind.SCHEDULERS, launch.topology, location.SerializeToString())


def _await_hosts(scheduler: Scheduler) -> None:
    """Wait until all containers of a submission work together, for a while: to see what prevents it for good.

    A state manager that is away says nothing: what has been started may well begin, and what is written next says
    whether it is still away.

    Raises:
        ConfigError: the cluster has given up on a container.
        UnavailableError: the cluster does not answer.
    """
    launch = scheduler.launch
    if not launch.config.submit.wait_s:
        return
    deadline_s = time.monotonic() + launch.config.submit.wait_s
    with contextlib.ExitStack() as opened:
        statemgr: StateManager | None = None
        while time.monotonic() < deadline_s:
            try:
                if statemgr is None:
                    statemgr = opened.enter_context(contextlib.closing(open_statemgr(launch.statemgr, parents=False)))
                if statemgr.get(Kind.PPLANS, launch.topology) is not None:
                    return  # all Stream Managers are known to the Topology Master
            except StateError as e:
                log.debug("whether %s has begun cannot be read: %s", launch.topology, e)
            for one in scheduler.containers():
                if one.phase is ContainerPhase.FAILED:
                    used = f" (heron.package.python: {launch.config.package.python})"
                    python = used if _OF_PYTHON.search(one.reason) else ""
                    raise ConfigError(f"container {one.container} cannot run: {one.reason}{python}")
            time.sleep(_LOOK_S)
    for one in scheduler.containers():
        if one.reason:
            log.warning("container %d of %s has not come up yet: %s", one.container, launch.topology, one.reason)


def kill(launch: Launch, ended: Callable[[], None] | None = None) -> None:
    """End all containers, then remove the engine's state. Safe to repeat.

    Args:
        launch: The topology.
        ended: Called in between.

    Raises:
        StateError: the state manager cannot be written; the containers have ended all the same.
        UnavailableError: containers do not end, or the cluster does not answer.
    """
    unmarked: StateError | None = None
    try:
        with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as statemgr:
            if is_ours(statemgr, launch) and statemgr.get(Kind.SCHEDULERS, launch.topology) is not None:
                statemgr.set(Kind.SCHEDULERS, launch.topology, b"")
    except StateError as e:
        unmarked = e
    _scheduler(launch).on_kill()
    if unmarked is not None:
        raise unmarked
    if ended is not None:
        ended()
    remove_engine_state(launch)


def restart(launch: Launch, container: int | None, within_s: float) -> None:
    """End one container, or all, and start it again. Returns when those that ran do so in a newer incarnation.

    One that the cluster does not run now, but keeps in a queue, is not waited for.

    Raises:
        NotFoundError: there is no such container.
        UnavailableError: the cluster refuses, or a container is not there again in time.
        StateError: the state manager cannot be read.
    """
    scheduler = _scheduler(launch)
    with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as statemgr:
        before = {
            one.container: incarnation
            for one in scheduler.containers()
            if container in (None, one.container) and one.phase is ContainerPhase.RUNNING
            if (incarnation := _incarnation(statemgr, launch, one.container))  # 0: it is just starting
        }
        scheduler.on_restart(container)
        deadline_s = time.monotonic() + within_s
        while waiting := [n for n, old in before.items() if _incarnation(statemgr, launch, n) <= old]:
            if time.monotonic() > deadline_s:
                which = ", ".join(map(str, waiting))
                raise UnavailableError(
                    f"the cluster was asked to restart containers of {launch.topology}, but {which} did not start "
                    f"again within {within_s:g} s: see `heron status {launch.topology}`"
                )
            time.sleep(_POLL_S)


def _incarnation(statemgr: StateManager, launch: Launch, container: int) -> int:
    """The newest one of a container; 0: none is known."""
    value = statemgr.get(Kind.CONTAINERS, container_node(launch.topology, container))
    record = container_record(value)
    return record.incarnation if record.topology_id == launch.topology_id else 0


def reschedule(launch: Launch) -> dict[int, str]:
    """Start containers that the cluster has given up or forgotten. Returns their numbers, and why each had ended, which
    the cluster may not know any more now; empty: it never said.

    Nothing is done while another command changes what runs, or while the cluster does not say what does: a command that
    needs the cluster finds that out itself.

    Raises:
        ConfigError: it was submitted with another release of heronpy.
        StateError: the state manager cannot be read.
        UnavailableError: the cluster refuses.
    """
    with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as statemgr:
        try:
            if not _missing(statemgr, launch):
                return {}
        except UnavailableError as e:
            log.info("whether containers of %s are missing is not known: %s", launch.topology, e)
            return {}
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(statemgr.lock(launch.topology, LOCK, _REVIVE_LOCK_TIMEOUT_S))
            except UnavailableError:
                return {}
            if missing := _missing(statemgr, launch):
                launch.check_release()
                _scheduler(launch).on_schedule(_plan(statemgr, launch))
            return missing


def adopt(launch: Launch) -> None:
    """Make this machine's copy of a topology's directory, with its secrets, if there is none.

    Raises:
        ConfigError: it was submitted with another release of heronpy.
        NotFoundError: the cluster has no secrets of it.
        UnavailableError: it does not give them to this user.
        StateError: the directory cannot be written.
    """
    if (launch.dir / LAUNCH_FILE).exists():
        return
    launch.check_release()
    above = launch.dir.parent
    begun: Path | None = None
    try:
        # Elsewhere, and then renamed: the copy is there as a whole or not at all, whatever is killed meanwhile, and
        # whatever else makes one. No topology has such a name.
        begun = outrace_removal(lambda: _begin(above, launch.dir.name))
        _scheduler(launch).adopt(begun)
        if not (begun / TOKEN_FILE).exists():
            raise StateError(f"scheduler {launch.scheduler} has handed over no token of {launch.topology}")
        write_secret(begun / LAUNCH_FILE, launch.encode())
        _put(begun, launch.dir)
    except OSError as e:
        raise StateError(f"the topology's directory {launch.dir} cannot be written: {e.strerror}") from e
    finally:
        if begun is not None:
            with contextlib.suppress(OSError):
                remove_directory(begun)  # with those above, if it could not be adopted
    _sweep(above)


def read_bootstrap(launch: Launch) -> Bootstrap:
    """Container 0's bootstrap file, as the cluster has it: the token, the key of the authority, the launch values.

    Args:
        launch: Which topology, and its scheduler. If the state manager says that, the scheduler must be the caller's.

    Raises:
        NotFoundError: the cluster has none of it, or it hands over nothing at all.
        UnavailableError: it does not give it to this user, or does not answer.
        ConfigError: it is damaged, or of another version of heronpy.
        UntrustedError: it is of another topology, or of one that has TLS where `launch` has none.
    """
    from heron_scheduler._bootstrap import checked  # here: few commands adopt anything

    return checked(launch, _scheduler(launch).read_bootstrap())


def hands_over(scheduler: str) -> bool:
    """Whether a cluster with this scheduler has what `read_bootstrap` reads.

    Raises:
        NotFoundError: there is no such scheduler.
        ConfigError: what the entry point names is not a scheduler.
    """
    return scheduler_of(scheduler).read_bootstrap is not Scheduler.read_bootstrap


def _begin(above: Path, name: str) -> Path:
    make_private(above, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=above, prefix=f".{name}."))


def _put(begun: Path, directory: Path) -> None:
    """Make a new copy the topology's directory, unless another command was faster."""
    try:
        begun.rename(directory)
    except OSError as e:
        if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not (directory / LAUNCH_FILE).exists():
            shutil.rmtree(directory)
            begun.rename(directory)


def _sweep(above: Path) -> None:
    """Remove copies that commands have begun which were killed."""
    for begun in outrace_removal(lambda: list(above.glob(".*"))):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - begun.stat().st_mtime > _ADOPT_MAX_S:
                shutil.rmtree(begun, ignore_errors=True)


def means_to_run(statemgr: StateManager, launch: Launch) -> bool:
    """Whether the submission of a topology is complete, and no kill of it has begun."""
    return is_ours(statemgr, launch) and bool(statemgr.get(Kind.SCHEDULERS, launch.topology))


def _scheduler(launch: Launch) -> Scheduler:
    return scheduler_of(launch.scheduler)(launch)


def _missing(statemgr: StateManager, launch: Launch) -> dict[int, str]:
    """The containers that nothing will start, and why."""
    if not means_to_run(statemgr, launch):
        return {}
    wanted = {0, *(container.id for container in _plan(statemgr, launch).containers)}
    known = {one.container: one for one in _scheduler(launch).containers()}
    return {
        n: known[n].reason if n in known else ""
        for n in sorted(wanted)
        if n not in known or known[n].phase is ContainerPhase.FAILED
    }


def _plan(statemgr: StateManager, launch: Launch) -> PackingPlan:
    value = statemgr.get(Kind.PACKINGPLANS, launch.topology)
    if value is None:
        raise StateError(f"the state manager has no packing plan of {launch.topology}")
    return records.packing_plan(launch.topology, value)
