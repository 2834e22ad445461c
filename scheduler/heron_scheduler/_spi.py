"""What a scheduler is: something that starts, moves and ends the containers of one topology. It knows no spouts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from heronpy.errors import ConfigError, NotFoundError, nearest
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch

GROUP = "heron.schedulers"
"""Entry point group of schedulers from other distributions."""
ALL_CONTAINERS = -1
"""In place of a container's number, in a request to the service."""


class Scheduler(ABC):
    """The containers of one topology on one kind of cluster.

    Made with the topology's launch file as its only argument. All methods may block. The scheduler service calls them
    one after the other, never two at once; `on_kill` must also work alone, in a process that never called another
    method, because that is how a topology is killed whose service is dead.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    @abstractmethod
    def on_schedule(self, plan: PackingPlan) -> None:
        """Have container 0 and all containers of the plan run; leave alone those that do already."""

    @abstractmethod
    def on_kill(self) -> None:
        """End all containers and the scheduler service, unless that is this process. On return no process of the
        topology is left; safe to repeat. Its state, sockets and files are not the scheduler's: the engine removes them.
        """

    @abstractmethod
    def on_restart(self, container: int | None) -> None:
        """End one container, or all for None, and start it again.

        Raises:
            NotFoundError: there is no such container.
        """

    @abstractmethod
    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        """Start the containers that `new` adds and end those that it leaves out; leave the others alone."""

    @abstractmethod
    def job_links(self) -> Sequence[str]:
        """Where a user can look at the job: URLs."""

    def on_tick(self) -> None:  # optional: most platforms restart containers themselves
        """Called some times a second by the service. Restart dead containers here if the platform does not."""


def scheduler_of(name: str) -> type[Scheduler]:
    """The scheduler class of this name: `local`, or an entry point of the group `heron.schedulers`.

    Raises:
        NotFoundError: there is none; the nearest known name is named.
        ConfigError: what the entry point names is not a scheduler.
    """
    if name == "local":
        from heron_scheduler._local import LocalScheduler  # here: it builds on this module

        return LocalScheduler
    import inspect
    from importlib.metadata import entry_points  # here: it costs every service and command 10 ms, and few need it

    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise NotFoundError(f"no scheduler {name!r} is installed{nearest(name, ['local', *found])}")
    try:
        cls = found[name].load()
    except (ImportError, AttributeError) as e:
        raise ConfigError(f"scheduler {name!r} ({found[name].value}) cannot be loaded: {e}") from e
    if not (inspect.isclass(cls) and issubclass(cls, Scheduler)):
        raise ConfigError(f"scheduler {name!r} ({found[name].value}) is not a subclass of heron_scheduler.Scheduler")
    return cls
