"""The state manager in etcd: the kit on a real server, and everything that can happen to a session."""

from __future__ import annotations

import base64
import http.client
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.errors import AlreadyExistsError, ConfigError, StateError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.statemgr.etcd import EtcdStateManager, Gateway, NoAnswerError
from heronpy.testing import eventually_sync
from heronpy.testing.etcd import EtcdServer, etcd_missing
from heronpy.testing.servers import free_port
from heronpy.testing.statemgr_kit import OWN_SESSION_TIMEOUT_S, WITHIN_S, Owner, Seen, StatemgrKit, opened, take_over

pytestmark = pytest.mark.skipif(etcd_missing() is not None, reason=etcd_missing() or "")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One server for all tests that do it no harm; each has its own root."""
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def spec(shared: EtcdServer, request: pytest.FixtureRequest) -> StatemgrSpec:
    return StatemgrSpec(type="etcd", connection=shared.connection, root=f"/test-{abs(hash(request.node.nodeid))}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    """A server of the test's own, to be killed."""
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


def open_on(
    server: EtcdServer, *, session_s: float = OWN_SESSION_TIMEOUT_S, call_s: float = WITHIN_S
) -> EtcdStateManager:
    spec = StatemgrSpec(type="etcd", connection=server.connection, root="/heron")
    return EtcdStateManager(spec, session_timeout_s=session_s, call_timeout_s=call_s)


class TestEtcdStateManager(StatemgrKit):
    long = (
        "test_of_many_processes_exactly_one_succeeds_after_the_owner_was_killed",
        "test_a_child_process_does_not_keep_its_parents_node",
        "test_a_lock_is_released_when_its_holder_is_killed",
    )


@pytest.mark.long
def test_a_stopped_owner_loses_its_node_and_takes_it_back_from_nobody(spec: StatemgrSpec) -> None:
    with opened(spec) as sm:
        seen = Seen()
        sm.watch(Kind.TMASTERS, "words", seen)
        assert seen.next() is None
        other = Owner(spec, Kind.TMASTERS, "words", b"other")
        try:
            assert seen.until(b"other")
            other.signal(signal.SIGSTOP)
            assert seen.until(None), "its lease expired"
            other.signal(signal.SIGCONT)
            assert seen.until(b"other"), "made again in a new session"
            other.signal(signal.SIGSTOP)
            take_over(sm, "words", b"successor")
            assert seen.until(b"successor")
            other.signal(signal.SIGCONT)
            other.end()
            assert sm.get(Kind.TMASTERS, "words") == b"successor"
            assert seen.nothing()
        finally:
            other.kill()


def test_everything_goes_on_after_the_server_was_killed_and_restarted(server: EtcdServer) -> None:
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


def test_nodes_and_watches_come_back_after_the_server_was_emptied(server: EtcdServer) -> None:
    with open_on(server, session_s=6.0) as sm, open_on(server, session_s=6.0) as other:
        for n in range(20):  # revisions that the emptied server is not going to reach soon
            other.set(Kind.PPLANS, "words", b"%d" % n)
        sm.create(Kind.TMASTERS, "words", b"location", ephemeral=True)
        seen, seen_tmaster = Seen(), Seen()
        other.watch(Kind.PPLANS, "words", seen)
        other.watch(Kind.TMASTERS, "words", seen_tmaster)
        assert seen.next() == b"19"
        assert seen_tmaster.next() == b"location"
        server.kill()
        server.empty()
        server.start()
        assert seen.next() is None
        eventually_sync(lambda: reads(other, b"location"), within_s=WITHIN_S)
        sm.set(Kind.TMASTERS, "words", b"moved")
        assert seen_tmaster.until(b"moved")
        sm.set(Kind.PPLANS, "words", b"again")
        assert seen.next() == b"again"


def only_lease(server: EtcdServer) -> str:
    """The id of the one session that there is."""
    keys = server.call("kv/range", key="AA==", range_end="AA==").get("kvs", ())
    leases = {key["lease"] for key in keys if "lease" in key}
    assert len(leases) == 1
    return str(leases.pop())


def revoke(server: EtcdServer) -> None:
    """Have etcd end the session; its nodes are gone when this returns."""
    server.call("lease/revoke", ID=eventually_sync(lambda: only_lease(server)))


def test_the_session_of_one_who_only_writes_is_kept_alive(server: EtcdServer) -> None:
    """Else a later write whose answer is late cannot be told from one that was done."""
    with open_on(server, session_s=6.0) as sm:
        sm.set(Kind.PPLANS, "words", b"plan")
        lease, left_s = only_lease(server), [6]

        def renewed() -> None:
            left_s.append(int(server.call("lease/timetolive", ID=lease).get("TTL", -1)))
            if left_s[-1] < 0:
                pytest.fail("it has expired")
            assert left_s[-1] > min(left_s)

        eventually_sync(renewed)


