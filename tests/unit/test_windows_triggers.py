"""Triggers, step by step: each transcript says what comes, and every pane that it causes.

in 1 2 3          elements, whose values are their times
watermark 25      time has come this far
wait 10           so many milliseconds pass
[0,9] 1 2 3       the next pane that the last steps have caused: first and last time of the window, elements
[0,9] early 1 2   and its timing, where it is not `on time`
late 7            the next element that no window takes
"""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.windows import (
    END,
    NEVER,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Closed,
    Collect,
    Effect,
    Global,
    Late,
    Pane,
    Placed,
    Session,
    Sliding,
    Tumbling,
    Windowing,
    window_engine,
)


class TranscriptError(AssertionError):
    """The engine does something else than the transcript says."""


def shown(effect: Effect) -> str | None:
    if isinstance(effect, Late):
        return f"late {effect.value}"
    if isinstance(effect, Pane):
        first, after = effect.span
        name = "[all]" if (first, after) == (NEVER, END) else f"[{first},{after - 1}]"
        timing = "" if effect.timing.value == "on time" else f" {effect.timing.value}"
        return f"{name}{timing} {' '.join(str(value) for value in sorted(effect.value))}"
    assert isinstance(effect, (Placed, Closed))
    return None


def follow(windowing: Windowing, transcript: str) -> Any:
    """Do what a transcript says. Returns the engine's state.

    Raises:
        TranscriptError: a pane that it does not have, or one that does not come.
    """
    engine = window_engine(windowing, Collect())
    watermark, now = NEVER, 0
    waiting: list[str] = []
    for line in filter(None, map(str.strip, transcript.splitlines())):
        what, *rest = line.split()
        if what.startswith("[") or what == "late":
            if not waiting or waiting[0] != " ".join(line.split()):
                raise TranscriptError(f"not {line!r} but {waiting}")
            del waiting[0]
            continue
        if waiting and what != "in":
            raise TranscriptError(f"before {line!r}: {waiting}")
        effects: list[Effect] = []
        if what == "in":
            for time in map(int, rest):
                effects += engine.add("key", time, time, now)
        elif what == "watermark":
            watermark = END if rest == ["end"] else int(rest[0])
            effects += engine.advance(watermark, now)
        else:
            assert what == "wait", line
            now += int(rest[0])
            effects += engine.advance(watermark, now)
        waiting += filter(None, map(shown, effects))
    if waiting:
        raise TranscriptError(f"at the end: {waiting}")
    return engine.state


