"""Sources of files by URL: a real S3 server."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stored_place import Place, all_but

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple
from heronpy.connectors import CsvFile, JsonLines, ParquetFile, Source, SourceSpout, TextFile
from heronpy.errors import ConfigError, HeronError, NotFoundError, UnavailableError
from heronpy.testing import Simulator
from heronpy.testing.connectors_kit import Damaged, DeadLetters, SourceKit, drain, open_source
from heronpy.testing.positions_kit import RewindableSourceKit
from heronpy.testing.servers import S3Server, s3_missing

pytestmark = pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def place(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return Place(server)


READ = ("test_several_tasks_together_read_every_record_once", "test_malformed_rows_are_set_aside_and_the_rest_is_read")


class TestTextFile(SourceKit, RewindableSourceKit):
    long = ("test_reading_goes_on_at_any_position", "test_both_faces_give_the_same_records")

    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [f"líne {n}" for n in range(200)]

    @pytest.fixture
    def source(self, place: Place, values: Sequence[Any]) -> Source:
        for number in range(3):
            place.put(f"f{number}.txt", "".join(f"{line}\n" for line in values[number::3]).encode())
        return TextFile(place.url("*.txt"))

    @pytest.fixture
    def damaged(self, place: Place) -> Damaged:
        place.put("bad", b"one\ntw\xff\nthree\n\xe4")
        return Damaged(TextFile(place.url("bad")), ["one", "three"], ["bad:4", "bad:14"])


class TestCompressedLines(SourceKit):
    long = all_but(SourceKit, *READ)

    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [{"n": n} for n in range(200)]

    @pytest.fixture
    def source(self, place: Place, values: Sequence[Any]) -> Source:
        for number in range(2):
            lines = "".join(f"{json.dumps(value)}\n" for value in values[number::2])
            place.put(f"f{number}.json.gz", gzip.compress(lines.encode()))
        return JsonLines(place.url("*.gz"))


class TestCsvFile(SourceKit):
    long = all_but(SourceKit, *READ)

    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [{"n": str(n), "text": 'two\nlines, "quoted"' if n % 3 == 0 else f"é{n}"} for n in range(200)]

    @pytest.fixture
    def source(self, place: Place, values: Sequence[Any]) -> Source:
        for number in range(2):
            f = io.StringIO(newline="")
            writer = csv.DictWriter(f, ["n", "text"])
            writer.writeheader()
            writer.writerows(values[number::2])
            place.put(f"{number}.csv", f.getvalue().encode())
        return CsvFile(place.url("*.csv"))


class TestParquetFile(SourceKit, RewindableSourceKit):
    long = (
        *all_but(SourceKit, *READ),
        *all_but(RewindableSourceKit, "test_all_splits_together_have_every_record_once"),
    )

    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [{"n": n, "tags": ["x"] * (n % 3), "text": None if n % 7 == 0 else f"é{n}"} for n in range(200)]

    @pytest.fixture
    def source(self, place: Place, values: Sequence[Any]) -> Source:
        for number in range(2):
            f = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(values[number::2]), f, row_group_size=30)
            place.put(f"{number}.parquet", f.getvalue())
        return ParquetFile(place.url("*.parquet"))

    @pytest.fixture
    def damaged(self, place: Place) -> Damaged:
        place.put("none.parquet", b"no parquet at all")
        return Damaged(ParquetFile([place.url("none.parquet"), place.url("gone.parquet")]), [], ["none", "gone"])


def read(source: Source, **options: Any) -> list[Any]:
    return [record.value for record in drain(open_source(source, **options))]


ODD = "x/y/é +z.txt"
"""A name that the project itself would not give."""
NAMES = ("a.txt", "b[1].txt", "x/a.txt", ODD, "x/y/b.log", ".hidden/a.txt", "_heron/t/s/a.txt", "x/folder/")


def put_odd_names(place: Place) -> None:
    import boto3

    endpoint = place.url().partition("endpoint=")[2].partition("&")[0]
    client = boto3.session.Session().client("s3", endpoint_url=endpoint, region_name="us-east-1")
    for name in NAMES:
        client.put_object(Bucket="files", Key=f"{place.name}/{name}", Body=b"" if name.endswith("/") else name.encode())
    client.close()


def test_a_pattern_matches_as_in_a_directory(place: Place) -> None:
    put_odd_names(place)
    for pattern, names in {
        "*.txt": ["a.txt", "b[1].txt"],
        "b[1].txt": ["b[1].txt"],
        "**/*.txt": ["a.txt", "b[1].txt", "x/a.txt", ODD],
        "x/**": ["x/a.txt", "x/y/b.log", ODD],
        "x/*/*": ["x/y/b.log", ODD],
        "*/a.txt": ["x/a.txt"],
        ".hidden/*": [".hidden/a.txt"],
        "[ac].txt": ["a.txt"],
    }.items():
        records = drain(open_source(TextFile(place.url(pattern))))
        assert sorted(record.value for record in records) == sorted(names), pattern
        assert {record.id for record in records} == {f"{place.shown(name)}:0" for name in names}


def test_what_is_not_there_is_one_line(place: Place) -> None:
    place.put("x/a.txt", b"a\n")
    with pytest.raises(NotFoundError, match=r"no file matches 's3://files/place-\d+/\*\.csv'"):
        read(TextFile(place.url("*.csv")))
    with pytest.raises(ConfigError, match="is a directory: name its files"):
        read(TextFile(place.url("x")))
    with pytest.raises(NotFoundError, match="no file matches"):
        read(TextFile([place.url("y"), place.url("z")]))
    with pytest.raises(HeronError, match="no-such-bucket"):
        read(TextFile(place.url("*").replace("//files/", "//no-such-bucket/")))
    with pytest.raises(ConfigError, match="credentials are not in the URL"):
        TextFile("s3://key:swordfish@files/a")


def test_what_is_gone_is_known_for_certain(place: Place) -> None:
    place.put("x/a.txt", b"a\n")
    source = TextFile(place.url("**"))
    assert not source.is_gone(f"{place.shown('x/a.txt')}:0")
    assert source.is_gone(f"{place.shown('x/b.txt')}:0")
    away = TextFile("s3://files/**?endpoint=http://127.0.0.1:9&region=us-east-1")
    assert not away.is_gone("s3://files/a.txt:0")


def test_positions_are_the_same_by_another_endpoint(place: Place, tmp_path: Path) -> None:
    place.put("a.txt", b"".join(b"%d\n" % n for n in range(50)))
    reader = open_source(TextFile(place.url("a.txt")), directory=tmp_path)
    reader.ack(drain(reader))
    reader.close()
    elsewhere = place.url("*.txt").replace("127.0.0.1", "localhost")
    assert read(TextFile(elsewhere), directory=tmp_path) == []


def test_a_file_that_has_grown_is_read_on_and_keeps_its_times(place: Place, tmp_path: Path) -> None:
    place.put("a.txt", b"one\ntwo\nthr")
    reader = open_source(TextFile(place.url("a.txt")), directory=tmp_path)
    first = drain(reader)
    reader.ack(first)
    reader.close()
    place.put("a.txt", b"one\ntwo\nthree\nfour\n")
    assert read(TextFile(place.url("a.txt")), directory=tmp_path) == ["three", "four"]


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed_with_the_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.connectors._file_parts._BUFFERED_BYTES", 100)
    monkeypatch.setattr("heronpy.connectors.lines.BLOCK_BYTES", 100)
    place.put("a.txt", b"old line\n" * 100)
    reader = open_source(TextFile(place.url("a.txt")))
    assert {record.value for record in reader.read(5)} == {"old line"}
    place.put("a.txt", b"new line\n" * 100)
    with pytest.raises(HeronError, match="was replaced while it was read"):
        drain(reader)


def test_a_store_that_is_away_is_no_damage(place: Place, server: S3Server) -> None:
    place.put("a.txt", b"one\n" * 100)
    source = TextFile(place.url("a.txt"))
    dead = DeadLetters()
    reader = open_source(source, dead=dead)
    server.kill()
    try:
        with pytest.raises(UnavailableError):
            drain(reader)
        with pytest.raises(UnavailableError):
            open_source(source)
    finally:
        server.start()
    assert dead.letters == []
    assert len(read(source)) == 100


class Seen(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.values: list[Any] = []

    def process(self, tup: Tuple) -> None:
        self.values.append(tup.values[0])


def test_at_most_once_each_record_is_emitted_once_and_a_restarted_task_goes_on(place: Place, tmp_path: Path) -> None:
    builder = TopologyBuilder("lines")
    lines = builder.add_spout("lines", SourceSpout(TextFile(place.url("*.txt")), directory=tmp_path), 2)
    builder.add_bolt("seen", Seen, 1, {lines: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATMOST_ONCE"})

    def seen() -> list[Any]:
        with Simulator(builder.build()) as simulator:
            simulator.run(seconds=1)
            while simulator.step():
                pass
            return sorted(simulator.component("seen")[0].values)

    for number in range(3):
        place.put(f"{number}.txt", f"{number}\n".encode() * 500)
    assert seen() == sorted(["0", "1", "2"] * 500)
    place.put("3.txt", b"3\n" * 10)
    assert seen() == ["3"] * 10
