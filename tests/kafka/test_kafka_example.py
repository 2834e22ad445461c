"""The example that counts words from a topic to a topic and a table."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from heronpy.connectors import KafkaTopic
from heronpy.examples import exactly_once_kafka
from heronpy.testing import Simulator
from heronpy.testing.kafka import KafkaServer
from heronpy.testing.positions_kit import opened, rest_of

LINES = ["The cow jumped over the moon.", "the end", ""]
EXPECTED = {("the", 1), ("the", 2), ("the", 3), *((word, 1) for word in ("cow", "jumped", "over", "moon", "end"))}


def test_words_are_counted_from_a_topic_to_a_topic_and_a_table(
    kafka: KafkaServer, make_topic: Callable[..., str], produce: Callable[..., None], tmp_path: Path
) -> None:
    given, made = make_topic(), make_topic()
    produce(given, LINES)
    database = sqlite3.connect(tmp_path / "counts.db")
    database.execute("CREATE TABLE counts (word TEXT, n INTEGER)")
    database.commit()
    argv = [
        "Words",
        "--servers",
        kafka.servers,
        "--from-topic",
        given,
        "--to-topic",
        made,
        "--checkpoint-interval",
        "0.1",
    ]
    arguments = exactly_once_kafka.arguments_of([*argv, "--to-sql", f"sqlite:///{tmp_path}/counts.db"])
    with Simulator(exactly_once_kafka.topology(arguments)) as simulator:

        def rows() -> list[tuple[str, int]]:
            return list(database.execute("SELECT word, n FROM counts"))

        simulator.run(until=lambda: len(rows()) >= len(EXPECTED), seconds=120)
    kafka.settle(made)
    source = KafkaTopic(kafka.servers, made, group="tests", whole=True, bounded=True)
    messages = [record.value for record in rest_of(opened(source, f"{made}-0"))]
    assert Counter(rows()) == Counter(EXPECTED)
    assert Counter((each.value["word"], each.value["n"]) for each in messages) == Counter(EXPECTED)
    assert all(each.key == each.value["word"] for each in messages)
    database.close()


def test_the_counts_must_go_somewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        exactly_once_kafka.arguments_of(["Words", "--servers", "h:1", "--from-topic", "t"])
    assert "--to-topic" in capsys.readouterr().err
