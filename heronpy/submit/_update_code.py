"""Bring new code into a topology that runs, on trial: accept it when it is healthy, or have the old code come back.

All that is decided is in the packing plan, written by the Topology Master: which code each container runs, and that it
is on trial. If this command dies, the Topology Master rolls back when the trial is over; the next update or kill need
not know what came before.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import heron_scheduler

from heronpy import loader
from heronpy.errors import HeronError, NotFoundError, StateError, UnavailableError
from heronpy.loader import PACKAGE
from heronpy.plan import CodeTrial, CodeVersion, LogicalPlan, PackingPlan, package_of
from heronpy.proto import tmaster_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import open_statemgr
from heronpy.submit._code import CodeUpdate, version_of
from heronpy.submit._control import change_plan, end_trial, newest_exception, plans, status
from heronpy.submit._hosted_code import plans_by, remove_stored, stored, wait_until_hosted
from heronpy.submit._packages import add_requirements
from heronpy.submit._submit import uninterrupted

log = logging.getLogger(__name__)

TIMEOUT_S = 120.0
STABLE_S = 5.0
"""New code is healthy when everything has run for so long without an exception."""
MARGIN_S = 30.0
"""So much longer than this command waits, the Topology Master does before it rolls back by itself."""
_LOCK = "code"
_LOCK_S = 1.0
_POLL_S = 0.1
_CALL_S = 10.0
_ROLLBACK_S = 60.0


@dataclass(slots=True)
class CodeHealth:
    """Whether new code is healthy, from what the Topology Master says again and again. Pure: no clock, no call."""

    components: frozenset[str]
    """Whose exceptions end their processes."""
    containers: frozenset[int]
    """Which have the new code, and had it not before."""
    began_ms: int
    """When, since 1970: earlier exceptions are of the old code."""
    stable_s: float = STABLE_S
    problem: str = "the Topology Master has not answered"
    """Why it is not healthy yet."""
    failure: str = ""
    """Why it never will be."""
    _since_s: float | None = field(default=None)

    def observed(self, reply: tmaster_pb2.StatusReply, now_s: float) -> bool:
        """Take a status; whether the code is healthy by now."""
        for exception in reply.exceptions:
            if self._is_new(exception):
                lines = exception.report.stacktrace.strip().splitlines()
                self.failure = f"{exception.source}: {lines[-1] if lines else 'an exception'}"
                return False
        phase = reply.checkpoints.phase
        if not reply.ready or phase not in ("", "running"):
            missing = [instance.id for instance in reply.instances if not instance.attached]
            self.problem = f"it waits for {', '.join(missing[:5]) or phase or 'Stream Managers'}"
            self._since_s = None
            return False
        self._since_s = now_s if self._since_s is None else self._since_s
        return now_s - self._since_s >= self.stable_s

    def _is_new(self, exception: tmaster_pb2.NamedException) -> bool:
        container = exception.source.removeprefix("container_").partition("_")[0]
        ours = exception.source.startswith("container_") and container.isdecimal() and int(container) in self.containers
        return ours and exception.component in self.components and exception.report.last_time_ms >= self.began_ms


def update_code(
    planned: CodeUpdate, *, timeout_s: float = TIMEOUT_S, on_step: Callable[[str], None] = lambda step: None
) -> str:
    """Have a topology run new code. Returns its version, accepted.

    With checkpoints all tasks go on from one that is taken now, and none is taken before the code is accepted. Without,
    container after container is restarted, at least once with replays of what is lost, at most once without.

    Args:
        planned: What `plan_code_update` has returned.
        timeout_s: How long each step may take: the checkpoint, and that the new code is healthy.
        on_step: Called with a few words before each step.

    Raises:
        StateError: the old code runs; says why, with the last error of user code.
        UnavailableError: the Topology Master does not answer; or somebody else updates the code.
    """
    launch, version = planned.launch, ""
    try:
        with contextlib.closing(open_statemgr(launch.statemgr)) as state, state.lock(launch.topology, _LOCK, _LOCK_S):
            version = _carry_out(planned, timeout_s, on_step)
    except StateError as e:
        if not version:
            raise
        log.warning("%s", e)  # the lock was lost: what is accepted is accepted all the same
    return version


def _carry_out(planned: CodeUpdate, timeout_s: float, on_step: Callable[[str], None]) -> str:
    """Update the code, under the topology's lock. Returns its version, accepted."""
    launch, began_ms = planned.launch, int(time.time() * 1000)
    if end_trial(launch):
        on_step("rolling back what an interrupted update has left")
        _settle(launch)
    base = plans(launch)[1]
    if not base.runs_like(planned.base) and planned.base.trial is None:
        raise StateError(f"{launch.topology} has changed meanwhile: ask again")
    _remove_unused(launch, base)
    try:
        on_step("staging the package")
        code = _staged(planned)
        if not heron_scheduler.has_service(launch):
            code = stored(launch, code)
            _bring_to_hosts(launch, code, timeout_s, on_step)
        trial = CodeTrial(base.containers[0].code, timeout_s + MARGIN_S)
        for containers in planned.steps:
            _try(planned, base, code, containers, trial, timeout_s, began_ms, on_step)
        packing = plans(launch)[1]
        _refuse_rolled_back(launch, packing, code, began_ms)
        accepted = packing.accepted()
        change_plan(launch, packing, accepted, timeout_s=timeout_s)
    except BaseException as e:
        with uninterrupted():
            _roll_back(launch, planned.after, e, on_step)
        raise
    _remove_unused(launch, accepted)
    return code.version


