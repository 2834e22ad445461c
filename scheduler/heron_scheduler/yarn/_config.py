"""The keys of the YARN scheduler."""

from __future__ import annotations

import dataclasses
import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from heronpy.address import bare_host
from heronpy.errors import ConfigError, nearest

PREFIX = "heron.scheduler.yarn."
_URL = re.compile(r"https?://[^\s,/]+/?")
_ADDRESS = re.compile(r"[^\s,/]+:\d{1,5}")
_WORD = re.compile(r"[A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnConfig:
    """Each field is set by the key `heron.scheduler.yarn.<field>`, with dots for underscores."""

    resourcemanager: str
    """URL of the ResourceManager's web services, `http://host:8088`; of several for high availability, with commas."""
    scheduler_address: str = ""
    """Where application masters reach it, `host:8030`, or several, with commas; empty: what it says of itself."""
    queue: str = "default"
    """The queue that topologies are submitted to."""
    user: str = ""
    """As whom, on a cluster without Kerberos; empty: the user of this machine."""
    priority: int = 0
    """Of the application in its queue; higher goes first."""
    node_label: str = ""
    """A node label: containers run on such nodes alone. Empty: what the queue says."""
    driver_memory_mb: int = 512
    """What the application master asks for, in MiB."""
    python: str = ""
    """The Python of the application master, with heronpy, the same path on all nodes; empty: that of the containers."""
    secrets: str = ""
    """A directory of the user's alone that all machines with commands share: with it, any of them can adopt the
    topology, and start its application again. Empty: the machine that submitted alone can."""

    def __post_init__(self) -> None:
        if not self.urls or not all(_URL.fullmatch(url) for url in self.urls):
            raise ConfigError(
                f"{PREFIX}resourcemanager must be the URL of a ResourceManager, http://host:8088, "
                f"not {self.resourcemanager!r}"
            )
        if not all(_ADDRESS.fullmatch(one) for one in _split(self.scheduler_address)):
            raise ConfigError(f"{PREFIX}scheduler.address must be host:8030, not {self.scheduler_address!r}")
        if not re.fullmatch(r"[^\s\"\\]+", self.queue):
            raise ConfigError(f"{PREFIX}queue must be the name of a queue, not {self.queue!r}")
        if not _WORD.fullmatch(self.user):
            raise ConfigError(f"{PREFIX}user must be the name of a user, not {self.user!r}")
        if not 128 <= self.driver_memory_mb <= 1 << 20:
            raise ConfigError(f"{PREFIX}driver.memory.mb must be 128 or more, not {self.driver_memory_mb}")

    @property
    def urls(self) -> list[str]:
        """Of the ResourceManagers, without a slash at the end."""
        return [url.rstrip("/") for url in _split(self.resourcemanager)]

    @property
    def on_label(self) -> str:
        """` on …`, if only some nodes will do."""
        return f" on nodes with node label {self.node_label}" if self.node_label else ""

    @property
    def caller(self) -> str:
        """Who submits.

        Raises:
            ConfigError: the uid of this process has no name.
        """
        try:
            return self.user or getpass.getuser()
        except (KeyError, OSError) as e:
            raise ConfigError(f"uid {os.getuid()} has no name: set heron.scheduler.yarn.user, or USER") from e

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read the keys.

        Raises:
            ConfigError: an unknown key (names the nearest), no ResourceManager, or a value that its key cannot have.
        """
        fields: dict[str, Any] = {}
        for key, value in values.items():
            name = KEYS.get(key)
            if name is None:
                raise ConfigError(f"unknown configuration key {key!r}{nearest(key, KEYS)}")
            fields[name] = (_number if name in _NUMBERS else _text)(key, value)
        if not fields.get("resourcemanager"):
            raise ConfigError(f"{PREFIX}resourcemanager is not set: the URL of the ResourceManager, http://host:8088")
        return cls(**fields)


KEYS: Mapping[str, str] = {PREFIX + f.name.replace("_", "."): f.name for f in dataclasses.fields(YarnConfig)}
"""Every key, and its field."""
_NUMBERS = frozenset(f.name for f in dataclasses.fields(YarnConfig) if f.type == "int")


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, _, port = text.rpartition(":")
    return bare_host(host), int(port)


def _split(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _text(key: str, value: Any) -> str:
    if isinstance(value, (dict, list)):
        raise ConfigError(f"{key} must be text, not {value!r}")
    return "" if value is None else str(value).strip()


def _number(key: str, value: Any) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"{key} must be a whole number, not {value!r}") from None
