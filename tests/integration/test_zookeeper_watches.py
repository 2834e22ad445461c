"""What keeps watches and nodes in ZooKeeper goes on, whatever goes wrong in it."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.statemgr.zookeeper import ZookeeperStateManager
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=zookeeper_missing() or "")


def test_a_watch_is_told_after_something_unforeseen_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, told = threading.Event(), threading.Event()
    look = ZookeeperStateManager._keep_client

    def fails_once(self: ZookeeperStateManager) -> None:
        if failed.is_set():
            return look(self)
        failed.set()
        raise RuntimeError("can't start new thread")  # as Python says it

    monkeypatch.setattr(ZookeeperStateManager, "_keep_client", fails_once)
    with ZookeeperServer(tmp_path) as server:
        spec = StatemgrSpec(type="zookeeper", connection=server.connection, root="/heron")
        with contextlib.closing(open_statemgr(spec, call_timeout_s=300.0)) as sm:
            assert failed.wait(300)
            sm.set(Kind.PACKINGPLANS, "words", b"plan")
            sm.watch(Kind.PACKINGPLANS, "words", lambda value: told.set() if value == b"plan" else None)
            assert told.wait(300)
