"""Makes files of client events for `heronpy.examples.rtac`.

python -m heronpy.examples.rtac_events --events 100000 --output events.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heronpy.examples._arguments import count_of

KINDS = ("following", "unfollowing", "viewing_a_tweet", "tweeting", "favoriting", "searching")
BEGIN_S = 1_700_000_000


def random_events(count: int, *, users: int, seconds: int, seed: int) -> Iterator[dict[str, Any]]:
    """`count` events of `users` users, spread over `seconds` seconds in order of time; the same for the same seed."""
    source = random.Random(seed)
    for n in range(count):
        yield {
            # Some users are much busier than others.
            "user_id": int(users * source.random() ** 2),
            "event": source.choice(KINDS),
            "timestamp": round(BEGIN_S + (n + source.random()) * seconds / count, 6),
        }


def write_events(path: Path, events: Iterator[dict[str, Any]]) -> None:
    with path.open("w") as f:
        f.writelines(json.dumps(event) + "\n" for event in events)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="rtac_events", description="Make a file of client events.")
    parser.add_argument("--events", type=count_of("event"), default=100_000, help="how many (default 100000)")
    parser.add_argument("--users", type=count_of("user"), default=10_000, help="of how many users (default 10000)")
    parser.add_argument("--seconds", type=count_of("second"), default=60, help="spread over how long (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same events (default 0)")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    a = parser.parse_args(argv)
    try:
        write_events(a.output, random_events(a.events, users=a.users, seconds=a.seconds, seed=a.seed))
    except OSError as e:
        sys.exit(f"rtac_events: {a.output} cannot be written: {e.strerror}")


if __name__ == "__main__":
    main()
