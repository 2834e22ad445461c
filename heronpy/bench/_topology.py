"""The word count of the Heron paper (section 7.3) as `heron bench` runs it, and what floor and RTAC share with it.

Measuring costs nothing per tuple. A spout needs the number of emitted tuples anyway, as a message id. A bolt's number
of tuples is the sum of its counts. And latency is carried by a few tuples whose word is the time when they were
emitted: the pick of a random word is made from a range that is a little too large, so now and then it fails, and the
failure makes such a word; in the bolt, again, only a word that was never seen before comes to the code that knows them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple, api_constants
from heronpy.api.state import State, StatefulComponent
from heronpy.bench._probe import Latencies, Probe
from heronpy.examples.random_word_count import random_words

NAME = "bench"
SPOUT, BOLT = "words", "count"

DIRECTORY = "bench.directory"
"""Configuration key: where the probes' sockets are."""
RATE = "bench.rate"
"""Configuration key: tuples per second and spout task; 0 for as many as possible."""
KEYS = "bench.keys"
"""Configuration key: how many different words there are."""
COUNTED_APART = "bench.counted.apart"
"""Configuration key: whether bolts count tuples apart from words in every mode, as they have to effectively once."""

STAMP = "~"
"""The first character of a word that is a time (ns, CLOCK_MONOTONIC): no random word has it."""
STAMPED = 0.001
"""The share of tuples that are stamped, at full speed."""
STAMPED_PACED = 0.1
"""The same at a given rate, where there are fewer of them."""


class WordSpout(Spout):
    """One word, picked at random, in every next_tuple()."""

    outputs = ["word"]  # noqa: RUF012  # Heron's way to declare
    stamped = STAMPED

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.emitted = 0
        self._words = self.make_values(int(config[KEYS]))
        self._random = random.random
        self._range = len(self._words) / (1 - self.stamped)
        self._rate = config[RATE]
        self._probe = Probe(Path(config[DIRECTORY]), task_name(context), lambda: {"count": self.emitted})

    def make_values(self, keys: int) -> Sequence[Any]:
        """What is picked from."""
        return random_words(keys, seed=0)

    def stamp(self) -> Any:
        """A value that carries the time."""
        return f"{STAMP}{monotonic_ns()}"

    def next_tuple(self) -> None:
        self.emitted += 1
        try:
            word = self._words[int(self._random() * self._range)]
        except IndexError:
            word = self.stamp()
        self.emit((word,))


class TrackedWordSpout(WordSpout):
    """The same with a message id. It has no ack() of its own, as the paper's has none."""

    def next_tuple(self) -> None:
        self.emitted += 1
        try:
            word = self._words[int(self._random() * self._range)]
        except IndexError:
            word = self.stamp()
        self.emit((word,), tup_id=self.emitted)


class _Paced(WordSpout):
    """Emits only what is due."""

    stamped = STAMPED_PACED

    def activate(self) -> None:
        self._began_s = monotonic() - self.emitted / self._rate  # a pause is not made up for

    def next_tuple(self) -> None:
        if self.emitted < (monotonic() - self._began_s) * self._rate:
            super().next_tuple()


class PacedWordSpout(_Paced, WordSpout):
    pass


class PacedTrackedWordSpout(_Paced, TrackedWordSpout):
    pass


class _Stateful(StatefulComponent):
    """Has what a spout needs to go on where it was: with random words, their number."""

    emitted: int

    def init_state(self, state: State) -> None:
        self._saved = state

    def pre_save(self, checkpoint_id: str) -> None:
        self._saved.put("emitted", self.emitted)


class StatefulWordSpout(_Stateful, WordSpout):
    pass


class PacedStatefulWordSpout(_Stateful, PacedWordSpout):
    pass


