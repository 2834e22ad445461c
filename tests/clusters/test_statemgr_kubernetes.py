"""The state manager in Kubernetes objects: the kit on a real API server, and what only it can get wrong."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.errors import AlreadyExistsError, ConfigError, StateError
from heronpy.kubernetes import Api
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually_sync
from heronpy.testing.kubernetes import ControlPlane, kubernetes_missing
from heronpy.testing.servers import free_port
from heronpy.testing.statemgr_kit import OWN_SESSION_TIMEOUT_S, WITHIN_S, Owner, Seen, StatemgrKit, take_over

pytestmark = pytest.mark.skipif(kubernetes_missing() is not None, reason=kubernetes_missing() or "")


@pytest.fixture
def spec(namespace: str) -> StatemgrSpec:
    return StatemgrSpec(type="kubernetes", connection=namespace, root="/heron")


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


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    """An API server of the test's own, to be killed."""
    with ControlPlane(tmp_path / "kubernetes", controllers=False) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig("admin")))
        yield server


class TestKubernetesStateManager(StatemgrKit):
    pass


def opened(spec: StatemgrSpec) -> StateManager:
    return open_statemgr(spec, session_timeout_s=OWN_SESSION_TIMEOUT_S, call_timeout_s=WITHIN_S)


def test_a_topologys_nodes_are_one_object_and_large_values_have_their_own(
    spec: StatemgrSpec, namespace: str, control_plane: ControlPlane
) -> None:
    def objects() -> list[str]:
        return [
            o["metadata"]["labels"]["heron/part"] for o in control_plane.objects("configmaps", namespace, "heron/root")
        ]

    with opened(spec) as sm:
        sm.set(Kind.EPOCHS, "words", b"1")
        sm.set(Kind.PPLANS, "words", b"small")
        assert objects() == ["head"]
        for size in (200_000, 300_000):  # the object of the first is not left
            sm.set(Kind.TOPOLOGIES, "words", b"x" * size)
            assert sorted(objects()) == ["head", "value"]
        assert sm.set_if(Kind.TOPOLOGIES, "words", b"y" * 200_000, expected=b"x" * 300_000) is True
        assert sm.set_if(Kind.TOPOLOGIES, "words", b"z" * 200_000, expected=b"x" * 300_000) is False
        assert sorted(objects()) == ["head", "value"]
        for kind in (Kind.TOPOLOGIES, Kind.EPOCHS, Kind.PPLANS):
            assert sm.delete(kind, "words") is True
        assert objects() == [], "nothing is left of what was deleted"


def test_a_large_value_is_followed_like_a_small_one(spec: StatemgrSpec) -> None:
    with opened(spec) as sm, opened(spec) as other:
        seen = Seen()
        sm.watch(Kind.PACKINGPLANS, "words", seen)
        assert seen.next() is None
        for n in range(4):
            other.set(Kind.PACKINGPLANS, "words", b"%d" % n * 100_000)
        assert seen.until(b"3" * 100_000)
        other.set(Kind.PACKINGPLANS, "words", b"small")
        assert seen.next() == b"small"


def test_a_closed_session_leaves_no_object(spec: StatemgrSpec, namespace: str, control_plane: ControlPlane) -> None:
    with opened(spec) as sm:
        sm.create(Kind.TMASTERS, "words", b"here", ephemeral=True)
        with sm.lock("words", "update"):
            assert len(control_plane.objects("coordination.k8s.io/v1 leases", namespace)) == 1, (
                "one session, whatever it owns"
            )
    assert control_plane.objects("coordination.k8s.io/v1 leases", namespace) == []
    assert control_plane.objects("configmaps", namespace, "heron/root") == []


