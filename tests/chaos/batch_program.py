"""The program of the batch campaign, what goes into its archive, and what a run has made of it.

Windows reach over batches, one value of each hundred makes user code raise, a tenth of the events is there twice, keys
and texts are not all ASCII, nor all UTF-8.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heronpy.archive import ArchiveWriter
from heronpy.connectors import JsonLinesSink, ListSource
from heronpy.pipeline import Job, Manifest, ViewReader
from heronpy.streamlet import Builder, Config, HyperLogLog, Runner, Sum, WindowConfig
from heronpy.streamlet.runner import Program

EVENTS = 240
BAD = 37
KEYS = ("plain", "grün", "\ud800", "日本", "")
Event = dict[str, Any]


def keyed(event: Event) -> tuple[str, int]:
    if event["value"] == BAD:
        raise ValueError(f"{BAD}: {event['key']}")
    return event["key"], event["value"]


def identified(event: Event) -> tuple[str, str]:
    return event["key"], event["id"]


def program(directory: Path, length_s: float) -> tuple[Config, Builder]:
    builder = Builder()
    archived = builder.new_source(ListSource([], times=[], ids=[])).archive()
    pairs = archived.map(keyed).set_name("keyed")
    pairs.to_store("sums", Sum())
    window = WindowConfig(1.5 * length_s, 1.5 * length_s)
    pairs.reduce_by_key_and_window(window, lambda a, b: a + b).set_name("window").to_store("windows", Sum())
    archived.map(identified).to_store("ids", HyperLogLog())
    ninth = archived.filter(lambda event: event["value"] % 9 == 0).map(lambda event: event["id"]).set_name("ninth")
    ninth.to_sink(JsonLinesSink(str(directory / "out")))
    config = Config()
    config.set_pipeline(directory, batch_length=length_s)
    return config, builder


def job_at(directory: Path, length_s: float) -> Job:
    config, builder = program(directory, length_s)
    return Job.of(Program("campaign", config, builder.graph))


def events(commit: int, length_s: float, batches: int) -> list[tuple[str, int, Event]]:
    """(id, time in ms, event): the last tenth of each commit is the first of the next."""
    made = []
    for i in range(EVENTS):
        n = commit * EVENTS * 9 // 10 + i
        time_ms = (n * 7919) % round(1000 * length_s * batches)
        made.append((f"event-{n}", time_ms, {"id": f"e{n}", "key": KEYS[n % 5], "value": n % 100}))
    return made


def archive(directory: Path, rows: Sequence[tuple[str, int, Event]], length_s: float) -> None:
    """Write rows as one commit."""

    def no_letter(where: str, row: Any, reason: str) -> None:
        raise AssertionError((where, row, reason))

    path = directory / "archive" / "events"
    length_ms = round(1000 * length_s)
    writer = ArchiveWriter(path, task="t-0", batch_length_ms=length_ms, codec="columns", dead_letter=no_letter, run="r")
    for id, time_ms, event in rows:
        writer.add(id, time_ms, event)
    writer.commit()
    writer.progress(None)
    writer.close()


def sums_of(*commits: Sequence[tuple[str, int, Event]], length_s: float) -> dict[int, dict[str, int]]:
    """The view `sums`, by plain Python: the earliest of equal ids counts."""
    once = {id: (time_ms, event) for rows in commits for id, time_ms, event in rows}
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for time_ms, event in once.values():
        if event["value"] != BAD:
            found[time_ms // round(1000 * length_s)][event["key"]] += event["value"]
    return {batch: dict(keys) for batch, keys in found.items()}


Found = dict[str, Any]


def found(directory: Path, length_s: float) -> Found:
    """What is done: by batch everything that a run says of it; and the dead letters.

    Raises:
        HeronError: a view cannot be read.
    """
    job = job_at(directory, length_s)
    manifest = Manifest.load(directory)
    batches: dict[int, dict[str, Any]] = {}
    for n, done in manifest.batches.items():
        batches[n] = {"counts": [done.elements, done.duplicates, done.dead_letters, done.damaged]}
        for stage, parts in done.sinks.items():
            folder = directory / "sinks" / stage / f"batch={n}" / done.version
            lines = [line for name in parts.files for line in (folder / name).read_text("utf-8").splitlines()]
            batches[n][stage] = sorted(lines)
    for name, node in job.stores().items():
        with contextlib.closing(ViewReader(directory, name, node.monoid)) as reader:
            for n in reader.batches():
                batches[n][name] = {repr(key): node.monoid.result(acc) for key, acc in reader.items(n)}
            rolled = sorted((repr(key), node.monoid.result(acc)) for key, acc in reader.totals())
            batches.setdefault(-1, {})[name] = rolled  # of all batches, over the roll-up
    return {"batches": batches, "letters": letters(directory), "watermark": manifest.committed_watermark}


def letters(directory: Path) -> list[str]:
    """Stage, reason and row of each dead letter."""
    made = []
    for path in (directory / "dead-letter").glob("*/[!.]*.jsonl"):
        for line in path.read_text().splitlines():
            letter = json.loads(line)
            made.append(f"{path.parent.name}: {letter['reason']}: {letter['row']!r}")
    return sorted(made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("directory", type=Path)
    parser.add_argument("length_s", type=float)
    given = parser.parse_args()
    Runner().run(given.name, *program(given.directory, given.length_s))
