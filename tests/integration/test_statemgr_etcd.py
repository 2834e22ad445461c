"""The state manager in etcd: the kit on a real server, and everything that can happen to a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heronpy.runtime import StatemgrSpec
from heronpy.testing.etcd import EtcdServer, etcd_missing
from heronpy.testing.statemgr_kit import StatemgrKit

pytestmark = pytest.mark.skipif(etcd_missing() is not None, reason=etcd_missing() or "")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One server for all tests that do it no harm; each has its own root."""
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def spec(shared: EtcdServer, request: pytest.FixtureRequest) -> StatemgrSpec:
    return StatemgrSpec(type="etcd", connection=shared.connection, root=f"/test-{abs(hash(request.node.nodeid))}")


class TestEtcdStateManager(StatemgrKit):
    long = (
        "test_of_many_processes_exactly_one_succeeds_after_the_owner_was_killed",
        "test_a_child_process_does_not_keep_its_parents_node",
    )
