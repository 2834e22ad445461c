"""What every uploader must do, as tests.

An uploader of your own passes the kit like this:

    class TestMine(UploaderKit):
        @pytest.fixture
        def uploader(self):
            return MyUploader()

Each test gets an uploader in which nothing is stored. `damage` overwrites a stored package, for uploaders that can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from heronpy.errors import NotFoundError, StateError
from heronpy.uploader import PackageRef, Uploader, pack


class UploaderKit:
    """Tests for any uploader; a subclass has the fixture `uploader`."""

    large_bytes = 20 * 1024 * 1024
    """More than is sent at once."""

    @pytest.fixture
    def uploader(self) -> Uploader:
        raise NotImplementedError

    @pytest.fixture
    def damage(self) -> Callable[[PackageRef, bytes], None]:
        pytest.skip("this uploader cannot be damaged by a test")

    @pytest.fixture
    def package(self, tmp_path: Path) -> Path:
        source = tmp_path / "source"
        (source / "below").mkdir(parents=True)
        (source / "main.py").write_text("print('hello')\n")
        (source / "below" / "run").write_text("#!/bin/sh\n")
        (source / "below" / "run").chmod(0o755)
        return pack(source, tmp_path / "package.tar.gz")

    def test_what_is_stored_is_fetched(self, uploader: Uploader, package: Path, tmp_path: Path) -> None:
        ref = uploader.store(package, topology_id="words-1")
        assert ref.sha256 == hashlib.sha256(package.read_bytes()).hexdigest()
        assert ref.size == package.stat().st_size
        uploader.fetch(ref, tmp_path / "fetched")
        assert (tmp_path / "fetched" / "main.py").read_text() == "print('hello')\n"
        assert (tmp_path / "fetched" / "below" / "run").stat().st_mode & 0o777 == 0o700
        assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []

    def test_a_large_package_is_fetched(self, uploader: Uploader, tmp_path: Path) -> None:
        (tmp_path / "source").mkdir()
        content = hashlib.shake_256(b"seed").digest(self.large_bytes)  # it cannot be compressed
        (tmp_path / "source" / "data").write_bytes(content)
        ref = uploader.store(pack(tmp_path / "source", tmp_path / "large.tar.gz"), topology_id="words-1")
        assert ref.size > self.large_bytes
        uploader.fetch(ref, tmp_path / "fetched")
        assert (tmp_path / "fetched" / "data").read_bytes() == content

    def test_an_equal_package_is_stored_once(self, uploader: Uploader, package: Path) -> None:
        assert uploader.store(package, topology_id="a-1") == uploader.store(package, topology_id="b-1")
        assert uploader.store(package, topology_id="a-1") == uploader.store(package, topology_id="a-1")

    def test_a_package_is_there_until_its_last_topology_is_killed(
        self, uploader: Uploader, package: Path, tmp_path: Path
    ) -> None:
        ref = uploader.store(package, topology_id="a@b.c-1")
        uploader.store(package, topology_id="b-1")
        uploader.remove(ref, topology_id="a@b.c-1")
        uploader.fetch(ref, tmp_path / "fetched")
        uploader.remove(ref, topology_id="b-1")
        with pytest.raises(NotFoundError, match="submit it again"):
            uploader.fetch(ref, tmp_path / "again")
        assert not (tmp_path / "again").exists()
        uploader.remove(ref, topology_id="b-1")

    def test_what_was_removed_can_be_stored_again(self, uploader: Uploader, package: Path, tmp_path: Path) -> None:
        uploader.remove(uploader.store(package, topology_id="a-1"), topology_id="a-1")
        uploader.fetch(uploader.store(package, topology_id="a-2"), tmp_path / "fetched")
        assert (tmp_path / "fetched" / "main.py").exists()

    def test_all_of_a_topology_is_removed_and_nothing_of_others(
        self, uploader: Uploader, package: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "source" / "more.py").write_text("")
        other = pack(tmp_path / "source", tmp_path / "other.tar.gz")
        shared, own = uploader.store(package, topology_id="a-1"), uploader.store(other, topology_id="a-1")
        uploader.store(package, topology_id="aa-1")
        uploader.remove_all(topology_id="a-1", keep=[own])
        uploader.fetch(own, tmp_path / "kept")
        uploader.remove_all(topology_id="a-1")
        uploader.remove_all(topology_id="nobody-1")
        uploader.fetch(shared, tmp_path / "fetched")
        with pytest.raises(NotFoundError):
            uploader.fetch(own, tmp_path / "again")
        uploader.remove_all(topology_id="aa-1")
        with pytest.raises(NotFoundError):
            uploader.fetch(shared, tmp_path / "again")

    def test_another_package_is_not_unpacked(self, uploader: Uploader, package: Path, tmp_path: Path) -> None:
        ref = uploader.store(package, topology_id="a-1")
        for wrong in (replace(ref, size=ref.size - 1), replace(ref, size=ref.size + 1), replace(ref, sha256="0" * 64)):
            with pytest.raises(StateError) as error:
                uploader.fetch(wrong, tmp_path / "fetched")
            assert "\n" not in str(error.value)
            assert not (tmp_path / "fetched").exists()

    def test_a_damaged_package_is_not_unpacked(
        self, uploader: Uploader, package: Path, tmp_path: Path, damage: Callable[[PackageRef, bytes], None]
    ) -> None:
        ref = uploader.store(package, topology_id="a-1")
        content = bytearray(package.read_bytes())
        content[len(content) // 2] ^= 1
        for damaged in (bytes(content), bytes(content[:-1]), bytes(content) + b"x", b""):
            damage(ref, damaged)
            with pytest.raises(StateError, match="damaged") as error:
                uploader.fetch(ref, tmp_path / "fetched")
            assert "\n" not in str(error.value)
            assert not (tmp_path / "fetched").exists()
