"""Faults of an S3 server, of the way to it, and of processes at each of their requests, in batch runs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from batch_faults import Faults
from batch_judging import Struck, badly_said, difference
from batch_scenarios import Answer, Bucket, Scenario, Server
from batch_server import INLINE
from faulty_store import FOR_EVER, REFUSALS, FaultyStore

from heronpy.filesystem import Location, files_of, location
from heronpy.testing.servers import S3Server
from tests.integration.small_disk import fill

BUCKET = "jobs"
ATTEMPTS = 3
"""So often a request is made."""
_POLL_S = 0.05


def store_env(role: str = "driver") -> dict[str, str]:
    """For processes that use the store: credentials, and what they say that they are."""
    return {
        "AWS_ACCESS_KEY_ID": S3Server.access_key,
        "AWS_SECRET_ACCESS_KEY": S3Server.secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SDK_UA_APP_ID": role,
    }


class StoreFaults(Faults):
    """What can happen to a run whose files are in S3."""

    def __init__(self, disk: Path, dice: random.Random, server: Server, master: str) -> None:
        self._stack = contextlib.ExitStack()
        self.disk = disk
        self.s3 = self._stack.enter_context(S3Server(disk / "store"))
        self.s3.url(BUCKET)
        self.store = self._stack.enter_context(FaultyStore(self.s3.port, BUCKET, self.s3.kill))
        root = location("jobs", f"s3://{BUCKET}?endpoint=http://127.0.0.1:{self.store.port}&region=us-east-1")
        assert not isinstance(root, Path)
        self._other = Server(store_env(), master)
        self._stack.callback(self._other.stop)
        folders = [disk / "store" / kind / BUCKET for kind in ("buckets", "attributes")]
        super().__init__(Bucket(root, self.store, folders), dice, server, lambda: self.store.watch("nothing"))
        self.kinds: list[Callable[[Scenario, Location], Struck]] = [
            *[self.refused] * 6,
            *[self.ambiguous] * 6,
            *[self.broken] * 3,
            *[self.kill] * 6,
            *[self.store_killed] * 2,
            *[self.damage] * 3,
            *[self.damaged_view] * 2,
            *[self.full_disk] * 2,
            *[self.successor] * 4,
            *[self.rival] * 2,
        ]
        if master != INLINE:
            self.kinds += [self.hung, self.kill_jvm, self.cli]

    def close(self) -> None:
        self._stack.close()

    def refused(self, scenario: Scenario, work: Location) -> Struck:
        """The store does not do it, and says so; credentials that have expired stay so."""
        status = self.dice.choice([*REFUSALS])
        return self._struck(status, scenario, work, self.dice.choice([1, ATTEMPTS, FOR_EVER]))

    def ambiguous(self, scenario: Scenario, work: Location) -> Struck:
        """The store does it, and what is heard of it is that it has not been done, or nothing."""
        actions = ["done, and 500", "done, and 503", "done, and reset", "done, and half of the answer"]
        return self._struck(self.dice.choice(actions), scenario, work, self.dice.choice([1, 1, ATTEMPTS]))

    def broken(self, scenario: Scenario, work: Location) -> Struck:
        return self._struck("reset", scenario, work, self.dice.choice([1, ATTEMPTS, FOR_EVER]))

    def hung(self, scenario: Scenario, work: Location) -> Struck:
        return self._struck("hang", scenario, work, 1)

    def kill(self, scenario: Scenario, work: Location) -> Struck:
        """Of whoever makes a request, the driver or a worker."""
        return self._struck(self.dice.choice(["kill -9 before", "kill -9 after"]), scenario, work, 1)

    def kill_jvm(self, scenario: Scenario, work: Location) -> Struck:
        """That of the executor, which is the driver's here."""
        struck = self._struck("kill -9 of the JVM", scenario, work, 1, role="task", judge=False)
        if struck.outcome != "not reached":
            self.server.stop()
        return self.judge.rerun(struck, scenario, work)

    def store_killed(self, scenario: Scenario, work: Location) -> Struck:
        """And started again at once."""
        action = self.dice.choice(["store killed before", "store killed after"])
        name, at = self._step(scenario)
        struck = Struck(action, scenario.name, name)
        self.store.watch(_name(work))
        self.store.arm(name, at, action)
        with self._asked(self.server, scenario, work) as answered:
            if self._reached(answered):
                self.s3.start()
            answer = answered.result()
        self._fired(struck)
        return self.judge.judged(struck, scenario, work, answer)

    def full_disk(self, scenario: Scenario, work: Location) -> Struck:
        room_kb = self.dice.randrange(0, 600, 4)
        rest, room = self.disk / "rest", self.disk / "room"
        room.write_bytes(bytes(room_kb * 1024))
        fill(rest)
        room.unlink()
        struck = Struck("the store's disk full", scenario.name, f"{room_kb} KB left")
        answer = self.server.ask(scenario.command(work))
        rest.unlink()
        return self.judge.judged(struck, scenario, work, answer)

    def successor(self, scenario: Scenario, work: Location) -> Struck:
        """A driver stops at a request, another one takes over and does all of it, and the first wakes up."""
        action = self.dice.choice(["stop before", "stop after"])
        name, at = self._step(scenario, "driver")
        struck = Struck(f"two drivers: {action}", scenario.name, name)
        self.store.watch(_name(work))
        self.store.arm(name, at, action)
        with self._asked(self.server, scenario, work) as answered:
            if self._reached(answered):
                self._end_leases(work)
                other = self._other.ask(scenario.command(work))
                struck.wrong = f"the second driver: {other}" if other["error"] else ""
                struck.wrong = struck.wrong or difference(scenario.after, scenario.found(work))
                self.store.disarm()
            answer = answered.result()
        self._fired(struck)
        return self.judge.judged(struck, scenario, work, answer)

    def rival(self, scenario: Scenario, work: Location) -> Struck:
        """A second driver begins at a request of the first, and neither waits for the other."""
        name, at = self._step(scenario, "driver")
        struck = Struck("two drivers at once", scenario.name, name)
        self.store.watch(_name(work))
        self.store.arm(name, at, "told")
        with self._asked(self.server, scenario, work) as answered:
            if self._reached(answered):
                self._end_leases(work)
                other = self._other.ask(scenario.command(work))
                struck.wrong = badly_said(other) if other["error"] else ""
            answer = answered.result()
        self._fired(struck)
        return self.judge.judged(struck, scenario, work, answer)

    def cli(self, scenario: Scenario, work: Location) -> Struck:
        action = self.dice.choice(["kill -9 before", "kill -9 after", "403", "done, and reset"])
        name, at = self._step(scenario, "driver")
        struck = Struck(f"CLI: {action}", scenario.name, name)
        self.store.watch(_name(work))
        self.store.arm(name, at, action, FOR_EVER if action == "403" else 1)
        answer = scenario.by_cli(work, store_env())
        self._fired(struck)
        return self.judge.judged(struck, scenario, work, answer)

    def _step(self, scenario: Scenario, role: str | None = None) -> tuple[str, int]:
        """The name of a request, and its number among those of that name."""
        steps = scenario.steps[self.dice.choice(sorted(scenario.steps)) if role is None else role]
        name = self.dice.choice(sorted(steps))
        return name, self.dice.choice(steps[name])

    def _struck(
        self,
        action: str,
        scenario: Scenario,
        work: Location,
        repeat: int,
        *,
        role: str | None = None,
        judge: bool = True,
    ) -> Struck:
        name, at = self._step(scenario, role)
        times = {1: "", FOR_EVER: " for good"}.get(repeat, f" {repeat} times")
        struck = Struck(f"{name.partition(' ')[0]}: {action}{times}", scenario.name, name)
        self.store.watch(_name(work))
        self.store.arm(name, at, action, repeat)
        answer = self.server.ask(scenario.command(work))
        self._fired(struck)
        if judge:
            return self.judge.judged(struck, scenario, work, answer)
        self.judge.judge_first(struck, scenario, work, answer)
        return struck

    @contextlib.contextmanager
    def _asked(self, server: Server, scenario: Scenario, work: Location) -> Iterator[Future[Answer]]:
        """A run that goes on beside the block."""
        with ThreadPoolExecutor(1) as pool:
            try:
                yield pool.submit(server.ask, scenario.command(work))
            finally:
                self.store.disarm()

    def _reached(self, answered: Future[Answer]) -> bool:
        """Wait until something has happened, or the run has ended without."""
        while not answered.done():
            if self.store.happened.wait(_POLL_S):
                return True
        return False

    def _end_leases(self, work: Location) -> None:
        """As if so much time had passed."""
        for folder in (work / "manifest.lock", work / "archive" / "events" / "_compact.lock"):
            files_of(folder).delete_folder(folder)

    def _fired(self, struck: Struck) -> None:
        self.store.disarm()
        struck.outcome = "exact" if self.store.fired else "not reached"


def _name(work: Location) -> str:
    assert not isinstance(work, Path)
    return work.inner
