"""The events of an auction site: of 50, one is a new person, three are new auctions, and the others are bids.

After Nexmark's generator: half of the bids are for the newest hot auction, three of four bidders and sellers are hot,
too, and some bids are for auctions that are not yet open. Events are in the order of their times.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

FORMAT: Final = 1
"""Of the files; to be raised when other events are made of the same seed."""
BEGIN_MS: Final = 1_436_918_400_000
FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
OPEN_AUCTIONS: Final = 100
"""How many of the newest get bids."""
ACTIVE_PEOPLE: Final = 1000
LEAD: Final = 10
"""Bids may be for auctions, and of people, so many ahead of the newest."""
HOT: Final = 100
"""One id in so many is hot."""
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
FIRST_NAMES: Final = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")

Event = dict[str, Any]


def events(count: int, *, seed: int = 1, per_s: int = 1000) -> Iterator[Event]:
    """The first events of a seed.

    Args:
        count: How many.
        seed: Other seeds, other events.
        per_s: Events in a second of event time.
    """
    source = random.Random(seed)
    for number in range(count):
        round_, place = divmod(number, 50)
        at_ms = BEGIN_MS + number * 1000 // per_s
        if place == 0:
            yield _person(source, round_, at_ms)
        elif place <= 3:
            yield _auction(source, round_, place, at_ms, per_s)
        else:
            yield _bid(source, round_, at_ms)


def written(directory: Path, count: int, *, seed: int = 1, per_s: int = 1000, per_file: int = 20_000) -> Path:
    """The events as files of JSON lines below a directory, made unless they are there. Returns where they are."""
    final = directory / f"events-{FORMAT}-{seed}-{count}-{per_s}"
    if final.is_dir():
        return final
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=directory, prefix=".events-"))
    try:
        encode = msgspec.json.Encoder().encode
        made = events(count, seed=seed, per_s=per_s)
        number = 0
        while lines := [encode(event) for event in islice(made, per_file)]:
            (unfinished / f"{number:05}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
            number += 1
        os.rename(unfinished, final)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return final


def _person(source: random.Random, round_: int, at_ms: int) -> Event:
    name = f"{source.choice(FIRST_NAMES)} {source.choice(LAST_NAMES)}"
    return {
        "kind": "person",
        "id": FIRST_ID + round_,
        "name": name,
        "email": f"{name.replace(' ', '.').lower()}@{_text(source, 8)}.com",
        "card": " ".join(str(source.randrange(1000, 10_000)) for _ in range(4)),
        "city": source.choice(CITIES),
        "state": source.choice(STATES),
        "time": at_ms,
        "extra": _text(source, 60),
    }


def _auction(source: random.Random, round_: int, place: int, at_ms: int, per_s: int) -> Event:
    first_bid = _price(source)
    horizon_ms = max(1, OPEN_AUCTIONS * 50 * 1000 // (3 * per_s))
    return {
        "kind": "auction",
        "id": FIRST_ID + round_ * 3 + place - 1,
        "item": _text(source, 20),
        "description": _text(source, 100),
        "first_bid": first_bid,
        "reserve": first_bid + _price(source),
        "time": at_ms,
        "expires": at_ms + 1 + source.randrange(2 * horizon_ms),
        "seller": _one_of(source, round_, ACTIVE_PEOPLE, hot=0.75),
        "category": FIRST_CATEGORY + source.randrange(5),
        "extra": _text(source, 200),
    }


def _bid(source: random.Random, round_: int, at_ms: int) -> Event:
    return {
        "kind": "bid",
        "auction": _one_of(source, round_ * 3 + 2, OPEN_AUCTIONS, hot=0.5),
        "bidder": _one_of(source, round_, ACTIVE_PEOPLE, hot=0.75),
        "price": _price(source),
        "channel": source.choice(CHANNELS),
        "url": f"https://www.nexmark.com/{_text(source, 16)}/item.htm",
        "time": at_ms,
        "extra": _text(source, 20),
    }


def _one_of(source: random.Random, newest: int, active: int, *, hot: float) -> int:
    if source.random() < hot:
        return FIRST_ID + newest // HOT * HOT
    oldest = max(0, newest - active)
    return FIRST_ID + source.randrange(oldest, newest + LEAD + 1)


def _price(source: random.Random) -> int:
    """In cents, from 1 to 10,000 dollars: each magnitude as often."""
    return round(10 ** (source.random() * 4) * 100)


def _text(source: random.Random, length: int) -> str:
    return f"{source.getrandbits(4 * length):0{length}x}"
