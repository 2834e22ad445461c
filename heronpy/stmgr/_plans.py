"""Where a Stream Manager's plans come from, and whom it dials: decisions only.

Plans come from the Topology Master. But data must flow while there is none, also when a Stream Manager is replaced just
then, and a Topology Master may die between saving a plan and sending it to the last Stream Manager. So the plan that is
saved in the state manager counts too: at once where it is newer than the one in force, and for a Stream Manager without
any plan after the Topology Master had its chance to send a better one.
"""

from __future__ import annotations

from heronpy.plan import PhysicalPlan, StmgrLocation

SAVED_PLAN_WAIT_S = 2.0
"""How long a Stream Manager without a plan waits for the Topology Master before it takes the saved one."""


class PlanIntake:
    """Which plans one Stream Manager takes."""

    def __init__(self, topology_id: str, now_s: float) -> None:
        self.plan: PhysicalPlan | None = None
        """The one in force."""
        self._topology_id = topology_id
        self._saved: PhysicalPlan | None = None
        self._since_s = now_s

    @property
    def due_s(self) -> float | None:
        """When `advance` may have something to take; None: never, as things are."""
        return self._since_s + SAVED_PLAN_WAIT_S if self.plan is None and self._saved is not None else None

    def sent(self, plan: PhysicalPlan) -> PhysicalPlan | None:
        """Take a plan of the Topology Master. Returns it unless it is old."""
        return self._take(plan)

    def saved(self, plan: PhysicalPlan, now_s: float) -> PhysicalPlan | None:
        """Take the plan that the state manager holds. Returns what is in force from now on, if that has changed."""
        if plan.logical.id != self._topology_id:
            return None  # left behind by an earlier topology of the same name
        self._saved = plan
        return self._take(plan) if self.plan is not None else self.advance(now_s)

    def advance(self, now_s: float) -> PhysicalPlan | None:
        """Take the saved plan when the Topology Master has sent none in time."""
        if self.due_s is None or now_s < self.due_s:
            return None
        assert self._saved is not None
        return self._take(self._saved)

    def _take(self, plan: PhysicalPlan) -> PhysicalPlan | None:
        if self.plan is not None and _order(plan) <= _order(self.plan):
            return None
        self.plan = plan
        return plan


def peers_to_dial(plan: PhysicalPlan, me: StmgrLocation) -> dict[str, StmgrLocation]:
    """The peers that this Stream Manager connects to, by id.

    Of each pair the one with the smaller container number dials the other. But a Stream Manager that the plan has at
    another address (it was replaced, and no Topology Master has published that) dials everybody: none can find it.
    One that the plan does not have, because that is only being prepared, dials no peer.
    """
    if all(location.id != me.id for location in plan.stmgrs):
        return {}
    found = any(location == me for location in plan.stmgrs)
    return {
        peer.id: peer
        for peer in plan.stmgrs
        if peer.port and peer.id != me.id and (peer.container > me.container or not found)
    }


def _order(plan: PhysicalPlan) -> tuple[int, int]:
    return plan.restore_epoch, plan.version
