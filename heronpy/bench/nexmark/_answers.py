"""What the queries must find, computed in plain Python from all events at once; nothing here is shared with them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from heronpy.bench.nexmark._events import Event

Row = tuple[Any, ...]

WINDOW_MS: Final = 10_000
SLIDE_MS: Final = 2_000
NEARBY: Final = ("OR", "ID", "CA")
LAST_SOLD: Final = 10
_SHOWN: Final = 3


class Answer:
    """The rows of an answer, of which each must be found once."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._missing = Counter(rows)
        self._extra: list[Row] = []
        self.rows = self._missing.total()
        """How many there are."""
        self._left = self.rows

    def add(self, row: Row) -> None:
        """A row was found."""
        left = self._missing[row]
        if left > 1:
            self._missing[row] = left - 1
        else:
            del self._missing[row]
        if left:
            self._left -= 1
        else:
            self._extra.append(row)

    @property
    def complete(self) -> bool:
        """Whether all rows were found, or one that there is not."""
        return not self._left or bool(self._extra)

    def wrong(self) -> str:
        """What is missing, and what was found too much or too often; empty if it is right."""
        missing = f"{self._left:,} rows are missing: {list(self._missing)[:_SHOWN]}" if self._left else ""
        extra = f"{len(self._extra):,} rows are too many: {self._extra[:_SHOWN]}" if self._extra else ""
        return "; ".join(filter(None, (missing, extra)))


class LatestAnswer(Answer):
    """An answer that changes for each key with what comes: rows (key, n, value), of which the last has the value.

    The n-th row of a key has the number n, so one that is missing, or was made twice, shows. How many there are before
    the last depends on the order in which events come.
    """

    def __init__(self, values: dict[Any, Any]) -> None:
        super().__init__(())
        self.rows = len(values)
        self._values = values
        self._numbers: defaultdict[Any, set[int]] = defaultdict(set)
        self._found: dict[Any, tuple[int, Any]] = {}
        self._agreeing = 0

    def add(self, row: Row) -> None:
        key, number, value = row
        if number in self._numbers[key]:
            self._extra.append(row)
        self._numbers[key].add(number)
        latest = self._found.get(key, (0, None))
        if number > latest[0]:
            expected = self._values.get(key)
            self._agreeing += (value == expected) - (bool(latest[0]) and latest[1] == expected)
            self._found[key] = number, value

    @property
    def complete(self) -> bool:
        return self._agreeing == self.rows or bool(self._extra)

    def wrong(self) -> str:
        found = {key: value for key, (_, value) in self._found.items()}
        differing = [key for key in {**self._values, **found} if found.get(key) != self._values.get(key)]
        gaps = [key for key, numbers in self._numbers.items() if len(numbers) != max(numbers)]
        return "; ".join(
            f"{what} in {len(keys):,} keys: {keys[:_SHOWN]}"
            for what, keys in (
                ("another value than expected", differing),
                ("rows are missing", gaps),
                ("a row was made twice", [row[0] for row in self._extra]),
            )
            if keys
        )


def answer(query: str, events: Iterable[Event]) -> Answer:
    """What a query must find in these events."""
    return _ANSWERS[query](events)


def collected(answer: Answer, directory: Path, seen: set[Path]) -> None:
    """Add the rows of files of JSON lines that were not yet seen: each file appears whole, and does not change."""
    decode = msgspec.json.Decoder().decode
    for path in sorted(set(directory.glob("part-*.jsonl")) - seen):
        seen.add(path)
        for line in path.read_bytes().splitlines():
            answer.add(tuple(decode(line)))


def _of(kind: str, events: Iterable[Event]) -> Iterator[Event]:
    return (event for event in events if event["kind"] == kind)


def _windows(at_ms: int, slide_ms: int) -> range:
    """The beginnings of the windows that a time is in."""
    newest = at_ms // slide_ms * slide_ms
    return range(newest - WINDOW_MS + slide_ms, newest + 1, slide_ms)


def _q0(events: Iterable[Event]) -> Answer:
    return Answer((b["auction"], b["bidder"], b["price"], b["time"], b["extra"]) for b in _of("bid", events))


