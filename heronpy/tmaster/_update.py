"""An update of the packing plan while the topology runs: decisions only, see `_core`.

    preparing --what is new has been started--> reading --what is committed was read, and is new enough--> settling
    --a checkpoint without logs is committed--> writing --durable--> starting --a plan in force has it--> done

The packing plan is written in one step, in the term of this Topology Master. Everybody follows that node: executors,
the scheduler service, the next Topology Master. A death before it leaves the old plan, a death after it the new one.
With checkpoints the processes that are new are started first, while everything goes on: executors and the scheduler
service follow a node of what is being prepared, too. That is no decision: if the update comes to nothing, or this
Topology Master dies, the node is emptied, and they end again. Then all tasks, new ones too, read what is committed of
the state that they are about to have, so that only what comes after it is left to be read by the restore. Reading takes
time, in which more is changed. So checkpoints go on meanwhile, and when all has been read, another one is taken, of
which only what is newer is read. That takes less time, and after a few of these rounds little is left for the pause,
however large the state is. What takes long is not waited for.
Then the spouts rest until the new plan is in force, so that what is in flight is
executed before the checkpoint that everything is restored from. That saves repeated work, no more: what comes after the
checkpoint is repeated by the sources.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass

from msgspec import Struct

from heronpy.config import state_memory_bytes
from heronpy.plan import LogicalPlan, PackingPlan
from heronpy.statemgr import Kind
from heronpy.tmaster._store_effects import WriteNode
from heronpy.tmaster.checkpoints import Shares

log = logging.getLogger(__name__)

RETRY_S = 1.0
PREPARE_WAIT_S = 15.0
"""So long what is new may take to start before the spouts rest; then it is started while they do."""
READ_WAIT_S = 60.0
"""So long tasks may read ahead before the spouts rest."""
READ_BEHIND_S = 2.0
"""What was read ahead is new enough if the checkpoint began so recently."""
READ_ROUNDS_MAX = 3
"""So many checkpoints are taken only to be read ahead."""
READ_GAIN_MIN = 0.3
"""A round that leaves more of the time than that to catch up with was the last: everything changes all the time."""
START_WAIT_S = 60.0
"""How long the spouts rest for containers that are being started; then the old plan goes on until they are there."""


class UpdateRequested(Struct, frozen=True):
    """Somebody asks for another packing plan; answered by one `Reply`, as soon as the plan is durable."""

    call: int
    base: PackingPlan
    """What it was made from."""
    packing: PackingPlan
    timeout_s: float
    """So long it may take until the plan is durable; else nothing is changed."""
    now_s: float


class Stage(enum.Enum):
    PREPARING = enum.auto()
    """What is new is being started."""
    READING = enum.auto()
    """Tasks read what is committed, while everything goes on."""
    SETTLING = enum.auto()
    """Waits for a checkpoint that another number of tasks can restore."""
    WRITING = enum.auto()
    STARTING = enum.auto()
    """Durable. The containers that are new are being started."""


@dataclass(slots=True)
class PlanUpdate:
    """The one under way."""

    request: UpdateRequested
    stage: Stage
    checkpoint: int | None
    """One newer than this is waited for; None: it is not known yet what was begun before."""
    write: WriteNode | None = None
    """Under way."""
    retry_s: float = 0.0
    problem: str = ""
    """Why it has not come further, for the caller."""
    deadline_s: float = 0.0
    rest_by_s: float = 0.0
    """When neither the start of processes nor what they read is waited for any more; 0: nothing is."""
    new: frozenset[str] = frozenset()
    """Ids of the instances that are to be started for it beforehand."""
    first: int = 0
    """The checkpoint that tasks were told to read ahead first; 0: none."""
    ordered: int = 0
    """The one that they were told to read last."""
    first_read: bool = False
    """Whether all of the first was read: from then on checkpoints are taken only to be read, or to be restored."""
    rounds: int = 0
    """How many checkpoints were taken only to be read ahead."""
    awaited: int = 0
    """Such a checkpoint is to be newer than this one; 0: there was none."""
    withdrawn: bool = False
    """Its caller waits no longer: nothing is to come of it, unless its write is under way."""
    lasting: int = 0
    """How many checkpoints had failed for a reason that the next one meets, too, when it began."""
    behind_s: float = float("inf")
    """How old what was read ahead was, after the last round."""

    @classmethod
    def begin(cls, request: UpdateRequested, *, checkpoints: bool) -> PlanUpdate:
        """Begin; there is nothing to wait for without checkpoints, after a trial, or if all runs on as it is."""
        update = cls(request, Stage.WRITING, 0, deadline_s=request.now_s + request.timeout_s)
        if checkpoints and request.base.trial is None and not request.base.runs_like(request.packing):
            update.stage = Stage.PREPARING
            update.rest_by_s = request.now_s + min(PREPARE_WAIT_S, request.timeout_s / 4)
            update.new = request.packing.instance_ids - request.base.instance_ids
        return update

    @property
    def to_prepare(self) -> PackingPlan | None:
        """What is to be started though it is not in force."""
        return self.request.packing if self.new else None

    def read(self, present: frozenset[str], *, checkpoint: int, now_s: float) -> bool:
        """Have tasks read ahead if it is time to; whether it is.

        Args:
            present: Instances that are there.
            checkpoint: The one under way, which would be newer than what they read; 0: none.
            now_s: The time.
        """
        if self.stage is not Stage.PREPARING or checkpoint or not present >= self.new:
            return False
        self.stage = Stage.READING
        self.rest_by_s = now_s + min(READ_WAIT_S, self.request.timeout_s / 4)
        return True

    def orders_reading(self, newest: int) -> bool:
        """Whether tasks are to be told now to read the newest committed checkpoint ahead."""
        if self.stage is not Stage.READING or newest == self.ordered:
            return False
        self.first, self.ordered = self.first or newest, newest
        return True

    def awaits_checkpoint(self, begun: int) -> bool:
        """Whether a checkpoint that is to be read has not even begun; `begun` is the newest that has."""
        return self.awaited > 0 and begun <= self.awaited

    def catches_up(self, *, behind_s: float, begun: int) -> bool:
        """All has been read ahead, and no checkpoint is under way. Whether another one is to be taken, and to be read.

        Args:
            behind_s: How long ago the checkpoint began that was read.
            begun: The newest that was begun.
        """
        newer = behind_s <= (1 - READ_GAIN_MIN) * self.behind_s
        if self.stage is not Stage.READING or behind_s <= READ_BEHIND_S or self.rounds >= READ_ROUNDS_MAX or not newer:
            return False
        self.rounds, self.awaited, self.behind_s = self.rounds + 1, begun, behind_s
        return True

    def rests(self, *, has_read: bool, now_s: float) -> bool:
        """Whether the spouts are to rest now; `has_read` says whether all has been read ahead, and is new enough."""
        return not self.divides_state and ((self.stage is Stage.READING and has_read) or now_s >= self.rest_by_s)

    def yields(self, present: frozenset[str], *, begun: int) -> bool:
        """Whether no checkpoint is to begin by itself, because another step waits for the one under way to end.

        Args:
            present: Instances that are there.
            begun: The newest that was begun.
        """
        if self.stage is Stage.READING:
            return self.first_read and not self.awaits_checkpoint(begun)
        return self.stage is Stage.PREPARING and present >= self.new

    def settle(self, newest_begun: int | None) -> None:
        """Wait for a checkpoint newer than `newest_begun`; None: than what is found to have begun before."""
        self.stage, self.checkpoint = Stage.SETTLING, newest_begun

    def shares(self, logical: LogicalPlan) -> Shares:
        """What tasks will have of the state of their components.

        Not where that is larger than memory: it is read from files as it is needed. Nor of processes that are about to
        be replaced by such with other code.
        """
        packing = self.request.packing
        if packing.versions != self.request.base.versions:
            return {}
        tasks: dict[str, list[int]] = {}
        for task, component in sorted((i.task_id, i.component) for c in packing.containers for i in c.instances):
            tasks.setdefault(component, []).append(task)
        in_memory = {name for name in tasks if state_memory_bytes(logical.config_of(name)) is None}
        return {
            c.stmgr_id: {
                i.task_id: (tasks[i.component].index(i.task_id), len(tasks[i.component]))
                for i in c.instances
                if i.component in in_memory
            }
            for c in packing.containers
        }

    @property
    def divides_state(self) -> bool:
        """Whether the next checkpoint is what another number of tasks begins with."""
        return self.stage not in (Stage.PREPARING, Stage.READING)

    @property
    def due_s(self) -> float:
        """When something is to be done, whatever happens."""
        if not self.divides_state:
            return min(self.deadline_s, self.rest_by_s)
        waits = self.stage is Stage.STARTING or self.write is not None
        return self.deadline_s if waits else min(self.deadline_s, self.retry_s)

    @property
    def may_end(self) -> bool:
        """Whether it can still come to nothing, as far as is known: no write of it is under way."""
        return self.undecided and self.write is None

    @property
    def undecided(self) -> bool:
        """Whether the plan may still come to nothing."""
        return self.stage is not Stage.STARTING

    def committed(self, newest: int, *, restored: bool) -> None:
        """A checkpoint is the newest that is committed. Maybe the new plan begins with it.

        Args:
            newest: The checkpoint. It has no logs if it began later than the update.
            restored: Whether all tasks are being restored, and can be by the new plan. Then there is nothing to wait
                for; maybe they cannot be restored by the present plan.
        """
        is_new = self.checkpoint is not None and newest > self.checkpoint
        if self.stage is Stage.SETTLING and (restored or is_new):
            log.info("checkpoint %d is what the new plan begins with", newest)
            self.stage, self.retry_s = Stage.WRITING, 0.0

    def wants_checkpoint(self, now_s: float) -> bool:
        """Whether a checkpoint is to be begun, if there is none under way."""
        due = self.stage is Stage.SETTLING and now_s >= self.retry_s
        if due:
            self.retry_s = now_s + RETRY_S
        return due

    def next_write(self, fence: bytes, now_s: float) -> list[WriteNode]:
        """What is to be written now."""
        if self.stage is not Stage.WRITING or self.write is not None or now_s < self.retry_s:
            return []
        value = self.request.packing.to_proto().SerializeToString()
        self.write = WriteNode(Kind.PACKINGPLANS, value, fence, Kind.EPOCHS)
        return [self.write]

    def failed(self, reason: str, now_s: float) -> None:
        """It was not written, as far as is known."""
        self.write, self.retry_s, self.problem = None, now_s + RETRY_S, reason

    def durable(self, now_s: float) -> None:
        """Everybody follows the new plan from now on."""
        self.write = None
        self.stage, self.deadline_s = Stage.STARTING, now_s + START_WAIT_S
