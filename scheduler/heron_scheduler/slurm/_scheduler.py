"""The scheduler for Slurm: decides by what `squeue` says, acts by `sbatch` and `scancel`."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from heron_scheduler._spi import ContainerPhase, ContainerStatus, Scheduler
from heron_scheduler.slurm import _commands
from heron_scheduler.slurm._commands import ENDED, Job
from heron_scheduler.slurm._config import KEYS, SlurmConfig
from heron_scheduler.slurm._remedies import remedy
from heron_scheduler.slurm._script import FAILURE_MARK, RETRY_MARK, bootstrap_in, job_name, job_prefix, job_script
from heronpy.container import bootstrap_document
from heronpy.environment import python_command
from heronpy.errors import ConfigError, NotFoundError, UnavailableError
from heronpy.executor import stop_limit_s
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch

log = logging.getLogger(__name__)

POLL_S = 0.2
LOOK_S = 3.0
"""How long after a submission it is checked whether its jobs can ever start."""
CANCEL_S = 60.0
"""How long Slurm may take to end what did not end gracefully: its KillWait is 30 s as a rule."""
REPEAT_S = 5.0
"""How often an order to end is repeated: a job script that has just begun may not take signals yet."""
_HOPELESS = re.compile(
    r"PartitionNodeLimit|PartitionTimeLimit|PartitionConfig|PartitionDown|PartitionInactive|BadConstraints|"
    r"AccountNotAllowed|Invalid(Account|QOS)|QOSNotAllowed|AssociationJobLimit|AssocMax|QOSMax|QOSMin|QOSUsage|"
    r"(Assoc|QOS)Grp\w*Limit|account not known|can't use this partition|not allowed|not permitted",
    re.IGNORECASE,
)
"""Why a job waits that has nothing to wait for: limits of the partition, the account or the user."""


class SlurmScheduler(Scheduler):
    """A job per container. Slurm requeues the jobs of a lost node; a job starts its container again itself."""

    config_keys = frozenset(KEYS)

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self._config = SlurmConfig.of(launch.scheduler_config)
        self._grace_s = stop_limit_s(launch) + 10

    @classmethod
    def check_config(cls, values: Mapping[str, Any]) -> None:
        SlurmConfig.of(values)

    def on_schedule(self, plan: PackingPlan) -> None:
        """Submit a job for each container that has none."""
        alive = {self._container(job) for job in self._jobs()}
        started = [
            self._submit(n, plan) for n in (0, *(container.id for container in plan.containers)) if n not in alive
        ]
        if started:
            self._refuse_hopeless(started)

    def on_kill(self) -> None:
        """End all jobs gracefully, and what does not end so by force."""
        # Else a kill by somebody who may only write the state would find no job, and leave theirs without a state.
        if others := _commands.others(job_name(self.launch.topology_id, 0)):
            raise UnavailableError(
                f"jobs of {self.launch.topology} belong to {', '.join(others)}: only they can end them"
            )
        self._end(None)

    def on_restart(self, container: int | None) -> None:
        """Have the job script end the container and start it again; a job that waits in the queue is left to wait."""
        jobs = [job for job in self._jobs() if container in (None, self._container(job))]
        if not jobs:
            raise NotFoundError(
                f"topology {self.launch.topology} has no job of container {container} in Slurm: "
                "the next heron command submits one"
            )
        _commands.signal("USR2", [job.id for job in jobs if job.state == "RUNNING"])

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        """Submit jobs for added containers, and end those of containers that are in no plan."""
        self.on_schedule(new)
        wanted = {0, *(container.id for container in new.containers)}
        if removed := {self._container(job) for job in self._jobs()} - wanted:
            self._end(removed)

    def job_links(self) -> Sequence[str]:
        """None: Slurm's own web pages, where there are any, have no common address."""
        return []

    def containers(self) -> Sequence[ContainerStatus]:
        """The newest job of each container, with the last words of it or of one before; those that are over only as
        long as Slurm remembers them."""
        jobs = self._jobs(over=True)
        newest = {self._container(job): job for job in jobs}
        newest |= {self._container(job): job for job in jobs if job.state not in ENDED}
        said = {self._container(job): words for job in jobs if (words := _words(job))}
        return [
            ContainerStatus(
                container=n, phase=_phase(job), host=job.node, job=job.id, reason=_reason(job, said.get(n, ""))
            )
            for n, job in sorted(newest.items())
            if job.state not in ("CANCELLED", "COMPLETED")
        ]

    def read_bootstrap(self) -> bytes:
        """From the script of container 0's job, which Slurm shows to its owner only."""
        name = job_name(self.launch.topology_id, 0)
        job = next((job for job in reversed(self._jobs(over=True)) if job.name == name), None)
        if job is None:
            raise NotFoundError(f"Slurm has no job {name} of this user: its secrets cannot be had from it")
        return bootstrap_in(_commands.script_of(job.id))

    def _jobs(self, *, over: bool = False) -> list[Job]:
        found = _commands.jobs(job_prefix(self.launch.topology_id))
        return [job for job in found if over or job.state not in ENDED]

    def _container(self, job: Job) -> int:
        number = job.name.removeprefix(job_prefix(self.launch.topology_id))
        return int(number) if number.isdecimal() else -1

    def _submit(self, container: int, plan: PackingPlan) -> str:
        packed = plan.container(container)
        resources = packed.required if packed is not None else plan.master
        script = job_script(
            self._config,
            self.launch.topology_id,
            container,
            resources,
            bootstrap=bootstrap_document(self.launch, container),
            python=python_command(self.launch),
            routed=self.launch.statemgr.first_server() is not None,
        )
        id = _commands.submit(script)
        log.info("submitted container %d of %s: job %s", container, self.launch.topology, id)
        return id

    def _refuse_hopeless(self, ids: Collection[str]) -> None:
        """Check whether jobs wait for what never comes. Slurm accepts many that it will never start, and says so later.

        One whose node cannot run its container has started, and failed: that is not for here.

        Raises:
            ConfigError: one does, or has failed already.
        """
        deadline_s = time.monotonic() + LOOK_S
        while True:
            jobs = [job for job in self._jobs(over=True) if job.id in ids]
            for job in jobs:
                failed = job.state in ENDED - {"COMPLETED"} and not job.comment.startswith(FAILURE_MARK)
                if failed or (job.state == "PENDING" and _HOPELESS.search(job.reason)):
                    raise ConfigError(f"Slurm never starts job {job.id} ({job.name}): {_why(job)}{remedy(_why(job))}")
            undecided = any(job.state == "PENDING" and not job.reason for job in jobs)
            if not undecided or time.monotonic() > deadline_s:
                return
            time.sleep(POLL_S)

    def _end(self, containers: Collection[int] | None) -> None:
        """End the jobs of some containers, or all for None, also those that are submitted meanwhile.

        Raises:
            UnavailableError: some do not end.
        """
        began_s = time.monotonic()
        signalled_s: dict[str, float] = {}
        forced = False
        while jobs := [job for job in self._jobs() if containers is None or self._container(job) in containers]:
            now_s = time.monotonic()
            if now_s > began_s + self._grace_s + CANCEL_S:
                left = ", ".join(f"{job.id} on {job.node or 'no node'} ({job.state})" for job in jobs)
                raise UnavailableError(f"jobs of {self.launch.topology} do not end: {left}")
            if now_s > began_s + self._grace_s:
                if not forced:
                    log.warning("jobs %s do not end gracefully: cancelled", ", ".join(job.id for job in jobs))
                _commands.cancel([job.id for job in jobs])
                forced = True
            due = [job for job in jobs if now_s >= signalled_s.get(job.id, 0.0) + REPEAT_S]
            signalled_s |= {job.id: now_s for job in due}
            _commands.cancel([job.id for job in due if job.state not in ("RUNNING", "COMPLETING")])
            _commands.signal("TERM", [job.id for job in due if job.state == "RUNNING"])
            time.sleep(POLL_S)


def _phase(job: Job) -> ContainerPhase:
    if job.state in ENDED:
        return ContainerPhase.FAILED
    if job.state in ("RUNNING", "COMPLETING"):
        return ContainerPhase.RUNNING if job.state == "RUNNING" else ContainerPhase.ENDING
    return ContainerPhase.PENDING


def _words(job: Job) -> str:
    """How its container has ended last; empty: its comment is the user's, or there is none."""
    mark = next((mark for mark in (FAILURE_MARK, RETRY_MARK) if job.comment.startswith(mark)), "")
    return job.comment.removeprefix(mark) if mark else ""


def _why(job: Job) -> str:
    return _words(job) or job.reason or job.state


def _reason(job: Job, said: str) -> str:
    """Why a container does not run, or how it ended before.

    Args:
        job: Its newest job.
        said: The last words of its container, in this job or in one before.
    """
    if job.state == "RUNNING":
        return said
    if _phase(job) is not ContainerPhase.PENDING:
        return _why(job)
    return (job.reason or job.state) + (f"; it last ended with: {said}" if said else "")
