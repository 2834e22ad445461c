"""Where metrics go: `metrics_sinks.yaml` of a cluster, with Heron's keys.

    sinks: [file-sink, tmanager-sink]       which of the sections below are in use
    file-sink:
      class: FileSink                       a sink of ours, or `module.Class` of another
      flush-frequency-ms: 60000
      sink-restart-attempts: -1             after a failure; -1: for ever
      filename-output: metrics.json         the sink's own keys

It reaches the Metrics Managers as one value of the topology's configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from heronpy.errors import ConfigError, nearest

SINKS_FILE = "metrics_sinks.yaml"
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "FileSink": {"filename-output": "metrics.json", "file-maximum": 5},
    "GraphiteSink": {"graphite-host": "127.0.0.1", "graphite-port": 2003, "metrics-prefix": "heron"},
    "PrometheusSink": {"port": 0, "path": "/metrics", "include-topology-name": True},
    "TManagerSink": {},
}
"""The keys of our sinks, and their defaults. A class of somebody else's may have any keys."""
ALIASES = {
    "TMasterSink": "TManagerSink",
    # The short names are what people write first.
    "host": "graphite-host",
    "graphite_host": "graphite-host",
    "graphite_port": "graphite-port",
    "metrics_prefix": "metrics-prefix",
    "prefix": "metrics-prefix",
}
_COMMON: Mapping[str, Any] = {"class": "", "flush-frequency-ms": 60_000, "sink-restart-attempts": -1}


class SinkSpec(Struct, frozen=True, kw_only=True):
    """One sink that is in use."""

    name: str
    """Of its section."""
    sink_class: str
    """`FileSink`, ..., or `module.Class`."""
    flush_interval_ms: int = 60_000
    """How often `flush()` is called."""
    restart_attempts: int = -1
    """How often a sink that failed is started again; -1: for ever."""
    options: Mapping[str, Any] = {}
    """Its own keys, with the defaults of ours."""


DEFAULT_SINKS = (
    SinkSpec(name="tmanager-sink", sink_class="TManagerSink"),
    SinkSpec(name="prometheus-sink", sink_class="PrometheusSink", options=OPTIONS["PrometheusSink"]),
)
"""Those of a cluster without a `metrics_sinks.yaml`."""


def sinks_from(values: Mapping[str, Any], where: str) -> tuple[SinkSpec, ...]:
    """The sinks in use. Sections that are not in use are checked, too.

    Args:
        values: the contents of the file.
        where: its name, for messages.

    Raises:
        ConfigError: an unknown sink, class or key (the nearest known one is named), or a value of the wrong type.
    """
    sections: dict[str, SinkSpec] = {}
    for name, section in values.items():
        if name == "sinks":
            continue
        if not isinstance(section, Mapping):
            raise ConfigError(f"{where}: unknown key {name!r}{nearest(str(name), ['sinks'])}, or no section of a sink")
        sections[str(name)] = _spec(str(name), section, where)
    used = values.get("sinks")
    if not isinstance(used, list):
        raise ConfigError(f"{where}: sinks must be a list of the sinks in use")
    for name in used:
        if name not in sections:
            raise ConfigError(f"{where}: sinks names {name!r}, which has no section{nearest(str(name), sections)}")
    return tuple(sections[name] for name in dict.fromkeys(used))


def sinks_to_text(sinks: tuple[SinkSpec, ...]) -> str:
    """One line that `sinks_from_text` reads."""
    values: dict[str, Any] = {"sinks": [s.name for s in sinks]}
    for sink in sinks:
        values[sink.name] = {
            "class": sink.sink_class,
            "flush-frequency-ms": sink.flush_interval_ms,
            "sink-restart-attempts": sink.restart_attempts,
            **sink.options,
        }
    return json.dumps(values)


def sinks_from_text(text: str) -> tuple[SinkSpec, ...]:
    """The sinks in use; the defaults for the empty text.

    Raises:
        ConfigError: that is no such text.
    """
    if not text:
        return DEFAULT_SINKS
    try:
        values = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"heron.metricsmgr.sinks must be JSON like {SINKS_FILE}: {e}") from None
    if not isinstance(values, Mapping):
        raise ConfigError(f"heron.metricsmgr.sinks must be a JSON object like {SINKS_FILE}")
    return sinks_from(values, "heron.metricsmgr.sinks")


def _spec(name: str, section: Mapping[str, Any], where: str) -> SinkSpec:
    sink_class = _class(name, str(section.get("class") or ""), where)
    own = OPTIONS.get(sink_class)
    values = {ALIASES.get(key, key) if own is not None else key: value for key, value in section.items()}
    if sink_class == "GraphiteSink" and "port" in values:
        values["graphite-port"] = values.pop("port")
    known = {**_COMMON, **(own or {})}
    for key, value in values.items():
        if key not in known:
            if own is None:
                continue
            raise ConfigError(f"{where}: {name} has an unknown key {key!r}{nearest(str(key), known)}")
        _check_type(f"{where}: {name}: {key}", value, known[key])
    settings = {**known, **values}
    if settings["flush-frequency-ms"] <= 0:
        raise ConfigError(f"{where}: {name}: flush-frequency-ms must be positive")
    return SinkSpec(
        name=name,
        sink_class=sink_class,
        flush_interval_ms=settings["flush-frequency-ms"],
        restart_attempts=settings["sink-restart-attempts"],
        options={key: value for key, value in settings.items() if key not in _COMMON},
    )


def _class(name: str, path: str, where: str) -> str:
    short = path.rpartition(".")[2]
    short = ALIASES.get(short, short)
    if short in OPTIONS and (short == path or path in ALIASES or path.startswith(("org.apache.heron.", "heronpy."))):
        return short  # Heron's Java names mean ours
    if "." not in path or path.startswith("org.apache.heron."):
        raise ConfigError(
            f"{where}: {name} has class {path!r}, which is none of {', '.join(OPTIONS)} and no module.Class"
            f"{nearest(short, OPTIONS)}"
        )
    return path


def _check_type(what: str, value: Any, default: Any) -> None:
    if isinstance(default, bool) != isinstance(value, bool) or not isinstance(value, type(default)):
        kind = {bool: "true or false", int: "a whole number", str: "text"}[type(default)]
        raise ConfigError(f"{what} must be {kind}, not {value!r}")
