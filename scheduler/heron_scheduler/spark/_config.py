"""The keys of the Spark scheduler."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from heronpy.address import join_address, split_address
from heronpy.errors import ConfigError, nearest

PREFIX = "heron.scheduler.spark."
_ADDRESS = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s,/:\[\]]+):\d{1,5}"
_MASTER = re.compile(rf"spark://{_ADDRESS}(,{_ADDRESS})*")
_OWN = frozenset(
    {
        "spark.master",
        "spark.app.name",
        "spark.submit.deployMode",
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.task.cpus",
        "spark.task.maxFailures",
        "spark.speculation",
        "spark.dynamicAllocation.enabled",
    }
)
"""What a user's configuration cannot set: on these the scheduler relies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig:
    """Each field is set by the key `heron.scheduler.spark.<field>`, with dots for underscores."""

    master: str
    """URL of the standalone master, `spark://host:7077` (an IPv6 address in brackets); of several,
    `spark://host1:7077,host2:7077`."""
    webui: str = ""
    """URL of the master's web UI, asked at submit whether there are workers and cores; empty: port 8080 of the master.
    """
    conf: Mapping[str, str] = field(default_factory=dict)
    """More of Spark's configuration, `{spark.cores.max: 8}`; it reaches Spark as it is. Nothing secret."""
    python: str = ""
    """The Python of Spark's workers, of the submitter's minor version; it needs no heronpy. Empty: that of
    `heron.package.python: venv:…`, else `python3`."""
    directory: str = "/tmp"
    """A directory of each host, below which a container has one of its own; `$VARIABLES` are those of the worker."""
    secrets: str = ""
    """A directory of the user's alone that all machines with commands share: with it, any of them can start the driver
    and adopt the topology. Empty: the machine that submitted alone can."""
    driver_autostart: bool = True
    """Whether commands start the driver where none runs. False: a systemd unit does, see deploy/systemd."""

    def __post_init__(self) -> None:
        if not _MASTER.fullmatch(self.master):
            raise ConfigError(
                f"{PREFIX}master must be the URL of a standalone master, spark://host:7077, not {self.master!r}"
            )
        if self.webui and not re.fullmatch(r"https?://\S+", self.webui):
            raise ConfigError(f"{PREFIX}webui must be a URL, not {self.webui!r}")
        for key in self.conf:
            if not key.startswith("spark."):
                raise ConfigError(f"{PREFIX}conf: {key!r} is not a key of Spark's, which begin with 'spark.'")
            if key in _OWN:
                raise ConfigError(f"{PREFIX}conf: {key} is what the scheduler decides")
            if "secret" in key.lower() or "password" in key.lower():
                raise ConfigError(
                    f"{PREFIX}conf: {key} is secret, and this is readable in the state manager: "
                    "put it into spark-defaults.conf of the driver's machine"
                )

    @property
    def masters(self) -> list[tuple[str, int]]:
        """Host and port of each master."""
        return [split_address(one) for one in self.master.removeprefix("spark://").split(",")]

    @property
    def webui_url(self) -> str:
        """Of the master's web UI, without a slash at the end."""
        return (self.webui or f"http://{join_address(self.masters[0][0], 8080)}").rstrip("/")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read the keys.

        Raises:
            ConfigError: an unknown key (names the nearest), no master, or a value that its key cannot have.
        """
        fields: dict[str, Any] = {}
        for key, value in values.items():
            name = KEYS.get(key)
            if name is None:
                raise ConfigError(f"unknown configuration key {key!r}{nearest(key, KEYS)}")
            fields[name] = _CONVERT.get(name, _text)(key, value)
        if not fields.get("master"):
            raise ConfigError(f"{PREFIX}master is not set: the URL of the standalone master, spark://host:7077")
        return cls(**fields)


KEYS: Mapping[str, str] = {PREFIX + f.name.replace("_", "."): f.name for f in dataclasses.fields(SparkConfig)}
"""Every key, and its field."""


def _text(key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        raise ConfigError(f"{key} must be text, not {value!r}")
    return str(value).strip()


def _conf(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value or {}, dict) or any(isinstance(one, (dict, list)) for one in (value or {}).values()):
        raise ConfigError(f"{key} must be a map of Spark's keys to values, not {value!r}")
    return {str(name): str(one).lower() if isinstance(one, bool) else str(one) for name, one in (value or {}).items()}


def _flag(key: str, value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, not {value!r}")
    return str(value).lower() == "true"


_CONVERT = {"conf": _conf, "driver_autostart": _flag}
