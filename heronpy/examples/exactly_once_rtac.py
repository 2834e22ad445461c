"""RTAC and the sessions of its users as a streamlet, effectively once: windows are state, and rows are written once.

    python -m heronpy.examples.rtac_events --events 100000 --output events.jsonl
    heron submit local heronpy.examples.exactly_once_rtac - RTAC --input events.jsonl --output DIRECTORY

An event is a line of JSON, as of `heronpy.examples.rtac`. By their own timestamps they are divided in two ways:

- DIRECTORY/active has, for every second and kind of event, the number of its different users: [second, event, users].
- DIRECTORY/sessions has what each user did without a pause of `--gap` seconds: [user_id, first second, last second,
  events].

Every second a checkpoint is taken of the positions in the files, of all open windows, and of what is written; so each
event counts once, whatever dies, and rows appear as the checkpoint is committed. A closed window leaves nothing behind.
An event that comes more than `--lateness` seconds behind the latest one makes a row of its own. Lines that are added to
the files are read, too; the topology does not end by itself, and the last windows stay open until later events come.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heronpy.api import api_constants
from heronpy.connectors import JsonLinesSink, TextFile
from heronpy.errors import HeronError
from heronpy.examples._arguments import count, count_of, input_files, name_and_containers, parsed_with_input
from heronpy.examples.rtac import event_of
from heronpy.streamlet import Builder, Config, Runner, WindowConfig

log = logging.getLogger(__name__)
Event = tuple[Any, str, int]
"""User, kind and second."""


def events_of(line: str) -> list[Event]:
    """The event of a line. One that is none is logged and left out."""
    try:
        return [event_of(line.encode())]
    except ValueError as e:
        log.warning("left out: %s", e)
        return []


def _joined(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
    """First second, last second and number of events of two parts of a session."""
    return min(a[0], b[0]), max(a[1], b[1]), a[2] + b[2]


def program(arguments: argparse.Namespace) -> tuple[Config, Builder]:
    """The program for parsed arguments."""
    builder = Builder()
    files = TextFile([path.absolute() for path in arguments.input])
    lines = builder.new_source(files, discover_every_s=1).set_name("lines")
    events = lines.flat_map(events_of).event_time(lambda event: event[2])
    seconds = events.map(lambda event: (event[1], frozenset((event[0],)))).reduce_by_key_and_window(
        WindowConfig.create_tumbling_window(1), lambda a, b: a | b
    )
    active = seconds.set_name("active").set_num_partitions(arguments.windows)
    rows = active.map(lambda found: [found[0].window.start, found[0].key, len(found[1])])
    rows.to_sink(JsonLinesSink(arguments.output.absolute() / "active"))
    visits = events.map(lambda event: (event[0], (event[2], event[2], 1))).reduce_by_key_and_window(
        WindowConfig.create_session_window(arguments.gap), _joined
    )
    sessions = visits.set_name("sessions").set_num_partitions(arguments.windows)
    rows = sessions.map(lambda found: [found[0].key, *found[1]])
    rows.to_sink(JsonLinesSink(arguments.output.absolute() / "sessions"))
    config = Config()
    config.set_num_containers(arguments.containers)
    config.set_max_lateness(arguments.lateness)
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    config.set_user_config(api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS, arguments.checkpoint_interval)
    return config, builder


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = argparse.ArgumentParser(prog="exactly_once_rtac", description="Active users and sessions, each once.")
    name_and_containers(parser)
    input_files(parser, "files with one JSON event a line")
    parser.add_argument("--output", type=Path, required=True, help="directory for the rows")
    count(parser, "--windows", 2, "keep windows, of each kind")
    parser.add_argument("--gap", type=count_of("second"), default=10, help="seconds that end a session (default 10)")
    parser.add_argument("--lateness", type=float, default=1.0, help="seconds that events may be late (default 1)")
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, help="seconds (default 1)")
    return parsed_with_input(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(sys.argv[1:] if argv is None else argv)
    try:
        Runner().run(arguments.name, *program(arguments))
    except HeronError as e:
        sys.exit(f"exactly_once_rtac: {e}")


if __name__ == "__main__":
    main()
