"""The hot path of emit: closures over a few shared variables, because a closure cell costs a fifth of an attribute.

`room` counts down to the next time that values are serialized, or to the flush that bounds the memory of one call of
user code; the loop around next_tuple() also reads it to see whether a call emitted anything. It is filled up *before*
tuples are taken, so that one which another thread puts meanwhile is counted afterwards, and never forgotten.

Any thread may emit. Putting is atomic (see `_edges.py`); a decrement of `room` that two threads race for may be lost,
which delays a flush by one tuple. While the task sleeps, `room` is one: the next emit, which can only be another
thread's, wakes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.api.task_hook import EmitInfo
from heronpy.api.tuple import Tuple
from heronpy.instance._anchors import as_anchors
from heronpy.instance._batch_size import BatchSize, stage_tuples
from heronpy.instance._core import TaskCore
from heronpy.instance._edges import Taken
from heronpy.instance._outputs import Outputs, as_values

Process = Callable[[Tuple], None]
Ack = Callable[[Tuple], None]
BoltLoop = Callable[[Iterable[Tuple], Process], None]


@dataclass(frozen=True, slots=True)
class Emitter:
    """What a task emits, until it is drained, and the loops around user code."""

    emit: Callable[..., list[int]]
    """What user code calls: a spout's takes a message id, a bolt's anchors."""
    drain: Callable[[], Sequence[Taken]]
    """Take out all that was emitted, by destination; counted by stream. One thread at a time."""
    unsent: Callable[[], int]
    """About how many tuples wait, and surely not 0 if there is one."""
    rebind: Callable[[], None]
    """Use the outputs of a new plan."""
    doze: Callable[[bool], bool]
    """The task is about to sleep (True), or awake (False). Returns whether it may sleep: nothing waits."""
    poll_spout: Callable[[Callable[[], None], Iterator[int]], bool]
    """Call next_tuple once for each of an iterator; stop when one emits nothing. Returns whether one did not."""
    bolt_loop: Callable[[bool, Ack | None], BoltLoop]
    """The loop around process(): whether it anchors to the tuple in hand, and how it acks that, if it does."""
    no_anchor: Callable[[], None]
    """Forget the tuple in hand: process() raised, or the engine itself emits."""


def make_emitter(
    core: TaskCore,
    batch: BatchSize,
    *,
    flush: Callable[[], None],
    service_signals: Callable[[], None] = lambda: None,
    note: Callable[[tuple[str, Any]], None] = lambda _noted: None,
    mix: Callable[[], None] = lambda: None,
) -> Emitter:
    """The emitter of a task.

    Args:
        core: the task's.
        batch: how many tuples may wait.
        flush: sends everything; called by any thread.
        service_signals: bolts: called between two tuples when the signal is due.
        note: spouts: takes (stream, message id) of each tuple that has an id but is not tracked.
        mix: spouts: called before a tuple without a message id is emitted where tuples are tracked.
    """
    outputs, signal, tracking = core.outputs, core.signal, core.tracking
    choosers = outputs.choosers
    size = stage_tuples(len(outputs.pairs))
    full = room = min(size, batch.tuples)
    staged = refills = 0
    current: Tuple | None = None
    former: Outputs | None = None

    def emit_of_spout(
        tup: Any,
        tup_id: Any = None,
        stream: str = "default",
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        nonlocal room
        if type(tup) is list:
            tup = [*tup]  # user code may go on using its list
        elif type(tup) is not tuple:
            tup = as_values(tup)
        target = choosers[stream](tup) if direct_task is None else outputs.direct(stream, direct_task)
        if tracking:
            if tup_id is None:
                mix()
            target.put((tup, tup_id))
        else:
            target.put(tup)
            if tup_id is not None:
                note((stream, tup_id))
        room -= 1
        if room <= 0:
            exhausted()
        return target.ids

    def emit_of_bolt(
        tup: Any,
        stream: str = "default",
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        nonlocal room
        if type(tup) is list:
            tup = [*tup]  # user code may go on using its list
        elif type(tup) is not tuple:
            tup = as_values(tup)
        target = choosers[stream](tup) if direct_task is None else outputs.direct(stream, direct_task)
        if tracking:
            tag: Any = current
            if anchors is not None:
                if type(anchors) is list and len(anchors) == 1 and type(anchors[0]) is Tuple:
                    tag = anchors[0]
                else:
                    tag = as_anchors(anchors)  # a copy: user code may go on using its list
                    room -= len(tag)  # they travel too: 16 bytes for each
            target.put((tup, tag))
        else:
            target.put(tup)
        room -= 1
        if room <= 0:
            exhausted()
        return target.ids

    def poll_spout(next_tuple: Callable[[], None], calls: Iterator[int]) -> bool:
        seen = refills
        for _ in calls:
            left = room
            next_tuple()
            if room == left:
                if refills == seen:
                    return True
                seen = refills  # as much room as before may be of another filling: the next call shows it
            if signal.due:
                return False
        return False

    def bolt_loop(anchor: bool, ack: Ack | None) -> BoltLoop:
        def plain(tuples: Iterable[Tuple], process: Process) -> None:
            for tup in tuples:
                process(tup)
                if signal.due:
                    service_signals()

        def automatic(tuples: Iterable[Tuple], process: Process) -> None:
            nonlocal current
            for tup in tuples:
                if anchor:
                    current = tup
                process(tup)
                if ack is not None and not tup.origin_.marks[tup.index_]:  # type: ignore[attr-defined]  # InBatch has it
                    ack(tup)
                if signal.due:
                    current = None
                    service_signals()
            current = None

        return automatic if anchor or ack is not None else plain

    def exhausted() -> None:
        if signal.dozing:
            doze(False)
            core.wake()
        elif core.staging:
            pass  # emitted while a value was being serialized
        elif staged + full < batch.tuples:
            stage()
        else:
            flush()

    def stage() -> None:
        nonlocal full, refills, room, staged
        with core.lock:
            if core.staging or room > 0:
                return  # another thread was quicker
            staged += full - room
            refills += 1
            full = room = max(1, min(size, batch.tuples - staged))
            core.stage()

    def drain() -> Sequence[Taken]:
        refill()
        taken: list[Taken] = []
        for each in (outputs,) if former is None else (former, outputs):
            new = each.take()
            for stream, count in each.emitted(new).items():
                core.metrics.add(f"__emit-count/{stream}", count)
            taken += new
        return taken

    def refill() -> None:
        nonlocal full, refills, room, staged
        staged, full = 0, min(size, batch.tuples)
        room = full
        refills += 1

    def doze(asleep: bool) -> bool:
        nonlocal full, room
        signal.dozing = asleep
        if asleep:
            full = room = 1
            if not waits():
                return True
            signal.dozing = False
        refill()
        # What waits was counted before: without this `unsent` would say 0, and it would wait for the next emit.
        if asleep or waits():
            room -= 1
        return not asleep

    def waits() -> bool:
        return any(outputs.pairs) or (former is not None and any(former.pairs))

    def rebind() -> None:
        nonlocal former, outputs, choosers, size
        no_anchor()
        if outputs is core.outputs:
            return
        former, outputs = outputs, core.outputs  # another thread may still be about to put something into the old ones
        choosers = outputs.choosers
        size = stage_tuples(len(outputs.pairs))

    def no_anchor() -> None:
        nonlocal current
        current = None

    def unsent() -> int:
        return staged + full - room

    emit: Callable[..., list[int]] = emit_of_spout if core.component.is_spout else emit_of_bolt
    return Emitter(emit, drain, unsent, rebind, doze, poll_spout, bolt_loop, no_anchor)


def observed_emit(core: TaskCore, emit: Callable[..., list[int]]) -> Callable[..., list[int]]:
    """emit for topology.debug and task hooks: slower, so only there."""
    stream_position = 1 if core.component.is_spout else 0

    def observed(tup: Any, *args: Any, **named: Any) -> list[int]:
        tasks = emit(tup, *args, **named)
        stream = named.get("stream", args[stream_position] if len(args) > stream_position else "default")
        if core.settings.debug:
            core.logger.info("emitted %r to %s on stream %s", tup, tasks, stream)
        for hook in core.hooks:
            hook.emit(EmitInfo(tup, stream, core.task_id, tasks))
        return tasks

    return observed
