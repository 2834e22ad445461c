"""What leaves a Stream Manager's core: frames out of the outboxes, feedback to the disk, and who has to wait.

Beneath `_core`, which says what comes in; pure as that is.
"""

from __future__ import annotations

from heronpy.config import StmgrConfig
from heronpy.proto import stmgr_pb2
from heronpy.stmgr._core_link import CoreLink
from heronpy.stmgr._feedback import SpillEffect
from heronpy.stmgr._in_flight import InFlightBound, frame_bytes
from heronpy.stmgr._membership import EpochMembership
from heronpy.stmgr._metrics import StmgrMetrics
from heronpy.stmgr._outbox import Outbox
from heronpy.stmgr._routes import Routes
from heronpy.stmgr.events import (
    Effect,
    FrameWritten,
    HoldReads,
    ResumeReads,
    SpillFailed,
    SpillRead,
    SpillWritten,
    TimePassed,
    Wake,
    WakeAt,
    WriteFrame,
    WriteReady,
)
from heronpy.stmgr.flow import (
    Announce,
    FlowControl,
    FlowEvent,
    FlowLimits,
    MarkChanged,
    OutboxChanged,
    PauseFeedback,
    SpillChanged,
)

_SPILL_FRAMES_WRITING = 16
"""So many frames may be on their way to the disk before senders of feedback are held."""


