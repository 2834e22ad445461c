"""Writes to etcd whose answers are lost, and requests that come late: each is done once, or never."""

from __future__ import annotations

import base64
import contextlib
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from heronpy.errors import AlreadyExistsError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.statemgr.etcd import Gateway, NoAnswerError
from heronpy.testing.etcd import EtcdServer, etcd_missing
from heronpy.testing.statemgr_kit import OWN_SESSION_TIMEOUT_S, WITHIN_S

pytestmark = pytest.mark.skipif(etcd_missing() is not None, reason=etcd_missing() or "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def spec(server: EtcdServer) -> StatemgrSpec:
    return StatemgrSpec(type="etcd", connection=server.connection, root=f"/test-{uuid.uuid4().hex}")


def open_on(spec: StatemgrSpec) -> StateManager:
    return open_statemgr(spec, session_timeout_s=OWN_SESSION_TIMEOUT_S, call_timeout_s=WITHIN_S)


Call = Callable[[Gateway, str, Mapping[str, Any], float], dict[str, Any]]


class Lossy:
    """Loses the answer of one transaction: it was done at once, or is done when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._call: Call = Gateway.call
        self._lose = ""
        self._late: list[Callable[[], object]] = []
        lossy = self

        def call(gateway: Gateway, method: str, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
            lose, lossy._lose = (lossy._lose, "") if method == "kv/txn" else ("", lossy._lose)
            if lose == "answer":
                lossy._call(gateway, method, body, timeout_s)
            elif lose == "request":
                lossy._late.append(lambda: lossy._call(gateway, method, body, timeout_s))
            if lose:
                raise NoAnswerError("lost")
            return lossy._call(gateway, method, body, timeout_s)

        monkeypatch.setattr(Gateway, "call", call)

    def next(self, what: str) -> None:
        """Lose the next `answer`, or the next `request`."""
        self.check()
        self._lose = what

    def check(self) -> None:
        """Whether what was to be lost has been."""
        assert not self._lose

    def late(self) -> None:
        """What was lost on its way arrives."""
        assert self._late
        while self._late:
            self._late.pop(0)()


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lossy]:
    lossy = Lossy(monkeypatch)
    yield lossy
    lossy.check()


@pytest.mark.parametrize("lost", ["answer", "request"])
def test_a_write_whose_answer_was_lost_is_done_once(
    server: EtcdServer, spec: StatemgrSpec, lossy: Lossy, lost: str
) -> None:
    with open_on(spec) as sm:
        sm.set(Kind.TOPOLOGIES, "first", b"so that there is a session")
        for change in (
            lambda: sm.create(Kind.PPLANS, "words", b"1"),
            lambda: sm.set(Kind.PPLANS, "words", b"2"),
        ):
            lossy.next(lost)
            change()
        lossy.next(lost)
        assert sm.set_if(Kind.PPLANS, "words", b"3", expected=b"2") is True
        lossy.next(lost)
        assert sm.set_if(Kind.EPOCHS, "words", b"4", expected=b"other") is False
        lossy.next(lost)
        assert sm.delete(Kind.PPLANS, "words") is True
        with pytest.raises(AlreadyExistsError):
            sm.create(Kind.TOPOLOGIES, "first", b"x")
        sm.set(Kind.PPLANS, "words", b"last")
    assert history(server, f"{spec.root}/pplans/words", b"last") == [b"1", b"2", b"3", None, b"last"]


def history(server: EtcdServer, key: str, last: bytes) -> list[bytes | None]:
    """Every change of a key up to a certain value, as etcd keeps them; a watch may skip what was replaced at once."""
    context = ssl.create_default_context
    gateway = Gateway(server.connection, attempt_timeout_s=WITHIN_S, tls=context, credentials=lambda: None)
    request = {"key": base64.b64encode(key.encode()).decode(), "start_revision": "1"}
    values: list[bytes | None] = []
    with contextlib.closing(gateway.stream("watch", [{"create_request": request}])) as stream:
        for answer in stream.follow(1, WITHIN_S):
            for event in answer.get("events", ()):
                deleted = event.get("type") == "DELETE"
                values.append(None if deleted else base64.b64decode(event["kv"]["value"]))
            if last in values:
                break
    return values


def test_a_request_that_was_given_up_is_not_done_later(spec: StatemgrSpec, lossy: Lossy) -> None:
    """A member that hung may pass on what it has long after another one did it: a lock would be held for ever."""
    with open_on(spec) as sm, open_on(spec) as other:
        sm.set(Kind.PPLANS, "words", b"old")
        lossy.next("request")
        with sm.lock("words", "update"):
            pass
        lossy.late()
        assert other.list(Kind.LOCKS) == []
        lossy.next("request")
        sm.set(Kind.PPLANS, "words", b"new")
        other.set(Kind.PPLANS, "words", b"newer")
        lossy.late()
        assert sm.get(Kind.PPLANS, "words") == b"newer"
