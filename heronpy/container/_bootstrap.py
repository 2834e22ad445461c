"""The bootstrap file: all that a host needs to run one container, and no more.

    heronpy, python     versions of the submitter: tuples and state are pickled, so those of the host must be the same
    container           its number
    launch              launch.json
    files               secrets and certificates, by their paths below the topology's directory

A container with user code is given a certificate that opens nothing but `Enroll` of the Topology Master, for this
container. The key of the topology's authority is in container 0's file alone, and that runs no user code. It has the
secrets of user code, too, because a command on another machine adopts a topology by it; its host does not keep them.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import heronpy
from heronpy.errors import ConfigError, HeronError, NotFoundError, StateError
from heronpy.runtime import SECRETS_DIR, TOKEN_FILE, USER_SECRETS_DIR, Launch
from heronpy.security import CA_FILE, bootstrap_identity, read_secret

BYTES_MAX = 1 << 20
"""Of a bootstrap file. Secrets of Kubernetes may have as much."""
_FORMAT = 1
_FILE = re.compile(r"token|tls/[a-z0-9-]+\.pem|tls/authority/[a-z-]+\.pem|(user-)?secrets/[A-Za-z0-9_-][A-Za-z0-9._-]*")
_SCRAPERS_FILE = "scrapers.pem"
_CA_KEY_FILE = "authority/ca-key.pem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """The content of a bootstrap file."""

    container: int
    values: Mapping[str, Any]
    """Those of launch.json."""
    files: Mapping[str, str] = field(repr=False)
    """Contents by path below the topology's directory."""
    heronpy: str = heronpy.__version__
    """The submitter's release."""
    python: str = ".".join(platform.python_version_tuple()[:2])
    """The submitter's Python, without its patch level."""

    def encode(self) -> bytes:
        """As JSON. The same values make the same bytes."""
        values = {
            "format": _FORMAT,
            "heronpy": self.heronpy,
            "python": self.python,
            "container": self.container,
            "launch": dict(self.values),
            "files": dict(sorted(self.files.items())),
        }
        return (json.dumps(values, indent=1) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> Bootstrap:
        """Read what `encode` has made.

        Raises:
            ConfigError: it is damaged, or of another release or Python. No message contains any of its content.
        """
        try:
            values = json.loads(data)
            versions = values["heronpy"], values["python"]
        except (ValueError, RecursionError, LookupError, TypeError) as e:
            raise ConfigError(f"it is not a bootstrap file ({type(e).__name__})") from None
        mine = heronpy.__version__, ".".join(platform.python_version_tuple()[:2])
        if versions != mine:  # before anything else of it is read: another release may write it in another way
            raise ConfigError(
                f"this host has heronpy {mine[0]} and Python {mine[1]}, the topology was submitted with heronpy "
                f"{versions[0]!s:.40} and Python {versions[1]!s:.40}: install these here, or submit with those"
            )
        try:
            found = cls(container=_number(values["container"]), values=values["launch"], files=_files(values["files"]))
            found.place(Path("/"))
            return found
        except (HeronError, LookupError, TypeError, ValueError, AttributeError) as e:
            raise ConfigError(f"it is a damaged bootstrap file ({type(e).__name__})") from None

    def place(self, directory: Path) -> Launch:
        """The launch values for a topology's directory on this host."""
        return Launch.decode(json.dumps(self.values).encode(), directory)

    @property
    def topology(self) -> str:
        """The name of the topology."""
        return str(self.values["topology"])

    @property
    def topology_id(self) -> str:
        return str(self.values["topology_id"])


def bootstrap_document(launch: Launch, container: int) -> bytes:
    """The bootstrap file of a container. Secret: to be brought to the container's host, and nowhere else.

    Made again it is the same, for as long as `launch.dir` has the same secrets.

    Raises:
        NotFoundError: `launch.dir` has no secrets of the topology, or not the key of its authority.
        StateError: they cannot be read, or others can read them too.
        OSError: the new certificate cannot be written there.
    """
    files = {TOKEN_FILE: launch.token()}
    if launch.config.security.tls:
        files |= _certificates(launch, container)
    for directory in (SECRETS_DIR, USER_SECRETS_DIR):
        for path in sorted((launch.dir / directory).glob("[!.]*")):
            files[f"{directory}/{path.name}"] = _text(path)
    return Bootstrap(container=container, values=json.loads(launch.encode()), files=files).encode()


def _certificates(launch: Launch, container: int) -> dict[str, str]:
    names = [CA_FILE]
    if (launch.tls_dir / _SCRAPERS_FILE).exists():
        names.append(_SCRAPERS_FILE)
    if container == 0:
        names.append(_CA_KEY_FILE)
    else:
        from heronpy.security import authority  # here: reading a bootstrap file makes no certificates

        identity = bootstrap_identity(container)
        # For as long as the authority: a container is started again on another host however old its topology is.
        authority.issue(launch.tls_dir, launch.topology_id, identity, days=authority.CA_DAYS)
        names.append(f"{identity}.pem")
    return {f"tls/{name}": _text(launch.tls_dir / name) for name in names}


def _text(path: Path) -> str:
    try:
        return read_secret(path).decode()
    except NotFoundError as e:
        raise NotFoundError(f"{e}: this machine cannot start containers of the topology") from e
    except UnicodeDecodeError as e:
        raise StateError(f"{path} is damaged: it is not UTF-8") from e


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not the number of a container")
    return value


def _files(values: Any) -> dict[str, str]:
    if not all(isinstance(text, str) for text in values.values()):
        raise TypeError("a file is not text")
    if not all(_FILE.fullmatch(path) for path in values):
        raise ValueError("a file that would be written elsewhere")
    return dict(values)
