"""The configuration of topologies and components: checked, written as Heron writes it, and read back typed."""

from __future__ import annotations

import math
import numbers
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any

from heronpy.api import api_constants as keys
from heronpy.api._foreign_keys import has_no_effect
from heronpy.api.serializer import default_serializer
from heronpy.config import KEYS as ENGINE_KEYS
from heronpy.config import EngineConfig, is_scheduler_key
from heronpy.errors import ConfigError, UserCodeError, nearest
from heronpy.plan import Pickled, as_plain, key_value
from heronpy.proto import topology_pb2
from heronpy.shown import said

_NEAR = 0.8
"""How much of an unknown key's name a known one must share to be taken for a slip of the pen."""
_PREFIX = "topology."
_WHOLE_MAX = 1 << 53
"""More is a mistake in any unit; every record of the state manager has room for it."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?")


def validate_config(config: Mapping[str, Any]) -> None:
    """Refuse what the engine would not understand, before anything runs.

    Raises:
        ConfigError: an unknown `heron.` key, a `topology.` key that is nearly a known one (which is named), or a value
            that its key cannot have. Other `topology.` keys are accepted; see `without_effect`.
        TypeError: a key that is not a string.
    """
    for key, value in config.items():
        if not isinstance(key, str):
            raise TypeError(f"configuration keys must be strings, not {key!r}")
        if key.startswith("topology."):
            _refuse_slip(key)
            _CHECKS.get(key, _anything)(key, value)
        elif key.startswith("heron.") and not is_scheduler_key(key):  # those the scheduler checks
            if key not in ENGINE_KEYS:
                raise ConfigError(f"unknown configuration key {key!r}{nearest(key, ENGINE_KEYS)}")
            EngineConfig.from_keys({key: value})
    pending = config.get(keys.TOPOLOGY_MAX_SPOUT_PENDING)
    if pending is not None and int(pending) > 1 << 31:
        raise ConfigError(f"{keys.TOPOLOGY_MAX_SPOUT_PENDING} must be at most {1 << 31}, not {pending!r}")


def sanitize_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Values as Heron stores them: `true`/`false` for booleans, text for numbers, everything else as it is.

    Raises:
        TypeError: a key that is not a string, or `config` that is not a dict.
    """
    if not isinstance(config, Mapping):
        raise TypeError(f"configuration must be a dict, not {config!r}")
    sanitized: dict[str, Any] = {}
    for key, value in config.items():
        if not isinstance(key, str):
            raise TypeError(f"configuration keys must be strings, not {key!r}")
        if isinstance(value, bool):
            sanitized[key] = "true" if value else "false"
        elif isinstance(value, str):
            sanitized[key] = str.__str__(value)
        elif isinstance(value, numbers.Integral):
            sanitized[key] = str(int(value))
        elif isinstance(value, float):
            sanitized[key] = str(value)
        else:
            sanitized[key] = value
    return sanitized


def config_to_proto(config: Mapping[str, Any]) -> topology_pb2.Config:
    """A sanitized configuration as a message: plain values readable everywhere, other objects pickled."""
    return topology_pb2.Config(
        kvs=[
            key_value(key, as_plain(value) if key.startswith("topology.") else value, default_serializer.serialize)
            for key, value in config.items()
        ]
    )


