"""Which state manager a specification names."""

from __future__ import annotations

from functools import partial

from heronpy.errors import ConfigError, nearest
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr._access import read_credentials, tls_context
from heronpy.statemgr._base import StateManager
from heronpy.statemgr._files import FileStateManager


def open_statemgr(
    spec: StatemgrSpec,
    *,
    session_timeout_s: float | None = None,
    call_timeout_s: float = 10.0,
    parents: bool = True,
) -> StateManager:
    """Open a state manager; on return it has answered once.

    Args:
        spec: Which one, and where.
        session_timeout_s: How long a silent process keeps its ephemeral nodes, instead of what the specification says.
            Not for files. Shorter finds a lost machine sooner, longer forgives a longer pause.
        call_timeout_s: Longest time of any call.
        parents: Files only: make the directories that the root is in where they are missing. Processes of a topology
            do not: they were there when it was submitted, and if they were removed since, it was with everything.

    Raises:
        ConfigError: the specification makes no sense.
        StateError: it cannot be reached, read or made.
    """
    if spec.type == "file":
        return FileStateManager(spec.root, call_timeout_s=call_timeout_s, parents=parents)
    if session_timeout_s is None:
        session_timeout_s = spec.session_timeout_ms / 1000
    if spec.type == "zookeeper":
        # Every process opens a state manager, and kazoo would be a tenth of what starting it costs.
        from heronpy.statemgr.zookeeper import ZookeeperStateManager

        return ZookeeperStateManager(
            spec.connection,
            spec.root,
            session_timeout_s=session_timeout_s,
            call_timeout_s=call_timeout_s,
            credentials=read_credentials(spec),
            tls=partial(tls_context, spec) if spec.ca_file or spec.certificate_file else None,
        )
    if spec.type == "etcd":
        from heronpy.statemgr.etcd import EtcdStateManager

        return EtcdStateManager(spec, session_timeout_s=session_timeout_s, call_timeout_s=call_timeout_s)
    if spec.type == "kubernetes":
        from heronpy.statemgr.kubernetes import KubernetesStateManager

        return KubernetesStateManager(
            spec.connection, spec.root, session_timeout_s=session_timeout_s, call_timeout_s=call_timeout_s
        )
    known = ("file", "zookeeper", "etcd", "kubernetes")
    raise ConfigError(
        f"unknown state manager {spec.type!r}{nearest(spec.type, known)}: it is one of {', '.join(known)}"
    )
