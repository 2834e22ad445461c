"""The program of the batch campaign, what goes into its archive, and what a run has made of it.

Windows reach over batches, a reduction over all of them. One value of each hundred makes user code raise, a tenth of
the events is there twice, keys and texts are not all ASCII, nor all UTF-8.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heronpy.archive import DEAD_LETTERS, ArchiveWriter
from heronpy.connectors import JsonLinesSink, ListSource
from heronpy.filesystem import Location, files_of, location
from heronpy.pipeline import Job, Manifest, ViewReader
from heronpy.pipeline.manifest import CHILDREN, read_children
from heronpy.stores import SqliteStore
from heronpy.streamlet import Builder, Config, HyperLogLog, Runner, Sum, WindowConfig
from heronpy.streamlet.runner import Program

LIVE_ENV = "HERON_CAMPAIGN_LIVE"
"""Where live views are of jobs that have their files in a store; there is nothing in them."""
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


def program(directory: Location, length_s: float) -> tuple[Config, Builder]:
    builder = Builder()
    live = None if isinstance(directory, Path) else SqliteStore(os.environ[LIVE_ENV])
    archived = builder.new_source(ListSource([], times=[], ids=[])).archive()
    pairs = archived.map(keyed).set_name("keyed")
    pairs.to_store("sums", Sum(), live)
    window = WindowConfig(1.5 * length_s, 1.5 * length_s)
    pairs.reduce_by_key_and_window(window, lambda a, b: a + b).set_name("window").to_store("windows", Sum(), live)
    pairs.reduce_by_key(lambda a, b: a + b).set_name("so-far").to_store("totals", Sum(), live)
    archived.map(identified).to_store("ids", HyperLogLog(), live)
    ninth = archived.filter(lambda event: event["value"] % 9 == 0).map(lambda event: event["id"]).set_name("ninth")
    ninth.to_sink(JsonLinesSink("out"))
    config = Config()
    config.set_pipeline(directory, batch_length=length_s)
    return config, builder


def job_at(directory: Location, length_s: float) -> Job:
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


def archive(directory: Location, rows: Sequence[tuple[str, int, Event]], length_s: float) -> None:
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


def found(directory: Location, length_s: float) -> Found:
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
            folder = directory / "sinks" / stage / f"batch={n}" / done.version_of(parts)
            texts = [files_of(folder).read(folder / name).decode() for name in parts.files]
            lines = [line for text in texts for line in text.splitlines()]
            batches[n][stage] = sorted(lines)
    for name, node in job.stores().items():
        with contextlib.closing(ViewReader(directory, name, node.monoid)) as reader:
            for n in reader.batches():
                batches[n][name] = {repr(key): node.monoid.result(acc) for key, acc in reader.items(n)}
            rolled = sorted((repr(key), node.monoid.result(acc)) for key, acc in reader.totals())
            batches.setdefault(-1, {})[name] = rolled  # of all batches, over the roll-up
    return {"batches": batches, "letters": letters(directory), "watermark": manifest.committed_watermark}


def letters(directory: Location) -> list[str]:
    """Stage, reason and row of each dead letter that counts."""
    made = []
    files = files_of(directory)
    for stage, listed in files.folders(directory / DEAD_LETTERS):
        for path in [file.path for file in listed if file.path.name[0].isalnum()]:
            for line in files.read(path).splitlines():
                letter = json.loads(line)
                made.append(f"{stage}: {letter['reason']}: {letter['row']!r}")
    return sorted(made)


def litter(directory: Location, length_s: float) -> list[str]:
    """Files that a manifest does not name: of runs that failed, of attempts that did not count."""
    manifest = Manifest.load(directory)
    named = set()
    for n, done in manifest.batches.items():
        for kind, outputs in (("views", done.views), ("sinks", done.sinks)):
            for output, parts in outputs.items():
                named |= {f"{kind}/{output}/batch={n}/{done.version_of(parts)}/{name}" for name in parts.names()}
    for view, tiers in manifest.tiers.items():
        waiting = list(tiers)
        while waiting:
            tier = waiting.pop()
            folder = f"views/{view}/base/{tier.version}"
            named |= {f"{folder}/{name}" for name in (*tier.parts.names(), CHILDREN)}
            waiting += read_children(directory / folder)
    named |= {f"history/{name}" for name in manifest.segment_files()}
    versions = {done.version for done in manifest.batches.values()}
    left = []
    for path in _all_of(directory):
        top, _, rest = path.partition("/")
        of_no_version = top == DEAD_LETTERS and not any(version in rest for version in versions)
        unnamed = top in ("views", "sinks", "history") and path not in named
        if unnamed or of_no_version or "probe-" in rest or (top == "manifest.lock" and rest):
            left.append(path)
    return left


def _all_of(directory: Location) -> list[str]:
    """The names below it, of all files that there are."""
    if isinstance(directory, Path):  # also hidden ones
        return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    return [path.inner.removeprefix(f"{directory.inner}/") for path in files_of(directory).below(directory)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("directory")
    parser.add_argument("length_s", type=float)
    given = parser.parse_args()
    Runner().run(given.name, *program(location("the job", given.directory), given.length_s))
