"""The state manager in ZooKeeper: the kit on a real server, and everything that can happen to a session."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import SequentialThreadingHandler

from heronpy.errors import AlreadyExistsError, ConfigError, StateError, UnavailableError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.statemgr.zookeeper import ZookeeperStateManager
from heronpy.testing import eventually_sync
from heronpy.testing.servers import ZookeeperServer, free_port, zookeeper_ensemble, zookeeper_missing
from heronpy.testing.statemgr_kit import OWN_SESSION_TIMEOUT_S, WITHIN_S, Owner, Seen, StatemgrKit, opened, take_over

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=zookeeper_missing() or "")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    """One server for all tests that do it no harm; each has its own root."""
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def spec(shared: ZookeeperServer, request: pytest.FixtureRequest) -> StatemgrSpec:
    return StatemgrSpec(type="zookeeper", connection=shared.connection, root=f"/test-{abs(hash(request.node.nodeid))}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZookeeperServer]:
    """A server of the test's own, to be killed."""
    with ZookeeperServer(tmp_path / "zookeeper") as server:
        yield server


def open_on(
    server: ZookeeperServer, *, session_s: float = OWN_SESSION_TIMEOUT_S, call_s: float = WITHIN_S
) -> contextlib.closing[StateManager]:
    spec = StatemgrSpec(type="zookeeper", connection=server.connection, root="/heron")
    return contextlib.closing(open_statemgr(spec, session_timeout_s=session_s, call_timeout_s=call_s))


class TestZookeeperStateManager(StatemgrKit):
    long = (  # those with many processes: owners whose session ends, and their successors, are below, too
        "test_of_many_processes_exactly_one_succeeds_after_the_owner_was_killed",
        "test_a_child_process_does_not_keep_its_parents_node",
    )


@pytest.fixture
def owner(spec: StatemgrSpec) -> Iterator[Callable[[bytes], Owner]]:
    owners: list[Owner] = []

    def start(value: bytes) -> Owner:
        owners.append(Owner(spec, Kind.TMASTERS, "words", value))
        assert owners[-1].said() == "owned"
        return owners[-1]

    yield start
    for one in owners:
        one.kill()


def test_a_stopped_owner_loses_its_node_and_makes_it_again_when_it_goes_on(
    spec: StatemgrSpec, owner: Callable[[bytes], Owner]
) -> None:
    with opened(spec) as sm:
        other = owner(b"other")
        seen = Seen()
        sm.watch(Kind.TMASTERS, "words", seen)
        assert seen.until(b"other")
        other.signal(signal.SIGSTOP)
        assert seen.until(None), "its session expired"
        other.signal(signal.SIGCONT)
        assert seen.until(b"other"), "made again in a new session"
        other.end()
        assert seen.until(None)


def test_a_stopped_owner_does_not_take_its_node_back_from_a_successor(
    spec: StatemgrSpec, owner: Callable[[bytes], Owner]
) -> None:
    with opened(spec) as sm:
        first = owner(b"first")
        seen = Seen()
        sm.watch(Kind.TMASTERS, "words", seen)
        assert seen.next() == b"first"
        first.signal(signal.SIGSTOP)
        take_over(sm, "words", b"successor")
        assert seen.until(b"successor")
        first.signal(signal.SIGCONT)
        # Its orderly end comes after it has reconnected and seen that the name is taken.
        first.end()
        assert sm.get(Kind.TMASTERS, "words") == b"successor"
        assert seen.nothing()


