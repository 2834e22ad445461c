"""RTAC, the real-time active user counts of the Storm and Heron papers: who did what, counted every second.

    python -m heronpy.examples.rtac_events --events 100000 --output events.jsonl
    heron submit local heronpy.examples.rtac - RTAC --input events.jsonl --output DIRECTORY

An event is a line of JSON: {"user_id": 17, "event": "following", "timestamp": 1700000000.25}, with the timestamp in
seconds. The result has one row for every second and kind of event: how many different users there were.

`events` reads lines; `distribute` (shuffle) parses them; `user_count` (fields grouping on user_id) keeps the users of
each second and event, and sends its numbers once a second (a tick) to `aggregate` (fields grouping on timestamp), which
adds up the numbers of all `user_count` tasks.

Exact, also when events are replayed: a set of users does not grow by seeing one again, and a task's newer number for a
second takes the place of its older one. `user_count` acks events only with the numbers that contain them, which are
anchored to all of them, so `events` knows that everything is in the aggregate when its last event is acked. Only the
death of a `user_count` or `aggregate` process loses what it had in memory.

The input is finite here, and nothing is ever forgotten; an endless feed would let go of seconds that are over.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple, api_constants
from heronpy.errors import HeronError
from heronpy.examples._arguments import (
    count,
    count_of,
    input_files,
    name_and_containers,
    parsed_with_input,
    settings_of,
)
from heronpy.examples.lines import END, INPUT, InputEnd, LineSpout
from heronpy.examples.results import OUTPUT, new_output, write_results

TICK_S = 1


def event_of(line: bytes) -> tuple[int | str, str, int]:
    """User, kind of event, and second of a line.

    Raises:
        ValueError: it is no such event.
    """
    try:
        event = json.loads(line)
        user, kind, second = event["user_id"], event["event"], math.floor(event["timestamp"])
    except (KeyError, TypeError, OverflowError) as e:
        raise ValueError(f"not an event: {type(e).__name__} {e}") from e
    if not isinstance(user, int | str) or not isinstance(kind, str):
        raise ValueError("not an event: user_id must be a number or a string, and event a string")
    return user, kind, second


class DistributorBolt(Bolt):
    """Parses events, so that they can be divided by user. A line that is no event is logged and left out."""

    outputs = ["user_id", "event", "timestamp"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._refused = 0

    def process(self, tup: Tuple) -> None:
        try:
            self.emit(event_of(tup.values[0]), anchors=[tup])
        except ValueError as e:
            self._refused += 1
            self.logger.warning("left out, %d so far: %s", self._refused, e)
        self.ack(tup)


class UserCountBolt(Bolt):
    """Keeps the different users of every second and event; emits this task's numbers once a second."""

    outputs = ["timestamp", "event", "task", "users"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._task = context.get_task_id()
        self._users: dict[tuple[int, str], set[int | str]] = {}
        self._waiting: dict[tuple[int, str], list[Tuple]] = {}  # as many as topology.max.spout.pending, per spout task

    def process(self, tup: Tuple) -> None:
        user, event, second = tup.values
        key = second, event
        self._users.setdefault(key, set()).add(user)
        self._waiting.setdefault(key, []).append(tup)

    def process_tick(self, tup: Tuple) -> None:
        for (second, event), tuples in self._waiting.items():
            self.emit((second, event, self._task, len(self._users[second, event])), anchors=tuples)
            for waiting in tuples:
                self.ack(waiting)
        self._waiting.clear()


class AggregatorBolt(Bolt):
    """Adds up the users of every second and event over the `user_count` tasks; writes the sums when the input ends."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._part = context.get_this_task_index()
        self._output = Path(config[OUTPUT])
        self._users: dict[tuple[int, str], dict[int, int]] = {}
        self._end = InputEnd()

    def process(self, tup: Tuple) -> None:
        if tup.stream != END:
            second, event, task, users = tup.values
            self._users.setdefault((second, event), {})[task] = users
            self.ack(tup)
        elif self._end.reached(tup):
            rows = sorted((second, event, sum(by_task.values())) for (second, event), by_task in self._users.items())
            write_results(self._output, self._part, rows, {"rows": len(rows)})
            self._end.ack_with(self)


def topology(arguments: argparse.Namespace) -> TopologyBuilder:
    """The topology for parsed arguments.

    Raises:
        UsageError: the output directory is not empty.
    """
    output = new_output(arguments.output)
    builder = TopologyBuilder(arguments.name)
    events = builder.add_spout(
        "events", LineSpout, arguments.spouts, config={INPUT: [str(p.absolute()) for p in arguments.input]}
    )
    distribute = builder.add_bolt(
        "distribute", DistributorBolt, arguments.distributors, inputs={events: Grouping.SHUFFLE}
    )
    user_count = builder.add_bolt(
        "user_count",
        UserCountBolt,
        arguments.user_counts,
        inputs={distribute: Grouping.fields("user_id")},
        config={api_constants.TOPOLOGY_TICK_TUPLE_FREQ_SECS: TICK_S},
    )
    builder.add_bolt(
        "aggregate",
        AggregatorBolt,
        arguments.aggregators,
        inputs={user_count: Grouping.fields("timestamp"), events[END]: Grouping.ALL},
        config={OUTPUT: str(output)},
    )
    builder.set_config(settings_of(arguments, api_constants.TopologyReliabilityMode.ATLEAST_ONCE))
    return builder


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = argparse.ArgumentParser(prog="rtac", description="Active users per event and second.")
    name_and_containers(parser)
    input_files(parser, "files with one JSON event a line")
    parser.add_argument("--output", type=Path, required=True, help="directory for the numbers, new or empty")
    count(parser, "--spouts", 1, "read")
    count(parser, "--distributors", 1, "parse")
    count(parser, "--user-counts", 2, "keep users")
    count(parser, "--aggregators", 1, "add up")
    parser.add_argument(
        "--max-spout-pending",
        type=count_of("event"),
        default=50_000,
        help="events on their way per spout task: at most so many in a second (default 50000)",
    )
    return parsed_with_input(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(sys.argv[1:] if argv is None else argv)
    try:
        topology(arguments).build_and_submit()
    except HeronError as e:
        sys.exit(f"rtac: {e}")


if __name__ == "__main__":
    main()
