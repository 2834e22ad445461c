"""A program in several versions: what each counts is told apart in the state, and which one runs is in files."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

KEYS = 20

_PROGRAM = """
import hashlib, json, logging, os, sys, time
from pathlib import Path
from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder

TICK = "topology.tick.tuple.freq.ms"
VERSION, KEYS, STATEFUL, ACKED, SECRETS = {version}, {keys}, {stateful}, {acked}, {secrets}
DIRECTORY = Path({directory!r})


class Numbers(Spout):
    outputs = ("key", "number")

    def initialize(self, config, context):
        self.position = context.task_state("position", default=0) if STATEFUL else Plain()
        self.next_s, self.noted = time.monotonic(), -1
        for name in SECRETS:
            secret = context.get_secret(name)
            assert config["my." + name] == "x://ada:" + secret + "@h"
            logging.getLogger("numbers").info("the password is %s", secret)
            digest = DIRECTORY / f"digest-{{name}}-{{VERSION}}"
            digest.with_suffix(".tmp").write_text(hashlib.sha256(secret.encode()).hexdigest())
            os.replace(digest.with_suffix(".tmp"), digest)

    def next_tuple(self):
        now_s, number = time.monotonic(), self.position.value
        if number % KEYS == 0 and (DIRECTORY / "finish").exists():
            if self.noted != number:
                self.noted = number
                (DIRECTORY / "emitted.tmp").write_text(str(number))
                os.replace(DIRECTORY / "emitted.tmp", DIRECTORY / "emitted")
        elif now_s >= self.next_s:
            self.next_s = max(self.next_s + 0.005, now_s - 0.1)
            self.position.value = number + 1
            self.emit([f"key {{number % KEYS}}", number], **({{"tup_id": number}} if ACKED else {{}}))

    def fail(self, number):
        self.emit([f"key {{number % KEYS}}", number], tup_id=number)


class Plain:
    value = 0


class Count(Bolt):
    def initialize(self, config, context):
        self.counts = context.keyed_state("counts", default=()) if STATEFUL else {{}}
        self.seen = context.keyed_state("seen", default=frozenset()) if ACKED else {{}}
        self.path = DIRECTORY / f"counts-{{context.get_this_task_index()}}.json"
        while (DIRECTORY / f"hold-{{VERSION}}").exists():
            time.sleep(0.05)

    def process(self, tup):
        if VERSION == 3:
            raise ValueError("version 3 fails at once")
        counts = list(self.counts.get(tup["key"], ()) if not STATEFUL else self.counts[tup["key"]]) or [0, 0, 0]
        counts[VERSION - 1] += 1
        self.counts[tup["key"]] = tuple(counts)
        if ACKED:
            self.seen[tup["key"]] |= {{tup["number"]}}
        self.ack(tup)  # in any case: a bolt that may do so is waited for

    def process_tick(self, tup):
        temporary = self.path.with_suffix(".tmp")
        seen = {{key: len(numbers) for key, numbers in self.seen.items()}}
        temporary.write_text(json.dumps({{"version": VERSION, "counts": dict(self.counts.items()), "seen": seen}}))
        os.replace(temporary, self.path)


builder = TopologyBuilder("versioned")
source = builder.add_spout("numbers", Numbers, 1)
builder.add_bolt("count", Count, {tasks}, {{source: Grouping.fields("key")}}, config={{TICK: 200}})
config = {{"topology.stmgrs": 2}} | {{"my." + name: "x://ada:${{secret:" + name + "}}@h" for name in SECRETS}}
if STATEFUL:
    config |= {{"topology.reliability.mode": "{mode}", "topology.stateful.checkpoint.interval.seconds": 1}}
builder.set_config(config)
builder.build_and_submit()
"""


def program(
    directory: Path,
    version: int,
    *,
    stateful: bool,
    tasks: int = 2,
    mode: str = "EFFECTIVELY_ONCE",
    secrets: Collection[str] = (),
) -> Path:
    """The file of a version. Version 3 fails with its first tuple.

    Of the secrets, which the submission has to say, each version writes digests, as `digest-NAME-VERSION`.
    """
    path = directory / f"v{version}-{tasks}" / "versioned.py"
    path.parent.mkdir()
    values = {"version": version, "keys": KEYS, "stateful": stateful, "directory": str(directory), "tasks": tasks}
    values["secrets"] = [*secrets]
    text = _PROGRAM.format(**values, mode=mode, acked=mode == "ATLEAST_ONCE")
    path.write_text(text)
    return path


def counts_in(directory: Path) -> dict[str, list[int]]:
    """Of each key, how often each version has counted it."""
    counts: dict[str, list[int]] = {}
    for path in directory.glob("counts-*.json"):
        counts |= json.loads(path.read_text())["counts"]
    return counts


def seen_in(directory: Path) -> dict[str, int]:
    """Of each key, how many different numbers were counted; at least once only."""
    seen: dict[str, int] = {}
    for path in directory.glob("counts-*.json"):
        seen |= json.loads(path.read_text())["seen"]
    return seen


def versions_in(directory: Path) -> list[int]:
    """The version that each task of the bolt has."""
    return [json.loads(path.read_text())["version"] for path in sorted(directory.glob("counts-*.json"))]