TEN = Tumbling(10)
TRANSCRIPTS: dict[str, tuple[Windowing, str]] = {
    "a window fires once when the watermark passes its end": (
        Windowing(windows=TEN),
        """
        in 1 2 3 10 11
        watermark 9
        watermark 10
        [0,9] 1 2 3
        watermark 25
        [10,19] 10 11
        watermark 100
        """,
    ),
    "what comes within the lateness makes late panes of everything": (
        Windowing(windows=TEN, accumulating=True, lateness_ms=1000),
        """
        in 1 2 3 10 11 25
        watermark 100
        [0,9] 1 2 3
        [10,19] 10 11
        [20,29] 25
        in 7
        [0,9] late 1 2 3 7
        in 8
        [0,9] late 1 2 3 7 8
        """,
    ),
    "or only of what is new": (
        Windowing(windows=TEN, lateness_ms=1000),
        """
        in 1 2 3 25
        watermark 100
        [0,9] 1 2 3
        [20,29] 25
        in 7
        [0,9] late 7
        in 3
        [0,9] late 3
        """,
    ),
    "what comes after the lateness is late": (
        Windowing(windows=TEN, lateness_ms=10),
        """
        in 1
        watermark 19
        [0,9] 1
        in 2
        [0,9] late 2
        watermark 20
        in 3
        late 3
        in 10
        [10,19] late 10
        """,
    ),
    "a sliding window may take what an earlier one does not": (
        Windowing(windows=Sliding(10, 5)),
        """
        in 1 6
        watermark 10
        [-5,4] 1
        [0,9] 1 6
        in 7
        in 4
        late 4
        watermark 15
        [5,14] 6 7
        """,
    ),
    "early and late panes of a session that grows": (
        Windowing(
            windows=Session(10),
            trigger=AfterWatermark(early=AfterCount(2), late=AfterCount(3)),
            accumulating=True,
            lateness_ms=1000,
        ),
        """
        in 1 2
        [1,11] early 1 2
        in 3
        in 4
        [1,13] early 1 2 3 4
        in 5 6
        [1,15] early 1 2 3 4 5 6
        in 5
        watermark 100
        [1,15] 1 2 3 4 5 5 6
        in 1
        in 3
        in 4
        [1,15] late 1 1 2 3 3 4 4 5 5 6
        """,
    ),
    "early panes with only what is new": (
        Windowing(windows=TEN, trigger=AfterWatermark(early=AfterCount(2))),
        """
        in 1 2
        [0,9] early 1 2
        in 3
        in 14
        in 4
        [0,9] early 3 4
        in 18
        [10,19] early 14 18
        in 6
        watermark 100
        [0,9] 6
        """,
    ),
    "a window of a count fires what is left when it closes": (
        Windowing(windows=TEN, trigger=AfterCount(2), lateness_ms=10),
        """
        in 1 2
        [0,9] early 1 2
        in 3 10 11
        [10,19] early 10 11
        in 25
        watermark 10
        watermark 20
        [0,9] 3
        watermark 100
        [20,29] 25
        """,
    ),
    "elements that the watermark has passed but not their window are on time": (
        Windowing(windows=TEN),
        """
        watermark 8
        in 2 3 7
        watermark 11
        [0,9] 2 3 7
        """,
    ),
    "a late window that was empty has only late panes": (
        Windowing(windows=TEN, trigger=AfterWatermark(late=AfterCount(2)), lateness_ms=50),
        """
        watermark 30
        in 1
        in 2
        [0,9] late 1 2
        in 3
        watermark 59
        watermark 60
        [0,9] late 3
        """,
    ),
    "panes after processing time": (
        Windowing(windows=TEN, trigger=AfterWatermark(early=AfterProcessingTime(100))),
        """
        in 1
        wait 60
        in 2
        wait 39
        wait 1
        [0,9] early 1 2
        wait 1000
        in 3
        watermark 10
        [0,9] 3
        wait 1000
        """,
    ),
    "late elements gather for a while": (
        Windowing(windows=TEN, trigger=AfterWatermark(late=AfterProcessingTime(100)), lateness_ms=1000),
        """
        watermark 50
        in 1
        wait 60
        in 2 11
        wait 40
        [0,9] late 1 2
        wait 60
        [10,19] late 11
        """,
    ),
    "the global window fires by its trigger, and at the end": (
        Windowing(windows=Global(), trigger=AfterCount(2), accumulating=True),
        """
        in 5 1
        [all] early 1 5
        in 3
        watermark 1000
        watermark end
        [all] 1 3 5
        """,
    ),
    "two elements a gap apart are two sessions": (
        Windowing(windows=Session(10)),
        """
        in 0 10
        watermark end
        [0,9] 0
        [10,19] 10
        """,
    ),
    "and less than a gap apart one": (
        Windowing(windows=Session(10)),
        """
        in 0 9
        watermark 18
        watermark 19
        [0,18] 0 9
        """,
    ),
    "a session grows backwards": (
        Windowing(windows=Session(10)),
        """
        in 20 15
        watermark end
        [15,29] 15 20
        """,
    ),
    "an element within a session leaves its span as it is": (
        Windowing(windows=Session(10)),
        """
        in 0 9 5
        watermark end
        [0,18] 0 5 9
        """,
    ),
    "an element between two sessions joins them": (
        Windowing(windows=Session(10)),
        """
        in 0 18 9
        watermark end
        [0,27] 0 9 18
        """,
    ),
    "but not those that it does not touch": (
        Windowing(windows=Session(10)),
        """
        in 0 20 40 25 60
        watermark end
        [0,9] 0
        [20,34] 20 25
        [40,49] 40
        [60,69] 60
        """,
    ),
    "an element can join a session that is older than the lateness alone allows": (
        Windowing(windows=Session(10)),
        """
        in 0 9
        watermark 15
        in 3
        in 30
        watermark 30
        [0,18] 0 3 9
        in 5
        late 5
        """,
    ),
    "a late element extends a session that has fired, and it fires again": (
        Windowing(windows=Session(10), lateness_ms=100),
        """
        in 0
        watermark 12
        [0,9] 0
        in 8
        watermark 18
        [0,17] 8
        """,
    ),
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript(name: str) -> None:
    windowing, transcript = TRANSCRIPTS[name]
    follow(windowing, transcript)


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_nothing_is_left_at_the_end(name: str) -> None:
    windowing, transcript = TRANSCRIPTS[name]
    engine = window_engine(windowing, Collect())
    for line in transcript.splitlines():
        if line.strip().startswith("in "):
            for time in map(int, line.split()[1:]):
                engine.add("key", time, time)
    list(engine.advance(END))
    engine.check_invariants()
    assert not engine.state


@pytest.mark.parametrize(
    "transcript",
    [
        "in 1 2 3\n[0,9] 1 2 3\nwatermark 100",
        "in 1 2 3\nwatermark 100\n[0,9] 1 2",
        "in 1 2 3\nwatermark 100\n[0,19] 1 2 3",
        "in 1 2 3\nwatermark 100\nwatermark 200",
        "in 1 2 3\nwatermark 100",
        "in 1 2 3\nwatermark 100\n[0,9] late 1 2 3",
    ],
)
def test_a_transcript_that_is_wrong_is_found_out(transcript: str) -> None:
    with pytest.raises(TranscriptError):
        follow(Windowing(windows=TEN), transcript)


def test_a_window_that_has_fired_and_takes_nothing_late_is_forgotten_at_once() -> None:
    assert not follow(Windowing(windows=TEN), "in 1 2\nwatermark 10\n[0,9] 1 2")
    assert not follow(Windowing(windows=Session(10)), "in 1 2\nwatermark 12\n[1,11] 1 2")
    kept = Windowing(windows=TEN, accumulating=True, lateness_ms=10)
    assert follow(kept, "in 1 2\nwatermark 19\n[0,9] 1 2")
    assert not follow(kept, "in 1 2\nwatermark 19\n[0,9] 1 2\nwatermark 20")
