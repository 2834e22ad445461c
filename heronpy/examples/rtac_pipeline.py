"""RTAC, the active user counts of the Storm and Heron papers, live and in batch, from one definition.

    python -m heronpy.examples.rtac_events --events 100000 --seconds 600 --output events.jsonl
    heron submit local heronpy.examples.rtac_pipeline - RTAC --input events.jsonl --directory DIR
    heron pipeline run heronpy.examples.rtac_pipeline RTAC --input events.jsonl --directory DIR
    heron pipeline query RTAC '["searching", "2023-11-14T22:13"]'

Two views with the keys (kind of event, minute): `users` estimates the number of different users with HyperLogLog, in a
few KB however many they are; `users_exact` keeps the users. `events` counts the events, replays included when live:
where the first two cannot drift, because a user seen twice is still one, this one shows what was counted twice.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from heronpy.connectors import JsonLines
from heronpy.errors import HeronError
from heronpy.examples._arguments import count, input_files, name_and_containers
from heronpy.streamlet import Builder, Config, HyperLogLog, Runner, SetUnion, Sum

BATCH_LENGTH_S = 60


def time_of(event: dict[str, Any]) -> float:
    """The time of an event, in seconds since the epoch."""
    return float(event["timestamp"])


def key_of(event: dict[str, Any]) -> tuple[str, str]:
    """Kind of event, and its minute in UTC: ("searching", "2023-11-14T22:13")."""
    minute = datetime.fromtimestamp(event["timestamp"] // 60 * 60, UTC)
    return event["event"], minute.strftime("%Y-%m-%dT%H:%M")


def program(arguments: argparse.Namespace) -> tuple[Config, Builder]:
    """The program for parsed arguments."""
    builder = Builder()
    source = builder.new_source(JsonLines(arguments.input)).set_name("source").set_num_partitions(arguments.sources)
    events = source.event_time(time_of).archive()
    users = events.map(lambda event: (key_of(event), event["user_id"])).set_name("user")
    users.to_store("users", HyperLogLog(), num_partitions=arguments.counts)
    users.to_store("users_exact", SetUnion(), num_partitions=arguments.counts)
    users.map(lambda user: (user[0], 1)).to_store("events", Sum(), num_partitions=arguments.counts)
    config = Config()
    config.set_num_containers(arguments.containers)
    config.set_pipeline(arguments.directory, batch_length=BATCH_LENGTH_S, keep_live_batches=10_000)
    return config, builder


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = argparse.ArgumentParser(prog="rtac_pipeline", description="Active users, live and in batch.")
    name_and_containers(parser)
    input_files(parser, "files with one JSON event a line")
    parser.add_argument("--directory", type=Path, required=True, help="where archive, views and live stores are kept")
    count(parser, "--sources", 1, "read")
    count(parser, "--counts", 1, "write each view")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(sys.argv[1:] if argv is None else argv)
    try:
        Runner().run(arguments.name, *program(arguments))
    except HeronError as e:
        sys.exit(f"rtac_pipeline: {e}")


if __name__ == "__main__":
    main()
