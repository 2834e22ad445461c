"""Who is asked about a container: its heron-shell, or this host's own files."""

from __future__ import annotations

from heron_tracker._topology import Topology
from heronpy.errors import NotFoundError, nearest
from heronpy.shell import Container, LocalShell, Shell


class Shells:
    """The containers of all topologies, as one can ask them."""

    def __init__(self) -> None:
        self._profiled: set[tuple[str, str]] = set()

    def of(self, topology: Topology, container: int) -> Shell:
        """What can be asked about a container. Raises NotFoundError: the topology has none of this number."""
        known = topology.containers()
        if container not in known:
            raise NotFoundError(
                f"topology {topology.key.name} has no container {container}: it has {known[0]} to {known[-1]}"
            )
        place = Container(topology.key.name, topology.id, container, topology.directory)
        return LocalShell(place, profiled=self._profiled)

    def of_process(self, topology: Topology, process: str) -> Shell:
        """The same for the container of an instance or a Stream Manager. Raises NotFoundError: there is no such."""
        known = topology.processes()
        if process not in known:
            raise NotFoundError(f"topology {topology.key.name} has no instance {process!r}{nearest(process, known)}")
        return self.of(topology, known[process])
