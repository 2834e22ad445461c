"""What came of a fault: a run is right, or has said that it failed, and what it has left is in no later run's way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from batch_program import litter
from batch_scenarios import Answer, Scenario, Server

from heronpy.filesystem import Location

SAID = ("Error", "killed")


@dataclass
class Struck:
    """What came of one fault."""

    kind: str
    scenario: str
    step: str
    outcome: str = "exact"
    """`exact`: the run was right all the same; `said`: it said that it failed, or died; `not reached`."""
    line: str = ""
    reruns: int = 0
    wrong: str = ""
    """What no run may do."""
    seconds: float = 0.0


class Judge:
    """Compares what is there with what a run without faults has made."""

    def __init__(self, server: Server, calm: Callable[[], None]) -> None:
        """Of runs by a server.

        Args:
            server: runs the jobs.
            calm: called before runs to which nothing is to happen.
        """
        self._server, self._calm = server, calm

    def judged(self, struck: Struck, scenario: Scenario, work: Location, answer: Answer) -> Struck:
        """A run that a fault has happened to, and what runs without one make of it."""
        self.judge_first(struck, scenario, work, answer)
        return self.rerun(struck, scenario, work, exact=not answer["error"])

    def judge_first(self, struck: Struck, scenario: Scenario, work: Location, answer: Answer) -> None:
        """A run that says nothing is right; what one that failed has done is right, too."""
        self._calm()
        if answer["error"]:
            struck.outcome, struck.line = "said", f"{answer['error']}: {answer['line']}"
            struck.wrong = struck.wrong or badly_said(answer)
            now = scenario.found(work)["batches"]
            for batch, rows in now.items():
                sides = [side["batches"].get(batch) for side in (scenario.before, scenario.after)]
                if batch >= 0 and rows not in sides:
                    struck.wrong = struck.wrong or f"batch {batch} is done, and wrong: {_shown(rows, sides)}"
        else:
            struck.wrong = struck.wrong or difference(scenario.after, scenario.found(work))

    def rerun(
        self, struck: Struck, scenario: Scenario, work: Location, *, again: bool = False, exact: bool = False
    ) -> Struck:
        """One run without a fault makes all as it would be without any; and another one has nothing to do."""
        self._calm()
        if not struck.wrong and not exact and (again or difference(scenario.after, scenario.found(work))):
            struck.reruns = 1
            answer = self._server.ask(scenario.command(work, compact=False, again=again))
            if answer["error"]:
                struck.wrong = f"a rerun without a fault failed: {answer}"
        if not struck.wrong:
            answer = self._server.ask(scenario.command(work, compact=False))
            if answer["error"] or answer["batches"]:
                struck.wrong = f"a run with nothing to do: {answer}"
            elif left := litter(work, scenario.length_s):
                struck.wrong = f"{len(left)} files are left for good, such as {left[0]}"
            else:
                struck.wrong = difference(scenario.after, scenario.found(work))
        return struck


def badly_said(answer: Answer) -> str:
    """What is wrong with how a run says that it failed; empty: nothing."""
    whole = answer["error"].endswith(SAID) and answer["code"] != 70 and "\n" not in answer["line"].strip()
    return "" if whole else f"said as {answer}"


def difference(wanted: Any, got: Any) -> str:
    """The first difference between what was wanted and what is there; empty if there is none."""
    if wanted["letters"] != got["letters"]:
        more, less = Counter(got["letters"]), Counter(wanted["letters"])
        return (
            f"dead letters: {list((more - less).elements())[:2]} too many, {list((less - more).elements())[:2]} missing"
        )
    if wanted["watermark"] != got["watermark"]:
        return f"batches are done up to {got['watermark']}, not {wanted['watermark']}"
    for batch in sorted({*wanted["batches"], *got["batches"]}):
        a, b = (side["batches"].get(batch) for side in (wanted, got))
        if a != b:
            return f"batch {batch}: {_shown(b, [a])}"
    return ""


def _shown(rows: Any, sides: list[Any]) -> str:
    wanted = sides[-1]
    if rows is None or wanted is None:
        return f"there is {'none' if rows is None else 'one too many'}"
    return "; ".join(
        f"{n}: {rows.get(n)!r:.200} not {wanted.get(n)!r:.200}" for n in wanted if rows.get(n) != wanted.get(n)
    )


def table(struck: list[Struck]) -> Iterator[str]:
    """A Markdown table by kind of fault."""
    yield "| fault | number | exact at once | said so | reruns | wrong |"
    yield "|---|---|---|---|---|---|"
    reached = [one for one in struck if one.outcome != "not reached"]
    for kind in [*sorted({one.kind for one in reached}), "all"]:
        of = [one for one in reached if kind in (one.kind, "all")]
        exact, said = (sum(one.outcome == outcome and not one.wrong for one in of) for outcome in ("exact", "said"))
        wrong = sum(bool(one.wrong) for one in of)
        yield f"| {kind} | {len(of)} | {exact} | {said} | {sum(one.reruns for one in of)} | {wrong} |"
    steps = {one.step for one in reached}
    yield f"at {len(steps)} different steps; {len(struck) - len(reached)} more were not reached and count for nothing"
