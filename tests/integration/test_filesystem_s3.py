"""Archives, manifests and dead letters in S3: a real server."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from heronpy.archive import Archive, ArchiveWriter, DeadLetters, dead_letter_counts, publish_letters
from heronpy.archive.files import this_process
from heronpy.errors import AlreadyExistsError, ConfigError, FencedError, HeronError, UnavailableError
from heronpy.filesystem import Location, StoredFiles, UrlPath, files_of, location
from heronpy.pipeline import Manifest
from heronpy.pipeline.manifest import Batch, lock, manifest_stamp
from heronpy.testing.files_kit import FilesKit
from heronpy.testing.servers import S3Server, s3_missing

pytestmark = pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def place(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # One URL, so one client for all tests: making one takes a third of a second.
    place = location("it", server.url("files"))
    return place / str(next(_NUMBERS))


class TestS3Files(FilesKit):
    def test_the_url_of_a_folder_leads_to_it(self, place: Location) -> None:
        files_of(place).write(place / "a" / "b", b"1")
        again = location("it", (place / "a").url)  # type: ignore[union-attr]  # it is one of a store
        assert files_of(again).read(again / "b") == b"1"


def refuse(where: str, row: Any, reason: str) -> None:
    raise AssertionError(f"{where}: {reason}")


def writer_of(place: Location, task: str = "0", tasks: int = 1) -> ArchiveWriter:
    return ArchiveWriter(
        place, task=task, tasks=tasks, run="r", batch_length_ms=1000, codec="columns", dead_letter=refuse
    )


def rows_of(archive: Archive) -> list[tuple[str, Any]]:
    files = [file for files in archive.batches().values() for file in files]
    chunks = [chunk for split in archive.splits(files, 1 << 20) for chunk in split.read(refuse)]
    return sorted(row for chunk in chunks for row in zip(chunk.ids.to_pylist(), chunk.values, strict=True))


def test_a_commit_that_is_repeated_writes_what_is_there_no_second_time(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, uploads = StoredFiles.upload, itertools.count()

    def fail_once(self: StoredFiles, path: Any, file: Any) -> None:
        if next(uploads) == 1:
            raise UnavailableError("the store does not answer")
        upload(self, path, file)

    writer = writer_of(place)
    for n in range(300):
        writer.add(f"{n}", n * 10, {"n": n})
    monkeypatch.setattr(StoredFiles, "upload", fail_once)
    with pytest.raises(UnavailableError):
        writer.commit()
    assert writer.waiting == 200
    assert writer.commit() == 2
    assert {batch: len(files) for batch, files in Archive(place).batches().items()} == {0: 1, 1: 1, 2: 1}
    assert len(rows_of(Archive(place))) == 300


def test_uploads_of_processes_that_died_are_aborted_after_a_day(
    place: Location, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    endpoint = f"http://{server.bind}:{server.port}"
    client = boto3.session.Session().client("s3", endpoint_url=endpoint, region_name="us-east-1")
    assert isinstance(place, UrlPath)
    mine, others = [f"{place.inner}/batch=1/half", f"{place.inner}/_tmp/x"], [f"{place.inner}/notes", "half/of/it"]
    for key in (*mine, *others):
        upload = client.create_multipart_upload(Bucket="files", Key=key)
        client.upload_part(Bucket="files", Key=key, UploadId=upload["UploadId"], PartNumber=1, Body=b"1")

    def uploads() -> list[str]:
        return sorted(one["Key"] for one in client.list_multipart_uploads(Bucket="files").get("Uploads", ()))

    writer_of(place)
    assert uploads() == sorted([*mine, *others]), "they may be going on"
    monkeypatch.setattr("heronpy.checkpoints._s3._TORN_S", -60.0)
    writer_of(place, "1")
    assert uploads() == sorted(others), "a bucket may be shared"
    client.close()


def test_what_tasks_archive_is_read_whole_and_how_far_it_is(place: Location) -> None:
    archive = Archive(place)
    assert not archive.exists
    writers = [writer_of(place, str(task), 2) for task in range(2)]
    for task, writer in enumerate(writers):
        for n in range(300):
            writer.add(f"{task}-{n}", n * 10, {"n": n, "task": task})
        assert writer.commit() == 3
        writer.progress(2000 + task)
    assert archive.exists
    assert archive.complete_before_ms() == 2000
    batches = archive.batches()
    assert {batch: len(files) for batch, files in batches.items()} == {0: 2, 1: 2, 2: 2}
    assert archive.check(batches[0]) == (batches[0], {})
    assert archive.rows(batches[0]) == 200
    assert rows_of(archive) == sorted((f"{task}-{n}", {"n": n, "task": task}) for task in range(2) for n in range(300))
    for writer in writers:
        writer.progress(None)
    assert archive.complete_before_ms() is None


def test_writers_of_many_tasks_agree_on_one_schema(place: Location) -> None:
    def write(task: int) -> None:
        writer = writer_of(place, str(task), 4)
        for round in range(3):
            writer.add(f"{task}-{round}", 0, {f"field{task}": task, f"late{round}": "x"})
            writer.commit()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    archive = Archive(place)
    fields = {f"field{task}" for task in range(4)} | {f"late{round}" for round in range(3)}
    assert isinstance(archive.schema.element, dict)
    assert archive.schema.element["dict"].keys() == fields
    assert len(rows_of(archive)) == 12
    with pytest.raises(ConfigError, match="has codec columns, not pickle"):
        ArchiveWriter(place, task="9", batch_length_ms=1000, codec="pickle", dead_letter=refuse)


def test_a_damaged_file_is_told_from_a_server_that_is_away(place: Location, server: S3Server) -> None:
    writer = writer_of(place)
    writer.add("a", 0, {"n": 1})
    writer.commit()
    archive = Archive(place)
    ((file,),) = archive.batches().values()
    files_of(place).write(file.path, b"PAR1 nothing PAR1")
    ((damaged,),) = archive.batches().values()
    assert damaged.stamp != file.stamp
    _, bad = archive.check([damaged])
    assert "cannot be read" in bad[damaged]
    away = Archive(location("it", "s3://files/0?endpoint=http://127.0.0.1:1&region=us-east-1"))
    with pytest.raises(HeronError, match=r"127\.0\.0\.1:1"):
        away.batches()


def test_dead_letters_are_there_at_once_and_staged_ones_when_published(place: Location) -> None:
    letters = DeadLetters(place, "parse")
    letters("row 1", {"a": 1}, "bad")
    letters("row 2", b"\xff", "worse")
    assert dead_letter_counts(place) == {"parse": 2}
    (path,) = letters.files
    assert [json.loads(line)["where"] for line in files_of(place).read(path).splitlines()] == ["row 1", "row 2"]
    staged = DeadLetters(place, "parse", staged="batch=5-19a-01234567")
    staged("row 3", None, "bad")
    staged.close()
    assert dead_letter_counts(place) == {"parse": 2}
    publish_letters(staged.files)
    assert dead_letter_counts(place) == {"parse": 3}


def test_a_manifest_is_replaced_by_the_run_that_has_taken_over_last(place: Location) -> None:
    assert manifest_stamp(place) == 0
    first = Manifest.load(place, 10_000)
    late = Manifest.load(place, 10_000)
    first.claim(place)
    assert Manifest.load(place, 10_000) == Manifest(10_000)
    with pytest.raises(FencedError):
        late.claim(place)
    first.batches[3] = Batch("v1", "3:1:0")
    first.save(place)
    assert Manifest.load(place).batches == first.batches
    second = Manifest.load(place)
    second.claim(place)
    assert Manifest.load(place) == first, "who takes over has changed nothing yet"
    first.batches[4] = Batch("v2", "4:1:0")
    with pytest.raises(FencedError, match="another batch run has taken over"):
        first.save(place)
    for number in range(12):
        before = manifest_stamp(place)
        second.batches[number] = Batch(f"v{number}", "")
        second.save(place)
        assert manifest_stamp(place) != before
    assert Manifest.load(place) == second
    assert len(files_of(place).listed(place / "manifest.json")) < 13, "old versions go"


def test_a_manifest_that_many_runs_took_over_and_none_changed_stays(place: Location) -> None:
    written = Manifest.load(place, 10_000)
    written.claim(place)
    written.batches[1] = Batch("v", "")
    written.save(place)
    for _ in range(12):
        Manifest.load(place).claim(place)
    assert Manifest.load(place).batches == written.batches


def test_of_runs_that_take_over_at_once_one_goes_on(place: Location) -> None:
    runs = [Manifest.load(place, 10_000) for _ in range(8)]

    def take_over(run: Manifest) -> bool:
        try:
            run.claim(place)
        except FencedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take_over, runs)) == 1


def test_a_store_that_lets_two_create_one_name_is_refused(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(files: StoredFiles, path: Any, data: bytes) -> bool:
        files.write(path, data)
        return True

    monkeypatch.setattr(StoredFiles, "create", create)
    with pytest.raises(ConfigError, match="of 16 that created one name at once 16 succeeded"):
        Manifest.load(place, 10_000).claim(place)
    assert files_of(place).below(place) == [], "nothing has begun"


def test_a_second_run_waits_for_the_first_unless_that_is_dead(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    with lock(place), pytest.raises(AlreadyExistsError, match="another batch run works on s3://files"), lock(place):
        pass
    folder = place / "manifest.lock"
    assert files_of(place).listed(folder) == []
    dead = this_process().replace(f"@{os.getpid()}", "@999999999")
    files_of(place).write(folder / f"00000000000001-{dead}@x.json", b"{}")
    with lock(place) as confirm:
        confirm()
    assert files_of(place).listed(folder) == []
    files_of(place).write(folder / "00000000000001-elsewhere@1@x.json", b"{}")
    with pytest.raises(AlreadyExistsError, match="on elsewhere:"), lock(place):
        pass
    monkeypatch.setattr("heronpy.pipeline._manifest_log._LEASE_S", 0.0)
    with lock(place):
        pass
    assert files_of(place).listed(folder) == []
