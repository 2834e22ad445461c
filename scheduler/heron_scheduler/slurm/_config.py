"""The keys of the Slurm scheduler."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from heronpy.errors import ConfigError, nearest

PREFIX = "heron.scheduler.slurm."
_OWN = frozenset(
    ("job-name", "J", "array", "a", "wrap", "nodes", "N", "ntasks", "n", "requeue", "no-requeue", "signal", "parsable")
)
"""What an overlay cannot set: by these the scheduler finds, ends and restarts its jobs."""
_OPTION = re.compile(r"--?([A-Za-z][A-Za-z-]*)(?:[= ].*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """Each field is set by the key `heron.scheduler.slurm.<field>`, with dots for underscores."""

    partition: str = ""
    """Where jobs run; empty: the cluster's default."""
    account: str = ""
    """Who pays; empty: the user's default."""
    qos: str = ""
    """The quality of service; empty: the account's default."""
    time: str = ""
    """How long a job may run, as `sbatch --time` takes it; empty: as long as the partition allows. A container ends in
    order before that, and its job goes back into the queue."""
    sbatch: tuple[str, ...] = ()
    """More options of sbatch, one each (`--constraint=ssd`, `--gres=gpu:1`); they reach it as they are."""
    setup: str = ""
    """Lines of shell before the container starts, for example `module load python/3.11`."""
    directory: str = "/tmp"
    """A directory of each node, below which a container has one of its own; `$VARIABLES` are those of the job."""
    output: str = "/dev/null"
    """Where Slurm writes what the job script prints, as `sbatch --output` takes it: why a container does not start."""
    walltime_grace_secs: int = 60
    """How long before the end of its time a job is asked to end."""

    def __post_init__(self) -> None:
        for name in ("partition", "account", "qos", "time", "output"):
            value = getattr(self, name)
            if value != value.strip() or any(c.isspace() for c in value):
                raise ConfigError(f"{PREFIX}{name} must be one word, not {value!r}")
        for option in self.sbatch:
            found = _OPTION.fullmatch(option)
            if found is None:
                raise ConfigError(f"{PREFIX}sbatch: {option!r} is not an option like --constraint=ssd")
            if found[1] in _OWN:
                raise ConfigError(f"{PREFIX}sbatch: {option!r} is what the scheduler decides")
        if not 1 <= self.walltime_grace_secs <= 65_535:
            raise ConfigError(f"{PREFIX}walltime.grace.secs must be 1 to 65535, not {self.walltime_grace_secs}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read the keys.

        Raises:
            ConfigError: an unknown key (names the nearest), or a value that its key cannot have.
        """
        fields: dict[str, Any] = {}
        for key, value in values.items():
            name = KEYS.get(key)
            if name is None:
                raise ConfigError(f"unknown configuration key {key!r}{nearest(key, KEYS)}")
            fields[name] = _CONVERT.get(name, _text)(key, value)
        return cls(**fields)


KEYS: Mapping[str, str] = {PREFIX + f.name.replace("_", "."): f.name for f in dataclasses.fields(SlurmConfig)}
"""Every key, and its field."""


def _text(key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        raise ConfigError(f"{key} must be text, not {value!r}")
    return str(value)


def _options(key: str, value: Any) -> tuple[str, ...]:
    """A list, or text with an option per line; with or without `#SBATCH`."""
    lines = value if isinstance(value, list) else _text(key, value).splitlines()
    if not all(isinstance(line, str) for line in lines):
        raise ConfigError(f"{key} must be a list of options, not {value!r}")
    found = (line.strip().removeprefix("#SBATCH").strip() for line in lines)
    return tuple(line for line in found if line)


def _seconds(key: str, value: Any) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"{key} must be a whole number of seconds, not {value!r}") from None


_CONVERT = {"sbatch": _options, "walltime_grace_secs": _seconds}
