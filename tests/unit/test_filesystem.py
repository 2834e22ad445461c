"""Places of files: directories, and what a store makes of URLs."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from heronpy.api import TopologyBuilder
from heronpy.checkpoints import ArrowStorage
from heronpy.connectors import ListSource
from heronpy.errors import ConfigError, ReadFailedError, TopologyError
from heronpy.filesystem import Files, Location, StoredFiles, UrlPath, location
from heronpy.stores import SqliteStore, Store, StoreContext
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.parts import add_stages
from heronpy.testing.files_kit import FilesKit


class TestLocalFiles(FilesKit):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Location:
        return tmp_path / "place"


class TestArrowFiles(FilesKit):
    """What HDFS has, in PyArrow's local file system."""

    @pytest.fixture
    def place(self) -> Location:
        return UrlPath("hdfs://kit/x")

    @pytest.fixture
    def files(self, tmp_path: Path) -> Files[Any]:
        return StoredFiles(ArrowStorage(pyarrow.fs.LocalFileSystem(), str(tmp_path)))

    def test_a_file_that_has_become_shorter_is_no_proof_of_damage(self, files: Files[Any], place: Location) -> None:
        files.write(place / "a", b"12345")
        with pytest.raises(ReadFailedError, match="5 of 6"):
            files.input(place / "a", 6)

    @pytest.mark.parametrize("size", [100, 3 * 1024 * 1024])
    def test_a_file_that_has_become_longer_is_no_proof_of_damage(
        self, files: Files[Any], place: Location, size: int
    ) -> None:
        files.write(place / "a", b"x" * (size + 10))
        with pytest.raises(ReadFailedError, match="other bytes than when it was listed"):
            files.input(place / "a", size)


def test_a_url_is_a_location_and_travels() -> None:
    place = location("it", "s3://bucket/a/b?endpoint=http://host:1&region=r")
    below = place / "c" / "d.json"
    assert str(below) == "s3://bucket/a/b/c/d.json"
    assert isinstance(below, UrlPath)
    assert below.url == "s3://bucket/a/b/c/d.json?endpoint=http://host:1&region=r"
    assert (below.name, below.suffix, below.parts, str(below.parent)) == (
        "d.json",
        ".json",
        ("c", "d.json"),
        "s3://bucket/a/b/c",
    )
    assert below.with_name("e") == place / "c" / "e"
    assert pickle.loads(pickle.dumps(below)) == below
    assert location("it", "file:///x/y%20z") == Path("/x/y z")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("gs://bucket/x", "gs: is not supported here, only directories and s3://, hdfs://, viewfs://"),
        ("redis://host/0", "redis: is not supported"),
        ("s3:///x", "names no bucket"),
        ("s3:/bucket/x", "s3: is not supported here"),
        ("s3://key:swordfish@bucket/x", "credentials are not in the URL"),
        ("s3://bucket/x?endpoint=http://key:swordfish@host:1", "credentials are not in the URL"),
        ("s3://bucket/job#2", "has no fragment"),
        ("gs://bucket/x?token=swordfish", "gs: is not supported here"),
    ],
)
def test_a_url_that_is_of_no_use_is_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        location("the archive", url)
    assert "swordfish" not in str(error.value)


def test_live_views_of_a_pipeline_in_a_store_need_a_place_of_their_own(tmp_path: Path) -> None:
    def builder_of(store: Store | None) -> Builder:
        builder = Builder()
        source = builder.new_source(ListSource(["a"])).archive()
        source.map(lambda word: (word, 1)).to_store("counts", Sum(), store)
        return builder

    config = Config()
    config.set_pipeline("s3://bucket/job?endpoint=http://127.0.0.1:1&region=r")
    with pytest.raises(
        TopologyError, match=r"keeps live views in a directory, not in s3://bucket/job: give .* live='redis:"
    ):
        add_stages(TopologyBuilder("Words"), builder_of(None).graph, config)
    context = StoreContext(view="counts", monoid=Sum(), directory=config.directory)
    with pytest.raises(ConfigError, match="is not a directory for SQLite files"):
        SqliteStore().reader(context)
    with contextlib.closing(SqliteStore(tmp_path).writer(context, "0")) as writer:
        writer.merge("a", 3, 0)
        writer.commit()
    with contextlib.closing(SqliteStore(tmp_path).reader(context)) as reader:
        assert dict(reader.items(0)) == {"a": 3}
