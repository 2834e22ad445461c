"""Schedulers from outside. Everything here blocks.

A scheduler service is started and asked, and done without when it is dead; where there is none, see `_direct`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import mmap
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heron_scheduler import _direct
from heron_scheduler._engine_state import remove_directories, remove_engine_state, remove_nodes
from heron_scheduler._spi import ALL_CONTAINERS, ContainerStatus, scheduler_of
from heronpy.errors import NotFoundError, UnavailableError
from heronpy.executor import stop_limit_s
from heronpy.host import (
    EXECUTOR,
    PROCESS_ENV,
    SERVICE,
    TOPOLOGY_ENV,
    HostProcess,
    find_by_environment,
    is_killed,
    read_pids,
    service_log_dir,
    service_record,
    start_service,
    tail,
)
from heronpy.plan import PackingPlan
from heronpy.proto import scheduler_pb2, state_pb2
from heronpy.runtime import Launch
from heronpy.security import SCHEDULER
from heronpy.statemgr import Kind, open_statemgr, records

log = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0
"""Long, because only a hang takes it: one that ended is noticed at once, and on a busy machine a start takes long."""
_CONTAINERS_TIMEOUT_S = 120.0
"""In which containers end or start, beside the time that processes have to stop."""
_ASK_TIMEOUT_S = 10.0
_ATTEMPT_S = 1.0
"""How long the first attempt to ask takes. Each takes twice as long as the one before, for a machine that is busy."""
_END_TIMEOUT_S = 60.0
_POLL_S = 0.05

_owner: contextvars.ContextVar[HostProcess | None] = contextvars.ContextVar("owner", default=None)


@contextlib.contextmanager
def owned_by(process: HostProcess) -> Iterator[None]:
    """Topologies started in this block are killed when `process` is gone, however it ended."""
    token = _owner.set(process)
    try:
        yield
    finally:
        _owner.reset(token)


def has_service(launch: Launch) -> bool:
    """Whether a process of the engine looks after the topology's containers.

    Raises:
        NotFoundError: its scheduler is not installed here.
    """
    return scheduler_of(launch.scheduler).has_service


def start(launch: Launch, plan: PackingPlan) -> None:
    """Start a topology that is being submitted. Returns when the scheduler has taken it on; what runs after an error is
    for `kill` to end.

    Raises:
        ConfigError: the cluster knows no such partition, queue, namespace, image.
        UnavailableError: the cluster refuses, or the service does not start.
    """
    if has_service(launch):
        launch_service(launch)
    else:
        _direct.schedule(launch, plan)


def containers(launch: Launch) -> list[ContainerStatus]:
    """What the cluster says of each container, sorted by number.

    Raises:
        UnavailableError: the cluster does not answer.
    """
    return list(scheduler_of(launch.scheduler)(launch).containers())


def update(launch: Launch, old: PackingPlan, new: PackingPlan) -> None:
    """Start the containers that `new` adds and end those that it leaves out, unless a service does so by itself.

    Raises:
        ConfigError, UnavailableError: the cluster refuses; tried again, it goes on.
    """
    if not has_service(launch):
        scheduler_of(launch.scheduler)(launch).on_update(old, new)


def launch_service(launch: Launch) -> None:
    """Start the topology's scheduler service. Returns when it answers; it stays when this process ends.

    Raises:
        ConfigError: the topology was submitted with another release of heronpy.
        StateError: there is no place for its sockets.
        UnavailableError: it ended, or does not answer in time; carries the end of its log. It does not run then.
    """
    launch.check_release()
    launch.socket_dir(0)  # where it cannot be, executors would only say so in their logs, again and again
    logs = [service_log_dir(launch) / name for name in ("scheduler.out", "scheduler.log")]
    starts = {path: path.stat().st_size if path.exists() else 0 for path in logs}
    try:
        child = start_service(launch, owner=_owner.get(), new_session=True)
    except OSError as e:
        raise UnavailableError(f"the scheduler service of {launch.topology} cannot be started: {e}") from e
    try:
        why = _wait_for_answer(launch, child)
    except BaseException:
        child.kill()
        child.wait()
        raise
    if why:
        child.kill()
        child.wait()
        last = "\n".join(filter(None, (tail(path, from_byte=start) for path, start in starts.items())))
        last = last or _unwritable(service_log_dir(launch))
        raise UnavailableError(f"the scheduler service of {launch.topology} {why}" + (f":\n{last}" if last else ""))
    # Reaped when it ends, should this process live that long; a daemon thread holds up no exit.
    threading.Thread(target=child.wait, name="reap-scheduler", daemon=True).start()


def _unwritable(directory: Path) -> str:
    """Why nothing is in the logs there; empty if it could be."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(mmap.PAGESIZE))
    except OSError as e:
        return f"{directory} cannot be written: {e.strerror}"
    return ""


