"""Which file systems are taken for disks of this host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heronpy.files import on_local_disk

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:44 / /home rw shared:9 - nfs4 server:/home rw,hard
31 30 0:45 / /home/ada/a\\040disk rw - xfs /dev/sdb1 rw
32 22 0:46 / /data rw - ext4 /dev/sdc1 rw
33 22 0:47 / /data rw - fuse.sshfs server: rw
34 22 0:48 / /run rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/checkpoints", True),
        ("/home", False),
        ("/home/ada/checkpoints", False),
        ("/homes/checkpoints", True),
        ("/home/ada/a disk/checkpoints", True),
        ("/data/checkpoints", False),
        ("/run/checkpoints", True),
    ],
)
def test_what_is_mounted_last_and_deepest_counts(path: str, local: bool) -> None:
    assert on_local_disk(Path(path), MOUNTS) is local


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/home/ada")
    assert not on_local_disk(tmp_path / "link" / "checkpoints", MOUNTS)


def test_without_mounts_nothing_is_local() -> None:
    assert not on_local_disk(Path("/checkpoints"), "")


def test_a_mount_may_have_a_name_that_is_not_utf_8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_bytes(MOUNTS.encode() + b"35 22 0:49 / /media/Fotos\xe4 rw - vfat /dev/sde1 rw\n")
    monkeypatch.setattr("heronpy.files._local_disk._MOUNTINFO", tmp_path / "mountinfo")
    assert on_local_disk(Path("/checkpoints"))
    assert not on_local_disk(Path(os.fsdecode(b"/media/Fotos\xe4/checkpoints")))
