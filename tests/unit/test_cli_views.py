"""Parsing and shapes of `metrics`, `logical-plan`, `log-level` and `logs`."""

from __future__ import annotations

import pytest

from heronpy.api import Bolt, GlobalStreamId, Grouping, Spout, TopologyBuilder
from heronpy.cli.parts import (
    ComponentType,
    asked_metrics,
    by_stage,
    checkpoints_line,
    checkpoints_of,
    component_status,
    drawn_plan,
    logical_shape,
    metric_matches,
    plan_stages,
    readable_line,
    seconds_of,
    shown_number,
    split_level,
    task_ranges,
    wanted_components,
    window_of,
)
from heronpy.errors import UsageError
from heronpy.loader import Definition
from heronpy.plan import LogicalPlan
from heronpy.proto.tmaster_pb2 import CheckpointStatus, StatusReply


class Source(Spout):
    outputs = ("word", "n")

    def next_tuple(self) -> None: ...


class Step(Bolt):
    outputs = ("word",)

    def process(self, tup: object) -> None: ...


def diamond() -> LogicalPlan:
    builder = TopologyBuilder("diamond")
    source = builder.add_spout("source", Source, 1)
    left = builder.add_bolt("left", Step, 2, inputs={source: Grouping.fields("word")})
    right = builder.add_bolt("right", Step, 3, inputs={left: Grouping.SHUFFLE})
    builder.add_bolt("a-last", Step, 1, inputs={source: Grouping.ALL, right: Grouping.SHUFFLE})
    return LogicalPlan.from_proto(Definition.of(builder).proto)


def test_windows_are_times_of_what_is_kept_or_all() -> None:
    assert [window_of(text) for text in ("10m", "90s", "3h", "all")] == [600, 90, 10_800, -1]
    for wrong in ("4h", "1d", "10", "m", "0m", "-5m", "ten"):
        with pytest.raises(UsageError, match="--window"):
            window_of(wrong)


def test_times_have_a_unit() -> None:
    assert [seconds_of("--for", text) for text in ("1s", "10m", "2h", "1d")] == [1, 600, 7200, 86_400]
    with pytest.raises(UsageError, match=r"--for '1\.5h' must be"):
        seconds_of("--for", "1.5h")


def test_a_metric_means_itself_and_its_streams() -> None:
    assert asked_metrics(["__emit-count", "seen*"]) == ["__emit-count", "__emit-count/*", "seen*"]
    assert metric_matches("__emit-count/default", "__emit-count")
    assert metric_matches("__emit-count", "__emit-count")
    assert not metric_matches("__emit-counter", "__emit-count")
    assert metric_matches("seen/x", "see*")


def test_values_are_exact_where_they_count_something() -> None:
    assert [shown_number(n) for n in (1_000_000.0, 0.5, 0.00012345, -3.0)] == ["1,000,000", "0.500", "0.000123", "-3"]


def test_words_of_log_level() -> None:
    assert split_level(["words"]) == (["words"], None)
    assert split_level(["local", "words"]) == (["local", "words"], None)
    assert split_level(["words", "count", "debug"]) == (["words"], ("count", "DEBUG"))
    assert split_level(["local/me", "words", "count", "Configured"]) == (["local/me", "words"], ("count", None))
    with pytest.raises(UsageError, match="did you mean 'WARNING'"):
        split_level(["words", "count", "warn"])
    with pytest.raises(UsageError, match="DEBUG of what"):
        split_level(["words", "DEBUG"])


def test_what_a_silent_topology_master_does_not_tell_is_not_zero() -> None:
    component = diamond().components["source"]
    assert component_status(component, None)["rates"] is None
    assert component_status(component, StatusReply())["rates"] == {"emit": 0, "execute": 0, "ack": 0, "fail": 0}


def test_components_come_after_those_that_they_read() -> None:
    plan = diamond()
    assert plan_stages(plan) == {"source": 1, "left": 2, "right": 3, "a-last": 4}
    assert [c.name for c in by_stage(plan)] == ["source", "left", "right", "a-last"]
    assert [c.name for c in by_stage(plan) if wanted_components(c, ComponentType.SPOUTS)] == ["source"]
    assert [c.name for c in by_stage(plan) if wanted_components(c, ComponentType.BOLTS)] == ["left", "right", "a-last"]