def ensure_service(launch: Launch) -> None:
    """Start the topology's scheduler service, unless there is one; somebody else may do the same just now.

    Raises:
        UnavailableError: there is none that answers.
    """
    location = _location(launch)
    if location is not None and _answers(launch, location):
        return
    try:
        launch_service(launch)
    except UnavailableError:
        if not _another_answers(launch):
            raise


def revive(launch: Launch) -> dict[str, str]:
    """Start what is dead of a topology that is to run, if nothing else will do it. Returns what was, and why, which is
    empty if it is not known.

    With a service, that is the service, on this host. Executor 0 starts a dead service again; when both are dead, after
    all processes died at once or after a reboot, it is done here. Without one, it is containers that the cluster has
    given up.

    Raises:
        UnavailableError: the service, or a container, cannot be started.
        StateError: the state manager cannot be read.
    """
    if not has_service(launch):
        return {f"container {n}": reason for n, reason in _direct.reschedule(launch).items()}
    record = service_record(launch)
    if record is None or not record.ended or is_killed(launch.dir):
        return {}
    executor = read_pids(launch.container_dir(0)).get(EXECUTOR)
    if executor is not None and executor.alive:
        return {}
    ensure_service(launch)
    return {"the scheduler service": ""}


def kill(launch: Launch, ended: Callable[[], None] | None = None) -> None:
    """End a topology. On return no process, state, socket or file of it is left; safe to repeat.

    The service ends the processes; if there is none, it is dead, or does not answer, it is done here.

    Args:
        launch: The topology.
        ended: Called when all processes have ended, to remove what only they needed. By the state, which is removed
            afterwards, the next kill finds the topology again if this one is interrupted.

    Raises:
        StateError: the state manager cannot be written.
        UnavailableError: the executors do not end.
    """
    if not has_service(launch):
        _direct.kill(launch, ended)
        return
    location = _location(launch) if launch.dir.exists() else None  # without its token the service cannot be asked
    if location is not None and _answers(launch, location):
        service = _process(launch, location)
        # Twice the time that an executor may take: killed ones have to be noticed too.
        timeout_s = 2 * stop_limit_s(launch) + 20
        # Opened before: a service that runs since before an upgrade removes what it is opened with.
        with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as statemgr:
            try:
                _ask(launch, location, "Kill", scheduler_pb2.SchedulerRequest(keep_state=ended is not None), timeout_s)
            except UnavailableError as e:
                log.info("%s; killing %s from here", e, launch.topology)
            else:
                _wait_for_end(service)
                if ended is not None:
                    ended()
                remove_nodes(statemgr, launch)
                remove_directories(launch)
                return
    end_processes(launch)
    if ended is not None:
        ended()
    remove_engine_state(launch)


def end_processes(launch: Launch) -> None:
    """End all processes of a topology without its service; its state stays.

    Raises:
        UnavailableError: the executors do not end.
    """
    scheduler_of(launch.scheduler)(launch).on_kill()


def restart(launch: Launch, container: int | None = None) -> None:
    """End one container, or all, and start it again; a dead service is started first.

    Raises:
        NotFoundError: there is no such container.
        UnavailableError: the service cannot be started, the cluster refuses, or the containers do not start.
        StateError: the state manager cannot be read.
    """
    timeout_s = stop_limit_s(launch) + _CONTAINERS_TIMEOUT_S
    if not has_service(launch):
        _direct.restart(launch, container, timeout_s)
        return
    ensure_service(launch)
    location = _location(launch)
    assert location is not None, "it answers, so it has reported where it is"
    request = scheduler_pb2.RestartRequest(container=ALL_CONTAINERS if container is None else container)
    _ask(launch, location, "Restart", request, timeout_s)


def renew_secrets(launch: Launch) -> None:
    """Have containers that start from now on given the secrets of user code that are in `launch.dir`.

    Raises:
        ConfigError: the cluster cannot do that.
        UnavailableError: it does not answer.
    """
    if not has_service(launch):  # else the containers read them there
        scheduler_of(launch.scheduler)(launch).on_secrets()


