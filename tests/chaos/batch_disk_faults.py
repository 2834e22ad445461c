"""Faults of files, memory and processes while batch runs compute views in a directory."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from batch_faults import Faults
from batch_judging import Struck
from batch_scenarios import Disk, Scenario, Server
from faulty_files import DRIVER, FOR_EVER, TASK, FaultyFiles

from heronpy.filesystem import Location
from tests.integration.small_disk import fill

SPILLS = 0.2
"""The share of the tasks' errors that concerns what they spill: how much that is depends on their memory."""
ROLES = {DRIVER: "driver", TASK: "task"}


class DiskFaults(Faults):
    """What can happen to a run whose files are in a directory."""

    def __init__(self, disk: Path, dice: random.Random, server: Server, layer: FaultyFiles) -> None:
        super().__init__(Disk(disk / "jobs", layer), dice, server, layer.watch)
        self.disk, self.layer = disk, layer
        self.kinds: list[Callable[[Scenario, Location], Struck]] = [
            *[self.error] * 12,
            *[self.short] * 2,
            *[self.memory] * 5,
            *[self.kill_worker] * 4,
            self.kill_driver,
            self.kill_jvm,
            *[self.damage] * 5,
            *[self.damaged_view] * 2,
            *[self.full_disk] * 2,
            self.cli,
        ]

    def error(self, scenario: Scenario, work: Location) -> Struck:
        action = self.dice.choice(["EIO", "EIO", "ENOSPC", "ESTALE", "EINTR"])
        repeat = self.dice.choice([1, 1, 3] if action == "EINTR" else [1, 1, 3, FOR_EVER])
        return self._by_layer(action, scenario, work, repeat=repeat)

    def short(self, scenario: Scenario, work: Location) -> Struck:
        return self._by_layer("short", scenario, work, repeat=self.dice.choice([1, 20]))

    def memory(self, scenario: Scenario, work: Location) -> Struck:
        if self.dice.random() < 0.5:
            extra = self.dice.randrange(1 << 24)
            return self._by_layer("RLIMIT_AS", scenario, work, extra=extra)
        repeat, extra = self.dice.choice([1, 1, 3, FOR_EVER]), self.dice.randrange(60)
        return self._by_layer("no memory", scenario, work, repeat=repeat, extra=extra)

    def kill_worker(self, scenario: Scenario, work: Location) -> Struck:
        return self._by_layer("kill -9", scenario, work, role=TASK)

    def kill_driver(self, scenario: Scenario, work: Location) -> Struck:
        return self._by_layer("kill -9", scenario, work, role=DRIVER)

    def kill_jvm(self, scenario: Scenario, work: Location) -> Struck:
        """That of the executor, which is the driver's here."""
        return self._by_layer("kill -9 of the JVM", scenario, work, role=TASK)

    def cli(self, scenario: Scenario, work: Location) -> Struck:
        action = self.dice.choice(["kill -9", "EIO", "ENOSPC"])
        role, name, at = self._step(scenario, DRIVER)
        self.layer.watch(Path(str(work)))
        self.layer.arm(role, action, at, repeat=1 if action == "kill -9" else FOR_EVER)
        struck = Struck(f"CLI: {action}", scenario.name, name)
        driver = self.layer.driver
        answer = scenario.by_cli(work, self.layer.env)
        self._fired(struck)
        self.layer.driver = driver
        return self.judge.judged(struck, scenario, work, answer)

    def full_disk(self, scenario: Scenario, work: Location) -> Struck:
        room_kb = self.dice.randrange(0, 300, 4)
        rest, room = self.disk / "rest", self.disk / "room"
        room.write_bytes(bytes(room_kb * 1024))
        fill(rest)
        room.unlink()
        struck = Struck("disk full", scenario.name, f"{room_kb} KB left")
        self.layer.watch(Path(str(work)))
        answer = self.server.ask(scenario.command(work))
        rest.unlink()
        return self.judge.judged(struck, scenario, work, answer)

    def _step(self, scenario: Scenario, role: int | None = None) -> tuple[int, str, int]:
        """A role, a step and the number of its call."""
        role = self.dice.choice([DRIVER, TASK]) if role is None else role
        name = self.dice.choice(sorted(scenario.steps[role]))
        return role, name, self.dice.choice(scenario.steps[role][name])

    def _by_layer(
        self,
        action: str,
        scenario: Scenario,
        work: Location,
        *,
        role: int | None = None,
        repeat: int = 1,
        extra: int = 0,
    ) -> Struck:
        role, name, at = self._step(scenario, role)
        self.server.start()
        if role == TASK and action in ("EIO", "ENOSPC", "short") and self.dice.random() < SPILLS:
            name, at = "what tasks spill", self.dice.randint(1, 30)
            self.layer.watch(self.server.scratch)
        else:
            self.layer.watch(Path(str(work)))
        self.layer.arm(role, action, at, repeat=repeat, extra=extra)
        struck = Struck(f"{ROLES[role]}: {action}", scenario.name, name)
        answer = self.server.ask(scenario.command(work))
        self._fired(struck)
        if self.layer.fired and action == "kill -9 of the JVM":
            self.server.stop()
        return self.judge.judged(struck, scenario, work, answer)

    def _fired(self, struck: Struck) -> None:
        self.layer.disarm()
        struck.outcome = "exact" if self.layer.fired else "not reached"
        struck.step = self.layer.fired or struck.step
