"""A schema registry that hangs costs a task one timeout, and then nothing."""

from __future__ import annotations

import itertools
import threading

import pytest

from heronpy.connectors import registry_calls
from heronpy.connectors.registry_calls import RETRY_MAX_S, RETRY_S, RegistryCalls
from heronpy.errors import UnavailableError
from heronpy.testing import eventually_sync


class Client:
    """Knows schemas by number; hangs until it is let go on."""

    def __init__(self) -> None:
        self.away = False
        self.hangs: threading.Event | None = None
        self.asked: list[int] = []

    def config(self) -> dict[str, str]:
        return {"url": "http://registry"}

    def get_schema(self, number: int, subject: str = "") -> str:
        self.asked.append(number)
        if self.hangs is not None:
            self.hangs.wait()
        if self.away:
            raise TimeoutError("timed out")
        if number > 10:
            raise LookupError(f"there is no schema {number}")
        return f"schema {number}"

    def get_latest_with_metadata(self, subject: str, metadata: dict[str, str]) -> str:
        if self.away:
            raise TimeoutError("timed out")
        return f"{subject} {metadata}"


class Registry:
    def __init__(self) -> None:
        self.client, self.now_s = Client(), 100.0
        self.calls = RegistryCalls(
            self.client,
            lambda error: f"no answer: {error}" if isinstance(error, TimeoutError) else "",
            clock=lambda: self.now_s,
        )

    def asked(self) -> list[int]:
        asked, self.client.asked = self.client.asked, []
        return asked

    def idle(self) -> None:
        eventually_sync(lambda: _assert_none(self.calls._asking))


def _assert_none(thread: threading.Thread | None) -> None:
    assert thread is None


def test_while_the_registry_answers_every_call_is_the_clients() -> None:
    registry = Registry()
    assert [registry.calls.get_schema(n, subject="a") for n in (1, 1, 2)] == ["schema 1", "schema 1", "schema 2"]
    assert registry.asked() == [1, 1, 2], "its caches have their own rules"
    with pytest.raises(LookupError):
        registry.calls.get_schema(11)
    assert registry.calls.get_schema(1, subject="a") == "schema 1"


def test_what_is_asked_for_may_be_a_dict() -> None:
    registry = Registry()
    assert registry.calls.get_latest_with_metadata("a", {"major": "1"}) == "a {'major': '1'}"
    registry.client.away = True
    with pytest.raises(TimeoutError):
        registry.calls.get_latest_with_metadata("a", {"major": "2"})
    assert registry.calls.get_latest_with_metadata("a", {"major": "1"}) == "a {'major': '1'}"


def test_known_schemas_are_known_while_it_hangs_and_all_else_fails_at_once() -> None:
    registry = Registry()
    registry.calls.get_schema(1)
    registry.client.away = True
    with pytest.raises(TimeoutError):
        registry.calls.get_schema(2)
    registry.client.hangs = threading.Event()
    registry.asked()
    registry.now_s += RETRY_S
    for _ in range(3):
        with pytest.raises(UnavailableError, match=r"no answer: timed out \(1 calls failed\)"):
            registry.calls.get_schema(2)
        assert registry.calls.get_schema(1) == "schema 1"
    assert registry.calls.config() == {"url": "http://registry"}
    eventually_sync(lambda: _assert_asked(registry.client, [2]))
    registry.client.hangs.set()
    registry.idle()
    assert registry.asked() == [2], "one call at a time, in the background"


def _assert_asked(client: Client, numbers: list[int]) -> None:
    assert client.asked == numbers


def test_it_is_asked_again_at_growing_intervals_until_it_answers() -> None:
    registry = Registry()
    registry.client.away = True
    with pytest.raises(TimeoutError):
        registry.calls.get_schema(2)
    asked_s = []
    registry.asked()
    for _ in range(160):
        registry.now_s += 0.5
        with pytest.raises(UnavailableError):
            registry.calls.get_schema(2)
        registry.idle()
        if registry.asked():
            asked_s.append(registry.now_s)
    waits_s = [after - before for before, after in itertools.pairwise(asked_s)]
    assert waits_s == [2.0, 4.0, 8.0, 16.0, RETRY_MAX_S]
    registry.client.away = False
    registry.now_s += RETRY_MAX_S
    with pytest.raises(UnavailableError):
        registry.calls.get_schema(2)
    registry.idle()
    assert [registry.calls.get_schema(n) for n in (2, 3)] == ["schema 2", "schema 3"]


def test_an_answer_that_there_is_no_such_schema_is_an_answer() -> None:
    registry = Registry()
    registry.client.away = True
    with pytest.raises(TimeoutError):
        registry.calls.get_schema(11)
    registry.client.away = False
    registry.now_s += RETRY_S
    with pytest.raises(UnavailableError):
        registry.calls.get_schema(11)
    registry.idle()
    with pytest.raises(LookupError):
        registry.calls.get_schema(11)


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_calls, "ANSWERS_MAX", 2)
    registry = Registry()
    for n in (1, 2, 3):
        registry.calls.get_schema(n)
    registry.client.away = True
    with pytest.raises(TimeoutError):
        registry.calls.get_schema(4)
    with pytest.raises(UnavailableError):
        registry.calls.get_schema(1)
    assert registry.calls.get_schema(2) == "schema 2"
