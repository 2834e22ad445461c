"""What a state manager in Kubernetes does when its session is lost. The API server is a dictionary."""

from __future__ import annotations

import copy
import time
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.kubernetes import Answer, KubernetesError
from heronpy.statemgr import Kind
from heronpy.statemgr.kubernetes import KubernetesStateManager
from heronpy.testing import eventually_sync


class Server:
    """Objects by path, with resource versions; refuses as many writes of ConfigMaps as it is told."""

    def __init__(self) -> None:
        self.access = SimpleNamespace(server="https://test", namespace="here")
        self.objects: dict[str, dict[str, Any]] = {}
        self.refuse = 0
        self._versions = 0

    def get(self, path: str, **options: Any) -> Answer:
        return self.call("GET", path, **options)

    def call(self, method: str, path: str, body: Any = None, **_options: Any) -> Answer:
        if method in ("PUT", "POST") and "/configmaps" in path and self.refuse > 0:
            self.refuse -= 1
            raise KubernetesError("the server is not ready", 503)
        if path == "/version" or (method == "GET" and path.endswith("/configmaps")):
            return Answer({"items": [], "metadata": {}}, time.time())
        if method == "POST":
            path += "/" + body["metadata"]["name"]
        elif path not in self.objects:
            raise KubernetesError(f"there is no {path}", 404, "NotFound")
        if method in ("POST", "PUT"):
            self._versions += 1
            metadata = {**body["metadata"], "resourceVersion": str(self._versions), "uid": path}
            self.objects[path] = {**copy.deepcopy(body), "metadata": metadata}
        found = self.objects.pop(path) if method == "DELETE" else self.objects[path]
        return Answer(copy.deepcopy(found), time.time())

    def end_sessions(self) -> None:
        for path in [path for path in self.objects if "/leases/" in path]:
            del self.objects[path]

    def close(self) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr("heronpy.statemgr.kubernetes.load_access", lambda context: server.access)
    monkeypatch.setattr("heronpy.statemgr.kubernetes.Api", lambda access: server)
    return server


def test_a_node_is_made_again_also_if_that_fails_at_first(server: Server) -> None:
    with KubernetesStateManager(session_timeout_s=1) as owner, KubernetesStateManager() as other:
        owner.create(Kind.TMASTERS, "words", b"here", ephemeral=True)
        owner.create(Kind.TMASTERS, "lines", b"there", ephemeral=True)
        server.refuse = 2
        server.end_sessions()
        assert other.get(Kind.TMASTERS, "words") is None
        eventually_sync(lambda: _equal(other.get(Kind.TMASTERS, "words"), b"here"))
        eventually_sync(lambda: _equal(other.get(Kind.TMASTERS, "lines"), b"there"))
        assert server.refuse == 0


def _equal(found: object, expected: object) -> None:
    assert found == expected
