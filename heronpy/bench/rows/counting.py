"""The topology of the measurements: keys that come in turn, counted effectively once, and what its tasks say of it.

The i-th tuple has the key i modulo their number, so after n tuples each key has been counted n // keys times, or once
more: whether counts are exact shows in how many keys have which count.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.state import State, StatefulComponent
from heronpy.bench._probe import Probe

SOURCE: Final = "source"
COUNT: Final = "count"
DIRECTORY: Final = "bench.directory"
KEYS: Final = "bench.keys"
RATE: Final = "bench.rate"
BYTES: Final = "bench.bytes"
WORK: Final = "bench.work"
PAYLOAD: Final = "bench.payload"
PACED: Final = "bench.paced"
BEHIND_MAX_S: Final = 1.0
"""A bolt that works for a given time makes up for so much in which it got no CPU."""
REPORT: Final = "report"
"""While there is a file of this name, each snapshot says what is in it."""


class Source(Spout, StatefulComponent):
    """Emits each key once, as fast as it can unless it is paced, and then again and again, at a given rate."""

    outputs = ["key", "payload"]  # noqa: RUF012  # Heron's way to declare

    def init_state(self, state: State) -> None:
        self._saved = state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._directory = Path(config[DIRECTORY])
        self._keys, self._rate = int(config[KEYS]), config[RATE]
        self._paced_from = 0 if config[PACED] else self._keys
        self._payload = bytes(int(config[PAYLOAD]))
        self.emitted = int(self._saved.get("emitted") or 0)
        self._began_s: float | None = None
        self._probe = Probe(self._directory, f"{SOURCE}-0", lambda: {"count": self.emitted})

    def activate(self) -> None:
        self._began_s = None

    def next_tuple(self) -> None:
        number = self.emitted
        if self._rate and number >= self._paced_from:
            now_s = time.monotonic()
            if self._began_s is None:  # a pause is not made up for
                self._began_s = now_s - number / self._rate
            if number > (now_s - self._began_s) * self._rate:
                return
        self.emitted = number + 1
        self.emit([f"key-{number % self._keys}", self._payload])

    def pre_save(self, checkpoint_id: str) -> None:
        self._saved.put("emitted", self.emitted)
        if (self._directory / REPORT).exists():
            report(self._directory, f"{SOURCE}-0", checkpoint_id, {"emitted": self.emitted})

    def close(self) -> None:
        self._probe.close()


class Count(Bolt, StatefulComponent):
    """Counts keys; each value has so many bytes besides."""

    def init_state(self, state: State) -> None:
        pass  # it declares its own

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._directory = Path(config[DIRECTORY])
        self._name = f"{COUNT}-{context.get_this_task_index()}"
        self._bytes, self._work_s = int(config[BYTES]), float(config[WORK])
        self._counts = context.keyed_state("counts")
        self._number = 0
        self._ready_s = 0.0
        labels = {"task": context.get_task_id(), "epoch": context.restore_epoch}
        self._probe = Probe(self._directory, self._name, lambda: {**labels, "count": self._number})

    def process(self, tup: Tuple) -> None:
        self._number += 1
        key = tup.values[0]
        counts = self._counts
        if not self._bytes:
            counts[key] = counts.get(key, 0) + 1
        elif (found := counts.get(key)) is None:
            counts[key] = (1, key.encode().ljust(self._bytes))
        else:
            counts[key] = (found[0] + 1, found[1])
        if self._work_s:
            self._work()
        self.ack(tup)

    def _work(self) -> None:
        """Take as long for a tuple as it should, in the mean: a short sleep takes longer than it is asked to."""
        now_s = time.monotonic()
        self._ready_s = max(self._ready_s, now_s - BEHIND_MAX_S) + self._work_s
        if self._ready_s > now_s:
            time.sleep(self._ready_s - now_s)

    def pre_save(self, checkpoint_id: str) -> None:
        if (self._directory / REPORT).exists():
            values = self._counts.values()
            numbers = Counter(value[0] if self._bytes else value for value in values)
            report(self._directory, self._name, checkpoint_id, {"numbers": list(numbers.items())})

    def cleanup(self) -> None:
        self._probe.close()


def report(directory: Path, name: str, checkpoint_id: str, content: dict[str, Any]) -> None:
    """Write what a task has at a checkpoint."""
    path = directory / f"{name}.{checkpoint_id}.report"
    path.with_suffix(".new").write_text(json.dumps(content))
    path.with_suffix(".new").replace(path)


def wrong_counts(directory: Path, checkpoint_id: int, keys: int, tasks: int) -> str:
    """What is wrong with the counts of a checkpoint of which all tasks have reported; empty: they are exact."""
    (emitted,) = (
        json.loads(path.read_text())["emitted"] for path in directory.glob(f"{SOURCE}-*.{checkpoint_id}.report")
    )
    reports = list(directory.glob(f"{COUNT}-*.{checkpoint_id}.report"))
    assert len(reports) == tasks, f"{len(reports)} of {tasks} tasks have reported checkpoint {checkpoint_id}"
    found: Counter[int] = Counter()
    for path in reports:
        found.update(dict(json.loads(path.read_text())["numbers"]))
    each, more = divmod(emitted, keys)
    expected = Counter({each: keys - more, each + 1: more})
    if +found == Counter({number: n for number, n in expected.items() if number and n}):
        return ""
    return f"of {emitted:,} tuples {sum(n * number for number, n in found.items()):,} are counted, as {dict(found)}"


def counting(
    directory: Path,
    *,
    keys: int,
    tasks: int,
    interval_s: float,
    rate: float | None,
    value_bytes: int = 0,
    work_s: float = 0.0,
    payload_bytes: int = 0,
    paced: bool = False,
    memory_mb: int | None = None,
) -> TopologyBuilder:
    """The topology.

    Args:
        directory: Of probes and reports.
        keys: How many there are.
        tasks: That count.
        interval_s: From checkpoint to checkpoint.
        rate: Tuples per second after each key has come once; None: as many as possible.
        paced: From the first key on.
        memory_mb: `topology.state.memory.mb` of the tasks that count; None: all that they need.
        value_bytes: In each value besides the count.
        work_s: That each tuple takes in the bolt.
        payload_bytes: Of each tuple besides its key.
    """
    config: dict[str, Any] = {
        DIRECTORY: str(directory),
        KEYS: keys,
        RATE: rate or 0,
        BYTES: value_bytes,
        WORK: work_s,
        PAYLOAD: payload_bytes,
        PACED: paced,
    }
    budget = {} if memory_mb is None else {"topology.state.memory.mb": memory_mb}
    builder = TopologyBuilder("bench-state")
    source = builder.add_spout(SOURCE, Source, 1, config=config)
    builder.add_bolt(COUNT, Count, tasks, {source: Grouping.fields("key")}, config={**config, **budget})
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": interval_s,
        }
    )
    return builder
