"""Configuration of topologies: checked, stored as text, read back typed."""

from __future__ import annotations

import datetime
import enum
import pickle
import tracemalloc
from collections import UserDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import tick_interval_s, typed_config, validate_config, without_effect
from heronpy.api.parts import config_to_proto, sanitize_config
from heronpy.errors import ConfigError, UserCodeError
from heronpy.plan import Pickled, read_config
from heronpy.proto import topology_pb2


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


_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), 1 << 63)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Half surrogate pairs are text, too.
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(_PLAIN, max_size=3) | st.dictionaries(st.text(max_size=3), _PLAIN, max_size=3) | st.binary(max_size=9))
def test_plain_data_is_read_anywhere_as_it_was(value: Any) -> None:
    assert stored({"mine": value}) == {"mine": value}


class Numbers(list[int]):
    pass


@pytest.mark.parametrize(
    "value",
    [
        datetime.timedelta(seconds=3),
        (1, 2),
        [(1, 2)],
        [float("inf")],
        {"a": {1, 2}},
        {1: 2},
        [b"bytes"],
        [Colour.RED],
        Numbers([1]),
        [1 << 80],
    ],
    ids=repr,
)
def test_what_is_not_plain_comes_back_the_same_only_where_the_users_code_is(value: Any) -> None:
    read = stored({"mine": value})
    assert isinstance(read["mine"], Pickled)
    typed = typed_config(read)["mine"]
    assert typed == value
    assert type(typed) is type(value)


def test_values_that_the_engine_reads_are_plain_whatever_kind_of_list_they_are() -> None:
    config = {"topology.auto.task.hooks": ("a.B",), "topology.environment": UserDict({"A": "b"})}
    assert stored(config) == {"topology.auto.task.hooks": ["a.B"], "topology.environment": {"A": "b"}}


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps([1, 2]),
        b"\x80\x05nonsense",
        b"\x80\x02]q\x00.",
        b"\x8e" + (1 << 30).to_bytes(8, "little"),  # nine bytes that make pickle allocate a gigabyte
    ],
)
def test_reading_a_definition_unpickles_nothing(data: bytes) -> None:
    proto = topology_pb2.Config()
    proto.kvs.add(key="trap", serialized_value=data)
    tracemalloc.start()
    try:
        assert read_config(proto) == {"trap": Pickled(data)}
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '"' * 99, "1" * 9999, "NaN9"])
def test_a_damaged_plain_value_is_an_error_of_whoever_uses_it(text: str) -> None:
    proto = topology_pb2.Config()
    proto.kvs.add(key="mine", value=text, type=topology_pb2.JSON_VALUE)
    with pytest.raises(UserCodeError, match="mine"):
        typed_config(read_config(proto))


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
        {"topology.container.ram": "4GB", "topology.container.max.ram.hint": "1.5 gib", "topology.stmgr.ram": 1 << 30},
        {"heron.instance.emit.batch.time.ms": 0},
        {"topology.workers": 2, "topology.trident.batch.emit.interval.millis": 500, "topology.acker.executors": 0},
        {"topology.shop.opening.hours": "8-20"},
    ],
)
def test_known_keys_with_sensible_values_pass(config: dict[str, Any]) -> None:
    validate_config(config)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"topology.max.spout.pendin": 1}, r"did you mean 'topology\.max\.spout\.pending'"),
        ({"topology.messages.timeout.sec": 1}, r"did you mean 'topology\.message\.timeout\.secs'"),
        ({"topology.stmgr": 1}, r"did you mean 'topology\.stmgrs'"),
        ({"heron.instance.emit.batch.time": 1}, r"did you mean 'heron\.instance\.emit\.batch\.time\.ms'"),
        ({"heron.instance.emit.batch.time.ms": "soon"}, "must be a number"),
        ({"topology.stmgrs": 0}, "whole number of at least 1"),
        ({"topology.stmgrs": 1.5}, "whole number of at least 1"),
        ({"topology.stmgrs": True}, "whole number of at least 1"),
        ({"topology.stmgrs": "many"}, "whole number of at least 1"),
        ({"topology.stmgrs": None}, "whole number of at least 1"),
        ({"topology.stmgrs": 10**400}, "must be at most 9007199254740992, not 1000"),
        ({"topology.container.ram": 10**30}, "must be at most 9007199254740992"),
        ({"topology.container.cpu": 10**400}, "number of at least 0"),
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
        ({"topology.container.ram": "4 gallons"}, "whole number"),
    ],
)
def test_what_the_engine_would_not_understand_is_refused(config: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        validate_config(config)


def test_keys_of_storm_and_heron_that_do_nothing_here_are_named_in_one_line() -> None:
    topology = {"topology.workers": "4", "topology.debug": "true", "mine": 1, "topology.shop.opening.hours": "8-20"}
    component = {"topology.kryo.factory": "x.Y", "topology.spout.wait.strategy": "x.Z", "topology.workers": "4"}
    assert without_effect(topology, component) == (
        "has no effect here: topology.kryo.factory, topology.spout.wait.strategy, "
        "topology.workers (use topology.stmgrs)"
    )
    assert without_effect({"topology.debug": "true"}) == ""


def test_the_tick_interval_comes_from_either_key() -> None:
    assert tick_interval_s({}) is None
    assert tick_interval_s({"topology.tick.tuple.freq.secs": "10"}) == 10
    assert tick_interval_s({"topology.tick.tuple.freq.secs": 10, "topology.tick.tuple.freq.ms": 250}) == 0.25


def test_a_damaged_value_without_a_key_is_read_as_damaged() -> None:
    """As protobuf reads it: what is required is only looked for where a message is written."""
    proto = topology_pb2.Config.FromString(b"\x0a\x05\x12\x01\x7b\x20" + bytes([topology_pb2.JSON_VALUE]))
    assert not proto.IsInitialized()
    assert isinstance(read_config(proto)[""], Pickled)
