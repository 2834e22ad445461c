"""Messages that Kafka removes before they are read: each is counted once, in the dead letter of the range it is in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.connectors import KafkaTopic
from heronpy.errors import CheckpointError

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
TOPIC = "lines"
END = 25_000


@dataclass
class Log:
    """What a broker has of the only partition of a topic."""

    first: int = 0
    end: int = END

    def consumer(self, _config: object) -> Consumer:
        return Consumer(self)

    def admin(self, _config: object) -> SimpleNamespace:
        topic = SimpleNamespace(topic_id="id", partitions=[SimpleNamespace(id=0)])
        return SimpleNamespace(describe_topics=lambda _topics, **_: {TOPIC: done(topic)}, list_offsets=self._offsets)

    def _offsets(self, places: dict[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        earliest = type(confluent.admin.OffsetSpec.earliest())
        at = {place: self.first if isinstance(spec, earliest) else self.end for place, spec in places.items()}
        return {place: done(SimpleNamespace(offset=offset)) for place, offset in at.items()}


class Consumer:
    """What `confluent_kafka.Consumer` does with such a log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._at: int | None = None

    def incremental_assign(self, places: list[Any]) -> None:
        (place,) = places
        self._at = place.offset

    def incremental_unassign(self, _places: object) -> None:
        self._at = None

    def pause(self, _places: object) -> None:
        self._at = None

    def consume(self, limit: int, _timeout: float) -> list[Any]:
        if self._at is None:
            return []
        if self._at < self._log.first:
            at, self._at = self._at, None
            return [failed(confluent.KafkaError.OFFSET_OUT_OF_RANGE, at)]
        begin, self._at = self._at, min(self._at + limit, self._log.end)
        if begin >= self._log.end:
            return [failed(confluent.KafkaError._PARTITION_EOF, begin)]
        return [
            confluent.Message(topic=TOPIC, partition=0, offset=offset, value=b"%d" % offset, timestamp=(1, offset))
            for offset in range(begin, self._at)
        ]

    def committed(self, places: list[Any], timeout: float) -> list[Any]:
        return places  # without an offset: the group has none

    def close(self) -> None:
        pass


def failed(code: int, offset: int) -> Any:
    return confluent.Message(topic=TOPIC, partition=0, offset=offset, error=confluent.KafkaError(code))


def done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr("confluent_kafka.Consumer", log.consumer)
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", log.admin)
    return log


def read(split: Any, dead_letter: Callable[[str, Any, str], None]) -> list[int]:
    return [value for chunk in split.read(dead_letter) for value in chunk.values]


@pytest.mark.parametrize("removed", [12_000, 20_000, END])
def test_each_range_counts_what_was_removed_of_it_alone(log: Log, removed: int) -> None:
    ranges = KafkaTopic("host:1", TOPIC, group="g", out_of_range="earliest").splits(1)
    assert ranges is not None
    assert len(ranges) == 3
    log.first = removed
    letters: list[tuple[str, str]] = []
    values = [value for split in ranges for value in read(split, lambda at, _, why: letters.append((at, why)))]
    assert values == list(range(removed, END))
    begins = [begin for begin in (0, 10_000, 20_000) if begin < removed]
    assert [at for at, _ in letters] == [f"{TOPIC}/0@{begin}" for begin in begins]
    counts = [int(why.partition(" messages from offset ")[0]) for _, why in letters]
    assert counts == [min(removed, begin + 10_000, END) - begin for begin in begins]
    assert letters[0][1].endswith("; reading ends at offset 10000")


def test_a_job_that_may_not_go_on_fails_with_the_count_of_its_range(log: Log) -> None:
    ranges = KafkaTopic("host:1", TOPIC, group="g").splits(1)
    assert ranges is not None
    log.first = 12_000
    with pytest.raises(CheckpointError, match="10000 messages from offset 0 on were removed"):
        read(ranges[0], lambda *_: None)


def test_a_topic_that_was_made_again_is_read_though_the_position_in_the_old_one_is_behind_its_end(log: Log) -> None:
    source = KafkaTopic("host:1", TOPIC, group="g", out_of_range="earliest", bounded=True)
    letters: list[str] = []
    context: Any = SimpleNamespace(dead_letter=lambda _at, _row, why: letters.append(why))
    reader = source.stream_splits()[f"{TOPIC}-0"].open((2 * END, -1, "id of the old one"), context)
    assert not reader.ended
    assert [record.value for record in reader.read(3)] == [0, 1, 2]
    assert letters == ["the topic was deleted, and made again; reading goes on at offset 0"]
    reader.close()