def test_everything_goes_on_after_the_server_was_killed_and_restarted(server: ZookeeperServer) -> None:
    with open_on(server) as sm, open_on(server) as other:
        sm.set(Kind.TOPOLOGIES, "words", b"definition")
        sm.create(Kind.TMASTERS, "words", b"location", ephemeral=True)
        seen, seen_late = Seen(), Seen()
        other.watch(Kind.PPLANS, "words", seen)
        assert seen.next() is None
        server.kill()
        other.watch(Kind.TOPOLOGIES, "words", seen_late)  # while it is away: is told when it is back
        server.start()
        assert sm.get(Kind.TOPOLOGIES, "words") == b"definition"
        assert other.get(Kind.TMASTERS, "words") == b"location"
        assert seen_late.next() == b"definition"
        sm.set(Kind.PPLANS, "words", b"plan")
        assert seen.next() == b"plan"
        with sm.lock("words", "update"):
            pass


def test_a_change_made_while_a_watcher_was_cut_off_is_told_when_it_is_back(server: ZookeeperServer) -> None:
    with open_on(server) as sm:
        sm.set(Kind.PPLANS, "words", b"before")
        seen = Seen()
        with open_on(server) as cut:
            cut.watch(Kind.PPLANS, "words", seen)
            assert seen.next() == b"before"
            # Its connection is broken as by a reset; it reconnects by itself.
            cut._client._connection._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
            sm.set(Kind.PPLANS, "words", b"after")
            assert seen.next() == b"after"
            sm.set(Kind.PPLANS, "words", b"later")
            assert seen.next() == b"later"


def test_ephemeral_nodes_and_watches_are_made_again_after_the_session_expired(server: ZookeeperServer) -> None:
    with open_on(server) as sm, open_on(server) as short:
        short.create(Kind.TMASTERS, "words", b"1", ephemeral=True)
        short.set(Kind.TMASTERS, "words", b"2")
        seen, seen_short = Seen(), Seen()
        sm.watch(Kind.TMASTERS, "words", seen)
        short.watch(Kind.PPLANS, "words", seen_short)
        assert seen.next() == b"2"
        assert seen_short.next() is None
        for expected in (b"a", b"b"):  # once is luck
            expire(server, short)  # the node is gone when this returns

            def made_again() -> None:
                assert sm.get(Kind.TMASTERS, "words") == b"2"

            eventually_sync(made_again, within_s=WITHIN_S)
            sm.set(Kind.PPLANS, "words", expected)
            assert seen_short.next() == expected
        short.close()
        assert sm.get(Kind.TMASTERS, "words") is None
        assert seen.until(None)[-1] is None


def expire(server: ZookeeperServer, sm: StateManager) -> None:
    """Have the server end a session: another client takes it over and closes it."""
    from kazoo.client import KazooClient

    client_id = sm._client.client_id  # type: ignore[attr-defined]
    thief = KazooClient(hosts=server.connection, client_id=client_id, timeout=40)
    thief.start(WITHIN_S)
    thief.stop()
    thief.close()


def test_a_lock_is_not_taken_again_in_silence_after_the_session_expired(server: ZookeeperServer) -> None:
    with open_on(server) as sm, open_on(server) as other:
        lock = sm.lock("words", "update")
        lock.__enter__()
        expire(server, sm)
        with other.lock("words", "update"):
            eventually_sync(lambda: connected(sm), within_s=WITHIN_S)
            with pytest.raises(StateError, match="lost while it was held"):
                lock.__exit__(None, None, None)
            assert len(other.list(Kind.LOCKS)) == 1, "the loser must not release the other's lock"
        lock = sm.lock("words", "update")
        lock.__enter__()
        expire(server, sm)
        eventually_sync(lambda: connected(sm), within_s=WITHIN_S)
        sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)  # the keeper has had its turn
        with pytest.raises(StateError, match="lost while it was held"):
            lock.__exit__(None, None, None)
        assert other.list(Kind.LOCKS) == []


def connected(sm: StateManager) -> None:
    assert sm._session() != 0  # type: ignore[attr-defined]


