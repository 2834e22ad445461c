"""A cluster that is a directory, of which topologies are adopted; their containers are the test's.

`<topology id>.json` is container 0's bootstrap file, `refuses` a refusal, `hangs` holds up whoever asks; `asked` has a
line for each time that something was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from heron_scheduler import ContainerStatus, Scheduler

from heronpy.errors import NotFoundError, UnavailableError
from heronpy.plan import PackingPlan
from heronpy.security import read_secret

DEPOT = "heron.scheduler.depot.directory"


class DepotScheduler(Scheduler):
    config_keys = frozenset({DEPOT})

    @property
    def root(self) -> Path:
        return Path(self.launch.scheduler_config[DEPOT])

    def read_bootstrap(self) -> bytes:
        with (self.root / "asked").open("a") as f:
            f.write(f"{self.launch.topology_id}\n")
        while (self.root / "hangs").exists():
            time.sleep(0.05)
        if (self.root / "refuses").exists():
            raise UnavailableError((self.root / "refuses").read_text())
        try:
            return read_secret(self.root / f"{self.launch.topology_id}.json")
        except NotFoundError as e:
            raise NotFoundError(f"the depot has no secrets of {self.launch.topology}") from e

    def on_schedule(self, plan: PackingPlan) -> None:
        raise NotImplementedError

    def on_kill(self) -> None:
        raise NotImplementedError

    def on_restart(self, container: int | None) -> None:
        raise NotImplementedError

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        raise NotImplementedError

    def job_links(self) -> Sequence[str]:
        return []

    def containers(self) -> Sequence[ContainerStatus]:
        return []
