"""The application master of one topology: has YARN run what the orders in the state manager ask for.

It asks YARN for a container for each one of the topology, of the size of its order, starts it, and asks again when it
is lost. Containers outlive it: the next attempt finds them by what they were asked for with. It ends none: each
follows the orders itself (`_starter.py`); what does not end in time is given back to YARN, which kills it.
"""

from __future__ import annotations

import logging
import os
import time

from heron_scheduler._spi import ContainerPhase, ContainerStatus
from heron_scheduler.driven import Action, DriverReport, DriverSeat, Orders, OrdersFollower, Run, decide, next_run
from heron_scheduler.yarn._config import YarnConfig
from heron_scheduler.yarn._credentials import Credentials
from heron_scheduler.yarn._outcomes import Attempts
from heron_scheduler.yarn._protocol import RESYNC, SHUTDOWN, NodeManagers, ResourceManager
from heron_scheduler.yarn._requests import Requests, container_name, requested
from heron_scheduler.yarn._rpc import RemoteError
from heron_scheduler.yarn._submission import BOOTSTRAP, python_of, shell_command
from heronpy.container import bootstrap_document
from heronpy.errors import UnavailableError
from heronpy.executor import stop_limit_s
from heronpy.proto import hadoop_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import StateManager

log = logging.getLogger(__name__)

BUSY_S, IDLE_S = 0.2, 1.0
"""Between two messages to the ResourceManager: while something is to change, and else."""
HURRY_S = 60.0
"""How long something that is to change is asked for so often."""
FORCE_S = 20.0
"""What a container has beyond its grace time, before it is given back to YARN."""
LOST_S = 180.0
"""After which an application master ends whose token the ResourceManager does not know: another attempt has begun."""
_AGAIN = ("ApplicationMasterNotRegisteredException", "InvalidApplicationMasterRequestException")
_OVER = ("ApplicationAttemptNotFoundException", "ApplicationNotFoundException")


def grace_s(launch: Launch) -> float:
    """What a container may take to end gracefully."""
    return stop_limit_s(launch) + 5


