"""RTAC's parsing and its generator."""

from __future__ import annotations

import json

import pytest

from heronpy.examples.rtac import event_of
from heronpy.examples.rtac_events import KINDS, random_events


def test_an_event_is_its_user_kind_and_whole_second():
    assert event_of(b'{"user_id": 17, "event": "following", "timestamp": 1700000000.99}') == (
        17,
        "following",
        1700000000,
    )
    assert event_of(b'{"user_id": "u", "event": "viewing", "timestamp": -0.5}') == ("u", "viewing", -1)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no json",
        b"[]",
        b"17",
        b'{"user_id": 1, "event": "x"}',
        b'{"user_id": [1], "event": "x", "timestamp": 1}',
        b'{"user_id": 1, "event": 2, "timestamp": 1}',
        b'{"user_id": 1, "event": "x", "timestamp": "1"}',
        b'{"user_id": 1, "event": "x", "timestamp": Infinity}',
        b'{"user_id": 1, "event": "x", "timestamp": NaN}',
        b"\xff\xfe\xfd",
    ],
)
def test_a_line_that_is_no_event_is_a_value_error(line):
    with pytest.raises(ValueError):  # noqa: PT011  # the type is the promise
        event_of(line)


def test_generated_events_are_the_same_for_a_seed_in_order_of_time_and_valid():
    events = list(random_events(500, users=20, seconds=5, seed=3))
    assert events == list(random_events(500, users=20, seconds=5, seed=3))
    assert events != list(random_events(500, users=20, seconds=5, seed=4))
    parsed = [event_of(json.dumps(event).encode()) for event in events]
    assert {kind for _, kind, _ in parsed} == set(KINDS)
    assert all(0 <= user < 20 for user, _, _ in parsed)
    assert len({second for _, _, second in parsed}) == 5
    assert [e["timestamp"] for e in events] == sorted(e["timestamp"] for e in events)