def test_sessions_of_the_dead_that_nobody_follows_are_swept(
    spec: StatemgrSpec, namespace: str, control_plane: ControlPlane
) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "spec": {"leaseDurationSeconds": 10, "renewTime": "2001-01-01T00:00:00.000000Z"},
    }
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    with opened(spec) as sm:
        sm.create(Kind.TMASTERS, "words", b"here", ephemeral=True)
        (own,) = control_plane.objects("coordination.k8s.io/v1 leases", namespace)
        labels = own["metadata"]["labels"]
        for name, its in (("heron-session-old", labels), ("strangers", {})):
            control_plane.api().call("POST", path, {**lease, "metadata": {"name": name, "labels": its}})
        with opened(spec) as other, other.lock("words", "update"):
            left = {
                one["metadata"]["name"] for one in control_plane.objects("coordination.k8s.io/v1 leases", namespace)
            }
            assert "heron-session-old" not in left
            assert {own["metadata"]["name"], "strangers"} < left


def test_a_stopped_owner_loses_its_node_and_makes_it_again_when_it_goes_on(
    spec: StatemgrSpec, owner: Callable[[bytes], Owner]
) -> None:
    with opened(spec) as sm:
        other = owner(b"other")
        seen = Seen()
        sm.watch(Kind.TMASTERS, "words", seen)
        assert seen.until(b"other")
        other.signal(signal.SIGSTOP)
        assert seen.until(None), "its session ran out"
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
        first.end()
        assert sm.get(Kind.TMASTERS, "words") == b"successor"
        assert seen.nothing()


def test_everything_goes_on_after_the_api_server_was_killed_and_restarted(server: ControlPlane) -> None:
    spec = StatemgrSpec(type="kubernetes", root="/heron")
    with opened(spec) as sm, opened(spec) as other:
        sm.create(Kind.TMASTERS, "words", b"location", ephemeral=True)
        seen, late = Seen(), Seen()
        other.watch(Kind.PPLANS, "words", seen)
        assert seen.next() is None
        server.kill("kube-apiserver")
        other.watch(Kind.TMASTERS, "words", late)  # while it is away: receives the value when it is back
        writing = threading.Thread(target=sm.set, args=(Kind.PPLANS, "words", b"plan"))  # waits for the server
        writing.start()
        server.start()  # in this thread: servers end with the thread that has started them
        writing.join()
        assert seen.next() == b"plan"
        assert late.next() == b"location"
        with sm.lock("words", "update", timeout_s=WITHIN_S):
            pass


def test_with_the_server_away_calls_fail_in_bounded_time(server: ControlPlane) -> None:
    with opened(StatemgrSpec(type="kubernetes", root="/heron")) as sm:
        sm._call_timeout_s = 2.0  # type: ignore[attr-defined]  # now that it is open, for which it had longer
        server.freeze("kube-apiserver")
        try:
            for call in (
                lambda: sm.get(Kind.TOPOLOGIES, "words"),
                lambda: sm.set(Kind.TOPOLOGIES, "words", b"x"),
                lambda: sm.list(Kind.TOPOLOGIES),
                lambda: sm.lock("words", "update").__enter__(),
            ):
                began_s = time.monotonic()
                with pytest.raises(StateError, match=f"{server.url} does not answer") as caught:
                    call()
                assert time.monotonic() - began_s < WITHIN_S
                assert "\n" not in str(caught.value)
        finally:
            server.thaw("kube-apiserver")

        def unlocked() -> None:
            try:
                assert sm.list(Kind.LOCKS) == [], "an attempt that failed left a lock"
            except StateError as e:
                raise AssertionError(str(e)) from e

        eventually_sync(unlocked, within_s=WITHIN_S)


