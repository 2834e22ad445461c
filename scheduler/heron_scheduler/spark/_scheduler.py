"""The scheduler for Spark: starts the driver of a topology, which runs what the state manager orders."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from heron_scheduler.driven import DrivenScheduler, DriverReport, Order, Orders
from heron_scheduler.spark._application import whole_cores
from heron_scheduler.spark._config import KEYS, PREFIX, SparkConfig
from heron_scheduler.spark._driver import CANCEL_S, grace_s
from heron_scheduler.spark._preflight import check_cores, check_driver_host, check_master
from heronpy.errors import ConfigError, HeronError, NotFoundError, UnavailableError
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
from heronpy.plan import Resources
from heronpy.runtime import LAUNCH_FILE, Launch
from heronpy.statemgr import StateManager

DRIVER = "spark-driver"
"""What marks the processes of a driver that a command has started."""
START_S = 120.0
"""In which a driver has started a JVM and Spark has accepted it, on a busy machine."""


class SparkScheduler(DrivenScheduler):
    """A job per container. Spark runs the task of a lost host on another one; a supervisor restarts the container."""

    config_keys = frozenset(KEYS)
    runs_as_submitter = False
    cluster = "Spark"
    driver = "Spark driver"
    secrets_key = f"{PREFIX}secrets"

    def __init__(self, launch: Launch) -> None:
        self._config = SparkConfig.of(launch.scheduler_config)
        super().__init__(launch, secrets=self._config.secrets, grace_s=grace_s(launch) + CANCEL_S)

    @classmethod
    def check_config(cls, values: Mapping[str, Any]) -> None:
        SparkConfig.of(values)

    def order(self, resources: Resources) -> Order:
        return Order(1, whole_cores(resources.cpu))

    def check(self, orders: Orders, report: DriverReport | None) -> None:
        if report is None:  # else the cores that are not free are its own
            check_master(self._config)
            check_cores(self._config, [order.cpus for order in orders.containers.values()])

    def on_secrets(self) -> None:
        """The driver reads them from its topology's directory, with each run of a container."""
        with self._state() as state:
            report = self.report(state)
        if report is not None and report.host != socket.gethostname():
            raise ConfigError(
                f"the Spark driver of {self.launch.topology} runs on {report.host}: restart it from there"
            )
        self._share_secrets()

    def job_links(self) -> Sequence[str]:
        """The page of the application in the master's web UI."""
        with self._state() as state:
            report = self.report(state)
        return [f"{self._config.webui_url}/app/?appId={report.application}"] if report and report.application else []

    def start_driver(self, state: StateManager) -> bool:
        """Start a driver on this machine, unless that is a unit's. Returns when Spark has accepted it.

        Raises:
            UnavailableError: it has ended, or does not answer in time; carries its last line.
        """
        if not self._config.driver_autostart:
            self.wait(
                lambda: self.taken_up(state, 0),
                START_S,
                lambda: (
                    f"no Spark driver of {self.launch.topology} runs, and {PREFIX}driver.autostart is false: "
                    f"start its systemd unit"
                ),
            )
            return True
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
            return self.taken_up(state, 0)

        try:
            self.wait(accepted, START_S, lambda: "Spark does not accept the driver in time")
        except HeronError:
            child.kill()
            child.wait()
            raise
        return True

    def driver_ended(self) -> None:
        """On this machine it is seen to end, too."""
        mark = {TOPOLOGY_ENV: self.launch.topology_id, PROCESS_ENV: DRIVER}
        self.wait(lambda: not [*find_by_environment(mark)], CANCEL_S, lambda: "the Spark driver does not end")
