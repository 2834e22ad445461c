"""Where the archives of a program are: both planners refuse what would mix them up or remove them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from streamlet_kit import topology

from heronpy.connectors import ListSource
from heronpy.errors import TopologyError
from heronpy.pipeline import Job
from heronpy.stores import RedisStore
from heronpy.streamlet import Builder, Config, Count
from heronpy.streamlet.runner import Program

S3 = "s3://bucket/jobs/words"


def planned(directory: str | Path, *archives: str | Path | None) -> None:
    """Plan a program with these archives, as a topology and as a batch job."""
    refusals = []
    for plan in (topology, lambda builder, config: Job.of(Program("words", config, builder.graph))):
        builder, config = Builder(), Config()
        for number, path in enumerate(archives):
            kept = builder.new_source(ListSource([])).archive(path, name="events" if number == 0 else f"other-{number}")
            kept.map(lambda word: (word, 1)).to_store(f"counts-{number}", Count(), RedisStore("redis://localhost"))
        config.set_pipeline(directory)
        try:
            plan(builder, config)
        except TopologyError as error:
            refusals.append(str(error))
    if refusals:
        assert len(set(refusals)) == 1
        assert len(refusals) == 2
        raise TopologyError(refusals[0])


@pytest.mark.parametrize(
    ("directory", "archives"),
    [
        ("job", ["both", "./both"]),
        ("job", ["link", "both"]),
        ("job", [None, "job/archive/events"]),
        (S3, [None, f"{S3}/archive/events/"]),
        (S3, ["s3://b/a?region=r&endpoint=http://h", "s3://b/a?endpoint=http://h&region=r"]),
    ],
)
def test_two_archives_in_one_place_are_refused(
    directory: str, archives: Sequence[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("both").mkdir()
    Path("link").symlink_to("both")
    with pytest.raises(TopologyError, match="the archives events and other-1 are both in"):
        planned(directory, *archives)


@pytest.mark.parametrize("folder", ["views", "views/raw/all", "sinks/out", "history", "intents", "manifest.lock"])
@pytest.mark.parametrize("directory", ["job", S3])
def test_an_archive_among_what_runs_remove_is_refused(
    directory: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TopologyError, match=r"the archive events is in .*, where batch runs keep and remove files"):
        planned(directory, f"{directory}/{folder}")


def test_archives_may_be_anywhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for archive in (None, "views", "job", "job/archive/mine", "job/my/views", "job-views"):
        planned("job", archive, "job/other", "s3://elsewhere/words?region=r", "s3://elsewhere/words")
