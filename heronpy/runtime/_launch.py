"""What a process of a topology needs to know when it starts, in one directory.

A topology's directory, made at submit and copied to wherever a container runs:

    launch.json            name, id, cluster, role, environ, state manager, configuration
    token                  the topology's secret, 0600
    user-secrets/          secrets of user code by name, 0700: see heronpy.usersecrets
    secrets/               what the state manager's servers want to be shown, if anything, 0700: see StatemgrSpec
    tls/                   its certificates: see heronpy.security.authority, 0700
    package/               the user's code, on sys.path of every instance
    requirements/          what the package requires, installed; see heronpy.environment
    code/<version>/        the same two of code that has come since
    container_<n>/         working directory of container n; logs below log-files/

Unix sockets live elsewhere, because their paths may have at most 107 bytes: in
`<tmp>/heron-<uid>/<hash of the topology id>/<container>/`, 0700; in /tmp where TMPDIR is too long itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import heronpy
from heronpy.address import WILDCARDS, bare_host, join_address
from heronpy.config import KIB, EngineConfig
from heronpy.errors import ConfigError, HeronError, NotFoundError, StateError, UntrustedError
from heronpy.files import make_private, outrace_removal, read_owned_file, remove_empty
from heronpy.runtime._route import route_to
from heronpy.runtime._statemgr_spec import StatemgrSpec
from heronpy.security import Security

LAUNCH_FILE = "launch.json"
CONTAINER_LOCK_FILE = "container.lock"
"""Held by the container that the directory was made for."""
TOKEN_FILE = "token"
USER_SECRETS_DIR = "user-secrets"
CODE_DIR = "code"
LAUNCH_BYTES_MAX = 256 * KIB
TOKEN_BYTES_MAX = 4 * KIB
ADVERTISE_ENV = "HERON_ADVERTISE_ADDRESS"
"""Set by schedulers that know under which address a container's host is reached."""
_TMP_BYTES_MAX = 48
"""Of a directory for sockets, whose whole paths may have 107 bytes."""
INCARNATION_ENV = "HERON_INCARNATION"
"""Set by the executor for all processes of its container: the incarnation that it has taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The contents of launch.json."""

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
    packages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What is stored for hosts that do not share the submitter's files: by the directory, relative to `dir`, that it
    becomes (`package`), its reference as `heronpy.uploader.PackageRef.from_json` reads it."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The secrets of the user's code by name, as references: see `heronpy.usersecrets`. Never their values."""
    code: str = ""
    """Version of the code that was submitted: see `heronpy.loader.version_of`."""
    main_file: str = ""
    """The user's script relative to `dir`, when its classes were defined in `__main__`."""
    config: EngineConfig = field(default_factory=EngineConfig)
    scheduler: str = "local"
    """Name of the scheduler: see `heron_scheduler.scheduler_of`."""
    scheduler_config: Mapping[str, Any] = field(default_factory=dict)
    """The scheduler's own keys (`heron.scheduler.<name>.*`), with values as YAML has them. Nothing secret."""
    checkpoints: str = ""
    """URL of the storage of this topology's checkpoints, for `heronpy.checkpoints.open_storage`; empty: it takes none.
    """
    start_from: str = ""
    """URL of the storage whose checkpoint the topology begins with; empty: it begins without state."""
    start_checkpoint: int = 0
    """Its id there."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where the configuration's keys were set, in words; a key that is not in it has its default."""
    release: str = ""
    """Of heronpy, with which it was submitted; empty: not known."""

    def save(self, token: str | None = None) -> None:
        """Write launch.json, and the token (a new random one unless given) where there is none yet."""
        make_private(self.dir, exist_ok=True)
        if self.dir.stat().st_uid == os.geteuid() and self.dir.stat().st_mode & 0o022:
            self.dir.chmod(0o700)  # made under a umask that lets the group write: nothing would be read from it
        fd = os.open(self.dir / LAUNCH_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(self.encode())
        path = self.dir / TOKEN_FILE
        if not path.exists():
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w") as f:
                f.write(token or os.urandom(32).hex())

    def encode(self) -> bytes:
        """The content of launch.json. Nothing in it is secret."""
        values: dict[str, Any] = {
            "topology": self.topology,
            "topology_id": self.topology_id,
            "cluster": self.cluster,
            "role": self.role,
            "environ": self.environ,
            "statemgr": self.statemgr.to_values(self.dir),
            "package_paths": list(self.package_paths),
            "packages": {place: dict(ref) for place, ref in self.packages.items()},
            "secrets": dict(self.secrets),
            "main_file": self.main_file,
            "code": self.code,
            "scheduler": self.scheduler,
            "scheduler_config": dict(self.scheduler_config),
            "checkpoints": self.checkpoints,
            "start_from": self.start_from,
            "start_checkpoint": self.start_checkpoint,
            "config": self.config.to_keys(),
            "origins": dict(self.origins),
            "heronpy": self.release,
        }
        return (json.dumps(values, indent=2) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes, directory: Path) -> Launch:
        """What `encode` has made, for a topology whose directory here is `directory`.

        Raises:
            StateError: it is damaged. No message contains any of its content.
        """
        path = directory / LAUNCH_FILE
        try:
            values = json.loads(data)
        except (ValueError, RecursionError) as e:
            raise StateError(f"{path} is damaged: not valid JSON ({type(e).__name__})") from None
        try:
            return _launch(directory, values)
        except (HeronError, LookupError, TypeError, ValueError, OverflowError, AttributeError) as e:
            what = "is damaged"
            if isinstance(values, dict) and _is_another(release := values.get("heronpy")):
                what = f"was written by heronpy {release!s:.40}, which heronpy {heronpy.__version__} cannot read"
            raise StateError(f"{path} {what}: a value is missing or wrong ({type(e).__name__})") from e

    @classmethod
    def load(cls, directory: str | Path, *, any_release: bool = False) -> Launch:
        """Read a topology's directory.

        Args:
            directory: The directory.
            any_release: Also of a topology that was submitted with another release of heronpy, to show or to end it.

        Raises:
            ConfigError: it was submitted with another release, none of whose processes may be of this one.
            NotFoundError: there is no launch.json.
            UntrustedError: the directory or launch.json belongs to another user, or others could have written it.
            StateError: launch.json is damaged or too large. No message contains any of its content.
        """
        path = Path(directory).absolute()
        try:
            data = read_owned_file(path / LAUNCH_FILE, max_bytes=LAUNCH_BYTES_MAX)
        except NotFoundError:
            raise NotFoundError(f"{path} is not a topology directory: no {LAUNCH_FILE} in it") from None
        launch = cls.decode(data, path)
        if not any_release:
            launch.check_release()
        return launch

    def check_release(self) -> None:
        """Refuse to run, or to change, a topology that was submitted with another release of heronpy.

        Raises:
            ConfigError: it was; names both.
        """
        if _is_another(self.release):
            raise ConfigError(
                f"topology {self.topology} was submitted with heronpy {self.release}, and this is heronpy "
                f"{heronpy.__version__}: use heronpy {self.release}, or kill it and submit it again"
            )

    def token(self) -> str:
        """The topology's secret.

        Raises:
            NotFoundError: there is none.
            UntrustedError: others can read or could have written it.
            StateError: it cannot be read.
        """
        path = self.dir / TOKEN_FILE
        data = read_owned_file(path, max_bytes=TOKEN_BYTES_MAX, private=True)
        try:
            return data.decode("ascii").strip()
        except UnicodeDecodeError:
            raise StateError(f"the topology's token {path} is damaged: it is not ASCII") from None

    def security(self, process: str) -> Security:
        """What the process with this id proves itself with.

        Raises:
            StateError: the token cannot be read, or others can read it too.
        """
        tls = self.tls_dir if self.config.security.tls else None
        return Security(
            process=process, topology_id=self.topology_id, token=self.token(), tls=tls, incarnation=own_incarnation()
        )

    def with_code(self, version: str, package_paths: Iterable[str]) -> Launch:
        """The same with other code than what was submitted, in its directory; for `heronpy.loader.activate`."""
        return replace(self, dir=self.code_dir(version), package_paths=tuple(package_paths))

    def code_dir(self, version: str) -> Path:
        """Where a version of the code is that has come after what was submitted."""
        return self.dir / CODE_DIR / version

    @property
    def tls_dir(self) -> Path:
        """The topology's certificates."""
        return self.dir / "tls"

    @property
    def bind_address(self) -> str:
        """What servers bind: `host:0`."""
        return join_address(bare_host(self.config.network.bind), 0)

    def advertised_host(self) -> str:
        """Where others reach the servers of this host. Never decided by the cluster's name.

        Raises:
            ConfigError: servers bind all addresses, and nothing says which one others can dial.
        """
        network = self.config.network
        if named := os.environ.get(ADVERTISE_ENV) or network.advertise:
            return bare_host(named)
        bind = bare_host(network.bind)
        if bind not in WILDCARDS:
            return bind
        server = self.statemgr.first_server()
        if server is None:
            raise ConfigError(
                f"heron.network.bind.address is {network.bind} and the state manager is not a server: "
                f"set heron.network.advertise.address, or {ADVERTISE_ENV} on each host"
            )
        return route_to(*server)

    @property
    def shares_files(self) -> bool:
        """Whether `dir` is the submitter's; else `heronpy.container` has made it for one container, on its host."""
        return not (self.dir / CONTAINER_LOCK_FILE).exists()

    def container_dir(self, container: int) -> Path:
        return self.dir / f"container_{container}"

    def log_dir(self, container: int) -> Path:
        return self.container_dir(container) / "log-files"

    def make_log_dir(self, container: int) -> Path:
        """The same for a process that writes there; made here, but never a directory of the topology anew.

        Raises:
            FileNotFoundError: the topology's directory is gone.
        """
        path = self.log_dir(container)
        for directory in (path.parent, path):
            directory.mkdir(exist_ok=True)
        return path

    def socket_root(self) -> Path:
        """Where the topology's sockets are; removed when it is killed."""
        digest = hashlib.sha256(f"{self.topology_id}:{self.dir}".encode()).hexdigest()[:12]
        # Clusters make a directory per job, with names that leave no room for a socket's.
        tmp = os.environ.get("TMPDIR") or "/tmp"
        return Path(tmp if len(os.fsencode(tmp)) <= _TMP_BYTES_MAX else "/tmp") / f"heron-{os.getuid()}" / digest

    def socket_dir(self, container: int) -> Path:
        """The container's socket directory; made here, 0700.

        Raises:
            UntrustedError: it exists and belongs to another user.
            StateError: it cannot be made.
        """
        path = self.socket_root() / str(container)

        def make() -> Path:
            for directory in (path.parent.parent, path.parent, path):
                directory.mkdir(mode=0o700, exist_ok=True)
                found = directory.lstat()
                if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                    raise UntrustedError(f"{directory} belongs to another user: set TMPDIR to a directory of yours")
                if stat.S_IMODE(found.st_mode) & 0o077:
                    directory.chmod(0o700)
            return path

        try:
            return outrace_removal(make)  # the last topology of this host may be killed now
        except OSError as e:
            raise StateError(
                f"no sockets can be in {path}: {e.filename}: {e.strerror}: set TMPDIR to a directory of yours"
            ) from e

    def remove_sockets(self) -> None:
        """Remove the topology's sockets on this host, as far as that is possible: nobody listens any more."""
        for root in self.own_sockets():
            shutil.rmtree(root, ignore_errors=True)
            remove_empty([root.parent])  # else other topologies have their sockets there

    def own_sockets(self) -> list[Path]:
        """`socket_root`, unless another user has taken the name of the directory above it."""
        root = self.socket_root()
        with contextlib.suppress(OSError):
            found = root.parent.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                return [root]
        return []


def _is_another(release: Any) -> bool:
    """Directories of earlier versions do not say it."""
    return release not in (None, "", heronpy.__version__)


def own_incarnation() -> int:
    """The incarnation of the container that this process is in; 0: it is in none."""
    found = os.environ.get(INCARNATION_ENV, "")
    return int(found) if found.isdecimal() else 0


def _texts(values: Any) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(text, str) for pair in values.items() for text in pair):
        raise TypeError("a name or value is not text")
    return values


