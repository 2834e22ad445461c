"""Event times as users give them."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from heronpy.connectors import ListSource
from heronpy.errors import ConfigError
from heronpy.windows import event_time_ms

AT_S = 1_700_000_000


def hours(hours: float) -> datetime.timezone:
    return datetime.timezone(datetime.timedelta(hours=hours))


@pytest.mark.parametrize("kind", [int, float, np.int32, np.uint32, np.int64, np.uint64, np.float64])
def test_a_number_of_any_width_is_the_same_time(kind: Any) -> None:
    assert event_time_ms(kind(AT_S)) == AT_S * 1000
    assert event_time_ms(kind(0)) == 0


def test_datetimes_of_all_zones_are_the_same_time() -> None:
    at = datetime.datetime.fromtimestamp(AT_S, datetime.UTC)
    for same in (at, at.replace(tzinfo=None), at.astimezone(hours(14)), at.astimezone(hours(-9.5))):
        assert event_time_ms(same) == AT_S * 1000


@pytest.mark.parametrize(
    "beyond",
    [
        datetime.datetime(9999, 12, 31, 23, 59, tzinfo=hours(-12)),
        datetime.datetime(1, 1, 1, tzinfo=hours(14)),
        AT_S * 1000,
        np.int64(AT_S * 1000),
        -float(AT_S * 1000),
        float("nan"),
    ],
)
def test_times_beyond_the_calendar_are_refused(beyond: Any) -> None:
    with pytest.raises(ValueError, match=r"9999|NaN"):
        event_time_ms(beyond)


@pytest.mark.parametrize("other", [None, True, "1700000000", b"1", [AT_S], float("inf"), datetime.date(2023, 1, 1)])
def test_what_is_no_time_is_refused(other: Any) -> None:
    with pytest.raises(TypeError, match="an event time must be"):
        event_time_ms(other)


def test_the_times_of_a_list_are_event_times() -> None:
    at = datetime.datetime.fromtimestamp(AT_S, datetime.UTC)
    same = ListSource("abc", times=[AT_S, np.int32(AT_S), at])
    chunks = [chunk for part in same.splits(10_000) or () for chunk in part.read(refuse)]
    assert [list(chunk.times_ms) for chunk in chunks] == [[AT_S * 1000] * 3]
    with pytest.raises(ConfigError, match=r"the time of item 1: an event time must be in the years 1 to 9999"):
        ListSource("ab", times=[AT_S, AT_S * 1000])


def refuse(*what: Any) -> None:
    raise AssertionError(what)
