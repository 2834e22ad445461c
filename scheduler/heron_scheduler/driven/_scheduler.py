"""What schedulers with a driver have in common: they write what it is to run, and read what it says."""

from __future__ import annotations

import contextlib
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from heron_scheduler._engine_state import is_ours
from heron_scheduler._spi import ContainerPhase, ContainerStatus, Scheduler
from heron_scheduler.driven._orders import DriverReport, Order, Orders
from heronpy.container import bootstrap_document
from heronpy.errors import ConfigError, DamagedStateError, NotFoundError, StateError, UnavailableError
from heronpy.files import user_path
from heronpy.plan import PackingPlan, Resources
from heronpy.runtime import Launch
from heronpy.security import private_directory, read_secret, write_secret
from heronpy.statemgr import Kind, StateManager, is_container_node, open_statemgr, records

log = logging.getLogger(__name__)

POLL_S = 0.2
START_S = 120.0
"""In which a driver has started and the cluster has accepted it, on a busy machine."""
STOP_S = 60.0
"""What a driver takes to end, beside its containers."""
KILL_S = 100.0
"""The same for a kill, in which it may have to force containers to end."""


class DrivenScheduler(Scheduler):
    """Orders containers of a topology's driver."""

    cluster: ClassVar[str]
    """What messages call the cluster."""
    driver: ClassVar[str]
    """What they call the driver."""
    secrets_key: ClassVar[str]
    """The key that names the directory of secrets."""

    def __init__(self, launch: Launch, *, secrets: str, grace_s: float) -> None:
        """Describe the topology.

        Args:
            launch: Its launch values.
            secrets: A directory of this user's that all machines with commands share; empty: there is none.
            grace_s: What a container may take to end gracefully, and by force if it does not.
        """
        super().__init__(launch)
        self._secrets = secrets
        self.grace_s = grace_s

    @abstractmethod
    def order(self, resources: Resources) -> Order:
        """The first order of a container of this size."""

    @abstractmethod
    def check(self, orders: Orders, report: DriverReport | None) -> None:
        """Refuse orders that the cluster cannot carry out, before they are written; None: a driver is to be started.

        Raises:
            ConfigError, UnavailableError: why; one line.
        """

    @abstractmethod
    def start_driver(self, state: StateManager) -> bool:
        """Start the driver; there is none. False: the cluster has accepted it, and it waits for resources.

        Raises:
            ConfigError, UnavailableError: the cluster refuses, or does not answer.
        """

    @abstractmethod
    def driver_ended(self) -> None:
        """Wait until nothing of the driver is left, which has said its last word, or had none; force it if need be.

        Raises:
            UnavailableError: it does not end.
        """

    def check_driver_can_end(self) -> None:
        """Refuse to wait for the end of a driver that has been ordered to end, and cannot just now.

        Raises:
            UnavailableError: why; one line.
        """

    def without_driver(self, orders: Orders) -> tuple[ContainerPhase, str]:
        """What is said of containers that are ordered while no driver lives."""
        return ContainerPhase.FAILED, f"the {self.driver} of the topology does not run"

    def on_schedule(self, plan: PackingPlan) -> None:
        """Order the containers that are not ordered, or that have ended, and start the driver if none lives."""
        with self._state() as state:
            self._order(state, plan)

    def on_kill(self) -> None:
        """Have the driver end all containers gracefully, and itself."""
        with self._state() as state:
            report = self.report(state)
            try:
                orders = self._orders(state)
            except DamagedStateError as e:
                orders = None
                if is_ours(state, self.launch):  # else they are those of a later submission, which runs
                    log.warning("%s: the %s is asked to end all", e, self.driver)
                    orders = self._orders_anew
            if orders is not None and not orders.stop:
                self._write(state, orders.changed(stop=True))
            if orders is not None or report is not None:
                self.check_driver_can_end()
            if report is not None:
                where = f"{report.host} (pid {report.pid})"
                self.wait(
                    lambda: self.report(state) is None,
                    self.grace_s + KILL_S,
                    lambda: f"the {self.driver} of {self.launch.topology} on {where} does not end",
                )
            elif orders is not None:
                self._wait_for_records(state)
            if orders is not None or report is not None:
                self.driver_ended()
        if self._secrets:
            self._secrets_path.unlink(missing_ok=True)

    def on_restart(self, container: int | None) -> None:
        """Order a new run of one container, or of all."""
        with self._state() as state:
            orders, report = self._orders(state), self.report(state)
            if orders is None or container not in (None, *orders.containers):
                which = "containers" if container is None else f"container {container}"
                raise NotFoundError(f"topology {self.launch.topology} has no {which} on {self.cluster}")
            again = {
                n: replace(order, generation=order.generation + 1) if container in (None, n) else order
                for n, order in orders.containers.items()
            }
            self._write(state, orders.changed(containers=again))
            if report is None:
                self.start_driver(state)

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
                report = self.report(state)
                running = {one.container for one in report.containers} if report is not None else set()
                return report is None or (report.serial >= orders.serial and not removed & running)

            why = f"containers {sorted(removed)} do not end on {self.cluster}"
            self.wait(ended, self.grace_s + STOP_S, lambda: why)

    def containers(self) -> Sequence[ContainerStatus]:
        """What the driver says; where none lives, what is ordered."""
        with self._state() as state:
            try:
                orders = self._orders(state)
            except DamagedStateError as e:
                if self.report(state) is not None or records.submission(state, self.launch.topology) is not None:
                    raise
                log.warning("%s; there is no such topology", e)
                return []
            report = self.report(state)
        if orders is None:
            return []
        if report is not None:
            statuses = {one.container: one for one in report.containers}
            if orders.serial > report.serial and not orders.stop:  # the driver has not taken them up yet
                waits = {n: ContainerStatus(container=n, phase=ContainerPhase.PENDING) for n in orders.containers}
                statuses = waits | statuses
            return [one for _, one in sorted(statuses.items())]
        if orders.stop:
            return []
        phase, reason = self.without_driver(orders)
        return [ContainerStatus(container=n, phase=phase, reason=reason) for n in sorted(orders.containers)]

    def read_bootstrap(self) -> bytes:
        """From the directory of secrets that this user's machines share, if there is one."""
        if not self._secrets:
            raise NotFoundError(
                f"topology {self.launch.topology} was submitted from another machine, and {self.secrets_key} is not "
                "set: use the one that it was submitted from"
            )
        return read_secret(self._secrets_path)

    def report(self, state: StateManager) -> DriverReport | None:
        """What the driver says; None: none of this submission lives. A report that is damaged says no more."""
        value = state.get(Kind.DRIVERS, self.launch.topology)
        try:
            found = None if value is None else DriverReport.decode(value)
        except StateError as e:
            log.warning("node drivers/%s of the state manager is damaged: %s", self.launch.topology, e)
            found = DriverReport(topology_id=self.launch.topology_id, host="an unknown host", pid=0)
        return found if found is not None and found.topology_id == self.launch.topology_id else None

    def taken_up(self, state: StateManager, serial: int) -> bool:
        """Whether a driver lives, and acts by the orders of this serial."""
        report = self.report(state)
        return report is not None and report.serial >= serial

    def wait(self, done: Callable[[], bool], within_s: float, why: Callable[[], str]) -> None:
        """Raises UnavailableError: it is not done in time."""
        deadline_s = time.monotonic() + within_s
        while not done():
            if time.monotonic() > deadline_s:
                raise UnavailableError(why())
            time.sleep(POLL_S)

    @property
    def _secrets_path(self) -> Path:
        return user_path(self._secrets) / f"{self.launch.topology_id}.json"

    @contextlib.contextmanager
    def _state(self) -> Iterator[StateManager]:
        try:
            with contextlib.closing(open_statemgr(self.launch.statemgr, parents=False)) as state:
                yield state
        except StateError as e:
            raise UnavailableError(str(e)) from e

    def _orders(self, state: StateManager) -> Orders | None:
        value = state.get(Kind.DRIVERORDERS, self.launch.topology)
        try:
            found = None if value is None else Orders.decode(value)
        except StateError as e:
            node = f"node driverorders/{self.launch.topology} of the state manager is damaged"
            raise DamagedStateError(f"{node}: {e}; a {self.driver} that runs writes it again") from e
        return found if found is not None and found.topology_id == self.launch.topology_id else None

    @property
    def _orders_anew(self) -> Orders:
        """Orders in the place of damaged ones: they have a higher serial."""
        return Orders(topology_id=self.launch.topology_id, serial=int(time.time()))

    def _write(self, state: StateManager, orders: Orders) -> None:
        state.set(Kind.DRIVERORDERS, self.launch.topology, orders.encode())

    def _order(self, state: StateManager, plan: PackingPlan) -> Orders:
        """Have container 0 and those of the plan run. Returns when a driver acts by it, or waits for resources.

        Raises:
            ConfigError, UnavailableError: the cluster refuses; what was ordered stays so.
        """
        try:
            before = self._orders(state) or Orders(topology_id=self.launch.topology_id)
        except DamagedStateError as e:
            if self.report(state) is not None:
                raise
            log.warning("%s; none does: they are given anew", e)
            before = self._orders_anew
        report = self.report(state)
        if before.stop:
            raise UnavailableError(f"topology {self.launch.topology} is being killed")
        wanted = {0: self.order(plan.master)}
        wanted |= {container.id: self.order(container.required) for container in plan.containers}
        dead: set[int] = set()
        if report is not None and report.serial >= before.serial:
            runs = {one.container for one in report.containers if one.phase is not ContainerPhase.FAILED}
            dead = before.containers.keys() - runs
        containers = dict(before.containers)
        for n, order in wanted.items():
            if n not in containers:
                containers[n] = order
            elif n in dead:
                containers[n] = replace(order, generation=containers[n].generation + 1)
        orders = before.changed(containers=containers) if containers != before.containers else before
        if report is None or orders is not before:
            self.check(orders, report)
        if report is None:
            self._share_secrets()
        if orders is not before:
            self._write(state, orders)
        if report is None and not self.start_driver(state):
            return orders
        serial = orders.serial
        self.wait(
            lambda: self.taken_up(state, serial), START_S, lambda: f"the {self.driver} does not take up its orders"
        )
        return orders

    def _share_secrets(self) -> None:
        """For commands of other machines; this one may be another than that which submitted, with the same secrets."""
        if not self._secrets:
            return
        try:
            directory = self._secrets_path.parent
            directory.parent.mkdir(parents=True, exist_ok=True)
            write_secret(private_directory(directory) / self._secrets_path.name, bootstrap_document(self.launch, 0))
        except OSError as e:
            raise ConfigError(f"{self.secrets_key}: {e.filename}: {e.strerror}") from e

    def _wait_for_records(self, state: StateManager) -> None:
        """No driver ends the containers: they end by the orders, or ended with it, and each removes its record."""
        deadline_s = time.monotonic() + self.grace_s
        while time.monotonic() < deadline_s:
            if not [n for n in state.list(Kind.CONTAINERS) if is_container_node(n, self.launch.topology)]:
                return
            time.sleep(POLL_S)
