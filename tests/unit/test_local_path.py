"""A URL where only a path is supported is refused: it would become a directory with that name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors import CsvFile, CsvSink, SourceSpout
from heronpy.errors import ConfigError
from heronpy.files import local_path

URLS = ["s3://bucket/x", "hdfs://namenode:8020/x", "file:///x", Path("s3://bucket/x"), "S3a://bucket"]


@pytest.mark.parametrize("url", URLS, ids=str)
def test_a_url_is_refused_by_its_scheme(url: str | Path) -> None:
    with pytest.raises(ConfigError, match=r"^the archive '.*': \w+: is not supported here, only directories and files"):
        local_path("the archive", url)


@pytest.mark.parametrize("path", ["x", "/x/y", "c:", "a:b/c"])
def test_a_path_is_absolute(path: str) -> None:
    assert local_path("it", path) == Path(os.getcwd()) / path


@pytest.mark.parametrize(
    "use",
    [
        CsvFile,
        lambda url: CsvFile([url]),
        lambda url: CsvSink(url, ["a"]),
        lambda url: SourceSpout(CsvFile("x"), directory=url),
    ],
)
def test_whoever_takes_a_path_refuses_urls(use: Callable[[Any], Any], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="gs: is not supported here"):
        use("gs://bucket/x")
    assert not list(tmp_path.iterdir())
