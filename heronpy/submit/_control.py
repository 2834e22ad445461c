"""Acting on a running topology: through its Topology Master, or through its scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import heron_scheduler

from heronpy.address import join_address
from heronpy.errors import ConfigError, HeronError, NotFoundError, StateError, UnavailableError, UsageError
from heronpy.host import DIRECTORY_ENV, remove_directory, service_record, sweep
from heronpy.plan import LogicalPlan, PackingPlan, PhysicalPlan
from heronpy.proto import loglevels_pb2, tmaster_pb2
from heronpy.runtime import Launch
from heronpy.security import container_identity
from heronpy.statemgr import Kind, open_statemgr, records
from heronpy.submit._checkpoints import remove_checkpoints
from heronpy.submit._listed import check_owner
from heronpy.submit._packages import remove_packages
from heronpy.submit._secrets import renew_secrets
from heronpy.submit._submit import LOCK, LOCK_TIMEOUT_S, uninterrupted

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 30.0
"""For a Topology Master that is busy, or stands still for a while: one that is dead is noticed at once."""
CHECKPOINT_TIMEOUT_S = 60.0
"""How long a command waits for a checkpoint, by default."""
_PROGRESS_S = 5.0
"""So often it is said what a checkpoint waits for."""
_TRIAL_POLL_S = 0.1
_DECIDED_S = 10.0
"""What the answer to an update may take longer than the update."""
_WITHOUT_LAST = "--force ends it, and what it has done since then is lost"
_REFUSED: dict[str, type[HeronError]] = {
    "NOT_FOUND": NotFoundError,
    "INVALID_ARGUMENT": UsageError,
    "FAILED_PRECONDITION": StateError,
}
"""What a Topology Master that does answer may say."""


def activate(launch: Launch) -> str:
    """Have the spouts emit. Returns the new state, `RUNNING`.

    Raises:
        UnavailableError: the Topology Master does not answer.
    """
    return str(ask(launch, "Activate").state)


def deactivate(launch: Launch) -> str:
    """Have the spouts stop emitting. Returns the new state, `PAUSED`.

    Raises:
        UnavailableError: the Topology Master does not answer.
    """
    return str(ask(launch, "Deactivate").state)


def take_checkpoint(launch: Launch, *, divisible: bool = False, timeout_s: float = CHECKPOINT_TIMEOUT_S) -> int:
    """Take a checkpoint now. Returns its id when it is committed and all tasks know of it: their sinks have committed.

    Args:
        launch: The topology.
        divisible: Any number of tasks, also of another topology, can restore it. The spouts rest until it is there.
        timeout_s: For how long it is tried.

    Raises:
        StateError: there was none in time, or will be none; says why.
        UnavailableError: the Topology Master does not answer.
    """
    request = tmaster_pb2.CheckpointRequest(divisible=divisible, timeout_ms=int(timeout_s * 1000))
    waits = _no_checkpoint(launch, timeout_s)
    call = "TakeCheckpoint", request
    return int(_ask_all(launch, call, timeout_s=timeout_s + CALL_TIMEOUT_S, waits=waits)[0].checkpoint)


def change_plan(launch: Launch, base: PackingPlan, packing: PackingPlan, *, timeout_s: float) -> None:
    """Have the Topology Master write another packing plan, with checkpoints after one that it takes now.

    Interrupted, it says which plan is in force: nothing is decided any more when it returns.

    Args:
        launch: The topology.
        base: The plan that it was made from.
        packing: The plan.
        timeout_s: How long it may take.

    Raises:
        StateError: nothing was changed; says why.
        UnavailableError: the Topology Master does not answer, and the plan is not written so far.
    """
    waits = _no_checkpoint(launch, timeout_s) if launch.checkpoints else None
    try:
        _ask_for_plan(launch, base, packing, timeout_s, waits)
    except UnavailableError:
        if plans(launch)[1] != packing:
            raise
    except (KeyboardInterrupt, SystemExit):
        with uninterrupted():
            _say_what_is_decided(launch, base)
        raise


def _ask_for_plan(
    launch: Launch, base: PackingPlan, packing: PackingPlan, timeout_s: float, waits: Waits | None = None
) -> None:
    request = tmaster_pb2.UpdateRequest(base=base.to_proto(), packing=packing.to_proto(), timeout_s=timeout_s)
    _ask_all(launch, ("Update", request), timeout_s=timeout_s + _DECIDED_S, waits=waits)


def _say_what_is_decided(launch: Launch, base: PackingPlan) -> None:
    """Wait until the Topology Master has noticed that the caller of an update has gone, or has written the plan."""
    deadline_s = time.monotonic() + _DECIDED_S
    while True:
        try:
            if plans(launch)[1] != base:
                log.warning("the update of %s was decided already: it runs by the new plan", launch.topology)
                return
            _ask_for_plan(launch, base, base, _DECIDED_S)  # no change: refused while an update is under way
            log.warning("the plan of %s is not changed", launch.topology)
            return
        except HeronError as e:
            if time.monotonic() > deadline_s:
                log.error("whether the plan of %s is changed is unknown: %s", launch.topology, e)
                return
        time.sleep(_TRIAL_POLL_S)


def _no_checkpoint(launch: Launch, timeout_s: float) -> Waits:
    def waits(reply: tmaster_pb2.StatusReply, waited_s: float) -> None:
        why = reply.checkpoints.obstacle or f"checkpoints are {reply.checkpoints.phase}"
        log.warning("%s: no checkpoint after %.0f of %g s: %s", launch.topology, waited_s, timeout_s, why)

    return waits


def status(launch: Launch) -> tmaster_pb2.StatusReply:
    """What the Topology Master knows: state, Stream Managers, instances, counters and rates.

    Raises:
        UnavailableError: the Topology Master does not answer.
    """
    reply: tmaster_pb2.StatusReply = ask(launch, "GetStatus")
    return reply


def newest_exception(reply: tmaster_pb2.StatusReply, since_ms: int) -> str:
    """The process that had the newest exception since a time (since 1970), and its last line; empty: none had any."""
    new = [each for each in reply.exceptions if each.report.last_time_ms >= since_ms]
    newest = max(new, key=lambda each: each.report.last_time_ms, default=None)
    lines = newest.report.stacktrace.strip().splitlines() if newest is not None else []
    return f"{newest.source}: {lines[-1]}" if newest is not None and lines else ""


def kill(launch: Launch, *, keep_state: bool = False, final_s: float | None = None) -> None:
    """End a topology, or what is left of one. On return no process, node, socket or file of it is left.

    Args:
        launch: The topology.
        keep_state: Leave its checkpoints where they are.
        final_s: If it takes checkpoints, pause it and wait so long for a last one before; None: end it at once.

    Raises:
        StateError: there was no last checkpoint, and it is paused, but not ended. Or the state manager cannot be
            written: its processes were ended, its state is left. Or its directory belongs to somebody else: nothing was
            ended.
        UnavailableError: somebody else submits or kills it right now.
    """
    with contextlib.suppress(FileNotFoundError):  # gone: what else is left is ours by the environment or by the state
        check_owner(launch.dir)
    if final_s is not None and launch.checkpoints:
        _take_last_checkpoint(launch, final_s, divisible=keep_state)
    spec = launch.statemgr
    if spec.type == "file" and not Path(spec.root).exists():  # gone too, and not to be made again
        _end(launch)
        with contextlib.suppress(OSError):
            remove_directory(launch.dir)
        _remove_stored(launch, keep_state)
        return
    left: list[HeronError] = []

    def remove_stored() -> None:
        try:
            _remove_stored(launch, keep_state)
        except HeronError as e:  # said at the end: the rest of the topology is removed all the same
            left.append(e)

    stores = bool(launch.config.package.url or (launch.checkpoints and not keep_state))

    def kill() -> None:
        with contextlib.closing(open_statemgr(spec)) as state, state.lock(launch.topology, LOCK, LOCK_TIMEOUT_S):
            heron_scheduler.kill(launch, remove_stored if stores else None)
            if heron_scheduler.has_service(launch):
                _end(launch)

    try:
        try:
            kill()
        except StateError as e:
            if not _is_full(e) or not heron_scheduler.has_service(launch):
                raise
            _end(launch)
            _make_room(launch)
            kill()
    except StateError as e:
        _end(launch)
        raise StateError(
            f"all processes of {launch.topology} were ended, but not all of its state is removed: {e}; "
            "kill it again when that is mended"
        ) from e
    if left:
        raise left[0]


def _take_last_checkpoint(launch: Launch, timeout_s: float, *, divisible: bool) -> None:
    if not _runs(launch):
        log.warning("%s does not run, so there is no last checkpoint of it", launch.topology)
        return
    paused, way_out = "", _WITHOUT_LAST
    try:
        if not heron_scheduler.has_service(launch):
            heron_scheduler.adopt(launch)  # it may have been found without its secrets: this says why
        end_trial(launch)
        deactivate(launch)
        paused, way_out = ", but paused", f"{_WITHOUT_LAST}; heron activate {launch.topology} has it go on"
        take_checkpoint(launch, divisible=divisible, timeout_s=timeout_s)
    except (ConfigError, NotFoundError, StateError, UnavailableError) as e:
        why = str(e).removeprefix(f"{launch.topology}: ")
        raise StateError(f"{launch.topology} is not killed{paused}: {why}; {way_out}") from e
    except (KeyboardInterrupt, SystemExit):
        log.warning("%s is not killed%s; %s", launch.topology, paused, way_out)
        raise


def _runs(launch: Launch) -> bool:
    """Whether somebody keeps a Topology Master running."""
    if not heron_scheduler.has_service(launch):
        return any(one.container == 0 for one in heron_scheduler.containers(launch))
    record = service_record(launch)
    return record is not None and record.alive


def _remove_stored(launch: Launch, keep: bool) -> None:
    with contextlib.ExitStack() as also:
        also.callback(remove_packages, launch)
        if not keep:
            remove_checkpoints(launch)


def _is_full(error: StateError) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)


def _make_room(launch: Launch) -> None:
    """Remove what the containers of a topology that has ended have written: its logs may be what fills the disk."""
    for directory in launch.dir.glob("container_*"):
        shutil.rmtree(directory, ignore_errors=True)


def _end(launch: Launch) -> None:
    """End what processes are left of a topology, also of an earlier submission to the same directory."""
    heron_scheduler.end_processes(launch)
    sweep({DIRECTORY_ENV: str(launch.dir)})
    launch.remove_sockets()


def restart(launch: Launch, container: int | None = None) -> list[str]:
    """End the processes of one container, or of all, and have them started again; with secrets that have changed.

    Returns:
        What is to be said of secrets, in words: which are new, and which stay because they are not on this machine.

    Raises:
        NotFoundError: the topology has no such container.
        ConfigError: a secret cannot be read, or the cluster cannot bring it to the topology; or it was submitted with
            another release of heronpy.
        UnavailableError: the scheduler does not answer.
    """
    launch.check_release()
    if container is not None:
        known = [0, *(c.id for c in plans(launch)[1].containers)]
        if container not in known:
            raise NotFoundError(
                f"topology {launch.topology} has no container {container}: it has {known[0]} to {known[-1]}"
            )
    with _locked(launch):
        said = renew_secrets(launch)
        heron_scheduler.restart(launch, container)
    return said


@contextlib.contextmanager
def _locked(launch: Launch) -> Iterator[None]:
    """Without a service to take its turn with, no other command may change what runs meanwhile."""
    if heron_scheduler.has_service(launch):
        yield
        return
    with contextlib.closing(open_statemgr(launch.statemgr)) as state, state.lock(launch.topology, LOCK, LOCK_TIMEOUT_S):
        yield


def plans(launch: Launch) -> tuple[LogicalPlan, PackingPlan]:
    """What its code defines, with the numbers of tasks that it has now, and which instances share a container.

    Raises:
        NotFoundError: the state manager does not know the topology, or has another submission of it.
        StateError: the state manager cannot be read.
    """
    defined, packed = defined_plans(launch)
    return defined.with_parallelism(packed.parallelism), packed


def defined_plans(launch: Launch) -> tuple[LogicalPlan, PackingPlan]:
    """The same with the numbers of tasks that the code defines. Raises as `plans`."""
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        topology = state.get(Kind.TOPOLOGIES, launch.topology)
        packing = state.get(Kind.PACKINGPLANS, launch.topology)
    if topology is None or packing is None:
        raise NotFoundError(f"the state manager at {launch.statemgr.root} does not know topology {launch.topology}")
    definition = records.definition(launch.topology, topology)
    _check_submission(launch, definition.id)
    return records.plans(launch.topology, definition, packing)


def _check_submission(launch: Launch, found: str) -> None:
    if found not in ("", launch.topology_id):
        where = f"{launch.cluster}/{launch.role}/{launch.environ}"
        raise NotFoundError(
            f"the state manager at {launch.statemgr.root} has another submission of {launch.topology} than "
            f"{launch.dir}: `heron kill {where} {launch.topology}` removes what is left of this one"
        )


def end_trial(launch: Launch) -> bool:
    """Have the old code come back where new code is on trial. Returns whether there was any.

    Raises:
        StateError, UnavailableError: it does not come back just now.
    """
    deadline_s = time.monotonic() + CALL_TIMEOUT_S
    found = False
    while (packing := plans(launch)[1]).trial is not None:
        found = True
        try:
            _ask_for_plan(launch, packing, packing.rolled_back(), CALL_TIMEOUT_S)
        except (StateError, UnavailableError):  # maybe the Topology Master does it by itself just now
            if time.monotonic() > deadline_s:
                raise
        time.sleep(_TRIAL_POLL_S)
    return found


def metrics(launch: Launch, request: tmaster_pb2.MetricsRequest) -> tmaster_pb2.MetricsReply:
    """Metrics of the last three hours, or of all time.

    Raises:
        UsageError: too many values for one reply.
        UnavailableError: the Topology Master does not answer.
    """
    reply: tmaster_pb2.MetricsReply = ask(launch, "GetMetrics", request)
    return reply


def status_and_metrics(
    launch: Launch, *requests: tmaster_pb2.MetricsRequest
) -> tuple[tmaster_pb2.StatusReply, list[tmaster_pb2.MetricsReply]]:
    """The status and the replies to all requests, over one connection.

    Raises:
        UsageError: too many values for one reply.
        UnavailableError: the Topology Master does not answer.
    """
    calls = [("GetMetrics", request) for request in requests]
    status, *replies = _ask_all(launch, ("GetStatus", tmaster_pb2.TopologyRequest()), *calls)
    return status, replies


def physical_plan(launch: Launch) -> PhysicalPlan:
    """The plan in force.

    Raises:
        NotFoundError: there is none yet.
        UnavailableError: the Topology Master does not answer.
    """
    return PhysicalPlan.from_proto(ask(launch, "GetPhysicalPlan"))


def log_levels(launch: Launch) -> loglevels_pb2.LogLevels:
    """The log levels that were changed at run time.

    Raises:
        UnavailableError: the Topology Master does not answer, or cannot read them.
    """
    reply: loglevels_pb2.LogLevels = ask(launch, "GetLogLevels")
    return reply


def set_log_level(
    launch: Launch, target: str, level: str | None, *, for_s: int = 0, user: str = ""
) -> loglevels_pb2.LogLevels:
    """Change the log level of running processes; they take it with the answer to their next report of metrics.

    Args:
        launch: The topology.
        target: A component, the id of a process, `__stmgr__`, `__metricsmgr__`, `__executor__`, `__tmaster__`, or
            `__engine__` for all of these.
        level: DEBUG, INFO, WARNING or ERROR; None for the configured one.
        for_s: After this many seconds it is taken back; 0: it stays.
        user: Who asks, for the log.

    Returns:
        All levels that are changed now.

    Raises:
        NotFoundError: no such target; names the nearest.
        UsageError: no such level.
        UnavailableError: the Topology Master does not answer, or cannot write it.
    """
    request = tmaster_pb2.LogLevelRequest(target=target, level=level or "", for_s=for_s, user=user)
    reply: loglevels_pb2.LogLevels = ask(launch, "SetLogLevel", request)
    return reply


def ask(launch: Launch, method: str, request: Any = None, *, timeout_s: float = CALL_TIMEOUT_S) -> Any:
    """Call a method of the Topology Master.

    Raises:
        UnavailableError: it does not answer in time.
        HeronError: it refuses.
    """
    return _ask_all(launch, (method, request or tmaster_pb2.TopologyRequest()), timeout_s=timeout_s)[0]


def awaited_s(launch: Launch) -> float | None:
    """How long ago the topology was submitted, while no Topology Master has come up; None: one has, or unknown."""
    try:
        with contextlib.closing(open_statemgr(launch.statemgr)) as state:
            if state.get(Kind.TMASTERS, launch.topology) is not None:
                return None
            raw = state.get(Kind.EXECUTIONSTATE, launch.topology)
    except HeronError as e:
        log.debug("%s: when it was submitted cannot be read: %s", launch.topology, e)
        return None
    return None if raw is None else time.time() - records.execution_state(launch.topology, raw).submission_time_s


Waits = Callable[[tmaster_pb2.StatusReply, float], None]
"""Called with the status, and for how many seconds it was waited."""


def _ask_all(
    launch: Launch, *calls: tuple[str, Any], timeout_s: float = CALL_TIMEOUT_S, waits: Waits | None = None
) -> list[Any]:
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        raw = state.get(Kind.TMASTERS, launch.topology)
    location = records.tmaster_location(launch.topology, raw)
    if location is None:
        raise UnavailableError(f"the Topology Master of {launch.topology} is not up: try again, or see `heron logs`")
    _check_submission(launch, location.topology_id)
    return asyncio.run(_call(launch, join_address(location.host, location.port), calls, timeout_s, waits))


async def _call(
    launch: Launch, target: str, calls: Sequence[tuple[str, Any]], timeout_s: float, waits: Waits | None
) -> list[Any]:
    # Here, because commands without a call would wait for gRPC.
    import grpc.aio

    from heronpy.proto import tmaster_pb2_grpc
    from heronpy.rpc import channel

    security = launch.security("heron")
    async with channel(target, security, container_identity(0)) as link:
        stub = tmaster_pb2_grpc.TmasterStub(link)  # type: ignore[no-untyped-call]  # generated

        async def watch(waits: Waits) -> None:
            began_s = time.monotonic()
            while True:
                await asyncio.sleep(_PROGRESS_S)
                request = tmaster_pb2.TopologyRequest()
                with contextlib.suppress(grpc.aio.AioRpcError):  # the call itself says that it does not answer
                    reply = await stub.GetStatus(request, metadata=security.metadata, timeout=_PROGRESS_S)
                    waits(reply, time.monotonic() - began_s)

        watching = asyncio.create_task(watch(waits)) if waits is not None else None
        try:
            replies = []
            for method, request in calls:
                replies.append(await getattr(stub, method)(request, metadata=security.metadata, timeout=timeout_s))
            return replies
        except grpc.aio.AioRpcError as e:
            if refused := _REFUSED.get(e.code().name):
                raise refused(f"{launch.topology}: {e.details()}") from e
            from heronpy.security import authority

            raise UnavailableError(
                f"the Topology Master of {launch.topology} at {target} does not answer: {e.details() or e.code().name}"
                f"{authority.advice(security.tls, launch.topology)}"
            ) from e
        finally:
            if watching is not None:
                watching.cancel()