class OutgoingCore:
    """Outboxes, the links that they are written to, and the decisions of flow control."""

    def __init__(self, container: int, config: StmgrConfig) -> None:
        self.id = f"stmgr-{container}"
        self.metrics = StmgrMetrics()
        self.routes: Routes | None = None
        self._config = config
        limits = FlowLimits(
            high=config.outbox_bytes_high,
            low=config.outbox_bytes_low,
            spill=config.feedback_spill_bytes,
            writing=_SPILL_FRAMES_WRITING * config.frame_bytes,
        )
        self._flow = FlowControl(self.id, limits)
        self._epoch = 0
        self._membership: EpochMembership | None = None
        """With checkpoints only."""
        self._in_flight = InFlightBound(config.outbox_bytes_high)
        self._outboxes: dict[str, Outbox] = {}
        self._links: dict[int, CoreLink] = {}
        self._connected: dict[str, CoreLink] = {}
        self._cyclic = False
        self._spill_error = ""
        self._unspilled: list[tuple[str, int]] = []
        """Segments that could not be written."""
        self._effects: list[Effect] = []

    # frames out

    def _changed(self, outbox: Outbox, now_ns: int) -> None:
        """Something was put into an outbox, or has left it."""
        if self._outboxes.get(outbox.name) is not outbox:
            return  # of an instance or a peer that is no longer in the plan
        link = self._connected.get(outbox.name)
        if link is not None and (link.idle or (link.merging and outbox.bytes >= self._config.merge_bytes)):
            self._wake_if_needed(link)
        feedback_bytes = outbox.feedback_bytes if self._cyclic else 0
        self._decide(OutboxChanged(outbox.name, outbox.bytes, feedback_bytes, now_ns))

    def _wake_if_needed(self, link: CoreLink) -> None:
        if link.takes_batches and len(link.outbox):
            self._wake(link)

    def _wake(self, link: CoreLink) -> None:
        link.idle = link.merging = False
        self._effects.append(Wake(link.number))

    def _control(self, link: CoreLink, frame: stmgr_pb2.Frame) -> None:
        assert not frame.batches, "batches are sent in order, through the outbox"
        link.control.append(frame)
        if link.idle or link.merging:
            self._wake(link)

    def _write_ready(self, event: WriteReady) -> None:
        link = self._links.get(event.link)
        if link is None:
            return
        link.idle = link.merging = False
        if link.control:
            self._effects.append(WriteFrame(link.number, link.control.popleft().SerializeToString()))
            return
        outbox = link.outbox
        if not (link.takes_batches and len(outbox)):
            link.idle = True
            return
        earliest_ns = link.last_ns + int(self._config.merge_interval_ms * 1e6)
        if event.now_ns < earliest_ns and outbox.bytes + outbox.feedback_bytes < self._config.merge_bytes:
            link.merging = True
            self._effects.append(WakeAt(link.number, earliest_ns))
            return
        link.last_ns = event.now_ns
        batches, spill = outbox.take()
        frame = stmgr_pb2.Frame(batches=batches, epoch=self._epoch)
        if self._membership is not None:
            frame.number, link.in_flight_epoch = self._membership.next_number(link.name), self._epoch
        link.in_flight = frame.SerializeToString()
        self._effects.append(WriteFrame(link.number, link.in_flight))
        self._spill(spill)

    def _frame_written(self, event: FrameWritten) -> None:
        link = self._links.get(event.link)
        if link is None:
            return
        if (data := link.in_flight) is not None:
            link.in_flight = None
            self.metrics.moved(len(data), link.sent)
            self.metrics.passed(link.outbox.written(), link.sent)
            if link.delivered is not None:
                link.delivered.add(data)
            self._changed(link.outbox, event.now_ns)
        self._write_ready(WriteReady(event.link, event.now_ns))

    # feedback on disk

    def _spill(self, effects: list[SpillEffect]) -> None:
        if effects:
            self._effects += effects
            self._spill_changed()

    def _spill_changed(self) -> None:
        sizes = {name: outbox.feedback.spilled_bytes for name, outbox in self._outboxes.items()}
        writing = sum(outbox.feedback.writing_bytes for outbox in self._outboxes.values())
        largest = max(sizes, key=lambda name: sizes[name], default="")
        self._decide(SpillChanged(sum(sizes.values()), writing, largest, self._spill_error))

    def _spill_written(self, event: SpillWritten) -> None:
        self._spill_error = ""
        if (outbox := self._outboxes.get(event.outbox)) is not None:
            self._effects += outbox.feedback.written(event.segment)
            self._spill_changed()
            self._changed(outbox, event.now_ns)

    def _spill_read(self, event: SpillRead) -> None:
        if (outbox := self._outboxes.get(event.outbox)) is not None:
            self._effects += outbox.feedback.read(event.segment, event.data)
            self._spill_changed()
            self._changed(outbox, event.now_ns)

    def _spill_failed(self, event: SpillFailed) -> None:
        self._spill_error = event.error
        self._unspilled.append((event.outbox, event.segment))
        self._spill_changed()

    def _time_passed(self, event: TimePassed) -> None:
        self._bound_in_flight(event.now_ns)
        unspilled, self._unspilled = self._unspilled, []
        for name, segment in unspilled:
            if (outbox := self._outboxes.get(name)) is not None:
                self._effects += outbox.feedback.rewrite(segment)

    # decisions

    def _bound_in_flight(self, now_ns: int) -> None:
        if self._membership is not None:
            for name, mark in self._in_flight.looked(self._outboxes, now_ns):
                self._decide(MarkChanged(name, mark, now_ns))
                if self.routes is not None and name in self.routes.tasks:
                    self._outboxes[name].frame_bytes = min(frame_bytes(mark), self._config.frame_bytes)

    def _decide(self, event: FlowEvent) -> None:
        for effect in self._flow.step(event):  # nearly always none
            if isinstance(effect, Announce):
                self._announce(effect)
            elif isinstance(effect, PauseFeedback):
                self._pause_feedback(effect)
            elif isinstance(effect, HoldReads | ResumeReads) and self._is_held_by_message(effect.link):
                self._control(self._links[effect.link], stmgr_pb2.Frame(hold=isinstance(effect, HoldReads)))
            else:
                self._effects.append(effect)

    def _is_held_by_message(self, number: int) -> bool:
        return (
            self._membership is not None and self.routes is not None and self._links[number].name in self.routes.spouts
        )

    def _announce(self, effect: Announce) -> None:
        if effect.started:
            start = stmgr_pb2.StartBackpressure(stmgr=self.id, culprit=effect.culprit, full=effect.full)
            frame = stmgr_pb2.Frame(start_backpressure=[start])
        else:
            stop = stmgr_pb2.StopBackpressure(stmgr=self.id, culprit=effect.culprit, full=effect.full)
            frame = stmgr_pb2.Frame(stop_backpressure=[stop])
        for link in self._connected.values():
            if link.is_peer and effect.peer in ("", link.name):
                self._control(link, frame)

    def _pause_feedback(self, effect: PauseFeedback) -> None:
        outbox = self._outboxes.get(effect.peer)
        if outbox is None:
            return
        outbox.feedback_paused = effect.paused
        link = self._connected.get(effect.peer)
        if link is not None and link.idle:
            self._wake_if_needed(link)
