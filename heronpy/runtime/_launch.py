"""What a process of a topology needs to know when it starts, in one directory.

A topology's directory, made at submit and copied to wherever a container runs:

    launch.yaml            name, id, cluster, role, environ, state manager, configuration
    token                  the topology's secret, 0600
    package/               the user's code, on sys.path of every instance
    container_<n>/         working directory of container n; logs below log-files/

Unix sockets live elsewhere, because their paths may have at most 107 bytes: in
`<tmp>/heron-<uid>/<hash of the topology id>/<container>/`, 0700.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from heronpy.config import EngineConfig
from heronpy.errors import NotFoundError, StateError

LAUNCH_FILE = "launch.yaml"
TOKEN_FILE = "token"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatemgrSpec:
    """Which state manager, and where."""

    type: str = "file"
    """`file` or `zookeeper`."""
    connection: str = ""
    """host:port[,host:port…] of the ZooKeeper servers; empty for files."""
    root: str = ""
    """The root path: a directory, or a znode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The contents of launch.yaml."""

    topology: str
    topology_id: str
    cluster: str
    role: str
    environ: str
    statemgr: StatemgrSpec
    dir: Path
    """The topology's directory. Not written to the file: it is where the file is."""
    package_paths: tuple[str, ...] = ("package",)
    """Directories and archives for sys.path of the instances, relative to `dir`, first first."""
    main_file: str = ""
    """The user's script relative to `dir`, when its classes were defined in `__main__`."""
    config: EngineConfig = field(default_factory=EngineConfig)
    scheduler: str = "local"
    """Name of the scheduler: see `heron_scheduler.scheduler_of`."""

    def save(self, token: str | None = None) -> None:
        """Write launch.yaml, and the token (a new random one unless given) where there is none yet."""
        self.dir.mkdir(parents=True, exist_ok=True)
        values: dict[str, Any] = {
            "topology": self.topology,
            "topology_id": self.topology_id,
            "cluster": self.cluster,
            "role": self.role,
            "environ": self.environ,
            "statemgr": {
                "type": self.statemgr.type,
                "connection": self.statemgr.connection,
                "root": self.statemgr.root,
            },
            "package_paths": list(self.package_paths),
            "main_file": self.main_file,
            "scheduler": self.scheduler,
            "config": self.config.to_keys(),
        }
        (self.dir / LAUNCH_FILE).write_text(yaml.safe_dump(values, sort_keys=False))
        path = self.dir / TOKEN_FILE
        if not path.exists():
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w") as f:
                f.write(token or secrets.token_hex(32))

    @classmethod
    def load(cls, directory: str | Path) -> Launch:
        """Read a topology's directory.

        Raises:
            NotFoundError: there is no launch.yaml.
        """
        path = Path(directory).absolute()
        try:
            values = yaml.safe_load((path / LAUNCH_FILE).read_text())
        except FileNotFoundError:
            raise NotFoundError(f"{path} is no topology directory: no {LAUNCH_FILE} in it") from None
        return cls(
            topology=values["topology"],
            topology_id=values["topology_id"],
            cluster=values["cluster"],
            role=values["role"],
            environ=values["environ"],
            statemgr=StatemgrSpec(**values["statemgr"]),
            dir=path,
            package_paths=tuple(values["package_paths"]),
            main_file=values["main_file"],
            config=EngineConfig.from_keys(values["config"]),
            scheduler=values["scheduler"],
        )

    def token(self) -> str:
        """The topology's secret.

        Raises:
            StateError: it cannot be read, or others can read it too.
        """
        path = self.dir / TOKEN_FILE
        try:
            mode = path.stat().st_mode
            token = path.read_text().strip()
        except OSError as e:
            raise StateError(f"the topology's token {path} cannot be read: {e.strerror}") from e
        if stat.S_IMODE(mode) & 0o077:
            raise StateError(f"the topology's token {path} is readable by others: chmod 600 it")
        return token

    def container_dir(self, container: int) -> Path:
        return self.dir / f"container_{container}"

    def log_dir(self, container: int) -> Path:
        return self.container_dir(container) / "log-files"

    def socket_root(self) -> Path:
        """Where the topology's sockets are; removed when it is killed."""
        digest = hashlib.sha256(f"{self.topology_id}:{self.dir}".encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"heron-{os.getuid()}" / digest

    def socket_dir(self, container: int) -> Path:
        """The container's socket directory; made here, 0700.

        Raises:
            StateError: it exists and belongs to somebody else.
        """
        path = self.socket_root() / str(container)
        for directory in (path.parent.parent, path.parent, path):
            directory.mkdir(mode=0o700, exist_ok=True)
            found = directory.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                raise StateError(f"{directory} belongs to somebody else: set TMPDIR to a directory of yours")
            if stat.S_IMODE(found.st_mode) & 0o077:
                directory.chmod(0o700)
        return path
