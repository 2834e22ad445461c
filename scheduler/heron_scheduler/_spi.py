"""What a scheduler is: something that starts, moves and ends the containers of one topology. It knows no spouts."""

from __future__ import annotations

import enum
import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from heronpy.errors import ConfigError, NotFoundError, nearest
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch

GROUP = "heron.schedulers"
"""Entry point group of schedulers from other distributions."""
ALL_CONTAINERS = -1
"""In place of a container's number, in a request to the service."""


_BUILT_IN = {
    "kubernetes": "heron_scheduler.kubernetes:KubernetesScheduler",
    "local": "heron_scheduler._local:LocalScheduler",
    "slurm": "heron_scheduler.slurm:SlurmScheduler",
    "spark": "heron_scheduler.spark:SparkScheduler",
    "yarn": "heron_scheduler.yarn:YarnScheduler",
}
"""Name and class of the schedulers that come with the engine. Imported when asked for: they build on this module."""


class ContainerPhase(enum.Enum):
    """What a cluster does with a container."""

    PENDING = "pending"
    """Accepted, and waiting for resources, or for its next start."""
    RUNNING = "running"
    ENDING = "ending"
    FAILED = "failed"
    """The cluster has given up on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    """What the cluster says of one container."""

    container: int
    phase: ContainerPhase
    host: str = ""
    """Where it runs, as the cluster calls the machine; empty: nowhere."""
    job: str = ""
    """The cluster's own name of it: a job id, a pod, a pid."""
    reason: str = ""
    """Why it does not run, in the cluster's words. Of one that runs again, how it ended before: of interest until it
    has registered. Empty: not known, or it never ended."""


class Scheduler(ABC):
    """The containers of one topology on one kind of cluster.

    Made with the topology's launch file as its only argument. It holds no state of its own: what the cluster and the
    state manager say must suffice, because each command may come from another process, on another machine. All methods
    may block for a bounded time, and none is called while another one runs: a scheduler with a service is called by
    the service alone, one without by commands that hold the topology's lock.

    The state of the engine, checkpoints and packages are the engine's to remove, never a scheduler's.
    """

    secret_kinds: ClassVar[frozenset[str]] = frozenset({"file", "env"})
    """Which secrets of user code it can bring to containers: see `heronpy.usersecrets`."""
    has_service: ClassVar[bool] = False
    """Whether a process of the engine has to look after the containers. On a cluster that starts them again by itself
    commands call the methods here themselves, and `launch.dir` is no more than this machine's copy."""
    runs_as_submitter: ClassVar[bool] = True
    """Whether containers run as the unix user that submits, whose files they can read and change. An API server, which
    submits for users of its own, starts none of these there unless it trusts them."""
    config_keys: ClassVar[frozenset[str]] = frozenset()
    """The keys of `launch.scheduler_config` that it knows."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    @classmethod
    def check_config(cls, values: Mapping[str, Any]) -> None:
        """Refuse a configuration that cannot be meant for it, before anything is done.

        Raises:
            ConfigError: an unknown key (names the nearest), or a value that its key cannot have.
        """
        for key in values:
            if key not in cls.config_keys:
                raise ConfigError(f"unknown configuration key {key!r}{nearest(key, cls.config_keys)}")

    @abstractmethod
    def on_schedule(self, plan: PackingPlan) -> None:
        """Have container 0 and all containers of the plan run; leave alone those that do already.

        Returns when the cluster has accepted them. They may wait for resources then.

        Raises:
            ConfigError: the cluster knows no such partition, queue, namespace, image; or a container is too large.
            UnavailableError: the cluster refuses (permission, quota), or does not answer.
        """

    @abstractmethod
    def on_kill(self) -> None:
        """End all containers gracefully, and what else of the topology is the cluster's: secrets, services, jobs.

        On return nothing of it runs; safe to repeat, also when there never was anything. It must work alone, in a
        process that never called another method, and without the topology's secrets.

        Raises:
            UnavailableError: something does not end, or the cluster does not answer.
        """

    @abstractmethod
    def on_restart(self, container: int | None) -> None:
        """End one container, or all for None, and have it started again; the caller waits for its new incarnation.

        Raises:
            NotFoundError: there is no such container.
        """

    def on_secrets(self) -> None:
        """Secrets of user code have changed in `launch.dir`: whatever container starts from now on is to have the new
        ones. Not called where containers share that directory.

        Raises:
            ConfigError: this cluster cannot bring them to a topology that runs.
        """
        raise ConfigError(
            f"scheduler {self.launch.scheduler} brings changed secrets to no topology that runs: kill "
            f"{self.launch.topology}, and submit it again"
        )

    @abstractmethod
    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        """Start the containers that `new` adds and end those that it leaves out; leave the others alone.

        `old` is what is taken for running; what the cluster says counts. So a repetition goes on where an update was
        interrupted.
        """

    @abstractmethod
    def job_links(self) -> Sequence[str]:
        """Where a user can look at the job: URLs."""

    @abstractmethod
    def containers(self) -> Sequence[ContainerStatus]:
        """What the cluster says of each container that it knows, sorted by number; empty: it knows no such topology.

        Raises:
            UnavailableError: the cluster does not answer.
        """

    def adopt(self, directory: Path) -> None:
        """Put the topology's token and certificates (`tls/`) into a directory of this machine, which has launch.json.

        For commands on a machine from which the topology was not submitted.

        Raises:
            NotFoundError: the cluster has no secrets of it.
            UnavailableError: it does not give them to this user.
            UntrustedError: they are of another topology, or of one that has TLS where `self.launch` has none.
        """
        from heron_scheduler._bootstrap import write_secrets  # here: few commands adopt anything

        write_secrets(self.launch, self.read_bootstrap(), directory)

    def read_bootstrap(self) -> bytes:  # optional: where there is one machine, there is nothing to adopt
        """Container 0's bootstrap file, as the cluster has it; by the id of the topology, and nothing else of it.

        For `adopt`, and for a Tracker on a machine from which the topology was not submitted.

        Raises:
            NotFoundError: the cluster has none of it.
            UnavailableError: it does not give it to this user.
        """
        raise NotFoundError(
            f"topology {self.launch.topology} was submitted from another HERON_HOME, and scheduler "
            f"{self.launch.scheduler} cannot hand over its secrets: use the one that it was submitted from"
        )

    def on_tick(self) -> None:  # optional: most platforms restart containers themselves
        """Called some times a second by the service. Restart dead containers here if the platform does not."""


def scheduler_of(name: str) -> type[Scheduler]:
    """The scheduler class of this name: a built-in one, or an entry point of the group `heron.schedulers`.

    Raises:
        NotFoundError: there is none; the nearest known name is named.
        ConfigError: what the entry point names is not a scheduler.
    """
    if name in _BUILT_IN:
        module, _, cls_name = _BUILT_IN[name].partition(":")
        found: type[Scheduler] = getattr(importlib.import_module(module), cls_name)
        return found
    from importlib.metadata import entry_points  # here: it costs every service and command 10 ms, and few need it

    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        raise NotFoundError(f"no scheduler {name!r} is installed{nearest(name, [*_BUILT_IN, *points])}")
    try:
        cls = points[name].load()
    except (ImportError, AttributeError) as e:
        raise ConfigError(f"scheduler {name!r} ({points[name].value}) cannot be loaded: {e}") from e
    if not (inspect.isclass(cls) and issubclass(cls, Scheduler)):
        raise ConfigError(f"scheduler {name!r} ({points[name].value}) is not a subclass of heron_scheduler.Scheduler")
    return cls