def _bring_to_hosts(launch: Launch, code: CodeVersion, timeout_s: float, on_step: Callable[[str], None]) -> None:
    """Have all hosts fetch the code while the topology goes on as it is."""
    on_step("waiting for the hosts to install it")
    packing = plans(launch)[1]
    change_plan(launch, packing, packing.with_staged(code), timeout_s=timeout_s)
    wait_until_hosted(launch, code, timeout_s)


def _try(
    planned: CodeUpdate,
    base: PackingPlan,
    code: CodeVersion,
    containers: tuple[int, ...],
    trial: CodeTrial,
    timeout_s: float,
    began_ms: int,
    on_step: Callable[[str], None],
) -> None:
    launch, packing = planned.launch, plans(planned.launch)[1]
    if packing.trial is None and not packing.runs_like(base):  # a container of another update would keep the old code
        raise StateError(f"{launch.topology} was changed by somebody else: ask again")
    if containers != planned.steps[0]:
        _refuse_rolled_back(launch, packing, code, began_ms)
    on_step("taking a checkpoint" if launch.checkpoints else f"restarting container {containers[0]}")
    change_plan(launch, packing, packing.on_trial(code, containers, trial), timeout_s=timeout_s)
    on_step("waiting for the new code to be healthy")
    health = CodeHealth(
        components=_ended_by_exceptions(planned.logical),
        containers=frozenset(containers),
        began_ms=int(time.time() * 1000),
        stable_s=min(STABLE_S, timeout_s / 2),
    )
    deadline_s = time.monotonic() + timeout_s
    healthy = False
    while not healthy:
        with contextlib.suppress(UnavailableError, StateError):  # it, or the state manager, is being started again
            healthy = health.observed(status(launch), time.monotonic())
        _refuse_rolled_back(launch, plans_by(launch, deadline_s)[1], code, began_ms, health.failure)
        if health.failure:
            raise StateError(f"code {code.version} of {launch.topology} is rolled back: {health.failure}")
        if time.monotonic() > deadline_s and not healthy:
            raise StateError(
                f"code {code.version} of {launch.topology} is rolled back, since it is not healthy after "
                f"{timeout_s:g} s: {health.problem}"
            )
        time.sleep(_POLL_S)


def _ended_by_exceptions(logical: LogicalPlan) -> frozenset[str]:
    policy = "topology.exception.policy"
    return frozenset(name for name in logical.components if logical.config_of(name).get(policy, "restart") != "fail")


