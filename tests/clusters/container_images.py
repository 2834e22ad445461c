"""Images by buildah, and containers of them by podman, with a storage of their own; a base made by debootstrap.

`images_missing()` says why there are none on this machine, for a skip that tells its reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

_PROGRAMS = ("buildah", "podman", "runc")
BASE_ENV = "HERON_TEST_IMAGE_BASE"
"""A directory with the files of a Debian that has python3 and python3-venv."""
_TIMEOUT_S = 1200.0


def image_base() -> Path | None:
    """The files of the base image: the environment's word, or what `make image-tools` has made."""
    if given := os.environ.get(BASE_ENV):
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return max((cache / "heronpy").glob("debian-*"), default=None)


def images_missing() -> str | None:
    """Why no image can be built and run here, or None if it can."""
    if os.geteuid() != 0:
        return "no images: only root can make their files"
    if absent := [name for name in _PROGRAMS if shutil.which(name) is None]:
        return f"no images: {', '.join(absent)} missing; make image-tools"
    if image_base() is None:
        return f"no images: no base; make image-tools, or put the directory of its files into {BASE_ENV}"
    return None


class Images:
    """A storage of images, below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        policy = directory / "policy.json"
        policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        self._policy = f"--signature-policy={policy}"
        self._storage = [f"--root={directory}/storage", f"--runroot={directory}/run", "--storage-driver=vfs"]

    def import_root(self, root: Path, name: str) -> None:
        """Make an image of a directory of files."""
        made = self._buildah("from", self._policy, "scratch")
        self._buildah("add", "--quiet", made, str(root), "/")
        self._buildah("commit", "--quiet", self._policy, "--rm", made, name)

    def build(self, dockerfile: Path, context: Path, name: str, **arguments: str) -> None:
        """Build an image. With chroot, containers in the build share this host's network."""
        given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        options = ["--isolation=chroot", "--network=host", self._policy, *given]
        self._buildah("build", *options, "-f", str(dockerfile), "-t", name, str(context))

    def files(self, name: str) -> Path:
        """The files of an image, in a directory, which is removed with the storage."""
        made = self._buildah("from", self._policy, "--pull-never", name)
        return Path(self._buildah("mount", made))

    def run(self, name: str, *command: str, mounts: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """A command in a container as pods are: a user without rights, and read-only files but /tmp."""
        options = ["--rm", "--init", "--network=none", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all"]
        options += ["--tmpfs=/tmp:rw,mode=1777,exec", "--user=10001:10001", "--security-opt=no-new-privileges"]
        options += ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", *(f"--volume={mount}" for mount in mounts)]
        tool = ["podman", *self._storage, f"--tmpdir={self._directory}/tmp", "--runtime=runc"]
        tool += ["--cgroup-manager=cgroupfs", "--events-backend=file"]
        words = [*tool, "run", self._policy, "--pull=never", *options, name, *command]
        return subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S)

    def _buildah(self, command: str, *words: str) -> str:
        done = subprocess.run(
            ["buildah", *self._storage, command, *words], capture_output=True, text=True, timeout=_TIMEOUT_S
        )
        assert done.returncode == 0, f"buildah {command}: {done.stderr[-3000:]}"
        return done.stdout.strip()
