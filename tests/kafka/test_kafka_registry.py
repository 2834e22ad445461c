"""Avro, JSON Schema and Protobuf, with schemas in a registry."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from registry_server import RegistryServer

from heronpy.connectors import KafkaMessage, KafkaSink, KafkaTopic, RegistryFormat, SinkContext
from heronpy.errors import ConfigError, HeronError, UnavailableError
from heronpy.proto import checkpoint_pb2
from heronpy.proto.loglevels_pb2 import LogLevel
from heronpy.testing import eventually_sync
from heronpy.testing.connectors_kit import DeadLetters, open_sink
from heronpy.testing.kafka import KafkaServer
from heronpy.testing.positions_kit import opened, rest_of, split_context

avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
json_schema = pytest.importorskip("confluent_kafka.schema_registry.json_schema")
protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf")

FIELDS = [{"name": "id", "type": "int"}, {"name": "who", "type": "string"}]
AVRO = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
TITLED = {"title": "Order", "type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
ORDER = {"id": 1, "who": "é"}
DOCS = Path(__file__).parents[2] / "docs" / "kafka.md"


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic()


def format_of(registry: RegistryServer, make: Callable[[Any], Any], **more: Any) -> RegistryFormat:
    """With patience: a busy machine does not answer at once."""
    return RegistryFormat(registry.url, make, options={"timeout": 60}, **more)


def avro_writer(client: Any) -> Any:
    return avro.AvroSerializer(client, AVRO)


def json_writer(client: Any) -> Any:
    return json_schema.JSONSerializer(json.dumps(TITLED), client)


def json_reader(client: Any) -> Any:
    return json_schema.JSONDeserializer(None, schema_registry_client=client)


def protobuf_writer(client: Any) -> Any:
    return protobuf.ProtobufSerializer(LogLevel, client)


def protobuf_reader(client: Any) -> Any:
    return protobuf.ProtobufDeserializer(LogLevel, schema_registry_client=client)


def write(sink: KafkaSink, *elements: Any) -> None:
    writer = cloudpickle.loads(cloudpickle.dumps(sink)).open(SinkContext(name="out", task_index=0, config={}))
    for element in elements:
        writer.write(element)
    writer.flush()
    writer.close()


@pytest.mark.parametrize(
    ("write_as", "read_as", "element"),
    [
        (avro_writer, avro.AvroDeserializer, ORDER),
        (json_writer, json_reader, ORDER),
        (protobuf_writer, protobuf_reader, LogLevel(target="é", level="INFO")),
    ],
    ids=["avro", "json", "protobuf"],
)
def test_what_a_sink_writes_a_source_reads(
    kafka: KafkaServer, topic: str, registry: RegistryServer, write_as: Any, read_as: Any, element: Any
) -> None:
    write(KafkaSink(kafka.servers, topic, value=format_of(registry, write_as)), KafkaMessage(element, b"k"))
    source = KafkaTopic(
        kafka.servers,
        topic,
        group=topic,
        value=format_of(registry, read_as),
        whole=True,
        bounded=True,
    )
    (record,) = rest_of(opened(cloudpickle.loads(cloudpickle.dumps(source)), f"{topic}-0"))
    assert (record.value.value, record.value.key) == (element, "k")
    assert [schema["subject"] for schema in registry.schemas] == [f"{topic}-value"]


def test_the_example_of_the_documentation_runs(kafka: KafkaServer, topic: str, registry: RegistryServer) -> None:
    (block,) = (text for text in DOCS.read_text().split("```python\n") if "RegistryFormat(" in text)
    names = {"servers": kafka.servers, "registry": registry.url, "schema": AVRO}
    exec(block.partition("```")[0].replace('"orders"', repr(topic)), names)

    def written() -> None:  # the registry may be slow: then nothing is
        try:
            write(names["sink"], ORDER)
        except UnavailableError as e:
            raise AssertionError from e

    eventually_sync(written)
    source = cloudpickle.loads(cloudpickle.dumps(names["topic"]))
    reader = source.stream_splits()[f"{topic}-0"].open(None, split_context())
    records: list[Any] = []

    def read() -> None:
        records.extend(reader.read(10))
        assert [record.value for record in records] == [ORDER]

    eventually_sync(read)
    reader.close()


def test_a_registry_that_hangs_blocks_a_task_once_and_known_schemas_are_used(registry: RegistryServer) -> None:
    """The timeout is long enough to tell a call that waits from one that does not on a busy machine."""
    write_as = RegistryFormat(registry.url, avro_writer).of("orders", "value")
    known = write_as(ORDER)
    other = RegistryFormat(registry.url, avro_writer).of("others", "value")
    other(ORDER)
    read_as = RegistryFormat(registry.url, avro.AvroDeserializer, options={"timeout": 10}).of("orders", "value")
    assert read_as(known) == ORDER
    unknown = known[:4] + b"\x07" + known[5:]
    registry.hangs.clear()
    with pytest.raises(UnavailableError, match="does not answer"):
        read_as(unknown)
    began_s = time.monotonic()
    for _ in range(20):
        with pytest.raises(UnavailableError, match=r"does not answer: .* \(1 calls failed\)"):
            read_as(unknown)
        assert read_as(known) == ORDER
    assert time.monotonic() - began_s < 8
    registry.schemas += [{**registry.schemas[0], "subject": f"more-{n}"} for n in range(7)]
    registry.hangs.set()

    def read() -> None:
        try:
            assert read_as(unknown) == ORDER
        except UnavailableError as e:
            raise AssertionError from e

    eventually_sync(read)


def test_a_registry_that_is_away_makes_no_message_malformed(
    kafka: KafkaServer,
    topic: str,
    registry: RegistryServer,
    produce: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = KafkaSink(kafka.servers, topic, value=format_of(registry, avro_writer))
    registry.away = True
    writer = open_sink(sink)
    with pytest.raises(UnavailableError, match="does not answer: no leader"):
        writer.write(ORDER)
    registry.away = False
    produce(topic, [b"none"])
    for n in range(3):
        writer.write({**ORDER, "id": n})
    writer.flush()
    writer.close()
    source = KafkaTopic(
        kafka.servers, topic, group=topic, value=format_of(registry, avro.AvroDeserializer), bounded=True
    )
    dead = DeadLetters()
    reader = opened(source, f"{topic}-0", None, dead)
    registry.away = True

    def waits() -> None:
        assert reader.read(2) == []
        assert "cannot be decoded now" in caplog.text

    eventually_sync(waits)
    assert reader.position[0] == 1
    assert not reader.ended
    registry.away = False
    records: list[Any] = []

    def all_read() -> None:
        some = reader.read(2)
        assert len(some) <= 2
        records.extend(some)
        assert [record.value["id"] for record in records] == [0, 1, 2]

    eventually_sync(all_read)
    assert [record.id for record in records] == ["0:1", "0:2", "0:3"]
    assert [where for where, _, _ in dead.letters] == [f"{topic}/0@0"]
    assert caplog.text.count("cannot be decoded now") == 1
    reader.close()


def test_a_message_without_a_schema_or_of_an_unknown_one_is_a_dead_letter(
    kafka: KafkaServer, topic: str, registry: RegistryServer, produce: Callable[..., None]
) -> None:
    produce(topic, [b"\x00\x00\x00\x00\x07abc", b"{}"])
    source = KafkaTopic(
        kafka.servers, topic, group=topic, value=format_of(registry, avro.AvroDeserializer), bounded=True
    )
    dead = DeadLetters()
    assert rest_of(opened(source, f"{topic}-0", None, dead)) == []
    (_, _, unknown), (_, _, framing) = dead.letters
    assert "Schema 7 not found" in unknown
    assert "framing" in framing


def test_messages_of_an_older_schema_are_read_by_a_newer_one_and_those_it_cannot_read_are_malformed(
    registry: RegistryServer,
) -> None:
    def schema(*fields: dict[str, Any]) -> str:
        return json.dumps({"type": "record", "name": "Order", "fields": [FIELDS[0], *fields]})

    def written(schema: str, order: dict[str, Any]) -> bytes:
        made = format_of(registry, lambda client: avro.AvroSerializer(client, schema)).of("orders", "value")(order)
        assert isinstance(made, bytes)
        return made

    paid = {"name": "paid", "type": "boolean", "default": False}
    old = written(AVRO, ORDER)
    new = written(schema(FIELDS[1], paid), {**ORDER, "paid": True})
    other = written(schema({"name": "who", "type": "int"}), {"id": 1, "who": 2})
    reader = schema(FIELDS[1], paid)
    read_as = format_of(registry, lambda client: avro.AvroDeserializer(client, reader)).of("orders", "value")
    assert [read_as(old), read_as(new)] == [{**ORDER, "paid": False}, {**ORDER, "paid": True}]
    with pytest.raises(Exception, match="string") as malformed:
        read_as(other)
    assert not isinstance(malformed.value, HeronError), "the message is to blame, not the registry"
    assert read_as(old) == {**ORDER, "paid": False}


def test_the_index_of_a_message_in_its_protobuf_schema_is_as_confluents(registry: RegistryServer) -> None:
    """Magic byte, id of the schema, and the way to the message: 0 alone for the first, else lengths and indexes."""
    for kind, way in ((checkpoint_pb2.TaskStatus, b"\x00"), (checkpoint_pb2.SnapshotStored, b"\x02\x02")):
        write_as = format_of(registry, lambda client, kind=kind: protobuf.ProtobufSerializer(kind, client))
        made = write_as.of(kind.__name__, "value")(kind(task=7))
        assert made[:1] == b"\x00"
        assert made[5 : 5 + len(way)] == way
        assert made[5 + len(way) :] == kind(task=7).SerializeToString()
        read_as = format_of(
            registry, lambda client, kind=kind: protobuf.ProtobufDeserializer(kind, schema_registry_client=client)
        )
        assert read_as.of(kind.__name__, "value")(made) == kind(task=7)


def test_what_does_not_fit_the_schema_is_refused_by_the_sink(
    kafka: KafkaServer, topic: str, registry: RegistryServer
) -> None:
    sink = KafkaSink(kafka.servers, topic, value=format_of(registry, json_writer))
    writer = open_sink(sink)
    with pytest.raises(ValueError, match="'id' is a required property"):
        writer.write({"who": "é"})
    writer.close()


def test_credentials_come_from_the_environment_and_wrong_ones_are_refused(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.user_info = "heron:right"
    secrets = {"basic.auth.user.info": "TEST_REGISTRY_USER"}
    format_ = format_of(registry, avro_writer, secrets=secrets).of("orders", "value")
    monkeypatch.delenv("TEST_REGISTRY_USER", raising=False)
    with pytest.raises(ConfigError, match=r"TEST_REGISTRY_USER must have basic.auth.user.info"):
        format_(ORDER)
    monkeypatch.setenv("TEST_REGISTRY_USER", "heron:wr0ng")
    with pytest.raises(ConfigError, match="access denied: Unauthorized") as refused:
        format_(ORDER)
    assert "wr0ng" not in str(refused.value)
    monkeypatch.setenv("TEST_REGISTRY_USER", "heron:right")
    format_ = pickle.loads(pickle.dumps(format_of(registry, avro_writer, secrets=secrets)))
    assert format_.of("orders", "value")(ORDER).startswith(b"\x00\x00\x00\x00\x01")


def test_a_registry_that_nobody_listens_as_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match="does not answer"):
        RegistryFormat("http://127.0.0.1:1", avro_writer).of("orders", "value")(ORDER)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="url"):
        RegistryFormat("", avro_writer)
    with pytest.raises(ConfigError, match="RegistryFormat"):
        RegistryFormat("http://127.0.0.1:1", avro_writer, options={"no.such": 1}).of("orders", "value")(ORDER)
