"""When a plan is saved and when it is sent: decisions only, see `_core`.

A plan is saved before it is sent, but a state manager that is away holds it up only for SAVE_WAIT_S: Stream Managers
that cannot find each other are worse than a plan that is saved late, and versions survive that (see `_state`). Saving
is then tried for as long as it takes. One plan is being saved at a time; newer ones replace those that wait.
"""

from __future__ import annotations

import logging

from msgspec import Struct

from heronpy.plan import PhysicalPlan

log = logging.getLogger(__name__)

SAVE_WAIT_S = 2.0
RETRY_S = 1.0


class SavePlan(Struct, frozen=True):
    """Write the plan to the state manager; answered by `PlanPublisher.saved` or `failed`."""

    plan: PhysicalPlan


class OfferPlan(Struct, frozen=True):
    """Send the plan to every registered Stream Manager in it."""

    plan: PhysicalPlan


class PlanPublisher:
    """Saves and publishes the plans of one Topology Master."""

    def __init__(self, saved: PhysicalPlan | None) -> None:
        """Begin with the plan that the state manager holds: it was saved, and those that register may have it."""
        self.saved_version = self.published_version = saved.version if saved is not None else 0
        self._newest = saved
        self._saving: PhysicalPlan | None = None
        self._retry_s = 0.0
        self._unpublished_since_s = 0.0

    @property
    def due_s(self) -> float | None:
        """When `advance` has something to do next; None: nothing is due."""
        due = []
        if self._newest is not None and self.published_version < self._newest.version:
            due.append(self._unpublished_since_s + SAVE_WAIT_S)
        if self._saving is None and self._unsaved:
            due.append(self._retry_s)
        return min(due, default=None)

    @property
    def _unsaved(self) -> bool:
        return self._newest is not None and self.saved_version < self._newest.version

    def made(self, plan: PhysicalPlan, now_s: float) -> list[SavePlan | OfferPlan]:
        """Take a new plan, newer than all before."""
        if self._newest is None or self.published_version == self._newest.version:
            self._unpublished_since_s = now_s
        self._newest = plan
        return self.advance(now_s)

    def saved(self, plan: PhysicalPlan, now_s: float) -> list[SavePlan | OfferPlan]:
        """A plan was written."""
        self._saving = None
        self.saved_version = max(self.saved_version, plan.version)
        return self.advance(now_s)

    def failed(self, reason: str, now_s: float) -> None:
        """The plan could not be written."""
        assert self._saving is not None
        log.warning("plan %d is not saved yet: %s", self._saving.version, reason)
        self._saving = None
        self._retry_s = now_s + RETRY_S

    def vanished(self, now_s: float) -> list[SavePlan | OfferPlan]:
        """The state manager has no plan any more: save the newest again."""
        self.saved_version = 0
        return self.advance(now_s)

    def advance(self, now_s: float) -> list[SavePlan | OfferPlan]:
        """What is to be done now."""
        effects: list[SavePlan | OfferPlan] = []
        newest = self._newest
        if newest is None:
            return effects
        overdue = now_s >= self._unpublished_since_s + SAVE_WAIT_S
        if self.published_version < newest.version and (not self._unsaved or overdue):
            self.published_version = newest.version
            effects.append(OfferPlan(newest))
        if self._saving is None and self._unsaved and now_s >= self._retry_s:
            self._saving = newest
            effects.append(SavePlan(newest))
        return effects