def test_with_the_server_away_calls_fail_in_bounded_time_and_work_again_when_it_is_back(
    server: ZookeeperServer,
) -> None:
    def created() -> None:
        try:
            with contextlib.suppress(AlreadyExistsError):  # by an attempt that took too long
                sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
        except StateError as e:
            raise AssertionError(str(e)) from e

    with impatient(server) as sm:
        eventually_sync(created)
        server.kill()
        for call in (
            lambda: sm.get(Kind.TOPOLOGIES, "words"),
            lambda: sm.set(Kind.TOPOLOGIES, "words", b"x"),
            lambda: sm.set(Kind.TMASTERS, "words", b"x"),
            lambda: sm.create(Kind.TOPOLOGIES, "words", b"x"),
            lambda: sm.delete(Kind.TOPOLOGIES, "words"),
            lambda: sm.list(Kind.TOPOLOGIES),
            lambda: sm.lock("words", "update").__enter__(),
        ):
            began_s = time.monotonic()
            with pytest.raises(StateError, match=f"ZooKeeper at {server.connection} does not answer") as caught:
                call()
            assert time.monotonic() - began_s < WITHIN_S
            assert "\n" not in str(caught.value)
        server.start()

        def answers() -> None:
            try:
                assert sm.get(Kind.TMASTERS, "words") == b"x"
            except StateError as e:
                raise AssertionError(str(e)) from e

        eventually_sync(answers, within_s=WITHIN_S)
        eventually_sync(lambda: not_locked(sm))  # the attempt that failed left no lock behind


def impatient(server: ZookeeperServer) -> contextlib.closing[StateManager]:
    """A client whose calls take half a second at most; opened once the server is quick enough for it."""

    def opened() -> contextlib.closing[StateManager]:
        try:
            return open_on(server, call_s=0.5)
        except StateError as e:
            raise AssertionError(str(e)) from e

    return eventually_sync(opened)


def not_locked(sm: StateManager) -> None:
    try:
        assert sm.list(Kind.LOCKS) == []
        with sm.lock("words", "update", timeout_s=0.1):
            pass
    except (StateError, UnavailableError) as e:
        raise AssertionError(str(e)) from e


def test_a_server_that_hangs_is_no_reason_to_hang(server: ZookeeperServer) -> None:
    with impatient(server) as sm:
        server.freeze()
        began_s = time.monotonic()
        for _ in range(2):
            with pytest.raises(StateError, match="does not answer"), sm.lock("words", "update"):
                pass
        assert time.monotonic() - began_s < WITHIN_S
        server.thaw()
        eventually_sync(lambda: not_locked(sm))
        server.freeze()
        began_s = time.monotonic()
    assert time.monotonic() - began_s < WITHIN_S, "close is bounded too"


def test_opening_without_a_server_is_one_clear_line_in_bounded_time() -> None:
    port = free_port()
    spec = StatemgrSpec(type="zookeeper", connection=f"127.0.0.1:{port}", root="/heron")
    began_s = time.monotonic()
    with pytest.raises(StateError) as caught:
        open_statemgr(spec, call_timeout_s=0.5)
    assert time.monotonic() - began_s < WITHIN_S
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_client_that_gave_up_is_replaced(spec: StatemgrSpec) -> None:
    with ZookeeperStateManager(
        spec.connection, spec.root, session_timeout_s=OWN_SESSION_TIMEOUT_S, call_timeout_s=WITHIN_S
    ) as sm:
        sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
        seen = Seen()
        sm.watch(Kind.PPLANS, "words", seen)
        assert seen.next() is None
        sm._client.stop()
        sm.set(Kind.PPLANS, "words", b"1")
        assert seen.next() == b"1"

        def made_again() -> None:
            assert sm.get(Kind.TMASTERS, "words") == b"x"

        eventually_sync(made_again, within_s=WITHIN_S)


def test_a_value_too_large_for_a_server_is_refused_and_harms_nothing(spec: StatemgrSpec) -> None:
    with opened(spec) as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"x" * 1_000_000)
        for call in (sm.set, sm.create):
            with pytest.raises(StateError, match="1000001 bytes"):
                call(Kind.TOPOLOGIES, "large", b"x" * 1_000_001)
        assert sm.list(Kind.TOPOLOGIES) == ["words"]


