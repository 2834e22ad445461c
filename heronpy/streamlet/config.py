"""The configuration of a streamlet program."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heronpy.api import api_constants
from heronpy.errors import ConfigError
from heronpy.filesystem import Location, location
from heronpy.streamlet.resources import Resources

if TYPE_CHECKING:
    from heronpy.stores import Store

DIRECTORY_KEY = "streamlet.directory"
"""Configuration key of a topology: the directory of its batch side, for people and for `heron submit`."""


class Config:
    """How a program is run: delivery semantics, containers, and where its data pipeline keeps its files."""

    ATMOST_ONCE = 1
    ATLEAST_ONCE = 2
    EFFECTIVELY_ONCE = 3

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """Begin with configuration keys of the topology.

        Raises:
            ConfigError: not a dict.
        """
        if config is not None and not isinstance(config, dict):
            raise ConfigError(f"Config takes a dict, not {config!r}")
        self._api_config: dict[str, Any] = dict(config or {})
        self.directory: Location | None = None
        """Where the job keeps archive, views, live stores and manifest; None: the program has no batch side."""
        self.live: Store | None = None
        """Where live views are kept that `to_store` was given no store for; None: in SQLite files in the directory."""
        self.batch_length_ms = 3_600_000
        """A batch id is the event time divided by this."""
        self.max_lateness_ms = 5_000
        """How far event times may be out of order. Windows wait so long; batches are closed so much later."""
        self.idle_timeout_ms = 10_000
        """A source that has had nothing for so long holds up no window."""
        self.fusion = True
        """Whether neighbouring operations of the same parallelism run in one task."""

    @property
    def api_config(self) -> dict[str, Any]:
        """The topology's configuration keys."""
        return dict(self._api_config)

    def set_delivery_semantics(self, semantics: int) -> None:
        """One of ATMOST_ONCE, ATLEAST_ONCE, EFFECTIVELY_ONCE.

        Raises:
            ConfigError: something else.
        """
        modes = {
            Config.ATMOST_ONCE: api_constants.TopologyReliabilityMode.ATMOST_ONCE,
            Config.ATLEAST_ONCE: api_constants.TopologyReliabilityMode.ATLEAST_ONCE,
            Config.EFFECTIVELY_ONCE: api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE,
        }
        if semantics not in modes:
            raise ConfigError(
                f"unknown delivery semantics {semantics!r}: use Config.ATMOST_ONCE, ATLEAST_ONCE or EFFECTIVELY_ONCE"
            )
        self._api_config[api_constants.TOPOLOGY_RELIABILITY_MODE] = modes[semantics]

    def set_num_containers(self, ncontainers: int) -> None:
        """Containers that the tasks are divided among."""
        self._api_config[api_constants.TOPOLOGY_STMGRS] = int(ncontainers)

    def set_container_resources(self, resources: Resources) -> None:
        """What each container asks for.

        Raises:
            ConfigError: not Resources.
        """
        if not isinstance(resources, Resources):
            raise ConfigError(f"container resources must be Resources, not {resources!r}")
        self._api_config[api_constants.TOPOLOGY_CONTAINER_CPU_REQUESTED] = resources.get_cpu()
        self._api_config[api_constants.TOPOLOGY_CONTAINER_RAM_REQUESTED] = resources.get_ram()

    def set_user_config(self, key: str, value: Any) -> None:
        """Any key of the topology's configuration."""
        self._api_config[key] = value

    def set_pipeline(
        self,
        directory: str | Location,
        *,
        batch_length: datetime.timedelta | float = 3600,
        keep_live_batches: int = 24,
        live: Store | str | None = None,
    ) -> None:
        """Give the program a batch side: where its files are, and how long a batch is.

        Args:
            directory: absolute or relative to the working directory now, shared by all hosts that run tasks; or a URL,
                `s3://bucket/prefix?endpoint=…&region=…` or `hdfs://host:port/path`.
            batch_length: a number is in seconds.
            keep_live_batches: closed batches that stay in the live stores, so that `reconcile` can compare them.
            live: where live views are kept, or its URL: `redis://…`, `postgresql://…`, a directory of this host (see
                `heronpy.stores.store_at`); in SQLite files in `directory` without it. If that is a URL, or tasks run on
                several hosts, it is needed.

        Raises:
            ConfigError: a URL of another kind, a batch length below 1 s, or a negative number of batches.
        """
        from heronpy.stores import as_store  # stores import monoids, and so this package

        self.directory = location("the directory of the pipeline", directory)
        self.live = None if live is None else as_store(live)
        self.batch_length_ms = _ms("batch_length", batch_length, at_least_ms=1000)
        if not isinstance(keep_live_batches, int) or keep_live_batches < 0:
            raise ConfigError(f"keep_live_batches must be a number of batches, not {keep_live_batches!r}")
        self.keep_live_batches = keep_live_batches

    keep_live_batches = 24
    """Closed batches that stay in the live stores."""

    def set_max_lateness(self, lateness: datetime.timedelta | float) -> None:
        """How far event times may be out of order; a number is in seconds."""
        self.max_lateness_ms = _ms("max_lateness", lateness, at_least_ms=0)

    def set_idle_timeout(self, timeout: datetime.timedelta | float) -> None:
        """After how long a silent source holds up no window; a number is in seconds."""
        self.idle_timeout_ms = _ms("idle_timeout", timeout, at_least_ms=1)

    def set_fusion(self, fusion: bool) -> None:
        """Whether neighbouring operations of the same parallelism run in one task (default) or each in its own."""
        self.fusion = bool(fusion)


def _ms(name: str, value: datetime.timedelta | float, *, at_least_ms: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, datetime.timedelta)):
        raise ConfigError(f"{name} must be a timedelta or a number of seconds, not {value!r}")
    ms = round((value.total_seconds() if isinstance(value, datetime.timedelta) else value) * 1000)
    if ms < at_least_ms:
        raise ConfigError(f"{name} must be at least {at_least_ms / 1000:g} s, not {value!r}")
    return ms