def test_a_lock_is_not_taken_again_in_silence_after_the_session_was_lost(server: EtcdServer) -> None:
    with open_on(server) as sm, open_on(server) as other:
        lock = sm.lock("words", "update")
        lock.__enter__()
        revoke(server)
        with other.lock("words", "update"):
            with pytest.raises(StateError, match="lost while it was held"):
                lock.__exit__(None, None, None)
            assert len(other.list(Kind.LOCKS)) == 1, "the loser must not release the other's lock"
        assert other.list(Kind.LOCKS) == []


def test_an_ephemeral_node_is_made_again_after_the_session_was_lost(server: EtcdServer) -> None:
    with open_on(server, session_s=6.0) as sm, open_on(server) as other:
        sm.create(Kind.TMASTERS, "words", b"1", ephemeral=True)
        sm.set(Kind.TMASTERS, "words", b"2")
        revoke(server)
        eventually_sync(lambda: reads(other, b"2"), within_s=WITHIN_S)
        sm.close()
        assert other.get(Kind.TMASTERS, "words") is None, "it hangs on the new session"


def test_with_the_server_away_or_hung_calls_fail_in_bounded_time(server: EtcdServer) -> None:
    with eventually_sync(lambda: reached(server, call_s=1.0)) as sm:
        eventually_sync(lambda: created(sm))
        calls: list[Callable[[], object]] = [
            lambda: sm.lock("words", "update").__enter__(),
            lambda: sm.get(Kind.TOPOLOGIES, "words"),
            lambda: sm.set(Kind.TMASTERS, "words", b"x"),
            lambda: sm.set(Kind.TOPOLOGIES, "words", b"x"),
            lambda: sm.create(Kind.TOPOLOGIES, "words", b"x"),
            lambda: sm.delete(Kind.TOPOLOGIES, "words"),
            lambda: sm.list(Kind.TOPOLOGIES),
        ]
        for stop, go_on, some in ((server.kill, server.start, calls), (server.freeze, server.thaw, calls[:3])):
            stop()
            for call in some:
                began_s = time.monotonic()
                with pytest.raises(StateError, match=f"etcd at {server.connection} does not answer") as caught:
                    call()
                assert time.monotonic() - began_s < WITHIN_S
                assert "\n" not in str(caught.value)
            go_on()
            eventually_sync(lambda: reads(sm, b"x"), within_s=WITHIN_S)
            eventually_sync(lambda: not_locked(sm), within_s=WITHIN_S)  # the attempt that failed left no lock behind
        server.freeze()
        began_s = time.monotonic()
    assert time.monotonic() - began_s < WITHIN_S, "close is bounded too"


def reached(server: EtcdServer, *, call_s: float) -> EtcdStateManager:
    try:
        return open_on(server, call_s=call_s)
    except StateError as e:
        raise AssertionError(str(e)) from e


def created(sm: StateManager) -> None:
    try:
        sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
    except AlreadyExistsError:
        pass
    except StateError as e:
        raise AssertionError(str(e)) from e


def reads(sm: StateManager, value: bytes) -> None:
    try:
        assert sm.get(Kind.TMASTERS, "words") == value
    except StateError as e:
        raise AssertionError(str(e)) from e


def not_locked(sm: StateManager) -> None:
    try:
        assert sm.list(Kind.LOCKS) == []
    except StateError as e:
        raise AssertionError(str(e)) from e


# Watches


