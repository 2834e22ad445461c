"""Who takes part in a restore epoch, and whether somebody of them is gone.

A process belongs to an epoch only if it took part in that epoch's restore. One that was started later has lost what its
predecessor held, and says so by what it reports: it has restored nothing, or has another incarnation. So no one needs
to have seen the death; also one that fell into a time without a Topology Master is found.

All tasks and Stream Managers are members, also at least once. There a task without state could be replaced alone; but
what was reported to a spout would have to be looked for in snapshots without their logs then, and who has state is not
known before all have run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heronpy.tmaster.checkpoints._events import StmgrReported, TaskPhase, TasksChanged, TaskStatus


class Members:
    """The latest reports, and the incarnations that belong to the epoch."""

    def __init__(self) -> None:
        """Know no process."""
        self._epoch = 0
        self.tasks: Mapping[int, str] = {}
        """The Stream Manager of each."""
        self.components: Mapping[str, int] = {}
        """How many tasks each has."""
        self.component_of: Mapping[int, str] = {}
        """Of each task."""
        self._reports: dict[str, StmgrReported] = {}
        self._pinned: dict[int | str, int] = {}
        """The incarnation of each member, once it has reported that it belongs to the epoch."""
        self._rejected = ""

    @property
    def connected(self) -> list[str]:
        """Stream Managers of the plan that have reported in this session."""
        return sorted(self._reports.keys() & set(self.tasks.values()))

    def enter(self, epoch: int) -> None:
        """Begin an epoch: only who has reported so already belongs to it."""
        self._epoch, self._pinned, self._rejected = epoch, {}, ""
        for report in self._reports.values():
            self._pin(report)

    def reject(self, reason: str) -> None:
        """A task has asked for the end of the epoch."""
        self._rejected = self._rejected or reason

    def changed(self, event: TasksChanged) -> bool:
        """Take the tasks of a plan; whether they are others than before, or elsewhere."""
        before, self.tasks = self.tasks, event.tasks
        self.components, self.component_of = event.components, event.component_of
        known = event.tasks.keys() | set(event.tasks.values())
        self._pinned = {member: i for member, i in self._pinned.items() if member in known}
        self._reports = {id: report for id, report in self._reports.items() if id in known}
        if dict(event.tasks) == dict(before):
            return False
        self._pinned = {}  # state is divided in another way now
        return True

    def reported(self, event: StmgrReported) -> None:
        """Take a report."""
        if event.stmgr_id not in self.tasks.values():
            return
        self._reports[event.stmgr_id] = event
        self._pin(event)

    def _pin(self, report: StmgrReported) -> None:
        if report.epoch == self._epoch:
            self._pinned.setdefault(report.stmgr_id, report.incarnation)
        for task in self.tasks_of(report.stmgr_id):
            status = report.tasks.get(task)
            belongs = status is not None and status.epoch == self._epoch and status.phase > TaskPhase.STARTED
            if status is not None and belongs:
                self._pinned.setdefault(task, status.incarnation)

    @property
    def problem(self) -> str:
        """Why the epoch cannot go on, by the latest reports; empty: it can."""
        problem = self._rejected
        for id, report in self._reports.items():
            problem = problem or self._stmgr_problem(report)
            for task in self.tasks_of(id):
                problem = problem or self._task_problem(task, report.tasks.get(task))
        return problem

    def disconnected(self, stmgr_id: str) -> None:
        """A Stream Manager cannot be reached until it reports again."""
        self._reports.pop(stmgr_id, None)

    def tasks_of(self, stmgr_id: str) -> list[int]:
        """The tasks of one container."""
        return [task for task, of in self.tasks.items() if of == stmgr_id]

    def behind(self, phase: TaskPhase, stmgr_id: str = "") -> Iterator[str]:
        """Who is not that far in the epoch, of one container or of all."""
        for id in (stmgr_id,) if stmgr_id else sorted(set(self.tasks.values())):
            report = self._reports.get(id)
            if report is None or report.epoch != self._epoch:
                yield id
        for task in self.tasks_of(stmgr_id) if stmgr_id else self.tasks:
            status = self.status(task)
            if status is None or status.epoch != self._epoch or status.phase < phase:
                yield f"task {task}"

    def strangers(self) -> list[str]:
        """Who has reported, should belong to the epoch, and does not run in it."""
        found = [id for id, report in sorted(self._reports.items()) if report.epoch != self._epoch]
        for task in self.tasks:
            status = self.status(task)
            running = status is not None and status.epoch == self._epoch and status.phase is TaskPhase.RUNNING
            if status is not None and not running:
                found.append(f"task {task}")
        return found

    def awaited(self) -> bool:
        """Whether somebody who should belong to the epoch has not reported yet."""
        if not self._reports.keys() >= set(self.tasks.values()):
            return True
        return any(self.status(task) is None for task in self.tasks)

    def status(self, task: int) -> TaskStatus | None:
        """What a task has reported; None while it is not attached, or its Stream Manager out of reach."""
        report = self._reports.get(self.tasks[task])
        return report.tasks.get(task) if report is not None else None

    def is_member(self, task: int, incarnation: int) -> bool:
        """Whether this is the process that has the task in this epoch."""
        return self._pinned.get(task) == incarnation

    def incarnations(self, stmgr_id: str) -> dict[int, int]:
        """The members behind one Stream Manager."""
        return {task: self._pinned[task] for task in self.tasks_of(stmgr_id) if task in self._pinned}

    def unaware(self, stmgr_id: str, checkpoint: int) -> bool:
        """Whether some task there does not know of a commit."""
        report = self._reports.get(stmgr_id)
        return report is not None and any(
            status.committed < checkpoint
            for status in report.tasks.values()
            if status.epoch == self._epoch and status.phase is TaskPhase.RUNNING
        )

    def read_ahead(self, task: int, share: tuple[int, int]) -> int:
        """The checkpoint of which a task says it has read a share ahead; 0: none."""
        status = self.status(task)
        return status.read_ahead if status is not None and status.read_share == share else 0

    def _stmgr_problem(self, report: StmgrReported) -> str:
        id = report.stmgr_id
        if report.epoch == self._epoch and report.taint:
            return f"{id}: {report.taint}"
        here = (report.epoch, report.incarnation) == (self._epoch, self._pinned.get(id))
        return f"{id} was restarted" if id in self._pinned and not here else ""

    def _task_problem(self, task: int, status: TaskStatus | None) -> str:
        if task not in self._pinned:
            return ""
        if status is None:
            return f"task {task} is gone"
        here = (status.epoch, status.incarnation) == (self._epoch, self._pinned[task])
        return "" if here and status.phase > TaskPhase.STARTED else f"task {task} was restarted"

    def check_invariants(self) -> None:
        known = set(self.tasks) | set(self.tasks.values())
        assert known >= self._pinned.keys(), "somebody belongs to the epoch and to no plan"
