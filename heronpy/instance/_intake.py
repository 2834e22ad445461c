"""What the gateway of an instance lets in: which plan is in force, and which batches still count. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from heronpy.plan import PhysicalPlan
from heronpy.proto import stmgr_pb2


class Intake:
    """Decides on the frames that a Stream Manager sends to one instance."""

    def __init__(self) -> None:
        self.plan: PhysicalPlan | None = None
        """The newest."""

    @property
    def epoch(self) -> int:
        """The restore epoch."""
        return self.plan.restore_epoch if self.plan is not None else 0

    def planned(self, plan: PhysicalPlan) -> bool:
        """Take a plan. Returns whether the task is to be given it: it is not older than the one in force."""
        if self.plan is not None and _order(plan) < _order(self.plan):
            return False
        self.plan = plan
        return True

    def received(self, frame: stmgr_pb2.Frame) -> Sequence[stmgr_pb2.Batch]:
        """The batches of a frame that the task is to be given: what was sent before a restore is dropped."""
        if self.plan is None or frame.epoch == self.plan.restore_epoch:
            return frame.batches
        return ()


def _order(plan: PhysicalPlan) -> tuple[int, int]:
    return plan.restore_epoch, plan.version
