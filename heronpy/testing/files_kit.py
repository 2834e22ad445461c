"""What every `heronpy.filesystem.Files` must do, as tests. A subclass has the fixture `place`: where nothing is."""

from __future__ import annotations

import secrets
import threading
from typing import Any

import pytest

from heronpy.errors import ReadFailedError
from heronpy.filesystem import Files, Location, UrlPath, files_of, location


def _name(place: Location) -> Location:
    return place / "folder" / f"file-{secrets.token_hex(4)}"


class FilesKit:
    """Tests for any place."""

    @pytest.fixture
    def files(self, place: Location) -> Files[Any]:
        return files_of(place)

    def test_what_was_written_is_read_and_replaced_whole(self, files: Files[Any], place: Location) -> None:
        files.write(place / "a" / "small.json", b"{}")
        files.write(place / "a" / "small.json", b"[1]")
        assert files.read(place / "a" / "small.json") == b"[1]"

    def test_what_is_not_there_is_said(self, files: Files[Any], place: Location) -> None:
        for call in (files.read, files.input):
            with pytest.raises(FileNotFoundError):
                _read_all(call(place / "none"))
        assert files.listed(place / "none") == []
        assert list(files.folders(place / "none")) == []
        files.delete([place / "none"])
        files.delete_folder(place / "none")

    def test_of_several_that_create_one_succeeds(self, files: Files[Any], place: Location) -> None:
        writers = 16
        barrier, won = threading.Barrier(writers), []

        def create(number: int) -> None:
            barrier.wait()
            if files.create(place / "log" / "1", b"%d" % number):
                won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert files.read(place / "log" / "1") == b"%d" % won[0]

    @pytest.mark.parametrize("size", [0, 1000, 3 * 1024 * 1024])
    def test_a_large_file_is_read_in_any_parts(self, files: Files[Any], place: Location, size: int) -> None:
        data, path = secrets.token_bytes(size), _name(place)
        _write(files, path, data)
        for known in (None, size):
            assert _read_all(files.input(path, known)) == data
        if size:
            source = _opened(files.input(path))
            assert source.size() == size
            for offset, length in ((0, 10), (size // 2, 500), (size - 7, 7), (size - 100_000, 200_000)):
                offset = max(0, offset)
                assert source.read_at(length, offset) == data[offset : offset + length]

    def test_a_large_file_that_is_replaced_while_it_is_read_is_not_mixed_with_the_other(
        self, files: Files[Any], place: Location
    ) -> None:
        if files.renames:
            pytest.skip("who has a file open keeps it: it is replaced by renaming another one")
        path, size = _name(place), 2 * 1024 * 1024
        for known in (None, size):
            data = secrets.token_bytes(size)
            _write(files, path, data)
            source = _opened(files.input(path, known))
            assert source.read_at(500, 0) == data[:500]
            _write(files, path, secrets.token_bytes(size + 1))
            with pytest.raises(ReadFailedError, match=f"{path.name} was replaced while it was read") as error:
                source.read_at(500, 1000)
            assert "\n" not in str(error.value)

    def test_a_file_whose_writing_fails_is_not_listed(self, files: Files[Any], place: Location) -> None:
        path = place / "folder" / "file"
        name = path.with_name(f".{path.name}") if files.renames else path
        with pytest.raises(RuntimeError, match="killed"):
            _write(files, name, b"half", RuntimeError("killed"))
        assert files.listed(place / "folder") == []

    def test_a_file_that_is_moved_has_the_new_name_alone(self, files: Files[Any], place: Location) -> None:
        files.write(place / "a" / "1", b"content")
        files.write(place / "a" / "2", b"")
        files.move(place / "a" / "1", place / "a" / "2")
        assert [file.path.name for file in files.listed(place / "a")] == ["2"]
        assert files.read(place / "a" / "2") == b"content"
        with pytest.raises(FileNotFoundError):
            files.move(place / "a" / "1", place / "a" / "3")

    def test_folders_and_files_are_listed_with_their_sizes(self, files: Files[Any], place: Location) -> None:
        for name, data in (("batch=1/a", b"1"), ("batch=1/b", b"22"), ("batch=10/a", b"333"), ("other/a", b"")):
            folder, _, file = name.partition("/")
            files.write(place / "in" / folder / file, data)
        files.write(place / "in" / "top", b"")
        batches = files.folders(place / "in", "batch=")
        found = {name: [(file.path.name, file.size_bytes) for file in listed] for name, listed in batches}
        assert found == {"batch=1": [("a", 1), ("b", 2)], "batch=10": [("a", 3)]}
        assert [file.path for file in files.listed(place / "in")] == [place / "in" / "top"]
        assert [path.name for path in files.below(place / "in")] == ["a", "b", "a", "a", "top"]

    def test_a_file_with_another_content_has_another_stamp(self, files: Files[Any], place: Location) -> None:
        stamps = []
        for data in (b"1", b"22"):
            files.write(place / "a" / "b", data)
            stamps += [file.stamp for file in files.listed(place / "a")]
        assert len(set(stamps)) == 2

    def test_deleted_files_are_gone_and_others_stay(self, files: Files[Any], place: Location) -> None:
        for name in ("1", "2", "3"):
            files.write(place / "a" / name, b"")
        files.write(place / "ab" / "1", b"")
        files.delete([place / "a" / "1", place / "a" / "2"])
        assert [file.path.name for file in files.listed(place / "a")] == ["3"]
        files.delete_folder(place / "a")
        assert files.listed(place / "a") == []
        assert [file.path.name for file in files.listed(place / "ab")] == ["1"]

    def test_a_location_comes_back_from_its_text(self, place: Location) -> None:
        again = location("it", _text(place)) / "a"
        assert (_text(again), str(again)) == (_text(place / "a"), str(place / "a"))
        assert "?" not in str(again)


def _write(files: Any, path: Location, data: bytes, error: Exception | None = None) -> None:
    with files.writing(path) as to:
        if files.renames:
            to.write_bytes(data)
        else:
            to.write(data)
        if error is not None:
            raise error


def _opened(source: Any) -> Any:
    import pyarrow as pa

    return pa.OSFile(str(source)) if not hasattr(source, "read") else source


def _read_all(source: Any) -> bytes:
    if isinstance(source, bytes):
        return source
    opened = _opened(source)
    return bytes(opened.read())


def _text(place: Location) -> str:
    return place.url if isinstance(place, UrlPath) else str(place)