def test_a_circle_ends() -> None:
    builder = TopologyBuilder("circle")
    source = builder.add_spout("source", Source, 1)
    builder.add_bolt("a", Step, 1, inputs={source: Grouping.SHUFFLE, GlobalStreamId("b", "default"): Grouping.SHUFFLE})
    builder.add_bolt("b", Step, 1, inputs={GlobalStreamId("a", "default"): Grouping.SHUFFLE})
    plan = LogicalPlan.from_proto(Definition.of(builder).proto)
    assert plan_stages(plan)["source"] == 1
    assert len(list(drawn_plan(plan, by_stage(plan)))) == 6


def test_the_plan_is_drawn_as_text() -> None:
    plan = diamond()
    lines = list(drawn_plan(plan, by_stage(plan)))
    assert lines[0].startswith("source  (spout × 1, ")
    assert lines[1:3] == [
        "  default(word, n) ──FIELDS(word)──▶ left",
        "  default(word, n) ──ALL──▶ a-last",
    ]
    assert lines[-1] == "  default(word)  no consumers"


def test_the_plan_as_json_has_the_trackers_names() -> None:
    plan = diamond()
    shape = logical_shape(plan, by_stage(plan))
    assert shape["stages"] == 4
    assert set(shape["spouts"]) == {"source"}
    last = shape["bolts"]["a-last"]
    assert sorted(last["inputComponents"]) == ["right", "source"]
    assert {"stream_name": "default", "component_name": "source", "grouping": "ALL"} in last["inputs"]


def test_runs_of_numbers() -> None:
    assert [task_ranges(n) for n in ([], [1], [3, 1, 2, 7])] == ["", "1", "1-3, 7"]


def test_lines_of_json_are_shown_as_text_and_others_as_they_are() -> None:
    line = b'{"ts": "T", "level": "INFO", "logger": "x.y", "pid": 7, "message": "a\\nb", "exc": "Trace"}\n'
    assert readable_line(line + b"plain\n\n" + b'{"not": "ours"}\n{broken\n') == (
        b'T INFO 7 x.y: a\nb\nTrace\nplain\n\n{"not": "ours"}\n{broken\n'
    )
    assert readable_line(b"only\nplain\n") == b"only\nplain\n"
    assert readable_line(b'{"ts": "T", "level": "I", "logger": "x", "message": "\\udc80"}\n') == b"T I  x: \\udc80\n"


def test_the_status_says_in_a_line_how_checkpoints_go() -> None:
    assert checkpoints_of(StatusReply()) is None, "it takes none, or nobody says"
    told = CheckpointStatus(phase="running", interval_ms=2500, age_ms=400, failed=1, last_failure="checkpoint 1: why")
    none = checkpoints_of(StatusReply(checkpoints=told))
    assert none is not None
    assert (none["age_ms"], none["duration_ms"], none["last_failure"]) == (None, None, "checkpoint 1: why")
    line = "checkpoints: running, none yet, one every 2.5 s; 0 committed, 1 failed, 0 rollbacks"
    assert checkpoints_line(none) == line
    told.MergeFrom(CheckpointStatus(age_ms=65_000, committed=9, last_took_s=0.25, restores=2))
    some = checkpoints_of(StatusReply(checkpoints=told))
    assert some is not None
    assert checkpoints_line(some) == (
        "checkpoints: running, the last 1 min 5 s ago in 0.2 s, one every 2.5 s; 9 committed, 1 failed, 2 rollbacks"
    )
    told.MergeFrom(CheckpointStatus(obstacle="task 3: component 'count' holds 2 tuples"))
    late = checkpoints_of(StatusReply(checkpoints=told))
    assert late is not None
    assert checkpoints_line(late) == f"{checkpoints_line(some)}; task 3: component 'count' holds 2 tuples"
    told.age_ms = 400
    in_time = checkpoints_of(StatusReply(checkpoints=told))
    assert in_time is not None
    assert "holds" not in checkpoints_line(in_time), "it is on its way"