def test_an_answer_that_was_lost_is_not_taken_for_somebody_elses_change(
    spec: StatemgrSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, lost = Api._attempt, []

    def lossy(api: Api, method: str, *args: Any) -> Any:
        answer = attempt(api, method, *args)
        if method in ("PUT", "POST", "DELETE") and "configmaps" in args[0] and not lost:
            lost.append(method)
            raise ConnectionResetError("the answer is lost")
        return answer

    with opened(spec) as sm:
        monkeypatch.setattr(Api, "_attempt", lossy)
        steps: list[tuple[str, Callable[[], object], object]] = [
            ("POST", lambda: sm.create(Kind.TOPOLOGIES, "words", b"1"), None),
            ("PUT", lambda: sm.set_if(Kind.EPOCHS, "words", b"first", expected=None), True),
            ("PUT", lambda: sm.set_if(Kind.EPOCHS, "words", b"second", expected=b"first"), True),
            ("PUT", lambda: sm.set_if(Kind.PPLANS, "words", b"plan", expected=b"second", of=Kind.EPOCHS), True),
            ("PUT", lambda: sm.create(Kind.TMASTERS, "words", b"here", ephemeral=True), None),
            ("PUT", lambda: sm.delete(Kind.PPLANS, "words"), True),
            ("POST", lambda: sm.lock("words", "update").__enter__(), None),
        ]
        for method, step, expected in steps:
            lost.clear()
            assert step() == expected
            assert lost == [method]
        assert sm.get(Kind.EPOCHS, "words") == b"second"
        assert sm.get(Kind.TMASTERS, "words") == b"here"


def test_who_may_nothing_gets_one_line_that_says_what_is_needed(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig("stranger")))
    with pytest.raises(
        StateError, match=r'"stranger" cannot list.*needs get, list, watch, create.*of configmaps'
    ) as caught:
        open_statemgr(StatemgrSpec(type="kubernetes", connection="default", root="/heron"))
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig("nobody", token="wrong")))
    with pytest.raises(StateError, match="credentials are not accepted"):
        open_statemgr(StatemgrSpec(type="kubernetes", connection="default", root="/heron"))


def test_a_namespace_that_does_not_exist_is_named(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig("admin")))
    with (
        opened(StatemgrSpec(type="kubernetes", connection="nowhere", root="/heron")) as sm,
        pytest.raises(StateError, match='namespaces "nowhere" not found'),
    ):
        sm.set(Kind.TOPOLOGIES, "words", b"x")


def test_a_value_too_large_is_refused_and_harms_nothing(spec: StatemgrSpec) -> None:
    with opened(spec) as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"x" * 1_000_000)
        for call in (sm.set, sm.create):
            with pytest.raises(StateError, match="1000001 bytes"):
                call(Kind.TOPOLOGIES, "large", b"x" * 1_000_001)
        assert sm.list(Kind.TOPOLOGIES) == ["words"]


def test_two_roots_in_one_namespace_are_two_trees(namespace: str) -> None:
    one = StatemgrSpec(type="kubernetes", connection=namespace, root="/one")
    two = StatemgrSpec(type="kubernetes", connection=f"admin/{namespace}", root="/two")
    with opened(one) as first, opened(two) as second:
        first.create(Kind.TOPOLOGIES, "words", b"1")
        second.create(Kind.TOPOLOGIES, "words", b"2")
        assert (first.get(Kind.TOPOLOGIES, "words"), second.get(Kind.TOPOLOGIES, "words")) == (b"1", b"2")
        with pytest.raises(AlreadyExistsError):
            first.create(Kind.TOPOLOGIES, "words", b"3")


def test_without_a_server_or_a_kubeconfig_it_is_one_clear_line(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=f"no kubeconfig at {tmp_path}/none"):
        open_statemgr(StatemgrSpec(type="kubernetes", root="/heron"))
    away = tmp_path / "away"
    port = control_plane.url.rpartition(":")[2]
    away.write_text(control_plane.kubeconfig("admin").read_text().replace(port, str(free_port())))
    monkeypatch.setenv("KUBECONFIG", str(away))
    with pytest.raises(StateError, match="does not answer"):
        open_statemgr(StatemgrSpec(type="kubernetes", root="/heron"), call_timeout_s=0.5)
    with pytest.raises(ConfigError, match="no context 'admn'; did you mean 'admin'"):
        open_statemgr(StatemgrSpec(type="kubernetes", connection="admn/default", root="/heron"))