def job_links(launch: Launch) -> Sequence[str]:
    """Where a user can look at the job.

    Raises:
        UnavailableError: the service does not answer.
    """
    if not has_service(launch):
        return scheduler_of(launch.scheduler)(launch).job_links()
    location = _location(launch)
    if location is None:
        raise UnavailableError(f"topology {launch.topology} has no scheduler service")
    return list(_ask(launch, location, "JobLinks", scheduler_pb2.SchedulerRequest(), _ASK_TIMEOUT_S).job_links)


def _location(launch: Launch) -> state_pb2.SchedulerLocation | None:
    with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as statemgr:
        value = statemgr.get(Kind.SCHEDULERS, launch.topology)
    return records.readable(records.scheduler_location, launch.topology, value, before=None)


def _process(launch: Launch, location: state_pb2.SchedulerLocation) -> HostProcess | None:
    """The process of the service, if it is one of this host: else its pid is that of any other process here."""
    mark = {TOPOLOGY_ENV: launch.topology_id, PROCESS_ENV: SERVICE}
    return next((process for process, _ in find_by_environment(mark) if process.pid == location.pid), None)


def _ended(launch: Launch, location: state_pb2.SchedulerLocation) -> bool:
    """Whether the service is known to have ended. Of one on another host, only its silence says so."""
    record = service_record(launch)
    return record is not None and record.pid == location.pid and record.ended


def _answers(launch: Launch, location: state_pb2.SchedulerLocation) -> bool:
    deadline, attempt_s = time.monotonic() + _ASK_TIMEOUT_S, _ATTEMPT_S
    # In short attempts: a dead service of this host is known at once, where a call would wait for it to come back.
    while not _ended(launch, location) and time.monotonic() < deadline:
        try:
            _ask(launch, location, "JobLinks", scheduler_pb2.SchedulerRequest(), attempt_s)
        except UnavailableError:
            time.sleep(_POLL_S)
            attempt_s *= 2
            continue
        return True
    return False


def _wait_for_answer(launch: Launch, child: subprocess.Popen[bytes]) -> str:
    """Empty when the service answers, else what is wrong with it."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            return f"ended with exit code {child.returncode}"
        location = _location(launch)
        if location is not None and location.pid == child.pid and _answers(launch, location):
            return ""
        time.sleep(_POLL_S)
    return f"does not answer after {START_TIMEOUT_S:.0f} s"


def _another_answers(launch: Launch) -> bool:
    """Whether somebody else's service does, once it has said where; it is waited for as long as it lives."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        location, record = _location(launch), service_record(launch)
        if location is not None and _answers(launch, location):
            return True
        if record is None or record.ended:
            return False
        time.sleep(_POLL_S)
    return False


def _wait_for_end(service: HostProcess | None) -> None:
    """Return when the service has ended, which it does by itself after the reply; else it is killed."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    while service is not None and service.alive and time.monotonic() < deadline + _END_TIMEOUT_S:
        if time.monotonic() > deadline:
            service.send(signal.SIGKILL)
        time.sleep(_POLL_S)


def _ask(
    launch: Launch, location: state_pb2.SchedulerLocation, method: str, request: Any, timeout_s: float
) -> scheduler_pb2.SchedulerReply:
    return asyncio.run(_call(launch, location.endpoint, method, request, timeout_s))


async def _call(
    launch: Launch, endpoint: str, method: str, request: Any, timeout_s: float
) -> scheduler_pb2.SchedulerReply:
    # Here, because commands without a call would wait for gRPC.
    import grpc.aio

    from heronpy.proto import scheduler_pb2_grpc
    from heronpy.rpc import channel

    security = launch.security("heron")
    async with channel(endpoint, security, SCHEDULER) as link:
        stub = scheduler_pb2_grpc.SchedulerStub(link)  # type: ignore[no-untyped-call]  # generated
        call = getattr(stub, method)
        try:
            reply: scheduler_pb2.SchedulerReply = await call(
                request, metadata=security.metadata, timeout=timeout_s, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as e:
            if e.code() is grpc.StatusCode.NOT_FOUND:
                raise NotFoundError(e.details() or "no such container") from e
            from heronpy.security import authority

            raise UnavailableError(
                f"the scheduler service of {launch.topology} at {endpoint} does not answer: "
                f"{e.details() or e.code().name}{authority.advice(security.tls, launch.topology)}"
            ) from e
    return reply
