"""The scheduler for YARN: submits the application of a topology, whose master runs what the state manager orders."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from heron_scheduler._spi import ContainerPhase
from heron_scheduler.driven import DrivenScheduler, DriverReport, Order, Orders
from heron_scheduler.yarn._config import KEYS, PREFIX, YarnConfig
from heron_scheduler.yarn._master import FORCE_S, grace_s
from heron_scheduler.yarn._rest import Application, Rest, hopeless, remedy
from heron_scheduler.yarn._submission import application, order_of, tag_of
from heronpy.container import bootstrap_document
from heronpy.errors import ConfigError, NotFoundError, UnavailableError
from heronpy.plan import Resources
from heronpy.runtime import LAUNCH_FILE, Launch
from heronpy.statemgr import StateManager

START_S = 120.0
"""In which an application master is up, once it has a container, on a busy machine."""
ROOM_S = 15.0
"""How long is waited for a container for it; after that the application waits without the command."""
FINISH_S = 15.0
"""How long after its master's last word an application may be one that runs."""
KILL_S = 60.0
_POLL_S = 0.2


def ask_for_less(who: str) -> str:
    """Which keys say what a container asks for."""
    if who == "the application master":
        return f"set {PREFIX}driver.memory.mb"
    keys = "topology.tmanager" if who == "container 0" else "topology.container"
    return f"set {keys}.ram and {keys}.cpu, or YARN's yarn.scheduler.maximum-allocation-mb and -vcores"


class YarnScheduler(DrivenScheduler):
    """An application per topology, with a container of YARN for each of its containers."""

    config_keys = frozenset(KEYS)
    runs_as_submitter = False
    cluster = "YARN"
    driver = "application master"
    secrets_key = f"{PREFIX}secrets"

    def __init__(self, launch: Launch) -> None:
        self._config = YarnConfig.of(launch.scheduler_config)
        self._rest, self._new = Rest(self._config), ""
        super().__init__(launch, secrets=self._config.secrets, grace_s=grace_s(launch) + FORCE_S)

    @classmethod
    def check_config(cls, values: Mapping[str, Any]) -> None:
        YarnConfig.of(values)

    def order(self, resources: Resources) -> Order:
        return order_of(resources)

    def check(self, orders: Orders, report: DriverReport | None) -> None:
        self._new, memory_mb, vcores = self._rest.new_application()
        asked = {f"container {n}": (order.ram_mb, order.cpus) for n, order in orders.containers.items()}
        asked["the application master"] = (self._config.driver_memory_mb, 1)
        for who, (ram_mb, cpus) in asked.items():
            if ram_mb > memory_mb or cpus > vcores:
                raise ConfigError(
                    f"{who} asks for {ram_mb} MiB and {cpus} vcores, and the largest container of YARN has "
                    f"{memory_mb} MiB and {vcores} vcores: {ask_for_less(who)}"
                )

    def job_links(self) -> Sequence[str]:
        """The page of the application in the ResourceManager's web UI."""
        with self._state() as state:
            report = self.report(state)
        found = report.application if report is not None else getattr(self._application(), "id", "")
        return [self._rest.page(found)] if found else []

    def start_driver(self, state: StateManager) -> bool:
        """Submit the application, unless one lives. Returns when its master is up, or waits for resources.

        Raises:
            ConfigError: YARN refuses it: the queue, its owner, what it asks for.
            UnavailableError: its master does not start; carries its last line.
        """
        found = self._application()
        id = self._submit() if found is None else found.id
        began_s = time.monotonic()
        while not self.taken_up(state, 0):
            now = self._rest.application(id)
            if now.over:
                kind = ConfigError if hopeless(now.diagnostics) else UnavailableError
                raise kind(f"YARN has ended {id}: {now.diagnostics or now.state}{remedy(now.diagnostics)}")
            if why := self._rest.failed_attempt(id):
                raise UnavailableError(
                    f"the application master of {self.launch.topology} does not start: {why}; see {PREFIX}python and "
                    f"heron.package.python: {self.launch.config.package.python}"
                )
            waited_s = time.monotonic() - began_s
            if not now.has_container and waited_s > ROOM_S:
                return False
            if waited_s > START_S:
                raise UnavailableError(f"the application master of {self.launch.topology} ({id}) does not start")
            time.sleep(_POLL_S)
        return True

    def without_driver(self, orders: Orders) -> tuple[ContainerPhase, str]:
        found = self._application()
        if found is None:
            return super().without_driver(orders)
        if found.has_container:
            return ContainerPhase.PENDING, f"the application master of {found.id} is being started"
        return ContainerPhase.PENDING, f"{found.id} waits for resources in queue {found.queue}{self._config.on_label}"

    def check_driver_can_end(self) -> None:
        """It ends its containers by itself, and then waits for the ResourceManager."""
        try:
            self._application()
        except UnavailableError as e:
            raise UnavailableError(f"{e}; containers were asked to end: kill it again when that is mended") from e

    def driver_ended(self) -> None:
        found, began_s = self._application(), time.monotonic()
        killed = False
        while found is not None:
            waited_s = time.monotonic() - began_s
            if waited_s > FINISH_S + KILL_S:
                raise UnavailableError(f"{found.id} does not end: {found.state}")
            if not killed and (waited_s > FINISH_S or found.state != "RUNNING"):
                self._rest.kill(found.id)
                killed = True
            time.sleep(_POLL_S)
            found = self._application()

    def _application(self) -> Application | None:
        """The one that lives."""
        return next(iter(self._rest.tagged(tag_of(self.launch.topology_id))), None)

    def _submit(self) -> str:
        if not (self.launch.dir / LAUNCH_FILE).exists():
            raise NotFoundError(f"{self.launch.topology} cannot be started from here, without its secrets")
        id = self._new or self._rest.new_application()[0]
        self._new = ""
        document = bootstrap_document(self.launch, 0)
        addresses = self._rest.scheduler_addresses()
        self._rest.submit(application(self.launch, self._config, id=id, document=document, addresses=addresses))
        return id