def test_a_watch_misses_nothing_when_what_it_follows_was_compacted_away(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_on(server) as sm, open_on(server) as other:
        sm.set(Kind.PPLANS, "words", b"0")
        stream, compacted = Gateway.stream, []

        def late(gateway: Gateway, method: str, messages: Sequence[Mapping[str, Any]]) -> Any:
            if not compacted:  # between the look and the stream
                sm.set(Kind.PPLANS, "words", b"1")
                sm.set(Kind.PPLANS, "words", b"2")
                newest = server.call("kv/range", key="AA==")["header"]["revision"]
                compacted.append(server.call("kv/compaction", revision=newest, physical=True))
            return stream(gateway, method, messages)

        monkeypatch.setattr(Gateway, "stream", late)
        seen = Seen()
        other.watch(Kind.PPLANS, "words", seen)
        assert seen.until(b"2") == [b"0", b"2"]
        assert compacted
        sm.set(Kind.PPLANS, "words", b"3")
        assert seen.next() == b"3"


def test_watches_whose_requests_the_server_throws_away_unread_are_made_again(
    spec: StatemgrSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it has begun to answer, Go's HTTP server may read the rest of a request only to throw it away."""
    names = [f"t{n}" for n in range(6)]
    send, divided = http.client.HTTPConnection.send, list[int]()

    def in_two_parts(connection: http.client.HTTPConnection, data: Any) -> None:
        requests = data.count(b'{"create_request"') if isinstance(data, bytes) else 0
        if requests >= len(names) and requests not in divided:
            divided.append(requests)
            cut = data.index(b"\n") + 1
            send(connection, data[:cut])
            time.sleep(0.1)
            data = data[cut:]
        send(connection, data)

    monkeypatch.setattr("heronpy.statemgr.etcd._watches._MADE_WITHIN_S", 1.0)
    monkeypatch.setattr(http.client.HTTPConnection, "send", in_two_parts)
    with opened(spec) as sm, opened(spec) as other:
        watches = {name: Seen() for name in names}
        for name, seen in watches.items():
            sm.watch(Kind.PPLANS, name, seen)
        for round_ in range(10):  # in about a third of them the requests are thrown away
            sm.watch(Kind.PPLANS, f"further{round_}", Seen())
            for name in names:
                other.set(Kind.PPLANS, name, b"%d" % round_)
            for seen in watches.values():
                seen.until(b"%d" % round_, within_s=60)
        assert divided


def test_hundreds_of_watches_of_one_folder_are_served(spec: StatemgrSpec) -> None:
    with opened(spec) as sm, opened(spec) as other:
        names = [f"t{n}" for n in range(300)]
        seen = {name: Seen() for name in names}
        for name in names:
            sm.watch(Kind.PPLANS, name, seen[name])
        assert all(seen[name].next() is None for name in names)
        for name in names:
            other.set(Kind.PPLANS, name, name.encode())
        other.set(Kind.PPLANS, "not watched", b"x")
        assert [seen[name].next() for name in names] == [name.encode() for name in names]


def test_nodes_that_are_together_too_large_for_one_answer_are_all_followed(spec: StatemgrSpec) -> None:
    with opened(spec) as sm, opened(spec) as other:
        values = {f"t{n}": bytes([n]) * 900_000 for n in range(6)}
        for name, value in values.items():
            other.set(Kind.PPLANS, name, value)
        seen = {name: Seen() for name in values}
        for name in values:
            sm.watch(Kind.PPLANS, name, seen[name])
        assert {name: seen[name].next() for name in values} == values


# What is told


def test_opening_without_a_server_is_one_clear_line_in_bounded_time() -> None:
    port = free_port()
    began_s = time.monotonic()
    with pytest.raises(StateError) as caught:
        open_statemgr(StatemgrSpec(type="etcd", connection=f"127.0.0.1:{port}", root="/heron"), call_timeout_s=0.5)
    assert time.monotonic() - began_s < WITHIN_S
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_an_attempt_found_out_is_told_though_the_last_one_had_no_time_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call, attempts = Gateway.call, []

    def found_out_once(gateway: Gateway, method: str, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        attempts.append(method)
        if len(attempts) == 1:
            raise NoAnswerError("the connection was reset")
        return call(gateway, method, body, timeout_s)

    monkeypatch.setattr(Gateway, "call", found_out_once)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        spec = StatemgrSpec(type="etcd", connection=f"127.0.0.1:{silent.getsockname()[1]}", root="/heron")
        with pytest.raises(StateError, match="the connection was reset"):
            open_statemgr(spec, call_timeout_s=1.0)


def test_a_value_too_large_for_a_server_is_refused_and_harms_nothing(spec: StatemgrSpec) -> None:
    with opened(spec) as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"x" * 1_000_000)
        for call in (sm.set, sm.create):
            with pytest.raises(StateError, match="1000001 bytes"):
                call(Kind.TOPOLOGIES, "large", b"x" * 1_000_001)
        assert sm.list(Kind.TOPOLOGIES) == ["words"]


@pytest.mark.parametrize(
    "connection", ["", ":1", "host:port", "host:0", "host:70000", "a:1,,b:2", "a:1,b:x", "ftp://a:1", "a:1/b", "a"]
)
def test_a_connection_string_that_makes_no_sense_is_refused(connection: str) -> None:
    with pytest.raises(ConfigError, match="endpoints"):
        open_statemgr(StatemgrSpec(type="etcd", connection=connection, root="/heron"))


def test_the_tree_is_herons_and_nothing_outside_of_the_root_is_touched(server: EtcdServer) -> None:
    with open_on(server) as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"definition")
        found = server.call("kv/range", key="AA==", range_end="AA==", keys_only=True)["kvs"]
        keys = sorted(_text(kv["key"]) for kv in found)
        assert keys[1:] == ["/heron/topologies/words"]
        assert keys[0].startswith("/heron/sessions/")
    found = server.call("kv/range", key="AA==", range_end="AA==", keys_only=True)["kvs"]
    assert [_text(kv["key"]) for kv in found] == ["/heron/topologies/words"], "the session leaves nothing behind"


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


def test_a_watch_goes_on_after_something_unforeseen_went_wrong(
    spec: StatemgrSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, failed = Gateway.stream, []

    def fails_once(gateway: Gateway, method: str, messages: Sequence[Mapping[str, Any]]) -> Any:
        if failed:
            return stream(gateway, method, messages)
        failed.append(time.monotonic())
        raise RuntimeError("can't start new thread")  # as Python says it

    monkeypatch.setattr(Gateway, "stream", fails_once)
    with opened(spec) as sm:
        seen = Seen()
        sm.watch(Kind.PPLANS, "words", seen)
        assert seen.next() is None
        sm.set(Kind.PPLANS, "words", b"plan")
        assert seen.next() == b"plan"
        assert failed
