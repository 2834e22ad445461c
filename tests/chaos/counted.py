"""What the counting topology has counted, and the promise that it must keep."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from counting_topology import KEYS

from heronpy.testing import eventually_sync

WITHIN_S = 120.0


class Counted:
    """What the bolts had counted at the newest checkpoint."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.goal = 0
        self.raise_goal(0)

    def raise_goal(self, by: int) -> None:
        self.goal += by
        new = self.dir / "goal.new"
        new.write_text(str(self.goal))
        os.replace(new, self.dir / "goal")

    def newest(self) -> list[dict[str, Any]]:
        """Of the tasks that committed last: before a rescaling there were others."""
        by_tasks: dict[str, list[dict[str, Any]]] = {}
        for path in sorted(self.dir.glob("committed-?-of-?")):
            by_tasks.setdefault(path.name[-1], []).append(json.loads(path.read_text()))
        return max(by_tasks.values(), key=lambda found: max(one["checkpoint"] for one in found), default=[])

    def counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for one in self.newest():
            total.update(one["counts"])
        return total

    def wait_midway(self, more: int = 1000) -> None:
        """Wait until some more numbers are committed, and have others on their way."""
        before = sum(self.counts().values())

        def check() -> None:
            assert sum(self.counts().values()) >= before + 100

        eventually_sync(check, within_s=WITHIN_S)
        self.raise_goal(more)

    def wait_exact(self) -> None:
        """Wait until all numbers below the goal are committed, and see that each is counted once."""
        expected = Counter(f"key-{number % KEYS}" for number in range(self.goal))

        def check() -> None:
            found = self.counts()
            assert not found - expected, f"counted too often: {found - expected}"
            assert found == expected, f"{sum((expected - found).values())} of {self.goal} are not counted yet"

        eventually_sync(check, within_s=WITHIN_S)
