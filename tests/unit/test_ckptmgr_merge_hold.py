"""Merges wait while tasks restore: as long as the Topology Master says so, and not for ever."""

from __future__ import annotations

import threading

from heronpy.ckptmgr.parts import HOLD_MAX_S, MergeHold
from heronpy.proto import checkpoint_pb2
from heronpy.tmaster.parts import HOLD_EVERY_S, HOLD_S, RestoreHold


class Passing(threading.Condition):
    """Time passes where somebody waits."""

    now_s = 100.0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now_s += timeout
        return False


def test_a_merge_waits_until_the_restore_is_done() -> None:
    hold = MergeHold()
    hold.begin()
    hold.wait()  # nothing holds it
    hold.hold(600)
    waiting = threading.Thread(target=hold.wait, daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    hold.hold(0)
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_merge_goes_on_when_nobody_says_more_and_never_waits_for_ever() -> None:
    time = Passing()
    hold = MergeHold(lambda: time.now_s, time)
    hold.begin()
    hold.hold(15)
    hold.wait()
    assert time.now_s == 115
    for _ in range(100):
        hold.hold(15)
        hold.wait()
    assert time.now_s == 100 + HOLD_MAX_S
    hold.begin()
    hold.hold(15)
    hold.wait()
    assert time.now_s == 100 + HOLD_MAX_S + 15, "the next one waits again"


def test_the_topology_master_holds_them_from_the_first_order_to_restore_until_tasks_go_on() -> None:
    merges = RestoreHold()
    order = checkpoint_pb2.CheckpointOrder
    restore = order(restore=checkpoint_pb2.RestoreTasks(epoch=2, checkpoint=7))
    resume = order(resume=checkpoint_pb2.ResumeTasks(epoch=2))
    said = [
        merges.ordered(order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=8, epoch=1)), 0.0),
        merges.ordered(resume, 0.5),
        merges.ordered(restore, 1.0),
        merges.ordered(restore, 1.5),  # of another Stream Manager
        merges.ordered(restore, 1.0 + HOLD_EVERY_S),
        merges.ordered(resume, 9.0),
        merges.ordered(resume, 9.0),
        merges.ordered(restore, 9.5),
    ]
    assert said == [None, None, HOLD_S, None, HOLD_S, 0.0, None, HOLD_S]
    first = order(restore=checkpoint_pb2.RestoreTasks(epoch=1, checkpoint=0))
    assert RestoreHold().ordered(first, 0.0) is None, "nothing is read"