def test_the_tree_is_herons(spec: StatemgrSpec, shared: ZookeeperServer) -> None:
    from kazoo.client import KazooClient

    with opened(spec) as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"definition")
        client = KazooClient(hosts=shared.connection)
        client.start(WITHIN_S)
        try:
            assert client.get(f"{spec.root}/topologies/words")[0] == b"definition"
            assert set(client.get_children(spec.root)) == {k.value for k in Kind}
            with sm.lock("words", "updateTopology"):
                assert client.get_children(f"{spec.root}/locks") == ["words__updateTopology"]
        finally:
            client.stop()
            client.close()


@pytest.mark.parametrize(
    "connection", ["", ":1", "host:port", "host:0", "host:70000", "a:1,,b:2", "a:1,b:x/path", "::1:port"]
)
def test_a_connection_string_that_makes_no_sense_is_refused(connection: str) -> None:
    with pytest.raises(ConfigError, match="connection string"):
        open_statemgr(StatemgrSpec(type="zookeeper", connection=connection, root="/heron"))


def test_a_path_in_the_connection_string_goes_before_the_root(spec: StatemgrSpec, shared: ZookeeperServer) -> None:
    with pytest.raises(StateError, match=f"has no {spec.root}/below: create it"):
        ZookeeperStateManager(f"{shared.connection}{spec.root}/below", "heron")
    with ZookeeperStateManager(shared.connection, f"{spec.root}/below"):
        pass
    with ZookeeperStateManager(f"{shared.connection}{spec.root}/below", "heron") as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"x")
    with ZookeeperStateManager(shared.connection, f"{spec.root}/below/heron/") as sm:
        assert sm.get(Kind.TOPOLOGIES, "words") == b"x"


@pytest.mark.parametrize("read", ["get", "list"])
def test_a_read_whose_barrier_was_lost_with_the_connection_is_repeated(
    spec: StatemgrSpec, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Over the next connection it may have reached a member of the ensemble that lags behind."""
    with opened(spec) as sm:
        sm.set(Kind.PPLANS, "words", b"1")
        owner, name = (TransactionRequest, "commit_async") if read == "get" else (KazooClient, "sync_async")
        sync, synced = getattr(owner, name), []

        def lossy(first: Any, *args: Any) -> Any:
            synced.append(args)
            if len(synced) > 1:
                return sync(first, *args)
            lost = SequentialThreadingHandler().async_result()
            lost.set_exception(ConnectionLoss())
            return lost

        monkeypatch.setattr(owner, name, lossy)
        found = sm.get(Kind.PPLANS, "words") if read == "get" else sm.list(Kind.PPLANS)
        assert found == (b"1" if read == "get" else ["words"])
        assert len(synced) == 2


def test_an_ensemble_loses_its_leader_and_a_dead_server_in_the_connection_string_does_not_matter(
    tmp_path: Path,
) -> None:
    with zookeeper_ensemble(tmp_path) as servers:
        connection = ",".join([f"127.0.0.1:{free_port()}", *(s.connection for s in servers)])
        spec = StatemgrSpec(type="zookeeper", connection=connection, root="/heron")
        with (
            opened(spec) as sm,
            opened(spec) as other,
        ):
            sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
            seen = Seen()
            other.watch(Kind.PPLANS, "words", seen)
            assert seen.next() is None
            next(s for s in servers if s.mode() == "leader").kill()
            sm.set(Kind.PPLANS, "words", b"1")
            assert seen.next() == b"1"
            for n in range(2, 20):
                sm.set(Kind.PPLANS, "words", b"%d" % n)
                assert other.get(Kind.PPLANS, "words") == b"%d" % n
            with pytest.raises(AlreadyExistsError):
                other.create(Kind.TMASTERS, "words", b"y", ephemeral=True)