class Master:
    """All of it is one thread's."""

    def __init__(
        self, launch: Launch, state: StateManager, resource_manager: ResourceManager, *, application: str, host: str
    ) -> None:
        self._launch, self._application, self._host = launch, application, host
        self._config = YarnConfig.of(launch.scheduler_config)
        self._orders, self._seat = OrdersFollower(launch, state, mends=True), DriverSeat(launch, state)
        self._rm, self._nodes = resource_manager, NodeManagers()
        self._requests = Requests(self._config.node_label)
        self._largest = hadoop_pb2.Resource()
        self._runs: dict[int, Run] = {}
        self._attempts: dict[int, Attempts] = {}
        self._ids: dict[str, hadoop_pb2.ContainerId] = {}
        """YARN's containers of runs, by their names."""
        self._silent_s: float | None = None
        self._acted_s = 0.0

    def run(self) -> None:
        """Until the topology is killed.

        Raises:
            HeronError: another application master has taken over, or YARN has ended this one.
        """
        with self._orders:
            lives = self._seat.acquire(self._orders, self._report(-1))
            self._register()
            log.info("YARN runs %s as %s", self._launch.topology, self._application)
            if lives:
                self._serve()
            self._finish()

    def _serve(self) -> None:
        while True:
            orders = self._orders.wanted()
            assert orders is not None, "it was acquired with orders"
            now_s = time.monotonic()
            for action, n in decide(orders, self._runs, now_s):
                self._do(action, n, orders, now_s)
                self._acted_s = now_s
            if orders.stop and not self._runs:
                return
            self._exchange()
            self._seat.say(self._report(orders.serial))
            waits = any(not run.over and run.phase is not ContainerPhase.RUNNING for run in self._runs.values())
            self._orders.changed.wait(BUSY_S if waits and now_s < self._acted_s + HURRY_S else IDLE_S)
            self._orders.changed.clear()

    def _do(self, action: Action, n: int, orders: Orders, now_s: float) -> None:
        if action is Action.START:
            order = orders.containers[n]
            run = self._runs[n] = next_run(self._runs.get(n), "", order.generation)
            largest = self._largest
            if order.ram_mb > largest.memory_mb or order.cpus > largest.vcores:
                run.over, run.phase = True, ContainerPhase.FAILED
                run.reason = (
                    f"it asks for {order.ram_mb} MiB and {order.cpus} vcores, and the largest container of YARN has "
                    f"{largest.memory_mb} MiB and {largest.vcores} vcores"
                )
            else:
                self._requests.want(n, order)
            return
        run = self._runs[n]
        if action is Action.FORGET:
            del self._runs[n]
        elif not run.id:
            self._requests.withdraw(n, run.generation)
            run.over = True
        elif action is Action.END:
            log.info("container %d: %s is to end", n, run.id)
            run.phase, run.end_by_s = ContainerPhase.ENDING, now_s + grace_s(self._launch) + FORCE_S
        else:
            log.warning("container %d: %s has not ended gracefully: it is given back", n, run.id)
            run.end_by_s = now_s + FORCE_S
            self._requests.release(self._ids[run.id])

    def _register(self) -> None:
        """Raises UnavailableError: the ResourceManager does not answer, or knows another attempt."""
        while True:
            try:
                reply = self._rm.register(self._host)
                break
            except UnavailableError as e:
                self._endure(e)
        self._silent_s = None
        self._largest = reply.maximum_capability
        self._nodes.learn(reply.nm_tokens_from_previous_attempts)
        self._requests.registered()
        for container in reply.containers_from_previous_attempts:
            self._take_over(container)

    def _take_over(self, container: hadoop_pb2.Container) -> None:
        """A container that an earlier attempt has started."""
        n, generation = requested(container.allocation_request_id)
        name = container_name(container.id)
        if name in self._ids:
            return
        self._ids[name] = container.id
        if generation < 1 or n in self._runs:
            log.warning("%s is not known: it is given back", name)
            self._requests.release(container.id)
            return
        log.info("container %d: %s runs on %s since an earlier attempt", n, name, container.node_id.host)
        self._runs[n] = Run(name, generation, ContainerPhase.RUNNING, host=container.node_id.host)
        self._attempts[n] = Attempts(began_s=time.monotonic())

    def _exchange(self) -> None:
        """One message to the ResourceManager, and what it answers."""
        request = self._requests.message()
        try:
            reply = self._rm.allocate(request)
        except RemoteError as e:
            if e.kind in _AGAIN:
                log.info("%s; registering again", e)
                self._register()
            elif "InvalidResource" in e.kind or "InvalidLabel" in e.kind:
                self._refused(str(e))
            else:
                self._endure(e)
            return
        except UnavailableError as e:
            self._endure(e)
            return
        self._silent_s = None
        self._requests.answered(request, reply)
        if reply.am_command == SHUTDOWN:
            raise UnavailableError("the ResourceManager has ended this application master")
        if reply.am_command == RESYNC:
            self._register()
            return
        self._nodes.learn(reply.nm_tokens)
        for container in reply.containers_from_previous_attempts:
            self._take_over(container)
        for container in reply.allocated_containers:
            self._start(container)
        for status in reply.completed_container_statuses:
            self._ended(status)

    def _endure(self, error: UnavailableError) -> None:
        """The ResourceManager is away: containers run on, and it is tried again.

        Raises:
            UnavailableError: it does not want this attempt any more.
        """
        now_s = time.monotonic()
        if isinstance(error, RemoteError):
            if self._silent_s is None:
                self._silent_s = now_s
            if error.kind in _OVER or now_s > self._silent_s + LOST_S:
                raise error
        log.warning("%s; trying again", error)
        time.sleep(IDLE_S)

    def _refused(self, why: str) -> None:
        """No container can be had for what is asked: each that waits fails."""
        for n, run in self._runs.items():
            if not run.id and not run.over:
                self._requests.forget(n, run.generation)
                run.over, run.phase, run.reason = True, ContainerPhase.FAILED, why

    def _start(self, container: hadoop_pb2.Container) -> None:
        """Use a container that YARN has given."""
        asked = self._requests.given(container)
        run = self._runs.get(asked[0]) if asked is not None else None
        if asked is None or run is None or run.over or run.id or run.generation != asked[1]:
            self._requests.release(container.id)
            return
        n, generation = asked
        attempts = self._attempts.setdefault(n, Attempts())
        attempts.began_s = time.monotonic()
        run.host = container.node_id.host
        where = ["-m", "heron_scheduler.yarn.starter", "--generation", str(generation)]
        document = bootstrap_document(self._launch, n)
        try:
            self._nodes.start(
                container,
                shell_command([*python_of(self._launch, self._config), *where]),
                Credentials(secrets={BOOTSTRAP: document}).encode(),
            )
        except UnavailableError as e:
            log.warning("container %d does not start on %s: %s", n, run.host, e)
            self._requests.release(container.id)
            attempts.ended(run, -1, f"heron: {e}", time.monotonic())
            return
        run.id, run.phase = container_name(container.id), ContainerPhase.RUNNING
        self._ids[run.id] = container.id
        log.info("container %d: %s runs on %s", n, run.id, run.host)

    def _ended(self, status: hadoop_pb2.ContainerStatus) -> None:
        name = container_name(status.container_id)
        self._ids.pop(name, None)
        for n, run in self._runs.items():
            if run.id == name and not run.over:
                self._attempts[n].ended(run, status.exit_status, status.diagnostics, time.monotonic())
                log.info("container %d: %s has ended with %d: %s", n, name, status.exit_status, run.reason)

    def _finish(self) -> None:
        deadline_s = time.monotonic() + LOST_S
        while time.monotonic() < deadline_s:
            try:
                if self._rm.finish("the topology was killed"):
                    return
            except UnavailableError as e:
                self._endure(e)
            time.sleep(BUSY_S)

    def _report(self, serial: int) -> DriverReport:
        statuses = tuple(
            ContainerStatus(container=n, phase=run.phase, host=run.host, job=run.id, reason=self._reason(run))
            for n, run in sorted(self._runs.items())
            if not run.over or run.phase is ContainerPhase.FAILED or run.retry_s is not None
        )
        return DriverReport(
            topology_id=self._launch.topology_id,
            host=self._host,
            pid=os.getpid(),
            serial=serial,
            application=self._application,
            containers=statuses,
        )

    def _reason(self, run: Run) -> str:
        if run.phase is ContainerPhase.PENDING and not run.over:
            before = f"; it last ended with: {run.reason}" if run.reason else ""
            return f"waits for resources in queue {self._config.queue}{self._config.on_label}{before}"
        return run.reason