def _q1(events: Iterable[Event]) -> Answer:
    return Answer(
        (b["auction"], b["bidder"], b["price"] * 908 // 1000, b["time"], b["extra"]) for b in _of("bid", events)
    )


def _q2(events: Iterable[Event]) -> Answer:
    return Answer((b["auction"], b["price"]) for b in _of("bid", events) if b["auction"] % 123 == 0)


def _q3(events: Iterable[Event]) -> Answer:
    events = [event for event in events if event["kind"] != "bid"]
    people = {p["id"]: p for p in _of("person", events) if p["state"] in NEARBY}
    return Answer(
        (people[a["seller"]]["name"], people[a["seller"]]["city"], people[a["seller"]]["state"], a["id"])
        for a in _of("auction", events)
        if a["category"] == 10 and a["seller"] in people
    )


def _sold(events: Iterable[Event]) -> list[tuple[Event, int]]:
    """Auctions with the highest bid that came while they were open."""
    bids: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    auctions = []
    for event in events:
        if event["kind"] == "bid":
            bids[event["auction"]].append((event["time"], event["price"]))
        elif event["kind"] == "auction":
            auctions.append(event)
    valid = [(a, [price for at_ms, price in bids[a["id"]] if a["time"] <= at_ms <= a["expires"]]) for a in auctions]
    return [(auction, max(prices)) for auction, prices in valid if prices]


def _q4(events: Iterable[Event]) -> Answer:
    by_category: defaultdict[int, list[int]] = defaultdict(list)
    for auction, price in _sold(events):
        by_category[auction["category"]].append(price)
    return LatestAnswer({category: sum(prices) // len(prices) for category, prices in by_category.items()})


def _q5(events: Iterable[Event]) -> Answer:
    bids = Counter((start, b["auction"]) for b in _of("bid", events) for start in _windows(b["time"], SLIDE_MS))
    most: defaultdict[int, int] = defaultdict(int)
    for (start, _), number in bids.items():
        most[start] = max(most[start], number)
    return Answer((start, auction, n) for (start, auction), n in bids.items() if n == most[start])


def _q6(events: Iterable[Event]) -> Answer:
    by_seller: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for auction, price in _sold(events):
        by_seller[auction["seller"]].append((auction["expires"], auction["id"], price))
    last = {seller: sorted(sold)[-LAST_SOLD:] for seller, sold in by_seller.items()}
    return LatestAnswer({seller: sum(price for _, _, price in sold) // len(sold) for seller, sold in last.items()})


def _q7(events: Iterable[Event]) -> Answer:
    bids = list(_of("bid", events))
    highest: defaultdict[int, int] = defaultdict(int)
    for bid in bids:
        (start,) = _windows(bid["time"], WINDOW_MS)
        highest[start] = max(highest[start], bid["price"])
    starts = ((b, b["time"] // WINDOW_MS * WINDOW_MS) for b in bids)
    return Answer((start, b["price"], b["auction"], b["bidder"]) for b, start in starts if b["price"] == highest[start])


def _q8(events: Iterable[Event]) -> Answer:
    events = [event for event in events if event["kind"] != "bid"]
    people = {(p["id"], p["time"] // WINDOW_MS): p for p in _of("person", events)}
    found = ((a, people.get((a["seller"], a["time"] // WINDOW_MS))) for a in _of("auction", events))
    return Answer((p["id"], p["time"] // WINDOW_MS * WINDOW_MS, p["name"], a["id"]) for a, p in found if p is not None)


def _q11(events: Iterable[Event]) -> Answer:
    times: defaultdict[int, list[int]] = defaultdict(list)
    for bid in _of("bid", events):
        times[bid["bidder"]].append(bid["time"])
    return Answer(row for bidder, at_ms in times.items() for row in _sessions(bidder, sorted(at_ms)))


def _sessions(bidder: int, times_ms: Sequence[int]) -> Iterator[Row]:
    begin_ms = end_ms = times_ms[0]
    number = 0
    for at_ms in times_ms:
        if at_ms - end_ms >= WINDOW_MS:
            yield bidder, begin_ms, end_ms + WINDOW_MS, number
            begin_ms, number = at_ms, 0
        end_ms, number = at_ms, number + 1
    yield bidder, begin_ms, end_ms + WINDOW_MS, number


_ANSWERS: Final[dict[str, Callable[[Iterable[Event]], Answer]]] = {
    "q0": _q0,
    "q1": _q1,
    "q2": _q2,
    "q3": _q3,
    "q4": _q4,
    "q5": _q5,
    "q6": _q6,
    "q7": _q7,
    "q8": _q8,
    "q11": _q11,
}
