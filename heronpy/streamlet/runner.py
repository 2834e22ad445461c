"""Running a streamlet program: as a topology, or captured to be planned otherwise."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from heronpy.api import TopologyBuilder
from heronpy.streamlet.builder import Builder
from heronpy.streamlet.config import Config
from heronpy.streamlet.graph import Graph


@dataclass(frozen=True)
class Program:
    """What `Runner.run` was called with."""

    name: str
    config: Config
    graph: Graph


_captures: list[list[Program]] = []


@contextlib.contextmanager
def captured() -> Iterator[list[Program]]:
    """Inside, `Runner.run` only notes down what it would run. Not for several threads at once."""
    programs: list[Program] = []
    _captures.append(programs)
    try:
        yield programs
    finally:
        _captures.pop()


class Runner:
    """Hands a program to `heron submit`, or to `heron pipeline`."""

    def run(self, name: str, config: Config, builder: Builder) -> None:
        """Run the program under a name.

        Raises:
            TopologyError: the program is not valid, or was not asked for (see `TopologyBuilder.build_and_submit`).
            ConfigError: an unknown configuration key or a wrong value.
        """
        if _captures:
            _captures[-1].append(Program(name, config, builder.graph))
            return
        topology = TopologyBuilder(name)
        builder.build(topology, config)
        _warn_of_live_only(Program(name, config, builder.graph))
        topology.build_and_submit()


def _warn_of_live_only(program: Program) -> None:
    """Say what no batch run will compute: who finds that out weeks later has nothing exact of that time."""
    if program.config.directory is None:
        return
    from heronpy.pipeline import Job
    from heronpy.pipeline.plan import only_live

    for line in only_live(Job.of(program)):
        print(f"warning: {line}", file=sys.stderr)
