"""The metrics query language: what it reads, what it refuses and where, and what it means."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import pytest
from heron_tracker import QueryError
from heron_tracker.parts import (
    DEPTH_MAX,
    MINUTE_S,
    SERIES_MAX,
    Budget,
    Call,
    Line,
    Node,
    Number,
    Series,
    evaluate,
    minutes_between,
    parse,
    series_of,
)
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import UsageError

TIME = minutes_between(600, 600 + 4 * MINUTE_S)
INSTANCES = ("container_1_word_1", "container_1_word_2", "container_2_word_3")


def test_a_query_is_read_as_it_is_written() -> None:
    read = parse("divide( SUM(TS(word, *, __emit-count/default)),\n 60.0 )")
    series = Series("word", "*", "__emit-count/default", 13)
    assert read == Call("DIVIDE", (Call("SUM", (series,), 9), Number(60.0, 50)), 1)


def test_quotation_marks_hold_names_with_blanks_and_brackets() -> None:
    assert parse('TS("a b", *, "count (all), really")') == Series("a b", "*", "count (all), really", 1)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 1, "expected a function or a number, found the end"),
        ("SUM(TS(a, *, b)", 16, "expected ',' or ')', found the end"),
        ("SUM()", 5, "expected a function or a number, found ')'"),
        ("SUMM(1)", 1, "no function 'SUMM'; did you mean 'SUM'?"),
        ("SUM(1) x", 8, "expected the end, found 'x'"),
        ("TS(a, b)", 8, "expected ',', found ')'"),
        ("TS(a, *, b, c)", 11, "expected ')', found ','"),
        ("  word", 3, "expected a number or a function with (, found 'word'"),
        ("DIVIDE(1)", 1, "DIVIDE takes 2 arguments, not 1"),
        ("DEFAULT(TS(a, *, b), 1)", 9, "the first argument of DEFAULT must be a number"),
        ("PERCENTILE(101, 1)", 12, "a percentile is between 0 and 100"),
        ("SUM(1,\n TS(a, *, ))", 18, "expected a metric, found ')'"),
        ('TS(a, *, "b)', 10, "a quotation mark is not closed"),
        ("SUM(nan)", 5, "nan is not a number to calculate with"),
        ("RATE(" * (DEPTH_MAX + 2), 5 * (DEPTH_MAX + 1) + 1, f"it is nested deeper than {DEPTH_MAX}"),
    ],
)
def test_an_error_says_where_and_what(text: str, position: int, reason: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse(text)
    assert (refused.value.position, refused.value.reason) == (position, reason)
    assert f"position {position}: {reason}" in str(refused.value)


def test_a_query_may_not_ask_for_everything() -> None:
    with pytest.raises(QueryError, match=f"more than {SERIES_MAX} TS"):
        parse(f"SUM({', '.join(['TS(a, *, b)'] * (SERIES_MAX + 1))})")


@given(st.text(alphabet='TSUMRAE(),"* 1.x\n', max_size=60))
def test_whatever_is_written_is_read_or_refused_with_a_position_in_it(text: str) -> None:
    position = 1
    try:
        parse(text)
    except QueryError as e:
        position = e.position
    assert 1 <= position <= len(text) + 1


def test_what_stands_below_a_default_may_be_unknown() -> None:
    found = series_of(parse("SUM(TS(a, *, b), DEFAULT(0, RATE(TS(c, *, d))))"))
    assert [(series.component, optional) for series, optional in found] == [("a", False), ("c", True)]


# -- what it means: the same once more, value by value and without a thought for speed ---------------------------------

_Table = dict[tuple[str | None, int], float]
"""A value by instance and minute; and, with minute -1, which lines there are."""


def naive(node: Node, fetched: dict[Series, list[Line]]) -> _Table:
    if isinstance(node, Number):
        return {(None, -1): 0.0, **{(None, t): node.value for t in TIME}}
    if isinstance(node, Series):
        table: _Table = {}
        for line in fetched[node]:
            table[line.instance, -1] = 0.0
            table.update({(line.instance, t): v for t, v in line.data.items()})
        return table
    if node.function in ("DEFAULT", "PERCENTILE"):
        constant = node.arguments[0]
        assert isinstance(constant, Number)
        tables = [naive(argument, fetched) for argument in node.arguments[1:]]
        if node.function == "DEFAULT":
            lines = [who for who, t in tables[0] if t == -1]
            return tables[0] | {(who, t): tables[0].get((who, t), constant.value) for who in lines for t in TIME}
        return folded(tables, lambda values: sorted(values)[int(constant.value * (len(values) - 1) / 100)])
    tables = [naive(argument, fetched) for argument in node.arguments]
    if node.function == "SUM":
        return folded(tables, math.fsum)
    if node.function == "MAX":
        return folded(tables, max)
    if node.function == "RATE":
        result: _Table = {}
        for (who, t), value in tables[0].items():
            if t == -1:
                result[who, -1] = 0.0
                continue
            earlier = [u for w, u in tables[0] if w == who and -1 < u < t]
            if earlier:
                result[who, t] = (value - tables[0][who, max(earlier)]) / ((t - max(earlier)) / MINUTE_S)
        return result
    return paired(node.function, tables[0], tables[1])


def folded(tables: list[_Table], function: Any) -> _Table:
    result: _Table = {(None, -1): 0.0}
    for t in TIME:
        values = [table[key] for table in tables for key in table if key[1] == t]
        if values:
            result[None, t] = function(values)
    return result


def paired(function: str, left: _Table, right: _Table) -> _Table:
    result: _Table = {}
    for who_a, t_a in left:
        for who_b, t_b in right:
            if t_a != t_b or (who_a != who_b and None not in (who_a, who_b)):
                continue
            a, b, key = left[who_a, t_a], right[who_b, t_b], (who_a or who_b, t_a)
            if t_a == -1:
                result[key] = 0.0
            elif function == "DIVIDE" and b != 0:
                result[key] = a / b
            elif function != "DIVIDE":
                result[key] = a * b if function == "MULTIPLY" else a - b
    return result


numbers = st.integers(-50, 50).map(float)
datas = st.dictionaries(st.sampled_from(list(TIME)), numbers, max_size=5)
leaves = st.one_of(
    numbers.map(Number),
    st.builds(Series, st.sampled_from(["word", "count"]), st.sampled_from(["*", INSTANCES[0]]), st.just("m")),
)


def calls(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    some = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Call, st.sampled_from(["SUM", "MAX"]), some),
        st.builds(Call, st.sampled_from(["DIVIDE", "MULTIPLY", "SUBTRACT"]), st.tuples(inner, inner)),
        st.builds(Call, st.just("RATE"), st.tuples(inner)),
        st.builds(Call, st.just("DEFAULT"), st.tuples(numbers.map(Number), inner)),
        st.builds(lambda q, rest: Call("PERCENTILE", (Number(float(q)), *rest)), st.integers(0, 100), some),
    )


@given(st.recursive(leaves, calls, max_leaves=6), st.data())
def test_it_means_what_its_definition_says(node: Node, data: st.DataObject) -> None:
    fetched = {}
    for series, _ in series_of(node):
        names = INSTANCES if series.instance == "*" else (series.instance,)
        fetched[series] = [Line(name, data.draw(datas)) for name in names]
    expected = {key: value for key, value in naive(node, fetched).items() if key[1] != -1}
    found = {(line.instance, t): v for line in evaluate(node, fetched, TIME) for t, v in line.data.items()}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=1e-9, abs=1e-6)


def written(node: Node) -> str:
    if isinstance(node, Number):
        return repr(node.value)
    if isinstance(node, Series):
        return f"TS({node.component},{node.instance}, {node.metric})"
    return f"{node.function} ({', '.join(written(argument) for argument in node.arguments)})"


def without_positions(node: Node) -> Node:
    if isinstance(node, Call):
        return Call(node.function, tuple(without_positions(argument) for argument in node.arguments))
    return Number(node.value) if isinstance(node, Number) else Series(node.component, node.instance, node.metric)


@given(st.recursive(leaves, calls, max_leaves=8))
def test_what_is_written_is_what_is_read(node: Node) -> None:
    assert without_positions(parse(written(node))) == node


def test_instances_meet_themselves_and_what_belongs_to_none_meets_all() -> None:
    work = Series("word", "*", "work")
    many = {work: [Line(name, {600: float(n)}) for n, name in enumerate(INSTANCES, 1)]}
    shares = evaluate(parse("DIVIDE(TS(word, *, work), SUM(TS(word, *, work)))"), _at(many), TIME)
    assert {line.instance: line.data[600] for line in shares} == {name: n / 6 for n, name in enumerate(INSTANCES, 1)}


def _at(fetched: dict[Series, list[Line]]) -> Any:
    """Found by name, wherever in the query it stands."""

    class ByName(dict[Series, list[Line]]):
        def __getitem__(self, key: Series) -> list[Line]:
            return fetched[Series(key.component, key.instance, key.metric)]

    return ByName()


def test_a_division_by_zero_has_no_value() -> None:
    assert [line.data for line in evaluate(parse("DIVIDE(1, 0)"), {}, TIME)] == [{}]


def test_a_default_gives_values_to_instances_that_have_none() -> None:
    series = Series("word", "*", "m")
    lines = evaluate(parse("DEFAULT(7, TS(word, *, m))"), _at({series: [Line("a", {600: 1.0}), Line("b")]}), TIME)
    assert lines == [
        Line("a", {600: 1.0, 660: 7.0, 720: 7.0, 780: 7.0, 840: 7.0}),
        Line("b", dict.fromkeys(TIME, 7.0)),
    ]


HOUR = minutes_between(0, 3599)


def within(text: str, points: int, fetched: dict[Series, list[Line]] | None = None, during: range = HOUR) -> list[Line]:
    return evaluate(parse(text), fetched or {}, during, Budget(points, 60.0))


def test_a_query_that_calculates_too_much_is_refused_before_it_takes_memory() -> None:
    text = f"SUM({','.join(['1'] * 9000)})"
    day = minutes_between(0, 24 * 3600 - 1)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="calculates more than 1,000,000 values"):
            within(text, 1_000_000, during=day)
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("1", 60),
        ("SUM(1, 2)", 240),
        ("SUBTRACT(1, 2)", 180),
        ("TS(a, *, b)", 0),
        ("RATE(TS(a, *, b))", 3 * 60),
        ("DEFAULT(0, TS(a, *, b))", 3 * 60),
        ("MULTIPLY(2, TS(a, *, b))", 60 + 3 * 60),
        ("PERCENTILE(50, TS(a, *, b))", 3 * 60),
    ],
)
def test_every_function_pays_for_what_it_calculates(text: str, points: int) -> None:
    fetched = {Series("a", "*", "b"): [Line(f"a-{n}", dict.fromkeys(HOUR, 1.0)) for n in range(3)]}
    assert within(text, points, fetched)
    if points:
        with pytest.raises(UsageError, match="calculates more than"):
            within(text, points - 1, fetched)


def test_a_query_ends_when_its_time_is_over() -> None:
    now = iter(range(100))
    budget = Budget(1_000_000, 5.0, clock=lambda: next(now))
    with pytest.raises(UsageError, match="takes more than 5 s"):
        evaluate(parse("SUM(1,1,1,1,1,1)"), {}, HOUR, budget)


def test_a_series_that_is_named_twice_is_one() -> None:
    assert len(dict(series_of(parse("SUM(TS(a, *, b), TS(a, *, b))")))) == 1
    assert dict(series_of(parse("SUM(RATE(TS(a, *, b)), TS(c, *, d))"))) == {
        Series("a", "*", "b"): True,
        Series("c", "*", "d"): False,
    }
