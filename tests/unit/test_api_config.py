"""Configuration of topologies: checked, stored as text, read back typed."""

from __future__ import annotations

import datetime
import enum
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import tick_interval_s, typed_config, validate_config
from heronpy.api._config import config_to_proto, sanitize_config
from heronpy.errors import ConfigError, UserCodeError
from heronpy.plan import Pickled, read_config


def stored(config: dict[str, Any]) -> dict[str, Any]:
    return read_config(config_to_proto(sanitize_config(config)))


class Colour(str, enum.Enum):  # noqa: UP042  # unlike of a StrEnum, its str() is not its value
    RED = "red"


@given(
    st.dictionaries(
        st.text(), st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
    )
)
def test_numbers_and_booleans_come_back_as_they_were(config: dict[str, Any]) -> None:
    read = typed_config(stored(config))
    assert read == config
    assert {k: type(v) for k, v in read.items()} == {k: type(v) for k, v in config.items()}


@pytest.mark.parametrize("text", ["007", "1_000", "+1", "", " 1", "nan", "inf", "0x10", "1.", ".5", "True", "1e", "१"])
def test_text_that_only_looks_like_a_number_stays_text(text: str) -> None:
    assert typed_config(stored({"key": text})) == {"key": text}


def test_values_are_stored_as_heron_stores_them() -> None:
    config = {"a": True, "b": False, "c": 10, "d": -2400000, "e": 0.0000001, "f": -15.33333, "g": ["v"], "h": None}
    assert sanitize_config(config) == {
        "a": "true",
        "b": "false",
        "c": "10",
        "d": "-2400000",
        "e": "1e-07",
        "f": "-15.33333",
        "g": ["v"],
        "h": None,
    }
    assert sanitize_config({"colour": Colour.RED}) == {"colour": "red"}


@pytest.mark.parametrize("key", [1, None, ("a",)])
def test_keys_must_be_strings(key: Any) -> None:
    for check in (sanitize_config, validate_config):
        with pytest.raises(TypeError, match="must be strings"):
            check({key: "value"})


def test_plain_data_is_read_anywhere_and_objects_only_where_the_users_code_is() -> None:
    plain = {"list": [1, "a", None, (2.5, {"k": b"v"})], "set": {1, 2}}
    assert stored(plain) == plain
    read = stored({"span": datetime.timedelta(seconds=3)})
    assert isinstance(read["span"], Pickled)
    assert typed_config(read) == {"span": datetime.timedelta(seconds=3)}


def test_reading_a_definition_runs_nothing_that_it_says() -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return exec, ("raise SystemExit('run')",)

    proto = config_to_proto({})
    proto.kvs.add(key="trap", serialized_value=pickle.dumps(Trap()))
    proto.kvs.add(key="damaged", serialized_value=b"\x80\x05nonsense")
    assert all(isinstance(value, Pickled) for value in read_config(proto).values())


def test_an_object_that_cannot_be_unpickled_is_told_with_its_key() -> None:
    with pytest.raises(UserCodeError, match=r"configuration mine\.object"):
        typed_config({"mine.object": Pickled(b"\x80\x05nonsense")})


@pytest.mark.parametrize(
    "config",
    [
        {"mine": object(), "anything.else": 1},
        {"topology.max.spout.pending": 100000000, "topology.message.timeout.secs": "300"},
        {"topology.debug": "true", "topology.reliability.mode": "ATLEAST_ONCE"},
        {"topology.tick.tuple.freq.secs": 0.5, "topology.tick.tuple.freq.ms": 20},
        {"topology.auto.task.hooks": ["module.Hook"], "topology.serializer.classname": "module.Serializer"},
        {"topology.component.rammap": "words:100,counts:200", "topology.exception.policy": "fail"},
        {"heron.instance.emit.batch.time.ms": 0},
    ],
)
def test_known_keys_with_sensible_values_pass(config: dict[str, Any]) -> None:
    validate_config(config)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"topology.max.spout.pendin": 1}, r"did you mean 'topology\.max\.spout\.pending'"),
        ({"topology.workers": 2}, r"did you mean 'topology\.stmgrs'"),
        ({"topology.acker.executors": 2}, r"did you mean 'topology\.reliability\.mode'"),
        ({"heron.instance.emit.batch.time": 1}, r"did you mean 'heron\.instance\.emit\.batch\.time\.ms'"),
        ({"heron.instance.emit.batch.time.ms": "soon"}, "must be a number"),
        ({"topology.stmgrs": 0}, "whole number of at least 1"),
        ({"topology.stmgrs": 1.5}, "whole number of at least 1"),
        ({"topology.stmgrs": True}, "whole number of at least 1"),
        ({"topology.stmgrs": "many"}, "whole number of at least 1"),
        ({"topology.stmgrs": None}, "whole number of at least 1"),
        ({"topology.max.spout.pending": 1 << 40}, "at most"),
        ({"topology.message.timeout.secs": 0}, "above 0"),
        ({"topology.message.timeout.secs": float("nan")}, "above 0"),
        ({"topology.debug": "yes"}, "true or false"),
        ({"topology.reliability.mode": "EXACTLY_ONCE"}, "ATMOST_ONCE, ATLEAST_ONCE or EFFECTIVELY_ONCE"),
        ({"topology.exception.policy": "ignore"}, "restart or fail"),
        ({"topology.auto.task.hooks": "module.Hook"}, "list of class paths"),
        ({"topology.serializer.classname": "Serializer"}, "class path like"),
        ({"topology.component.rammap": 5}, "component:value"),
        ({"topology.environment": {"A": 1}}, "dict of strings"),
    ],
)
def test_what_the_engine_would_not_understand_is_refused(config: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        validate_config(config)


def test_the_tick_interval_comes_from_either_key() -> None:
    assert tick_interval_s({}) is None
    assert tick_interval_s({"topology.tick.tuple.freq.secs": "10"}) == 10
    assert tick_interval_s({"topology.tick.tuple.freq.secs": 10, "topology.tick.tuple.freq.ms": 250}) == 0.25