class CountBolt(Bolt):
    """A map from word to count."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._counts: MutableMapping[str, int] = {}
        self._latencies = Latencies()
        self._probe = Probe(Path(config[DIRECTORY]), task_name(context), self._executed, self._latencies)

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        try:
            self._counts[word] += 1
        except KeyError:
            self._first(word)

    def _first(self, word: str) -> None:
        if word[0] == STAMP:
            self._latencies.add(monotonic_ns() - int(word[1:]))
        else:
            self._counts[word] = 1

    def _executed(self) -> dict[str, int]:
        # list() does not let go of the interpreter between two items, a generator over the live map would.
        return {"count": sum(list(self._counts.values())) + self._latencies.count}


class AckingCountBolt(CountBolt):
    """The same, and every tuple is acked."""

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        try:
            self._counts[word] += 1
        except KeyError:
            self._first(word)
        self.ack(tup)


class CountingApartBolt(CountBolt):
    """The same, and the tuples are counted apart."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._number = 0
        super().initialize(config, context)

    def process(self, tup: Tuple) -> None:
        self._number += 1
        word = tup.values[0]
        try:
            self._counts[word] += 1
        except KeyError:
            self._first(word)

    def _executed(self) -> dict[str, int]:
        return {"count": self._number}


class StatefulCountBolt(CountingApartBolt):
    """The same, and the map is state by key, which no other thread may add up."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self._counts = context.keyed_state("counts")


_CLASSES: dict[str, tuple[type[Spout], type[Spout], type[Bolt]]] = {
    api_constants.TopologyReliabilityMode.ATMOST_ONCE: (WordSpout, PacedWordSpout, CountBolt),
    api_constants.TopologyReliabilityMode.ATLEAST_ONCE: (TrackedWordSpout, PacedTrackedWordSpout, AckingCountBolt),
    api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE: (
        StatefulWordSpout,
        PacedStatefulWordSpout,
        StatefulCountBolt,
    ),
}
"""By reliability mode: the spout at full speed, the paced one, the bolt."""


def add_word_count(
    builder: TopologyBuilder, spouts: int, bolts: int, reliability: str, paced: bool, config: dict[str, Any]
) -> None:
    """The components of the word count."""
    at_full_speed, at_a_rate, bolt = _CLASSES[reliability]
    if config[COUNTED_APART] and bolt is CountBolt:
        bolt = CountingApartBolt
    words = builder.add_spout(SPOUT, at_a_rate if paced else at_full_speed, spouts, config=config)
    builder.add_bolt(BOLT, bolt, bolts, inputs={words: Grouping.fields("word")}, config=config)


def build(
    add: Callable[[TopologyBuilder, int, int, str, bool, dict[str, Any]], None],
    *,
    spouts: int,
    bolts: int,
    containers: int,
    reliability: str,
    rate: float | None,
    keys: int,
    checkpoint_interval_s: float,
    max_spout_pending: int | None,
    counted_apart: bool,
    directory: Path,
) -> TopologyBuilder:
    """The topology to measure.

    Args:
        add: Adds the components: `add_word_count`, or that of another topology.
        reliability: A value of `TopologyReliabilityMode`.
        rate: Tuples per second of all spout tasks together; None for as many as possible.
        keys: How many different words there are.
        checkpoint_interval_s: Effectively once.
        counted_apart: Whether bolts at most once run the user code of those effectively once.
    """
    builder = TopologyBuilder(NAME)
    config = {DIRECTORY: str(directory), RATE: (rate or 0) / spouts, KEYS: keys, COUNTED_APART: counted_apart}
    add(builder, spouts, bolts, reliability, rate is not None, config)
    settings: dict[str, Any] = {
        api_constants.TOPOLOGY_STMGRS: containers,
        api_constants.TOPOLOGY_RELIABILITY_MODE: reliability,
    }
    if reliability == api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE:
        settings[api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS] = checkpoint_interval_s
    if max_spout_pending is not None:
        settings[api_constants.TOPOLOGY_MAX_SPOUT_PENDING] = max_spout_pending
    builder.set_config(settings)
    return builder


def task_names(component: str, tasks: int) -> list[str]:
    """The names of a component's probes."""
    return [f"{component}-{index}" for index in range(tasks)]


def task_name(context: TopologyContext) -> str:
    """The name of this task's probe."""
    return f"{context.get_component_id()}-{context.get_this_task_index()}"
