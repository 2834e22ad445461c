"""The driver of one topology: runs on Spark what the orders in the state manager ask for, and says what runs.

Its death ends the Spark application, and so all containers; the next driver starts them again.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import logging
import os
import signal
import socket
import threading
import time
import uuid
from types import FrameType
from typing import Any

from heron_scheduler._spi import ContainerPhase, ContainerStatus
from heron_scheduler.driven import Action, DriverReport, DriverSeat, Orders, OrdersFollower, Run, decide, next_run
from heron_scheduler.spark._application import Application
from heron_scheduler.spark._config import SparkConfig
from heron_scheduler.spark._link import LinkServer
from heron_scheduler.spark._preflight import master_state
from heronpy.container import bootstrap_document
from heronpy.environment import python_command
from heronpy.errors import UnavailableError
from heronpy.executor import stop_limit_s
from heronpy.runtime import Launch
from heronpy.statemgr import StateManager

log = logging.getLogger(__name__)

POLL_S = 0.2
SPREAD_S = 20.0
"""How long hosts are waited for, so that containers are spread over them: JVMs take seconds to start."""
RETRY_S = 15.0
"""After which a job that Spark has failed is run again."""
CANCEL_S = 20.0
"""What a container has beyond its grace time, before its task is killed."""


def grace_s(launch: Launch) -> float:
    """What an executor may take to end gracefully."""
    return stop_limit_s(launch) + 5


class Driver:
    """Its methods are called by one thread, unless they say otherwise."""

    def __init__(self, launch: Launch, state: StateManager) -> None:
        self._launch = launch
        self._config = SparkConfig.of(launch.scheduler_config)
        self._program = importlib.resources.files("heron_scheduler.spark").joinpath("_supervise.py").read_text()
        self._orders, self._seat = OrdersFollower(launch, state, mends=True), DriverSeat(launch, state)
        self._runs: dict[int, Run] = {}
        self._lock = threading.Lock()
        """Guards what job and link threads change of `_runs`."""
        self._application: Application | None = None
        self._links: LinkServer | None = None

    def run(self) -> None:
        """Until the topology is killed, or SIGTERM.

        Raises:
            HeronError: Spark has not accepted the application, or has ended it, or another driver has taken over.
        """
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        with self._orders:
            starting = self._report(-1)
            if not self._seat.acquire(self._orders, starting):
                return
            advertise, bind = self._launch.advertised_host(), self._launch.bind_address.rpartition(":")[0]
            with contextlib.ExitStack() as stack:
                self._links = LinkServer(self._launch.topology_id, bind, advertise, self._connected, self._said)
                stack.callback(self._links.stop)
                self._links.start()
                self._application = Application(self._launch, self._config, bind=bind, advertise=advertise)
                stack.callback(self._application.stop)
                self._wait_for_hosts(self._application)
                log.info("Spark runs %s as %s", self._launch.topology, self._application.id)
                self._serve()

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._orders.stop()

    def _wait_for_hosts(self, application: Application) -> None:
        """Wait a while for executors, without which the first one to come would be given all containers."""
        try:
            workers = sum(worker["state"] == "ALIVE" for worker in master_state(self._config)["workers"])
        except UnavailableError:
            return
        deadline_s = time.monotonic() + SPREAD_S
        while application.executors < min(workers, self._ordered_containers) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)

    @property
    def _ordered_containers(self) -> int:
        orders = self._orders.wanted()
        return 0 if orders is None else len(orders.containers)

    def _serve(self) -> None:
        while True:
            orders = self._orders.wanted()
            assert orders is not None, "it was acquired with orders"
            assert self._application is not None
            with self._lock:
                actions = decide(orders, self._runs, time.monotonic())
            for action, n in actions:
                self._do(action, n, orders)
            if orders.stop and not self._runs:
                return
            if self._application.ended:
                raise UnavailableError("the Spark master has ended the application")
            self._seat.say(self._report(orders.serial))
            self._orders.changed.wait(POLL_S)
            self._orders.changed.clear()

    def _do(self, action: Action, n: int, orders: Orders) -> None:
        assert self._links is not None
        assert self._application is not None
        if action is Action.START:
            order = orders.containers[n]
            run = next_run(self._runs.get(n), uuid.uuid4().hex[:12], order.generation)
            payload = self._payload(n, run)
            with self._lock:
                self._runs[n] = run
            log.info("container %d: run %s", n, run.id)
            arguments = (n, run, order.cpus, payload)
            threading.Thread(target=self._run_job, args=arguments, name=f"job-{n}", daemon=True).start()
            return
        run = self._runs[n]
        if action is Action.FORGET:
            with self._lock:
                del self._runs[n]
        elif action is Action.END:
            log.info("container %d: run %s is to end", n, run.id)
            with self._lock:
                waits = run.phase is ContainerPhase.PENDING
                run.phase = ContainerPhase.ENDING
                run.end_by_s = time.monotonic() + grace_s(self._launch) + CANCEL_S
            self._links.end(run.id)
            if waits:
                self._application.cancel(run.id)
        else:
            log.warning("container %d: run %s has not ended gracefully: its task is killed", n, run.id)
            run.end_by_s = time.monotonic() + CANCEL_S
            self._application.cancel(run.id)

    def _payload(self, n: int, run: Run) -> dict[str, Any]:
        assert self._links is not None
        return {
            "program": self._program,
            "topology_id": self._launch.topology_id,
            "container": n,
            "run": run.id,
            "directory": self._config.directory,
            "python": list(python_command(self._launch)),
            "bootstrap": bootstrap_document(self._launch, n).decode(),
            "grace_s": grace_s(self._launch),
            "link": self._links.invite(run.id),
        }

    def _run_job(self, n: int, run: Run, cpus: int, payload: dict[str, Any]) -> None:
        """In a thread of its own: one job of Spark's, until it is over."""
        assert self._links is not None
        assert self._application is not None
        try:
            outcome = self._application.run(n, run.id, cpus, payload)
        except Exception as e:  # whatever Spark fails with, the container is tried again
            outcome = {"ended": "lost", "reason": str(e).strip().partition("\n")[0][:300]}
        self._links.forget(run.id)
        ended, reason = outcome["ended"], outcome["reason"]
        log.info("container %d: run %s has ended: %s %s", n, run.id, ended, reason)
        with self._lock:
            run.over, run.reason, run.host = True, reason, ""
            if ended == "failed":
                run.phase = ContainerPhase.FAILED
            elif ended in ("lost", "unreachable"):
                run.phase, run.retry_s = ContainerPhase.PENDING, time.monotonic() + RETRY_S
        self._orders.changed.set()

    def _connected(self, run_id: str, host: str) -> None:
        """A container runs on a host, or on none any more; called by a thread of the links."""
        with self._lock:
            for run in self._runs.values():
                if run.id == run_id and not run.over:
                    run.host = host
                    if run.phase is not ContainerPhase.ENDING:
                        run.phase = ContainerPhase.RUNNING if host else ContainerPhase.PENDING
        self._orders.changed.set()

    def _said(self, run_id: str, reason: str) -> None:
        """A container has ended so, and is started again on its host; called by a thread of the links."""
        with self._lock:
            for run in self._runs.values():
                if run.id == run_id and not run.over:
                    run.reason = reason
        self._orders.changed.set()

    def _report(self, serial: int) -> DriverReport:
        with self._lock:
            runs = [(n, run) for n, run in sorted(self._runs.items()) if shown(run)]
        statuses = tuple(
            ContainerStatus(container=n, phase=run.phase, host=run.host, job=run.id, reason=reason_of(run))
            for n, run in runs
        )
        return DriverReport(
            topology_id=self._launch.topology_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            serial=serial,
            application="" if self._application is None else self._application.id,
            containers=statuses,
        )


def shown(run: Run) -> bool:
    """Whether a run says where its container is: not if that has ended on purpose, by itself."""
    return not run.over or run.phase is ContainerPhase.FAILED or run.retry_s is not None


def reason_of(run: Run) -> str:
    if run.phase is ContainerPhase.PENDING and not run.over:
        before = f"; it last ended with: {run.reason}" if run.reason else ""
        return f"waits for a worker of Spark with free cores{before}"
    return run.reason