def typed_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A stored configuration as user code sees it: numbers and booleans typed again, the user's objects unpickled.

    Only text that `sanitize_config` writes for a number is taken for one, so `"007"` and `"1_000"` stay text.
    Must run where the user's modules can be imported.

    Raises:
        UserCodeError: an object of the user's cannot be unpickled.
    """
    return {key: _typed(key, value) for key, value in config.items()}


def tick_interval_s(config: Mapping[str, Any]) -> float | None:
    """Seconds between two tick tuples of a component, or None for no ticks. The key in milliseconds wins."""
    if (ms := config.get(keys.TOPOLOGY_TICK_TUPLE_FREQ_MS)) is not None:
        return float(ms) / 1000
    if (secs := config.get(keys.TOPOLOGY_TICK_TUPLE_FREQ_SECS)) is not None:
        return float(secs)
    return None


def _typed(key: str, value: Any) -> Any:
    if isinstance(value, Pickled):
        try:
            return pickle.loads(value.data)
        except Exception as e:
            # Unpickling runs the user's code, which may raise anything.
            raise UserCodeError(f"configuration {key}: its value cannot be unpickled: {said(e)}") from e
    if not isinstance(value, str):
        return value
    if value in ("true", "false"):
        return value == "true"
    if _INTEGER.fullmatch(value):
        return int(value)
    if _FLOAT.fullmatch(value):
        return float(value)
    return value


def _refuse_slip(key: str) -> None:
    if key in keys.TOPOLOGY_KEYS or has_no_effect(key):
        return
    import difflib  # here, because every instance imports this module, and hardly any has an unknown key

    names = {known.removeprefix(_PREFIX): known for known in keys.TOPOLOGY_KEYS}
    close = difflib.get_close_matches(key.removeprefix(_PREFIX), names, n=1, cutoff=_NEAR)
    if close:
        raise ConfigError(f"unknown configuration key {key!r}; did you mean {names[close[0]]!r}?")


def _anything(_key: str, _value: Any) -> None:
    """No check."""


def _number(least: float, *, whole: bool = False, above: bool = False) -> Callable[[str, Any], None]:
    kind = "a whole number" if whole else "a number"

    def check(key: str, value: Any) -> None:
        wrong = ConfigError(f"{key} must be {kind} {'above' if above else 'of at least'} {least:g}, not {value!r}")
        if isinstance(value, bool) or (whole and isinstance(value, float)):
            raise wrong
        try:
            number = int(value) if whole else float(value)
        except (TypeError, ValueError, OverflowError):
            raise wrong from None
        if whole and number > _WHOLE_MAX:
            raise ConfigError(f"{key} must be at most {_WHOLE_MAX}, not {str(value)[:40]}")
        if not math.isfinite(number) or number < least or (above and number == least):
            raise wrong

    return check


def _power_of_two(key: str, value: Any) -> None:
    _number(1, whole=True)(key, value)
    if int(value) & (int(value) - 1):
        raise ConfigError(f"{key} must be a power of two, not {value!r}")


def _boolean(key: str, value: Any) -> None:
    if not isinstance(value, bool) and value not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, not {value!r}")


def _one_of(*values: str) -> Callable[[str, Any], None]:
    def check(key: str, value: Any) -> None:
        if value not in values:
            raise ConfigError(f"{key} must be {', '.join(values[:-1])} or {values[-1]}, not {value!r}")

    return check


def _class_path(key: str, value: Any) -> None:
    if not isinstance(value, str) or "." not in value:
        raise ConfigError(f"{key} must be a class path like 'module.Class', not {value!r}")


def _class_paths(key: str, value: Any) -> None:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{key} must be a list of class paths like ['module.Class'], not {value!r}")
    for path in value:
        _class_path(key, path)


def _resource_map(key: str, value: Any) -> None:
    if not isinstance(value, (str, dict)):
        raise ConfigError(f"{key} must be 'component:value,component:value' or a dict, not {value!r}")


def _text_map(key: str, value: Any) -> None:
    if not isinstance(value, dict) or not all(isinstance(x, str) for kv in value.items() for x in kv):
        raise ConfigError(f"{key} must be a dict of strings, not {value!r}")


def _amount(key: str, value: Any) -> None:
    if not isinstance(value, str) or _AMOUNT.fullmatch(value) is None:
        _number(0, whole=True)(key, value)


_POSITIVE_INT = _number(1, whole=True)
_AMOUNT = re.compile(r"\s*\d+(\.\d+)?\s*[KMGT]?(I?B)\s*|\s*\d+(\.\d+)?\s*[KMGT]\s*", re.IGNORECASE)
"""Bytes with a unit, as `heronpy.packing` reads them."""
_BYTES = _amount
_SECONDS = _number(0, above=True)
_SHARE = _number(0)

_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    keys.TOPOLOGY_DEBUG: _boolean,
    keys.TOPOLOGY_STMGRS: _POSITIVE_INT,
    keys.TOPOLOGY_MESSAGE_TIMEOUT_SECS: _SECONDS,
    keys.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS: _boolean,
    keys.TOPOLOGY_COMPONENT_PARALLELISM: _POSITIVE_INT,
    keys.TOPOLOGY_MAX_SPOUT_PENDING: _POSITIVE_INT,
    keys.TOPOLOGY_ACKING: _boolean,
    keys.TOPOLOGY_RELIABILITY_MODE: _one_of(
        keys.TopologyReliabilityMode.ATMOST_ONCE,
        keys.TopologyReliabilityMode.ATLEAST_ONCE,
        keys.TopologyReliabilityMode.EFFECTIVELY_ONCE,
    ),
    keys.TOPOLOGY_EXCEPTION_POLICY: _one_of(keys.TopologyExceptionPolicy.RESTART, keys.TopologyExceptionPolicy.FAIL),
    keys.TOPOLOGY_SERIALIZER_CLASSNAME: _class_path,
    keys.TOPOLOGY_AUTO_TASK_HOOKS: _class_paths,
    keys.TOPOLOGY_TICK_TUPLE_FREQ_MS: _SECONDS,
    keys.TOPOLOGY_TICK_TUPLE_FREQ_SECS: _SECONDS,
    keys.TOPOLOGY_ENVIRONMENT: _text_map,
    keys.TOPOLOGY_REMOTE_DEBUGGING_ENABLE: _boolean,
    keys.TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE: _boolean,
    keys.TOPOLOGY_COMPONENT_HOLDS_TUPLES: _boolean,
    keys.TOPOLOGY_COMPONENT_WINDOWS_HOLD_TUPLES: _boolean,
    keys.TOPOLOGY_COMPONENT_TASK_TIMEOUT_SECS: _SHARE,
    keys.TOPOLOGY_COMPONENT_OUTPUT_BPS: _POSITIVE_INT,
    keys.TOPOLOGY_COMPONENT_OUTPUT_TPS: _POSITIVE_INT,
    keys.TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT: _POSITIVE_INT,
    keys.TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS: _POSITIVE_INT,
    keys.TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT: _POSITIVE_INT,
    keys.TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS: _POSITIVE_INT,
    keys.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS: _number(0, whole=True),
    keys.TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS: _POSITIVE_INT,
    keys.TOPOLOGY_BOLTS_WATERMARK_IDLE_AFTER_MS: _POSITIVE_INT,
    keys.TOPOLOGY_BOLTS_WATERMARK_MAX_ADVANCE_MS: _POSITIVE_INT,
    keys.TOPOLOGY_CONTAINER_CPU_REQUESTED: _SHARE,
    keys.TOPOLOGY_CONTAINER_RAM_REQUESTED: _BYTES,
    keys.TOPOLOGY_CONTAINER_DISK_REQUESTED: _BYTES,
    keys.TOPOLOGY_CONTAINER_MAX_CPU_HINT: _SHARE,
    keys.TOPOLOGY_CONTAINER_MAX_RAM_HINT: _BYTES,
    keys.TOPOLOGY_CONTAINER_MAX_DISK_HINT: _BYTES,
    keys.TOPOLOGY_CONTAINER_MAX_NUM_INSTANCES: _POSITIVE_INT,
    keys.TOPOLOGY_CONTAINER_PADDING_PERCENTAGE: _SHARE,
    keys.TOPOLOGY_CONTAINER_RAM_PADDING: _BYTES,
    keys.TOPOLOGY_CONTAINER_CPU_PADDING: _SHARE,
    keys.TOPOLOGY_COMPONENT_CPUMAP: _resource_map,
    keys.TOPOLOGY_COMPONENT_RAMMAP: _resource_map,
    keys.TOPOLOGY_COMPONENT_DISKMAP: _resource_map,
    keys.TOPOLOGY_STMGR_RAM: _BYTES,
    keys.TOPOLOGY_METRICSMGR_RAM: _BYTES,
    keys.TOPOLOGY_TMANAGER_CPU: _SHARE,
    keys.TOPOLOGY_TMANAGER_RAM: _BYTES,
    keys.TOPOLOGY_TMANAGER_DISK: _BYTES,
    keys.TOPOLOGY_PACKING_FFD_SORTING_STRATEGY: _one_of("RAM_FIRST", "CPU_FIRST"),
    keys.TOPOLOGY_STATE_KEY_GROUPS: _power_of_two,
    keys.TOPOLOGY_STATE_MEMORY_MB: _POSITIVE_INT,
    keys.TOPOLOGY_STATE_ALLOW_EMPTY: _boolean,
    keys.TOPOLOGY_STATE_ALLOW_LOSSY_SPOUTS: _boolean,
    keys.TOPOLOGY_STATE_ALLOW_DROPPED: _boolean,
    keys.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS: _SECONDS,
    keys.TOPOLOGY_STATEFUL_CHECKPOINT_TIMEOUT_SECONDS: _SECONDS,
    keys.TOPOLOGY_STATEFUL_START_CLEAN: _boolean,
    keys.TOPOLOGY_STATEFUL_CKPTMGR_RAM: _BYTES,
    keys.TOPOLOGY_STATEFUL_SPILL_STATE: _boolean,
    keys.TOPOLOGY_UPDATE_DEACTIVATE_WAIT_SECS: _SHARE,
    keys.TOPOLOGY_UPDATE_REACTIVATE_WAIT_SECS: _SHARE,
}
