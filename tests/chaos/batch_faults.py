"""What can happen to the files of batch runs wherever they are: they are damaged, and exchanged."""

from __future__ import annotations

import random
from collections.abc import Callable

from batch_judging import Judge, Struck, difference
from batch_scenarios import Place, Scenario, Server, scenarios

from heronpy.errors import HeronError
from heronpy.filesystem import Location, files_of


class Faults:
    """Kinds of faults in one place."""

    kinds: list[Callable[[Scenario, Location], Struck]]

    def __init__(self, place: Place, dice: random.Random, server: Server, calm: Callable[[], None]) -> None:
        self.place, self.dice, self.server, self.calm = place, dice, server, calm
        self.judge = Judge(server, calm)
        self.scenarios = scenarios(place, server)

    def close(self) -> None:
        """End what only these faults have started."""

    def strike(self, number: int) -> tuple[Struck, Location]:
        """One fault, what was made of it, and where."""
        kind, scenario = self.dice.choice(self.kinds), self.dice.choice(self.scenarios)
        work = self.place.copy(scenario.template, f"work-{number}")
        return kind(scenario, work), work

    def damage(self, scenario: Scenario, work: Location) -> Struck:
        """Damage files of the archive; afterwards they are put back."""
        folder, files = work / "archive" / "events", files_of(work)
        listed = [file.path for _, found in files.folders(folder, "batch=") for file in found]
        name, hurt, whole = self._hurt(sorted(listed), CHANGES)
        struck = Struck(f"archive: {name}", scenario.name, " ".join(path.parent.name for path in hurt))
        self.calm()
        answer = self.server.ask(scenario.command(work, compact=False))
        self.judge.judge_first(struck, scenario, work, answer)
        for path, data in zip(hurt, whole, strict=True):
            files.write(path, data)
        return self.judge.rerun(struck, scenario, work)

    def damaged_view(self, scenario: Scenario, work: Location) -> Struck:
        """Damage files of views that are done: reads say so, or are right; a backfill makes it good."""
        self.calm()
        assert not self.server.ask(scenario.command(work))["error"]
        below = [path for path in files_of(work).below(work / "views") if path.suffix == ".parquet"]
        name, hurt, _ = self._hurt(sorted(below), CHANGES | {"removed": lambda *_: (None, None)})
        struck = Struck(f"view: {name}", scenario.name, " ".join(str(path).partition("views/")[2] for path in hurt))
        try:
            struck.wrong = difference(scenario.after, scenario.found(work))
        except HeronError as error:
            struck.outcome, struck.line = "said", str(error)
        return self.judge.rerun(struck, scenario, work, again=True)

    def _hurt(self, paths: list[Location], changes: dict[str, Change]) -> tuple[str, list[Location], list[bytes]]:
        """Change two files: the change, which they are, and what was in them."""
        name, change = self.dice.choice([*changes.items()])
        hurt = self.dice.sample(paths, 2)
        files = files_of(hurt[0])
        whole = [files.read(path) for path in hurt]
        for path, data in zip(hurt, change(self.dice, *whole), strict=True):
            if data is None:
                files.delete([path])
            else:
                files.write(path, data)
        return name, hurt, whole


Change = Callable[[random.Random, bytes, bytes], tuple[bytes | None, bytes | None]]


def cut(dice: random.Random, data: bytes, other: bytes) -> tuple[bytes, bytes]:
    return data[: dice.randrange(len(data))], other


def flip(dice: random.Random, data: bytes, other: bytes) -> tuple[bytes, bytes]:
    changed = bytearray(data)
    changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed), other


def zero(dice: random.Random, data: bytes, other: bytes) -> tuple[bytes, bytes]:
    at = dice.randrange(len(data))
    end = min(len(data), at + 512)
    return data[:at] + bytes(end - at) + data[end:], other


def swap(_dice: random.Random, data: bytes, other: bytes) -> tuple[bytes, bytes]:
    return other, data


CHANGES: dict[str, Change] = {"truncated": cut, "a bit flipped": flip, "zeros": zero, "two files swapped": swap}