def _refuse_rolled_back(launch: Launch, packing: PackingPlan, code: CodeVersion, began_ms: int, why: str = "") -> None:
    if code.version not in packing.versions:
        why = why or _newest_error(launch, began_ms) or "user code has failed"
        raise StateError(f"code {code.version} of {launch.topology} is rolled back: {why}")


def _newest_error(launch: Launch, began_ms: int) -> str:
    """What the Topology Master, or user code, says."""
    with contextlib.suppress(HeronError):
        reply = status(launch)
        return str(reply.code_failure) or newest_exception(reply, began_ms)
    return ""


def _roll_back(launch: Launch, version: str, error: BaseException, on_step: Callable[[str], None]) -> None:
    """Have the old code come back, and wait for it, unless the new code is accepted already.

    What fails is logged: `error` is what is raised.
    """
    try:
        packing = plans(launch)[1]
        if packing.trial is None and version in packing.versions:
            log.warning("code %s of %s was accepted already, and stays", version, launch.topology)
            _remove_unused(launch, packing)
            return
        on_step("rolling back")
        end_trial(launch)
        packing = plans(launch)[1]
        if packing.trial is None and version not in packing.versions:
            if (clean := packing.without_unused_code()) != packing:
                change_plan(launch, packing, clean, timeout_s=_CALL_S)
            _settle(launch)
            _remove_unused(launch, clean)
    except NotFoundError as gone:  # it was killed meanwhile, maybe before its new package was stored
        if not isinstance(error, NotFoundError):  # what has failed for it names a file, say
            log.warning("%s", gone)
        if not heron_scheduler.has_service(launch):
            _remove_stored(launch, None)
    except HeronError as e:
        log.error("after %r: code of %s may still be on trial, then it is rolled back: %s", error, launch.topology, e)


def _settle(launch: Launch) -> None:
    """Wait until everything runs again.

    Raises:
        UnavailableError: not in time.
    """
    deadline_s = time.monotonic() + _ROLLBACK_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(UnavailableError):
            reply = status(launch)
            if reply.ready and reply.checkpoints.phase in ("", "running"):
                return
        time.sleep(_POLL_S)
    raise UnavailableError(f"{launch.topology} does not run again after {_ROLLBACK_S:g} s: see `heron status`")


def _staged(planned: CodeUpdate) -> CodeVersion:
    """Put the package beside those that there are."""
    launch, target = planned.launch, planned.launch.code_dir(planned.after)
    try:
        target.parent.mkdir(mode=0o700, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
        staged = loader.stage(planned.definition, scratch)
        if loader.version_of(scratch, planned.requirements) != package_of(planned.after):
            raise StateError("the package has changed since it was planned: ask again")
        scratched = replace(launch, dir=scratch, package_paths=staged.package_paths)
        paths = add_requirements(scratched, planned.requirements).package_paths
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
    except OSError as e:
        raise StateError(f"the package cannot be written to {target}: {e.strerror}") from e
    return CodeVersion(planned.after, paths, planned.logical.proto.SerializeToString())


def _remove_unused(launch: Launch, packing: PackingPlan) -> None:
    """Remove the packages that no container runs, nor may fall back to."""
    used = packing.needed_codes
    unused: Iterable[Path] = launch.code_dir("").glob("*")
    for directory in unused:
        if directory.name not in used:
            shutil.rmtree(directory, ignore_errors=True)
    if "" not in used:
        shutil.rmtree(launch.dir / PACKAGE, ignore_errors=True)
    if not heron_scheduler.has_service(launch):
        _remove_stored(launch, packing)
    log.info("%s runs code %s", launch.topology, version_of(launch, packing) or "(submitted)")


def _remove_stored(launch: Launch, packing: PackingPlan | None) -> None:
    try:
        remove_stored(launch, packing)
    except HeronError as e:  # the next update, or the kill, removes them
        log.warning("packages of %s that nothing needs any more are still stored: %s", launch.topology, e)
