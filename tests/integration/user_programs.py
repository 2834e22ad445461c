"""Programs that define topologies, and an instance that loads their classes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path

from heronpy.loader import Definition, stage

COMPONENTS = """
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout


class LetterSpout(Spout):
    outputs = ["letter"]

    def next_tuple(self):
        self.emit(["a"], tup_id="an id")


class TallyBolt(Bolt):
    def process(self, tup):
        self.ack(tup)
"""

CLASS_TOPOLOGY = """
import heronpy.api.api_constants as constants
from heronpy.api.stream import Grouping
from heronpy.api.topology import Topology

from parts.components import LetterSpout, TallyBolt


class Letters(Topology):
    letters = LetterSpout.spec(par=2)
    tallies = TallyBolt.spec(
        par=3, inputs={letters: Grouping.fields("letter")}, config={constants.TOPOLOGY_TICK_TUPLE_FREQ_SECS: 10}
    )
"""

NAMING_TOPOLOGY = (
    COMPONENTS
    + """
from heronpy.api import Grouping, Topology


class Letters(Topology):
    config = {
        "topology.auto.task.hooks": ["named_hooks.Hook"],
        "topology.serializer.classname": "named_serializer.Own",
    }
    letters = LetterSpout.spec()
    tallies = TallyBolt.spec(inputs={letters: Grouping.custom("named_grouping.First")})


Letters.write()
"""
)
NAMED_MODULES = {
    "named_hooks.py": "class Hook: ...",
    "named_serializer.py": "class Own: ...",
    "named_grouping.py": "class First: ...",
}

SCRIPT = (
    COMPONENTS
    + """
import dataclasses
import sys

from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder


@dataclasses.dataclass
class Limits:
    most: int


class First(ICustomGrouping):
    def prepare(self, context, component, stream, target_tasks):
        self.target = target_tasks[0]

    def choose_tasks(self, values):
        return [self.target]


if __name__ == "__main__":
    builder = TopologyBuilder(name=sys.argv[1])
    letters = builder.add_spout("letters", LetterSpout, par=1)
    builder.add_bolt(
        "tallies", TallyBolt, par=2, inputs={letters: Grouping.custom(First())}, config={"limits": Limits(7)}
    )
    builder.build_and_submit()
"""
)

# What an instance does first: load the launch file, activate, load its class. Then it runs the given code.
INSTANCE = """
import sys
from heronpy.loader import activate, load_class
from heronpy.runtime import Launch

launch = Launch.load(sys.argv[1])
activate(launch)
exec(sys.argv[2])
"""


def write(directory: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return directory


def archive(path: Path, files: Mapping[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as f:
        for name, text in files.items():
            f.writestr(name, text)
    return path


def in_instance(definition: Definition, directory: Path, code: str) -> str:
    """Stage a definition, forget its sources, and run code in a new process as an instance of it would."""
    from heronpy.runtime import Launch, StatemgrSpec

    staged = stage(definition, directory)
    Launch(
        topology=definition.name,
        topology_id=definition.proto.id,
        cluster="local",
        role="me",
        environ="test",
        statemgr=StatemgrSpec(root="/nowhere"),
        dir=directory,
        package_paths=staged.package_paths,
        main_file=staged.main_file,
    ).save()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", INSTANCE, str(directory), textwrap.dedent(code)],
        cwd="/",
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def classes(definition: Definition) -> dict[str, str]:
    components = [*definition.proto.spouts, *definition.proto.bolts]
    return {c.comp.name: c.comp.class_name for c in components}
