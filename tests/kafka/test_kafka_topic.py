"""Topics as sources, on a real broker."""

from __future__ import annotations

import ctypes
import datetime
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, TopologyBuilder, Tuple
from heronpy.checkpoints import NOTHING_SAVED
from heronpy.connectors import KafkaMessage, KafkaTopic, Record, Source, SourceReader, SourceSpout, SplitReader
from heronpy.connectors.split_set import SplitSet
from heronpy.errors import CheckpointError, ConfigError, NotFoundError, UnavailableError
from heronpy.state import Place, TaskStates
from heronpy.testing import Simulator, eventually_sync
from heronpy.testing.connectors_kit import Damaged, DeadLetters, SourceKit, open_source
from heronpy.testing.kafka import KafkaServer
from heronpy.testing.positions_kit import RewindableSourceKit, opened, rest_of, split_context, splits_of
from heronpy.wire import DATA

PARTITIONS = 3
Make = Callable[..., str]
Produce = Callable[..., None]


@pytest.fixture
def topic(make_topic: Make, produce: Produce) -> str:
    topic = make_topic(PARTITIONS)
    for partition in range(PARTITIONS):
        produce(topic, range(partition, 60, PARTITIONS), partition=partition)
    return topic


class Kit:
    @pytest.fixture
    def source(self, kafka: KafkaServer, topic: str) -> Source:
        return KafkaTopic(kafka.servers, topic, group=topic, bounded=True)

    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return list(range(60))

    @pytest.fixture
    def damaged(self, kafka: KafkaServer, make_topic: Make, produce: Produce) -> Damaged:
        topic = make_topic()
        produce(topic, [1, "{", 2, b"\xff"])
        return Damaged(KafkaTopic(kafka.servers, topic, group=topic, bounded=True), [1, 2], ["/0@1", "/0@3"])


class TestKafkaTopic(Kit, SourceKit):
    pass


class TestPositions(Kit, RewindableSourceKit):
    long = ("test_reading_goes_on_at_any_position",)


def read(reader: SplitReader | SourceReader, count: int, at_once: int = 10_000) -> list[Record]:
    """So many records, which are there or come soon."""
    records: list[Record] = []

    def enough() -> None:
        records.extend(reader.read(min(at_once, count - len(records))))
        assert len(records) == count

    eventually_sync(enough)
    return records


def values(records: Sequence[Record]) -> list[Any]:
    return [record.value for record in records]


def test_a_whole_message_has_key_headers_and_time(kafka: KafkaServer, make_topic: Make, produce: Produce) -> None:
    topic = make_topic()
    produce(topic, ["é"], key="k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    produce(topic, [None], key=b"gone", timestamp=1_700_000_000_124)
    source = KafkaTopic(kafka.servers, topic, group=topic, value="text", whole=True, bounded=True)
    records = rest_of(opened(source, f"{topic}-0"))
    assert values(records) == [
        KafkaMessage("é", "k", (("h", b"1"), ("h", None)), 1_700_000_000_123, 0, 0),
        KafkaMessage(None, "gone", (), 1_700_000_000_124, 0, 1),
    ]
    assert [(record.time_ms, record.id) for record in records] == [
        (1_700_000_000_123, "0:0"),
        (1_700_000_000_124, "0:1"),
    ]


def hexadecimal(data: bytes) -> int:
    return int(data, 16)


def produce_with_header(servers: str, topic: str, name: bytes) -> None:
    """Write a message by the C library, which takes any bytes for a header's name."""
    import confluent_kafka

    (path,) = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    for made in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, made).restype = ctypes.c_void_p
    config, error = ctypes.c_void_p(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(config, b"bootstrap.servers", servers.encode(), error, 512)
    producer = ctypes.c_void_p(library.rd_kafka_new(0, config, error, 512))
    headers = ctypes.c_void_p(library.rd_kafka_headers_new(1))
    library.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(len(name)), b"x", ctypes.c_ssize_t(1))
    topic_, copied, value, with_headers, end = 1, 7, 4, 10, 0  # RD_KAFKA_VTYPE_…
    arguments = (topic_, topic.encode(), copied, 2, value, b"a", ctypes.c_size_t(1), with_headers, headers, end)
    assert library.rd_kafka_producev(producer, *arguments) == 0
    assert library.rd_kafka_flush(producer, 60_000) == 0
    library.rd_kafka_destroy(producer)


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_header_whose_name_is_no_text_makes_a_dead_letter(
    kafka: KafkaServer, make_topic: Make, produce: Produce, format: str
) -> None:
    topic = make_topic()
    produce_with_header(kafka.servers, topic, b"\xff\xfe")
    produce(topic, ["1"])
    source = KafkaTopic(kafka.servers, topic, group=topic, value=format, whole=True, bounded=True)
    dead = DeadLetters()
    assert [str(message.value) for message in values(rest_of(opened(source, f"{topic}-0", None, dead)))] == ["1"]
    ((where, row, reason),) = dead.letters
    assert (where, row["value"]) == (f"{topic}/0@0", "a")
    assert ("headers are malformed" in reason) == (format == "text"), "a malformed value is found first"


