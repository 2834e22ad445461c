"""Windows: elements, watermarks and processing time in; panes out.

Pure: no clock, no task, no I/O. Every event carries its time, so any run can be repeated. Bolts (`heronpy.api.bolt`)
and streamlets share these engines.

    engine = window_engine(Windowing(windows=Tumbling(60_000)), Reduce(operator.add))
    engine.add("word", 1, time_ms=59_000)
    for effect in engine.advance(watermark=60_000):
        ...  # Pane("word", Span(0, 60_000), 1, Timing.ON_TIME)

**Windows** are `Tumbling`, `Sliding` and `Session` by time, `Counted` by number, and `Global`. A span includes its
start and excludes its end. Every window belongs to one key.

**Folds** decide what a window keeps: an accumulator (`Reduce`, or a `Fold` of your own), all elements (`Collect`), or
a part of them, which is what evictors are for (`KeepLast`, `KeepWithin`).

**Triggers** decide when a pane fires: when the watermark passes the window's end (`AfterWatermark`), optionally with
early panes before and late panes after it; after a number of elements (`AfterCount`); a delay after the first element
(`AfterProcessingTime`). A pane has what is new since the last one or, if the windowing accumulates, everything. What
is left when a window closes is fired then; nothing is dropped silently. `flush` fires what is new where nothing comes
for now, and closes nothing.

**Lateness.** A window closes when the watermark is `lateness_ms` past its end. An element whose windows have all
closed is returned as `Late`. With `FOREVER` there are none; see `Windowing.lateness_ms`.

**Watermarks** come from outside, or from `Watermarks`, which follows those of the tasks before this one, and derives
them from the elements' times where these send none. Idle inputs do not hold it back, and one element with a time far in
the future does not advance it. `Clock`, `SplitClocks`, `Sent` and `Upstream` are for those who send and receive them.

**State.** `engine.state` maps each key to a plain value: lists, dicts, tuples, numbers, None and the fold's
accumulators. It is all there is; an engine that is given the state and the watermark of another continues in its
place. Values are changed in place, after they were read in the same call. A key without open windows is not in it.
`durable_engine` has its state in checkpoints.

*Invariants.* Panes do not depend on the order of arrival, provided that no element is behind the watermark and the
fold is commutative. An element is in as many accumulators as `add` reports, and each is released exactly once, by a
`Pane`, `FoldFailed` or `Closed`. A processing time that goes back counts as standing still; an overdue timer fires
once.

`TrailingWindows` are the windows of Storm's bolts, which see elements: the last n, or those of the last t, evaluated
every m elements or every s. `saved_elements` keeps these in checkpoints.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from heronpy.windows._counts import CountEngine
from heronpy.windows._durable import DeclaresState, with_state
from heronpy.windows._effects import Closed, Effect, EffectErrors, FoldFailed, Late, Pane, Placed, Timing
from heronpy.windows._engine import WindowEngine
from heronpy.windows._event_time import event_time_ms
from heronpy.windows._folds import Collect, Fold, KeepLast, KeepWithin, Reduce
from heronpy.windows._in_band import REPEAT_MS as WATERMARK_REPEAT_MS
from heronpy.windows._in_band import Clock, Sent, SplitClocks, Upstream
from heronpy.windows._panes import PaneEngine
from heronpy.windows._saved_elements import SavedElements, saved_elements
from heronpy.windows._sessions import SessionEngine
from heronpy.windows._slices import SlicedEngine
from heronpy.windows._spans import END, FOREVER, NEVER, Counted, Global, Session, Sliding, Span, Tumbling, Windows
from heronpy.windows._trailing import Count, Duration, Evaluated, Expired, TrailingWindows
from heronpy.windows._triggers import AfterCount, AfterProcessingTime, AfterWatermark, Trigger, Windowing
from heronpy.windows._watermarks import MAX_ADVANCE_MS, EventClock, Watermarks


def window_engine(
    windowing: Windowing, fold: Fold, state: MutableMapping[Any, Any] | None = None, watermark: int = NEVER
) -> WindowEngine:
    """The engine for such windows; see `WindowEngine`."""
    kind: type[WindowEngine]
    if isinstance(windowing.windows, Counted):
        kind = CountEngine
    elif isinstance(windowing.windows, Session):
        kind = SessionEngine
    else:
        kind = SlicedEngine if windowing.sliced else PaneEngine
    return kind(windowing, fold, state, watermark)


def durable_engine(
    windowing: Windowing, fold: Fold, states: DeclaresState, name: str, *, keyed: bool = True
) -> WindowEngine:
    """The engine for such windows, with its state in checkpoints: call it in `initialize()`.

    After a restore it goes on where the checkpoint was, also with another number of tasks. Accumulators are pickled.
    Which windows have fired, the watermark says: it must not go back, but from `END`.
    Processing times must be of a clock that survives the process, such as milliseconds since the epoch.

    Args:
        windowing: the windows.
        fold: what is kept of their elements.
        states: the task's `TopologyContext`.
        name: of the state.
        keyed: whether all inputs are grouped by the key of the elements. If not, they have the key None, and a pane of
            another key is one of a former task: a part of the window, as those of all tasks are.

    Raises:
        CheckpointError: what was saved cannot be restored, or is of other windows.
    """

    def make(state: MutableMapping[Any, Any], watermark: int) -> WindowEngine:
        if watermark == END and windowing.lateness_ms != FOREVER:
            watermark = NEVER  # it was saved in a pause, by windows that took nothing for late
        return window_engine(windowing, fold, state, watermark)

    return with_state(make, states, name, keyed=keyed, kept=windowing.kept)


__all__ = [
    "END",
    "FOREVER",
    "MAX_ADVANCE_MS",
    "NEVER",
    "WATERMARK_REPEAT_MS",
    "AfterCount",
    "AfterProcessingTime",
    "AfterWatermark",
    "Clock",
    "Closed",
    "Collect",
    "Count",
    "Counted",
    "Duration",
    "Effect",
    "EffectErrors",
    "Evaluated",
    "EventClock",
    "Expired",
    "Fold",
    "FoldFailed",
    "Global",
    "KeepLast",
    "KeepWithin",
    "Late",
    "Pane",
    "Placed",
    "Reduce",
    "SavedElements",
    "Sent",
    "Session",
    "Sliding",
    "Span",
    "SplitClocks",
    "Timing",
    "TrailingWindows",
    "Trigger",
    "Tumbling",
    "Upstream",
    "Watermarks",
    "WindowEngine",
    "Windowing",
    "Windows",
    "durable_engine",
    "event_time_ms",
    "saved_elements",
    "window_engine",
]
