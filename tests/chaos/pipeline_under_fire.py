"""A whole data pipeline for the chaos tests: events with ids and times, an archive, views with and without windows."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heronpy.api import TopologyBuilder
from heronpy.archive import Archive
from heronpy.connectors import JsonLines, ListSource, Source
from heronpy.pipeline import Job, MergedStore, ViewReader
from heronpy.stores import SqliteStore, Store, StoreContext
from heronpy.streamlet import Builder, Config, Sum, WindowConfig
from heronpy.streamlet.runner import Program
from heronpy.streamlet.windows import window_at

BATCH_S, BATCHES = 10, 4
WINDOW = WindowConfig(5, 5)
KEYS = 5
LATENESS_S = 1

Views = dict[str, dict[int, dict[Any, int]]]
"""By view, batch and key."""


def events(dice: random.Random, count: int) -> list[dict[str, Any]]:
    """Events of the last minutes, in whole batches, a little out of order."""
    begin = int(time.time()) // BATCH_S * BATCH_S - (BATCHES + 1) * BATCH_S
    step = BATCHES * BATCH_S / count
    made = []
    for n in range(count):
        at = max(begin, begin + n * step - dice.random() * LATENESS_S)
        made.append({"id": f"event-{n}", "time": round(at, 3), "key": f"k{dice.randrange(KEYS)}", "value": n % 100})
    return made


def exact(made: list[dict[str, Any]]) -> Views:
    """What the views have to hold, counted by plain Python."""
    sums: dict[int, Counter[Any]] = defaultdict(Counter)
    windows: dict[int, Counter[Any]] = defaultdict(Counter)
    for event in made:
        time_ms = round(event["time"] * 1000)
        start_ms = time_ms // WINDOW.duration_ms * WINDOW.duration_ms
        result_ms = start_ms + WINDOW.duration_ms - 1
        sums[time_ms // (BATCH_S * 1000)][event["key"]] += event["value"]
        windows[result_ms // (BATCH_S * 1000)][event["key"], window_at(start_ms, WINDOW)] += event["value"]
    return {"sums": dict(sums), "windows": dict(windows)}


def as_list(made: list[dict[str, Any]], _directory: Path) -> Source:
    """The events, travelling with the program."""
    return ListSource(made, times=[event["time"] for event in made], ids=[event["id"] for event in made])


def as_files(made: list[dict[str, Any]], directory: Path) -> Source:
    """The events in files of JSON lines."""
    directory.mkdir()
    for part in range(3):
        lines = [json.dumps(event) + "\n" for event in made[part * len(made) // 3 : (part + 1) * len(made) // 3]]
        (directory / f"{part}.jsonl").write_text("".join(lines))
    return JsonLines(str(directory / "*.jsonl"))


def slowly(pause_s: float, event: dict[str, Any]) -> dict[str, Any]:
    """The event, after a moment: so that something is on its way when somebody dies."""
    time.sleep(pause_s)
    return event


def keyed(event: dict[str, Any]) -> tuple[str, int]:
    return event["key"], event["value"]


def time_of(event: dict[str, Any]) -> float:
    return event["time"]


class Pipeline:
    """One program with its directory, and what is in there."""

    def __init__(self, directory: Path, source: Source, store: Store | None = None, *, pause_s: float = 0.001) -> None:
        builder = Builder()
        read = builder.new_source(source).set_num_partitions(2).set_name("source")
        paced = read.map(functools.partial(slowly, pause_s))
        timed = paced if source.timed else paced.event_time(time_of)
        pairs = timed.archive(name="events").set_name("archive").map(keyed)
        pairs.to_store("sums", Sum(), store or SqliteStore())  # store-1
        windows = pairs.reduce_by_key_and_window(WINDOW, lambda a, b: a + b).set_num_partitions(2).set_name("window")
        windows.to_store("windows", Sum(), store or SqliteStore())  # store-2
        config = Config()
        config.set_pipeline(directory / "job", batch_length=BATCH_S)
        config.set_max_lateness(LATENESS_S + 0.1)
        config.set_idle_timeout(3)
        config.set_num_containers(2)
        config.set_user_config("topology.message.timeout.secs", 8)
        self.topology = TopologyBuilder("fire")
        builder.build(self.topology, config)
        self.job = Job.of(Program("fire", config, builder.graph))

    def archived(self) -> dict[str, tuple[int, Any]]:
        """Time and element by the event's id. What is there twice has the same id in the archive, and is the same."""
        found: dict[str, tuple[int, Any]] = {}
        ids: dict[str, str] = {}
        archive = Archive(self.job.directory / "archive" / "events")
        if not archive.exists:
            return found
        for files in archive.batches().values():
            for split in archive.splits(files, 1 << 20):
                for chunk in split.read(_refuse):
                    for id, time_ms, value in zip(map(str, chunk.ids or ()), chunk.times_ms, chunk.values, strict=True):
                        assert ids.setdefault(value["id"], id) == id
                        assert found.setdefault(value["id"], (time_ms, value)) == (time_ms, value)
        return found

    def live(self) -> Views:
        found: Views = {}
        for name, node in self.job.stores().items():
            context = StoreContext(view=name, monoid=node.monoid, directory=self.job.directory)
            with contextlib.closing(node.store.reader(context)) as reader:
                found[name] = {batch: dict(reader.items(batch)) for batch in reader.batches()}
        return found

    def batch(self) -> Views:
        found: Views = {}
        for name in self.job.stores():
            with contextlib.closing(ViewReader(self.job.directory, name, Sum())) as reader:
                found[name] = {batch: dict(reader.items(batch)) for batch in reader.batches()}
        return found

    def merged(self, view: str) -> dict[Any, int]:
        with MergedStore(self.job, view) as store:
            return dict(store.items())


def totals(view: Mapping[int, Mapping[Any, int]]) -> Counter[Any]:
    """A view over all batches."""
    found: Counter[Any] = Counter()
    for rows in view.values():
        found.update(rows)
    return found


def at_least(live: Views, wanted: Views) -> list[str]:
    """What of the wanted rows is missing, in whole or in part."""
    return [
        f"{name} {batch} {key}: {live[name].get(batch, {}).get(key)} of {value}"
        for name, batches in wanted.items()
        for batch, rows in batches.items()
        for key, value in rows.items()
        if live[name].get(batch, {}).get(key, -1) < value
    ]


def _refuse(where: str, _row: Any, reason: str) -> None:
    raise AssertionError(f"{where}: {reason}")