def test_a_function_decodes_and_what_it_raises_makes_a_dead_letter(
    kafka: KafkaServer, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, ["ff", "none"], key="k")
    source = KafkaTopic(kafka.servers, topic, group=topic, value=hexadecimal, bounded=True)
    dead = DeadLetters()
    assert values(rest_of(opened(source, f"{topic}-0", None, dead))) == [255]
    ((where, row, reason),) = dead.letters
    assert where == f"{topic}/0@1"
    assert row == {"key": "k", "value": "none", "headers": {}}
    assert "ValueError" in reason


def test_a_group_begins_at_the_end_or_at_a_time_and_goes_on_there(
    kafka: KafkaServer, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(2)
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    for n in range(4):
        produce(topic, [n], partition=n % 2, timestamp=round(at.timestamp() * 1000) + n)

    def found(group: str, start: Any) -> list[Any]:
        source = KafkaTopic(kafka.servers, topic, group=group, start=start, bounded=True)
        return sorted(values([record for name in splits_of(source) for record in rest_of(opened(source, name))]))

    late = datetime.timedelta(milliseconds=2)
    assert found("a", "latest") == []
    assert found("b", at + late) == [2, 3]
    assert found("c", at + 1000 * late) == []
    produce(topic, [4], partition=0)
    assert found("a", "latest") == [4]
    assert found("a", "earliest") == [4]
    assert found("b", "latest") == [2, 3, 4]


def test_new_partitions_are_read_from_their_beginning(kafka: KafkaServer, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(1)
    produce(topic, ["old"], partition=0)
    source = KafkaTopic(
        kafka.servers, topic, group=topic, value="text", start="latest", discover_every_s=0.1, options={}
    )
    reader = open_source(source)
    kept = pickle.loads(pickle.dumps(source))
    assert set(kept.stream_splits()) == {f"{topic}-0"}
    kafka.add_partitions(topic, 3)
    produce(topic, ["new"], partition=2)
    assert values(read(reader, 1)) == ["new"]
    reader.close()

    def all_known() -> None:
        assert set(kept.stream_splits()) == {f"{topic}-{n}" for n in range(3)}

    eventually_sync(all_known)
    # Also where a later process finds them.
    assert values(
        rest_of(
            opened(
                KafkaTopic(kafka.servers, topic, group=topic, start="latest", value="text", bounded=True), f"{topic}-2"
            )
        )
    ) == ["new"]


def test_what_is_acked_without_a_gap_is_committed_to_the_group(kafka: KafkaServer, topic: str) -> None:
    source = KafkaTopic(kafka.servers, topic, group=topic, bounded=True)
    reader = open_source(source, task=1, of=PARTITIONS)
    records = read(reader, 20)
    assert {record.id.split(":")[0] for record in records} == {"1"}
    reader.ack(records[:5] + records[7:])
    reader.close()
    assert kafka.group_offsets(topic, topic) == {1: 5}
    again = open_source(source, task=1, of=PARTITIONS)
    assert [record.id for record in read(again, 15)] == [f"1:{offset}" for offset in range(5, 20)]
    again.close()


class Nothing(Bolt):
    def process(self, tup: Tuple) -> None:
        raise AssertionError("all tuples are lost on their way")


def test_at_most_once_messages_are_committed_when_they_are_emitted(kafka: KafkaServer, topic: str) -> None:
    builder = TopologyBuilder("lossy")
    spout = SourceSpout(KafkaTopic(kafka.servers, topic, group=topic))
    source = builder.add_spout("source", spout, 2)
    builder.add_bolt("nothing", Nothing, 1, {source: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATMOST_ONCE"})
    with Simulator(builder, lose=lambda batch: batch.kind == DATA) as simulator:
        all_of_it = dict.fromkeys(range(PARTITIONS), 60 // PARTITIONS)
        simulator.run(until=lambda: kafka.group_offsets(topic, topic) == all_of_it, seconds=120)
        assert kafka.group_offsets(topic, topic) == all_of_it, "every second, while it runs"
        assert simulator.total("__emit-count/default") == 60


def test_a_partition_that_has_ended_holds_up_no_watermark(
    kafka: KafkaServer, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(2)
    produce(topic, [1], partition=0)
    produce(topic, range(40), partition=1)
    reader = open_source(KafkaTopic(kafka.servers, topic, group=topic, bounded=True))
    records: list[Record] = []

    def ended() -> None:
        records.extend(reader.read(2))
        if records and records[-1].id == "0:0":
            assert "0" in reader.splits(), "its last record waits to be emitted"
        assert set(reader.splits()) == {"1"}

    eventually_sync(ended)
    assert "0:0" in {record.id for record in records}
    read(reader, 41 - len(records))
    reader.close()


def test_the_position_of_a_committed_checkpoint_is_committed_to_the_group(kafka: KafkaServer, topic: str) -> None:
    source = KafkaTopic(kafka.servers, topic, group="shown", bounded=True)
    reader = opened(source, f"{topic}-2")
    read(reader, 5)
    position = reader.position
    read(reader, 5)
    reader.committed(position)
    reader.close()
    assert kafka.group_offsets("shown", topic) == {2: 5}


def test_the_ends_of_a_bounded_topic_are_committed_to_the_group_with_the_checkpoint_that_has_them(
    kafka: KafkaServer, topic: str
) -> None:
    source = KafkaTopic(kafka.servers, topic, group="to-the-end", bounded=True)
    positions = TaskStates(Place("t", "lines"), NOTHING_SAVED).split_state("positions")
    splits = SplitSet(source, positions, split_context(), discover_every_s=None, idle_after_s=60)
    ends: dict[int, int] = {}

    def ended() -> None:
        name, _, position = splits.read(100)
        if name is not None:
            positions[name] = position
            ends[int(name.rpartition("-")[2])] = position[0]
        assert splits.ended

    eventually_sync(ended)
    splits.prepare(1)
    splits.commit(1)
    splits.close()
    assert sum(ends.values()) > 0
    assert kafka.group_offsets("to-the-end", topic) == ends


def remove_before(kafka: KafkaServer, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition

    for future in kafka.admin().delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(60)


@pytest.mark.parametrize(
    ("policy", "rest", "lost"), [("earliest", [8, 9], "4 messages from offset 4"), ("latest", [], "offset 20")]
)
def test_messages_that_were_removed_before_they_were_read_are_reported(
    kafka: KafkaServer, topic: str, policy: str, rest: list[int], lost: str
) -> None:
    source = KafkaTopic(kafka.servers, topic, group=topic, out_of_range=policy, bounded=True)
    reader = opened(source, f"{topic}-0")
    read(reader, 4)
    position = reader.position
    reader.close()
    remove_before(kafka, topic, 8)
    dead = DeadLetters()
    found = values(rest_of(opened(source, f"{topic}-0", position, dead)))
    assert found[: len(rest)] == [3 * n for n in rest]
    ((where, row, reason),) = dead.letters
    assert (where, row) == (f"{topic}/0@4", None)
    assert lost in reason


def test_messages_that_were_removed_before_they_were_read_stop_the_task_unless_it_may_go_on(
    kafka: KafkaServer, topic: str
) -> None:
    source = KafkaTopic(kafka.servers, topic, group=topic)
    remove_before(kafka, topic, 8)
    id_ = splits_of(source)[f"{topic}-0"].partition.topic_id
    reader = opened(source, f"{topic}-0", (4, -1, id_))

    errors = []

    def stopped() -> None:
        try:
            assert reader.read(10) == []
        except CheckpointError as e:
            errors.append(str(e))
        assert errors

    eventually_sync(stopped)
    assert "4 messages from offset 4 on were removed" in errors[0]
    reader.close()


def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(
    kafka: KafkaServer, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, ["a", "b"])
    source = KafkaTopic(kafka.servers, topic, group=topic, value="text", bounded=True)
    reader = opened(source, f"{topic}-0")
    read(reader, 1)
    position = reader.position
    reader.close()
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    produce(topic, ["c", "d", "e"])
    with pytest.raises(CheckpointError, match="deleted, and made again"):
        opened(source, f"{topic}-0", position)
    source = KafkaTopic(kafka.servers, topic, group=topic, value="text", out_of_range="earliest", bounded=True)
    dead = DeadLetters()
    assert values(rest_of(opened(source, f"{topic}-0", position, dead))) == ["c", "d", "e"]
    assert len(dead.letters) == 1


@pytest.mark.parametrize("made_again", [False, True])
def test_a_topic_that_is_deleted_while_it_is_read_stops_the_task(
    kafka: KafkaServer, make_topic: Make, produce: Produce, made_again: bool
) -> None:
    topic = make_topic()
    produce(topic, ["a"])
    source = KafkaTopic(kafka.servers, topic, group=topic, value="text", discover_every_s=0.1)
    positions = TaskStates(Place("t", "words"), NOTHING_SAVED).split_state("positions")
    splits = SplitSet(source, positions, split_context(), discover_every_s=0.1, idle_after_s=60)
    eventually_sync(lambda: _read_one(splits))
    kafka.delete_topic(topic)
    if made_again:
        kafka.create_topic(topic)
        produce(topic, ["b", "c"])  # more than were read of the other

    errors: list[str] = []

    def stopped() -> None:
        try:
            splits.read(10)
        except (NotFoundError, CheckpointError) as e:
            errors.append(str(e))
        assert errors

    eventually_sync(stopped, within_s=60)
    # While the new one has nothing yet, a fetch may be the first to find out.
    reasons = ("made again", "offset not available") if made_again else ("has no topic",)
    assert any(reason in errors[0] for reason in reasons), errors[0]
    splits.close()


def _read_one(splits: SplitSet) -> None:
    _, records, _ = splits.read(10)
    assert [record.value for record in records] == ["a"]


def test_only_what_transactions_committed_is_read(kafka: KafkaServer, make_topic: Make) -> None:
    from confluent_kafka import Producer

    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(60)
    for value in ("committed", "aborted"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction(60) if value == "committed" else (
            producer.flush(60),
            producer.abort_transaction(60),
        )
    source = KafkaTopic(kafka.servers, topic, group=topic, value="text", bounded=True)
    reader = opened(source, f"{topic}-0")
    assert values(rest_of(reader)) == ["committed"]
    assert reader.position[0] == 4
    assert rest_of(opened(source, f"{topic}-0", reader.position)) == []


def test_partitions_that_nobody_reads_do_not_hold_up_the_others(
    kafka: KafkaServer, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(2)
    for partition in range(2):
        produce(topic, range(3000), partition=partition)
    splits = KafkaTopic(kafka.servers, topic, group=topic, bounded=True).stream_splits()
    first, second = (splits[f"{topic}-{n}"].open(None, split_context()) for n in range(2))
    assert values(read(first, 3000)) == list(range(3000))
    assert values(read(second, 3000)) == list(range(3000))
    first.close()
    second.close()


def test_partitions_that_are_paused_do_not_hold_up_several_others(
    kafka: KafkaServer, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        produce(topic, range(3000), partition=partition)
    reader = open_source(KafkaTopic(kafka.servers, topic, group=topic, bounded=True))
    reader.pause(["0"])
    assert sorted(values(read(reader, 6000, at_once=100))) == sorted([*range(3000)] * 2)
    reader.pause([])
    assert values(read(reader, 3000)) == list(range(3000))
    reader.close()


def test_what_comes_to_a_partition_after_its_end_does_not_hold_up_several_others(
    kafka: KafkaServer, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(3)
    for partition in (1, 2):
        produce(topic, range(3000), partition=partition)
    source = KafkaTopic(kafka.servers, topic, group=topic, bounded=True)
    positions = TaskStates(Place("t", "lines"), NOTHING_SAVED).split_state("positions")
    splits = SplitSet(source, positions, split_context(), discover_every_s=None, idle_after_s=60)
    produce(topic, range(3000), partition=0)
    found: list[Record] = []

    def ended() -> None:
        name, records, position = splits.read(100)
        found.extend(records)
        if name is not None:
            positions[name] = position
        assert splits.ended

    eventually_sync(ended)
    splits.close()
    assert sorted(values(found)) == sorted([*range(3000)] * 2)


def test_a_topic_that_is_missing_is_named(kafka: KafkaServer) -> None:
    with pytest.raises(NotFoundError, match="has no topic 'nowhere'"):
        KafkaTopic(kafka.servers, "nowhere", group="g").stream_splits()


def test_a_kafka_that_is_away_is_named() -> None:
    with pytest.raises(UnavailableError, match=r"127.0.0.1:1 does not answer") as error:
        KafkaTopic("127.0.0.1:1", "t", group="g", timeout_s=1).stream_splits()
    assert "\n" not in str(error.value)


def test_what_makes_no_sense_is_refused() -> None:
    def topic(**options: Any) -> KafkaTopic:
        return KafkaTopic("h:1", "t", **{"group": "g", **options})

    for options, match in (
        ({"group": ""}, "group"),
        ({"start": "now"}, "start"),
        ({"start": datetime.datetime(2026, 1, 1)}, "time zone"),
        ({"out_of_range": "ignore"}, "out_of_range"),
        ({"value": "avro"}, "format"),
        ({"options": {"group.id": "x"}}, "group.id"),
        ({"discover_every_s": 0}, "discover_every_s"),
    ):
        with pytest.raises(ConfigError, match=match):
            topic(**options)
    with pytest.raises(ConfigError, match=r"no.such.option"):
        topic(options={"no.such.option": "1"}).stream_splits()
