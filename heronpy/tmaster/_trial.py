"""New code on trial: when the old one comes back without a command. Decisions only, see `_core`.

The updater of the code accepts it by an update to the same plan without the trial, or has it rolled back. If
neither comes in time, for example because the command line has died, or if user code asks for a restore, the Topology
Master rolls back by itself. With checkpoints none is taken during a trial, so that the old code goes on with the one
that the new code has begun with, and no sink has committed anything of the new code.
"""

from __future__ import annotations

import logging

from heronpy.plan import PackingPlan
from heronpy.tmaster._update import UpdateRequested
from heronpy.tmaster.checkpoints import RollbackRequested

log = logging.getLogger(__name__)


def refusal(request: UpdateRequested, *, checkpoints: bool) -> str:
    """Why an update is not made, as far as code is concerned; empty if it may be."""
    base, packing = request.base, request.packing
    if not packing.versions <= {"", *(code.version for code in packing.codes)}:
        return "the packing plan names code that it does not have"
    if packing.trial is not None and checkpoints and len(packing.versions) > 1:
        return "with checkpoints all containers change their code at once"
    if packing.trial is None and len(packing.versions) > 1:
        return "code is accepted when all containers run it"
    if base.trial is None or packing in (base.accepted(), base.rolled_back()):
        return ""
    if not checkpoints and packing.trial == base.trial and packing.parallelism == base.parallelism:
        return ""  # the next containers
    return "new code is on trial: ask again"


class Trials:
    """The trial in force."""

    def __init__(self) -> None:
        self._packing: PackingPlan | None = None
        self._epoch = 0
        """The restore epoch in which it is."""
        self._deadline_s = 0.0
        self._failure = ""

    @property
    def due_s(self) -> float | None:
        """When `failure` has something to say next; None: nothing is on trial."""
        return self._deadline_s if self._packing is not None else None

    def follow(self, packing: PackingPlan | None, epoch: int, now_s: float) -> None:
        """Take note of the packing plan in force; None: it is just being changed."""
        if packing is None or packing.trial is None:
            self._packing, self._failure = None, ""
            return
        if packing != self._packing:
            self._packing, self._deadline_s, self._failure = packing, now_s + packing.trial.timeout_s, ""
            self._epoch = epoch

    def failed(self, event: RollbackRequested) -> None:
        """User code asks for a restore."""
        if self._packing is not None and event.epoch >= self._epoch:
            self._failure = self._failure or f"task {event.task}: {event.reason}"

    def failure(self, now_s: float) -> str:
        """Why the old code is to come back; empty: it is not."""
        if self._packing is None:
            return ""
        if not self._failure and now_s >= self._deadline_s:
            self._failure = "it was not accepted in time"
            log.warning("the trial of new code is over, and it was not accepted")
        if self._failure:
            self._deadline_s = now_s + 1.0  # an update may be under way
        return self._failure
