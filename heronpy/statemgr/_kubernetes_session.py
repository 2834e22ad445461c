"""Sessions: what ephemeral nodes in Kubernetes end with.

A session is a Lease that its process renews. It lives as long as that object: who finds it overdue deletes it, in the
version found, and by that, for everybody and for good, ends it. So there is one moment of the end, and no two clocks
have to agree on it. Whether it is overdue is decided by the API server's clock (the `Date` of its answers), which the
owner, too, writes into it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from heronpy.kubernetes import Answer, Api, KubernetesError

log = logging.getLogger(__name__)

# `Date` is cut to the second, and the clocks of several API servers differ a little.
_SLACK_S = 2.0
_DUE_MIN_S = 0.5
_SESSIONS_MAX = 1000
_FORGOTTEN_S = 3600.0


class Sessions:
    """This process' session, made when it is first needed, and the question whether another one lives."""

    def __init__(self, api: Api, namespace: str, labels: dict[str, str], duration_s: float) -> None:
        self._api = api
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._labels = labels
        self._duration_s = max(1, math.ceil(duration_s))
        self._lease: dict[str, Any] | None = None
        self._server_s = 0.0
        self._answered_s = 0.0
        self._next_s: dict[str, float] = {}
        self.id = ""
        """The session's name; empty: there is none."""

    @property
    def renew_s(self) -> float:
        """How often to renew."""
        return self._duration_s / 3

    def begin(self, timeout_s: float) -> str:
        """The session's id; a new session if there is none.

        Raises:
            KubernetesError: it cannot be made.
        """
        if not self.id:
            if not self._server_s:
                self._set_clock(self._api.get("/version", timeout_s=timeout_s))
            name = f"heron-session-{uuid.uuid4().hex[:20]}"
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "labels": self._labels},
                "spec": {
                    "holderIdentity": f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
                    "leaseDurationSeconds": self._duration_s,
                    "renewTime": self._now(),
                },
            }
            try:
                self._keep(self._api.call("POST", self._path, lease, timeout_s=timeout_s))
            except KubernetesError as e:
                if not (e.repeated and e.reason == "AlreadyExists"):
                    raise
                self._keep(self._api.get(f"{self._path}/{name}", timeout_s=timeout_s))
            self.id = name
            self._sweep(timeout_s)
        return self.id

    def _sweep(self, timeout_s: float) -> None:
        """Remove sessions that ran out long ago, and which no client has asked about. Never raises."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in self._labels.items()), "limit": "500"}
        with contextlib.suppress(KubernetesError):
            found = self._api.get(self._path, query=query, timeout_s=timeout_s)
            for lease in found.body["items"]:
                if found.server_s - _due_s(lease) > _FORGOTTEN_S:
                    self._end_overdue(lease, timeout_s)

    def renew(self, timeout_s: float) -> bool:
        """Put off the end. False: the session had ended, and there is none now.

        Raises:
            KubernetesError: the server does not answer.
        """
        if not self.id or self._lease is None:
            return True
        path = f"{self._path}/{self.id}"
        try:
            for _ in range(3):
                self._lease["spec"]["renewTime"] = self._now()
                try:
                    self._keep(self._api.call("PUT", path, self._lease, timeout_s=timeout_s))
                    return True
                except KubernetesError as e:
                    if e.reason != "Conflict":
                        raise
                    self._keep(self._api.get(path, timeout_s=timeout_s))  # our own, whose answer was lost
            return True
        except KubernetesError as e:
            if e.status != 404:
                raise
            self.id, self._lease = "", None
            return False

    def end(self, timeout_s: float) -> None:
        """End the session; what it owns is gone with it. Never raises: if it cannot be ended now, it runs out."""
        if self.id:
            with contextlib.suppress(Exception):
                self._api.call("DELETE", f"{self._path}/{self.id}", timeout_s=timeout_s)
            self.id, self._lease = "", None

    def due(self, session: str) -> bool:
        """Whether another session may have run out since `lives` last checked it.

        So a follower asks once per session timeout, and yet just when the session of an owner that has died runs out.
        """
        return session != self.id and time.monotonic() >= self._next_s.get(session, 0.0)

    def lives(self, session: str, timeout_s: float) -> bool:
        """Whether a session has not ended; one that is overdue is ended here.

        Raises:
            KubernetesError: the server does not answer, or refuses.
        """
        if session == self.id:
            return True
        try:
            found = self._api.get(f"{self._path}/{session}", timeout_s=timeout_s)
        except KubernetesError as e:
            if e.status != 404:
                raise
            return False
        left_s = _due_s(found.body) - found.server_s
        if left_s < 0:
            return not self._end_overdue(found.body, timeout_s)
        if len(self._next_s) >= _SESSIONS_MAX:
            self._next_s.clear()
        self._next_s[session] = time.monotonic() + max(_DUE_MIN_S, left_s)
        return True

    def _end_overdue(self, lease: dict[str, Any], timeout_s: float) -> bool:
        """End a session. False: it has been renewed in this moment."""
        metadata = lease["metadata"]
        condition = {"preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}}
        try:
            self._api.call("DELETE", f"{self._path}/{metadata['name']}", condition, timeout_s=timeout_s)
        except KubernetesError as e:
            if e.status not in (404, 409):
                raise
            return e.status == 404
        log.info("the session %s of %s had run out", metadata["name"], lease["spec"].get("holderIdentity"))
        return True

    def _keep(self, answer: Answer) -> None:
        self._lease = answer.body
        self._set_clock(answer)

    def _set_clock(self, answer: Answer) -> None:
        self._server_s, self._answered_s = answer.server_s or time.time(), time.monotonic()

    def _now(self) -> str:
        """The server's time now, by its last answer, as a MicroTime."""
        now = datetime.fromtimestamp(self._server_s + time.monotonic() - self._answered_s, UTC)
        return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _due_s(lease: dict[str, Any]) -> float:
    """When a session runs out, by the API server's clock."""
    spec = lease["spec"]
    return datetime.fromisoformat(spec["renewTime"]).timestamp() + float(spec["leaseDurationSeconds"]) + _SLACK_S
