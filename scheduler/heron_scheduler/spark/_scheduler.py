"""The scheduler for Spark: writes what the topology's driver is to run, and reads what that says."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heron_scheduler._bootstrap import write_secrets
from heron_scheduler._spi import ContainerPhase, ContainerStatus, Scheduler
from heron_scheduler.spark._application import whole_cores
from heron_scheduler.spark._config import KEYS, PREFIX, SparkConfig
from heron_scheduler.spark._driver import CANCEL_S, grace_s
from heron_scheduler.spark._messages import DriverReport, Order, Orders
from heron_scheduler.spark._preflight import check_cores, check_driver_host, check_master
from heronpy.container import bootstrap_document
from heronpy.errors import ConfigError, HeronError, NotFoundError, StateError, UnavailableError
from heronpy.host import (
    PROCESS_ENV,
    TOPOLOGY_ENV,
    child_environment,
    find_by_environment,
    open_out,
    python_module,
    service_log_dir,
    tail,
)
from heronpy.plan import PackingPlan
from heronpy.runtime import LAUNCH_FILE, Launch
from heronpy.security import private_directory, read_secret, write_secret
from heronpy.statemgr import Kind, StateManager, is_container_node, open_statemgr

POLL_S = 0.2
DRIVER = "spark-driver"
"""What marks the processes of a driver that a command has started."""
START_S = 120.0
"""In which a driver has started a JVM and Spark has accepted it, on a busy machine."""
STOP_S = 60.0
"""What a driver takes to end, beside its containers."""


class SparkScheduler(Scheduler):
    """A job per container. Spark runs the task of a lost host on another one; a supervisor restarts the container."""

    config_keys = frozenset(KEYS)

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self._config = SparkConfig.of(launch.scheduler_config)
        self._grace_s = grace_s(launch) + CANCEL_S

    @classmethod
    def check_config(cls, values: Mapping[str, Any]) -> None:
        SparkConfig.of(values)

    def on_schedule(self, plan: PackingPlan) -> None:
        """Order the containers that are not ordered, or that have ended, and start the driver if none lives."""
        with self._state() as state:
            self._order(state, plan)

    def on_kill(self) -> None:
        """Have the driver end all containers in order, and itself."""
        with self._state() as state:
            orders, report = self._orders(state), self._report(state)
            if orders is not None and not orders.stop:
                self._write(state, orders.changed(stop=True))
            if report is not None:
                self._wait(
                    lambda: self._report(state) is None,
                    self._grace_s + 2 * CANCEL_S + STOP_S,
                    lambda: (
                        f"the Spark driver of {self.launch.topology} on {report.host} (pid {report.pid}) does not end"
                    ),
                )
                self._wait_for_processes()
            elif orders is not None:
                self._wait_for_records(state)
        if self._config.secrets:
            self._secrets_path.unlink(missing_ok=True)

    def on_restart(self, container: int | None) -> None:
        """Order a new run of one container, or of all."""
        with self._state() as state:
            orders, report = self._orders(state), self._report(state)
            if orders is None or container not in (None, *orders.containers):
                which = "containers" if container is None else f"container {container}"
                raise NotFoundError(f"topology {self.launch.topology} has no {which} on Spark")
            again = {
                n: replace(order, generation=order.generation + 1) if container in (None, n) else order
                for n, order in orders.containers.items()
            }
            self._write(state, orders.changed(containers=again))
            if report is None:
                self._start_driver(state)

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        """Order the containers of `new` alone."""
        with self._state() as state:
            orders = self._order(state, new)
            wanted = {0, *(container.id for container in new.containers)}
            removed = orders.containers.keys() - wanted
            if not removed:
                return
            left = {n: order for n, order in orders.containers.items() if n in wanted}
            orders = orders.changed(containers=left)
            self._write(state, orders)

            def ended() -> bool:
                report = self._report(state)
                running = {one.container for one in report.containers} if report is not None else set()
                return report is None or (report.serial >= orders.serial and not removed & running)

            self._wait(ended, self._grace_s + STOP_S, lambda: f"containers {sorted(removed)} do not end on Spark")

    def on_secrets(self) -> None:
        """The driver reads them from its topology's directory, with each run of a container."""
        with self._state() as state:
            report = self._report(state)
        if report is not None and report.host != socket.gethostname():
            raise ConfigError(
                f"the Spark driver of {self.launch.topology} runs on {report.host}: restart it from there"
            )
        self._share_secrets()

    def job_links(self) -> Sequence[str]:
        """The page of the application in the master's web UI."""
        with self._state() as state:
            report = self._report(state)
        return [f"{self._config.webui_url}/app/?appId={report.application}"] if report and report.application else []

    def containers(self) -> Sequence[ContainerStatus]:
        """What the driver says; where none lives, all that it is to run have failed."""
        with self._state() as state:
            orders, report = self._orders(state), self._report(state)
        if orders is None:
            return []
        if report is not None:
            newer = orders.serial > report.serial
            told = {one.container: one for one in report.containers}
            if newer and not orders.stop:  # the driver has not taken them up yet
                waits = {n: ContainerStatus(container=n, phase=ContainerPhase.PENDING) for n in orders.containers}
                told = waits | told
            return [one for _, one in sorted(told.items())]
        if orders.stop:
            return []
        reason = "the Spark driver of the topology does not run"
        return [
            ContainerStatus(container=n, phase=ContainerPhase.FAILED, reason=reason) for n in sorted(orders.containers)
        ]

    def adopt(self, directory: Path) -> None:
        """From the directory of secrets that this user's machines share, if there is one."""
        if not self._config.secrets:
            raise NotFoundError(
                f"topology {self.launch.topology} was submitted from another machine, and {PREFIX}secrets is not set: "
                "use the one that it was submitted from"
            )
        write_secrets(self.launch, read_secret(self._secrets_path), directory)

    @property
    def _secrets_path(self) -> Path:
        return Path(self._config.secrets).expanduser() / f"{self.launch.topology_id}.json"

    @contextlib.contextmanager
    def _state(self) -> Iterator[StateManager]:
        try:
            with contextlib.closing(open_statemgr(self.launch.statemgr, parents=False)) as state:
                yield state
        except StateError as e:
            raise UnavailableError(str(e)) from e

    def _orders(self, state: StateManager) -> Orders | None:
        value = state.get(Kind.DRIVERORDERS, self.launch.topology)
        found = None if value is None else Orders.decode(value)
        return found if found is not None and found.topology_id == self.launch.topology_id else None

    def _report(self, state: StateManager) -> DriverReport | None:
        """None: no driver of this submission lives."""
        value = state.get(Kind.DRIVERS, self.launch.topology)
        found = None if value is None else DriverReport.decode(value)
        return found if found is not None and found.topology_id == self.launch.topology_id else None

    def _write(self, state: StateManager, orders: Orders) -> None:
        state.set(Kind.DRIVERORDERS, self.launch.topology, orders.encode())

    def _order(self, state: StateManager, plan: PackingPlan) -> Orders:
        """Have container 0 and those of the plan run. Returns when a driver acts by it.

        Raises:
            ConfigError, UnavailableError: Spark refuses; what was ordered stays so.
        """
        orders, report = self._orders(state), self._report(state)
        before = orders or Orders(topology_id=self.launch.topology_id)
        if before.stop:
            raise UnavailableError(f"topology {self.launch.topology} is being killed")
        wanted = {0: whole_cores(plan.master.cpu)}
        wanted |= {container.id: whole_cores(container.required.cpu) for container in plan.containers}
        dead: set[int] = set()
        if report is not None and report.serial >= before.serial:
            runs = {one.container for one in report.containers if one.phase is not ContainerPhase.FAILED}
            dead = before.containers.keys() - runs
        containers = dict(before.containers)
        for n, cpus in wanted.items():
            if n not in containers:
                containers[n] = Order(1, cpus)
            elif n in dead:
                containers[n] = Order(containers[n].generation + 1, cpus)
        if report is None:
            check_master(self._config)
            check_cores(self._config, [order.cpus for order in containers.values()])
            self._share_secrets()
        orders = before.changed(containers=containers) if containers != before.containers else before
        if orders is not before:
            self._write(state, orders)
        if report is None:
            self._start_driver(state)
        serial = orders.serial
        self._wait(
            lambda: self._taken_up(state, serial), START_S, lambda: "the Spark driver does not take up its orders"
        )
        return orders

    def _taken_up(self, state: StateManager, serial: int) -> bool:
        report = self._report(state)
        return report is not None and report.serial >= serial

    def _share_secrets(self) -> None:
        """For commands of other machines; this one may be another than that which submitted, with the same secrets."""
        if not self._config.secrets:
            return
        try:
            directory = self._secrets_path.parent
            directory.parent.mkdir(parents=True, exist_ok=True)
            write_secret(private_directory(directory) / self._secrets_path.name, bootstrap_document(self.launch, 0))
        except OSError as e:
            raise ConfigError(f"{PREFIX}secrets: {e.filename}: {e.strerror}") from e

    def _start_driver(self, state: StateManager) -> None:
        """Start a driver on this machine, unless that is a unit's. Returns when Spark has accepted it.

        Raises:
            UnavailableError: it has ended, or does not answer in time; carries its last line.
        """
        if not self._config.driver_autostart:
            self._wait(
                lambda: self._taken_up(state, 0),
                START_S,
                lambda: (
                    f"no Spark driver of {self.launch.topology} runs, and {PREFIX}driver.autostart is false: "
                    f"start its systemd unit"
                ),
            )
            return
        check_driver_host()
        if not (self.launch.dir / LAUNCH_FILE).exists():
            raise NotFoundError(
                f"the Spark driver of {self.launch.topology} cannot be started here, without its secrets"
            )
        directory = service_log_dir(self.launch)
        directory.mkdir(exist_ok=True)
        path = directory / "driver.out"
        begin = path.stat().st_size if path.exists() else 0
        with open_out(path) as out:
            child = subprocess.Popen(
                python_module("heron_scheduler.spark.driver", "--dir", str(self.launch.dir)),
                cwd=self.launch.dir,
                env=child_environment(self.launch, DRIVER),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def accepted() -> bool:
            if child.poll() is not None:
                last = (tail(path, from_byte=begin).strip().splitlines() or [f"exit code {child.returncode}"])[-1]
                raise UnavailableError(
                    f"the Spark driver of {self.launch.topology} has ended: {last.removeprefix('heron: ')}"
                )
            return self._taken_up(state, 0)

        try:
            self._wait(accepted, START_S, lambda: "Spark does not accept the driver in time")
        except HeronError:
            child.kill()
            child.wait()
            raise

    def _wait(self, done: Callable[[], bool], within_s: float, why: Callable[[], str]) -> None:
        """Raises UnavailableError: it is not done in time."""
        deadline_s = time.monotonic() + within_s
        while not done():
            if time.monotonic() > deadline_s:
                raise UnavailableError(why())
            time.sleep(POLL_S)

    def _wait_for_processes(self) -> None:
        """The driver has said its last word: on this machine it is seen to end, too."""
        mark = {TOPOLOGY_ENV: self.launch.topology_id, PROCESS_ENV: DRIVER}
        self._wait(lambda: not [*find_by_environment(mark)], CANCEL_S, lambda: "the Spark driver does not end")

    def _wait_for_records(self, state: StateManager) -> None:
        """There was no driver to end the containers: Spark does so at its death, and each removes its record."""
        deadline_s = time.monotonic() + self._grace_s
        while time.monotonic() < deadline_s:
            if not [n for n in state.list(Kind.CONTAINERS) if is_container_node(n, self.launch.topology)]:
                return
            time.sleep(POLL_S)
