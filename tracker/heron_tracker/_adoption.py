"""When credentials of a topology are asked of its cluster. Pure.

An attempt begins when they are wanted, none is under way, and the pause after the last refusal is over. What was
handed over is read again once a day, because the certificates that are made of it are valid for a few days only: a
cluster that does not hand them over any more ends what this Tracker can do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heron_tracker._config import AdoptedCluster
from heron_tracker._topology import Topology
from heronpy.config import is_name
from heronpy.errors import UnavailableError
from heronpy.runtime import Launch, StatemgrSpec

CERTIFICATE_DAYS = 3
"""How long the certificates are valid that a Tracker makes for itself."""
REFRESH_S = 24 * 3600.0
VALID_S = (CERTIFICATE_DAYS * 24 - 1) * 3600.0
PAUSE_S = 5.0
"""After the first refusal; twice as long after each further one."""
PAUSE_MAX_S = 600.0
ID_MAX = 200


@dataclass(slots=True)
class Adoption:
    """What is known of the credentials of one topology. Times are of a monotonic clock."""

    launch: Launch | None = None
    """Its launch values, in the directory with its credentials; None: there are none."""
    read_s: float = 0.0
    """When they were read."""
    reason: str = ""
    """Why the last attempt got none; empty: it did, or there was none."""
    began_s: float | None = None
    """Of the attempt under way; None: there is none."""
    next_s: float = float("-inf")
    """Before that no attempt is made."""
    refusals: int = 0
    """Since the last success."""

    def due(self, now_s: float) -> bool:
        """Whether an attempt is to begin, if the credentials are wanted."""
        return self.began_s is None and now_s >= self.next_s

    def began(self, now_s: float) -> None:
        """An attempt was begun."""
        assert self.began_s is None, "one attempt at a time"
        self.began_s = now_s

    def succeeded(self, launch: Launch, now_s: float) -> None:
        """The cluster has handed them over."""
        self.launch, self.read_s, self.reason, self.refusals = launch, now_s, "", 0
        self.began_s, self.next_s = None, now_s + REFRESH_S

    def failed(self, reason: str, now_s: float) -> bool:
        """There are none, or none again: those from before stay for as long as they are valid.

        Returns:
            Whether that was not known yet.
        """
        new = reason != self.reason
        pause_s = min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(self.refusals, 32))
        self.reason, self.refusals = reason, self.refusals + 1
        self.began_s, self.next_s = None, now_s + pause_s
        return new

    def expired(self, now_s: float) -> bool:
        """Whether there are some that are of no use any more, and none are being read."""
        return self.launch is not None and self.began_s is None and now_s >= self.read_s + VALID_S


def cluster_of(topology: Topology, spec: StatemgrSpec, clusters: Iterable[AdoptedCluster]) -> AdoptedCluster:
    """The cluster that may be asked for the credentials of a topology: one that the operator has named.

    Which scheduler, namespace or directory is asked is said by the operator's configuration of the cluster alone. Of
    what the state manager says only names are taken; and of another state manager than the cluster's not even these:
    its topologies would otherwise be shown, and commanded, in the place of others with their ids.

    Args:
        topology: As the state manager says.
        spec: That state manager.
        clusters: Those whose topologies are adopted.

    Raises:
        UnavailableError: none may; says why.
    """
    name = topology.key.cluster
    cluster = next((one for one in clusters if one.name == name), None)
    if cluster is None:
        raise UnavailableError(
            f"this Tracker adopts no topologies of cluster {name!r:.140} (tracker.adopt.clusters does not name it)"
        )
    if _place(spec) != _place(cluster.statemgr):
        raise UnavailableError(
            f"it is not adopted from cluster {name}, whose state manager is {_shown(cluster.statemgr)}: this topology "
            f"was found in {_shown(spec)}"
        )
    key = topology.key
    if not all(map(is_name, (key.name, key.role, key.environ))) or not _is_id(topology.id, key.name):
        raise UnavailableError("it is not adopted: the state manager gives it names that no topology has")
    return cluster


def _is_id(id: str, name: str) -> bool:
    """Whether a submission makes such an id; it becomes a part of paths and of names of jobs."""
    return len(id) <= ID_MAX and id.startswith(f"{name}-") and is_name(id.removeprefix(f"{name}-"))


def _place(spec: StatemgrSpec) -> tuple[str, str, str]:
    return spec.type, spec.connection, spec.root.rstrip("/")


def _shown(spec: StatemgrSpec) -> str:
    return f"{spec.type} {spec.connection}{spec.root}"