def _plain_map(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise TypeError("not a map")
    return values


def _packages(values: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(values, dict) or not all(isinstance(ref, dict) for ref in values.values()):
        raise TypeError("a package is not a map")
    return values


def _launch(path: Path, values: Any) -> Launch:
    text = {key: values[key] for key in ("topology", "topology_id", "cluster", "role", "environ", "scheduler")}
    text["main_file"] = values["main_file"]
    text["checkpoints"] = values.get("checkpoints", "")  # directories of earlier versions have none, and no
    text["start_from"] = values.get("start_from", "")
    text["code"] = values.get("code", "")
    text["release"] = values.get("heronpy", "")
    packages = values["package_paths"]
    if not isinstance(packages, list) or not all(isinstance(value, str) for value in (*text.values(), *packages)):
        raise TypeError("a name is not text")
    return Launch(
        **text,
        start_checkpoint=int(values.get("start_checkpoint", 0)),
        statemgr=StatemgrSpec.of_values(values["statemgr"], path),
        dir=path,
        package_paths=tuple(packages),
        packages=_packages(values.get("packages", {})),
        secrets=_texts(values.get("secrets", {})),
        config=EngineConfig.from_keys(values["config"]),
        scheduler_config=_plain_map(values.get("scheduler_config", {})),
        origins=_texts(values.get("origins", {})),  # directories of earlier versions have none
    )
