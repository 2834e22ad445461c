"""A scheduler without a service, for a cluster that is a directory.

A file is a container, `refuses` a refusal, `fails` a failure, `retries` a container that is started again and again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heron_scheduler import ContainerPhase, ContainerStatus, Scheduler

from heronpy.errors import ConfigError, NotFoundError
from heronpy.plan import PackingPlan

SHELF = "heron.scheduler.shelf.directory"


class ShelfScheduler(Scheduler):
    config_keys = frozenset({SHELF})

    @classmethod
    def check_config(cls, values: Mapping[str, Any]) -> None:
        super().check_config(values)
        if SHELF not in values:
            raise ConfigError(f"{SHELF} must name a directory")

    @property
    def root(self) -> Path:
        return Path(self.launch.scheduler_config[SHELF]) / self.launch.topology_id

    def on_schedule(self, plan: PackingPlan) -> None:
        self._reconcile(plan, {0, *(container.id for container in plan.containers)})

    def on_kill(self) -> None:
        self._log("kill")
        shutil.rmtree(self.root, ignore_errors=True)

    def on_restart(self, container: int | None) -> None:
        self._log(f"restart {container}")

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        self._log(f"update to {[container.id for container in new.containers]}")
        wanted = {0, *(container.id for container in new.containers)}
        self._reconcile(new, wanted)
        for path in self.root.glob("container-*"):
            if int(path.name.rpartition("-")[2]) not in wanted:
                path.unlink()

    def job_links(self) -> list[str]:
        return [self.root.as_uri()]

    def containers(self) -> list[ContainerStatus]:
        found = sorted(int(path.name.rpartition("-")[2]) for path in self.root.glob("container-*"))
        failed, retried = (
            {n: path.read_text() for n in found if (path := self.root.parent / f"{how}-{n}").exists()}
            for how in ("fails", "retries")
        )
        return [
            ContainerStatus(
                container=n,
                phase=ContainerPhase.FAILED if n in failed else ContainerPhase.RUNNING,
                host="shelf",
                reason=failed.get(n, retried.get(n, "")),
            )
            for n in found
        ]

    def adopt(self, directory: Path) -> None:
        if not (self.root / "secrets").exists():
            raise NotFoundError("the shelf has no secrets")
        shutil.copytree(self.root / "secrets", directory, dirs_exist_ok=True)

    def _reconcile(self, plan: PackingPlan, wanted: set[int]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        if not (self.root / "secrets").exists():
            (self.root / "secrets").mkdir(mode=0o700)
            shutil.copy2(self.launch.dir / "token", self.root / "secrets/token")
            shutil.copytree(self.launch.tls_dir, self.root / "secrets/tls")
        for n in sorted(wanted):
            if (self.root.parent / f"refuses-{n}").exists():
                raise ConfigError(f"the shelf has no room for container {n}")
            (self.root / f"container-{n}").touch()

    def _log(self, what: str) -> None:
        with (self.root.parent / "log").open("a") as f:
            f.write(json.dumps(what) + "\n")
