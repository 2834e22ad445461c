"""A streamlet program that was changed goes on with the state of the same operators, or is refused with their names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from committed_kit import OutSink, OutStore

from heronpy.api import TopologyBuilder
from heronpy.checkpoints import (
    ComponentEntry,
    Header,
    Kind,
    Manifest,
    ObjectRef,
    ObjectWriter,
    OperatorEntry,
    StateEntry,
    object_name,
    open_storage,
)
from heronpy.connectors import ListSource
from heronpy.errors import ConfigError
from heronpy.plan import LogicalPlan, state_owners
from heronpy.streamlet import (
    AfterCount,
    AfterWatermark,
    Builder,
    Config,
    Streamlet,
    Sum,
    TransformOperator,
    WindowConfig,
)
from heronpy.submit import starting_checkpoint
from heronpy.submit.parts import misfits_of

GROUPS = 1024
Program = Callable[[Builder], object]


class OtherSink(OutSink):
    pass


class Through(TransformOperator):
    def transform(self, tup: Any) -> Any:
        return None


class Whereabouts(OutSink):
    """A sink that says where it writes to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __repr__(self) -> str:
        return f"Whereabouts({self.where!r})"


def total(a: int, b: int) -> int:
    return a + b


def largest(a: int, b: int) -> int:
    return max(a, b)


def numbers(builder: Builder) -> Streamlet:
    return builder.new_source(ListSource([1, 2, 3])).map(lambda n: (n % 2, n))


def plan(program: Program, directory: Path | None = None, **keys: Any) -> LogicalPlan:
    builder, topology, config = Builder(), TopologyBuilder("program"), Config()
    program(builder)
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    if directory is not None:
        config.set_pipeline(directory)
    for key, value in keys.items():
        config.set_user_config(key, value)
    builder.build(topology, config)
    return LogicalPlan.from_proto(topology.build().protobuf_topology)


def save(logical: LogicalPlan, url: str, *, recorded: bool = True) -> None:
    """A checkpoint of a program, in which each component has written something."""
    owners = state_owners(logical)
    entries, refs = {}, []
    with open_storage(url) as storage:
        for name, component in logical.components.items():
            own = {o.name: OperatorEntry(o.kind, o.place) for o in owners if o.component == name and recorded}
            entries[name] = ComponentEntry(component.parallelism, 0, own)
            for index in range(component.parallelism):
                groups = range(index * GROUPS // component.parallelism, (index + 1) * GROUPS // component.parallelism)
                header = Header(
                    topology_id="program-1",
                    component=name,
                    index=index,
                    tasks=component.parallelism,
                    generation=0,
                    checkpoint_id=1,
                    since=0,
                    epoch=0,
                    groups=GROUPS,
                    first_group=groups.start,
                    end_group=groups.stop,
                    states=(StateEntry("values", Kind.KEYED, "pickle", 1),),
                )
                writer = ObjectWriter(header)
                writer.finish()
                ref = ObjectRef.of(writer, object_name(header))
                storage.put(ref.name, writer.chunks)
                refs.append(ref)
        manifest = Manifest(
            topology_id="program-1",
            checkpoint_id=1,
            epoch=0,
            groups=GROUPS,
            components=entries,
            objects=tuple(refs),
        )
        storage.create(manifest.name, manifest.encode())


@pytest.fixture
def goes_on(tmp_path: Path) -> Callable[..., int]:
    """Whether a program can begin with the checkpoint of another."""
    directories = iter(range(1000))

    def begin(before: Program, after: Program, *, pipeline: bool = False, recorded: bool = True, **keys: Any) -> int:
        directory = tmp_path / "job" if pipeline else None
        url = str(tmp_path / f"saved-{next(directories)}")
        save(plan(before, directory), url, recorded=recorded)
        return starting_checkpoint(plan(after, directory, **keys), url)

    return begin


def two(first: Any, second: Any, names: Sequence[str] = ("", "")) -> Program:
    """Two reductions side by side."""

    def program(builder: Builder) -> None:
        pairs = numbers(builder)
        for name, function in zip(names, (first, second), strict=True):
            reduced = pairs.reduce_by_key(function)
            if name:
                reduced.set_name(name)

    return program


def in_a_row(*functions: Any) -> Program:
    def program(builder: Builder) -> None:
        at = numbers(builder)
        for function in functions:
            at = at.reduce_by_key(function)

    return program


def outputs(*sinks: Any, names: Sequence[str | None] = ()) -> Program:
    def program(builder: Builder) -> None:
        pairs = numbers(builder)
        for sink, name in zip(sinks, names or [None] * len(sinks), strict=True):
            pairs.to_sink(sink, name=name)

    return program


def with_filter(program: Callable[[Streamlet], object]) -> tuple[Program, Program]:
    """Without, and with an operator before all of it that has no state."""
    return lambda builder: program(numbers(builder)), lambda builder: program(numbers(builder).filter(bool))


# Edits that move no state


@pytest.mark.parametrize(
    "program",
    [
        two(total, largest),
        two(lambda a, b: a + b, lambda a, b: a * b),
        two(total, total, ("one", "other")),
        in_a_row(total, largest, total),
        outputs(Whereabouts("a"), Whereabouts("b")),
        outputs(OutSink(), OtherSink()),
    ],
)
def test_a_program_goes_on_with_its_own_state(program: Program, goes_on: Callable[..., int]) -> None:
    assert goes_on(program, program) == 1


def by_user_and_page(first: Callable[[int], Any], second: Callable[[int], Any]) -> Program:
    def program(builder: Builder) -> None:
        read = builder.new_source(ListSource([1, 2]))
        for key in (first, second):
            read.count_by_key_and_window(WindowConfig.create_tumbling_window(10), key)

    return program


def test_functions_before_a_window_distinguish_it_from_another(goes_on: Callable[..., int]) -> None:
    user, page = (lambda n: n % 2), (lambda n: n % 3)
    assert goes_on(by_user_and_page(user, page), by_user_and_page(user, page)) == 1
    with pytest.raises(ConfigError, match=r"operator 'count_by_key_and_window-1' was given no name, and is not in the"):
        goes_on(by_user_and_page(user, page), by_user_and_page(page, user))


def test_an_operator_that_is_alone_may_get_another_function_and_neighbours_without_state(
    goes_on: Callable[..., int],
) -> None:
    assert goes_on(in_a_row(total), in_a_row(largest)) == 1
    assert goes_on(*with_filter(lambda pairs: pairs.reduce_by_key(total).to_sink(OutSink()))) == 1


def test_a_named_operator_goes_on_wherever_it_was_moved(goes_on: Callable[..., int]) -> None:
    assert goes_on(two(total, largest, ("sum", "max")), two(largest, total, ("max", "sum"))) == 1

    def before(builder: Builder) -> None:
        numbers(builder).reduce_by_key(total).set_name("sum")

    def after(builder: Builder) -> None:
        largest_so_far = numbers(builder).reduce_by_key(largest).set_name("max")
        largest_so_far.map(lambda pair: pair).reduce_by_key(total).set_name("sum")

    assert goes_on(before, after) == 1


def test_other_numbers_of_tasks_move_nothing(goes_on: Callable[..., int]) -> None:
    def program(tasks: int) -> Program:
        return lambda builder: numbers(builder).reduce_by_key(total).set_num_partitions(tasks)

    assert goes_on(program(2), program(5)) == 1


def test_operations_with_names_of_their_own_are_not_taken_for_one_another(goes_on: Callable[..., int]) -> None:
    def program(builder: Builder) -> None:
        pairs = numbers(builder)
        pairs.reduce_by_key(total)
        pairs.count_by_key()

    assert goes_on(program, program) == 1


# Edits that do


def test_swapped_reductions_without_names_are_refused(goes_on: Callable[..., int]) -> None:
    refused = (
        r"operator 'reduce_by_key-1' was given no name, and is not in the same place of the program, so its state may "
        r"be that of another: call set_name\('reduce_by_key-1'\) on the one that is to go on with it"
    )
    with pytest.raises(ConfigError, match=refused):
        goes_on(two(total, largest), two(largest, total))
    with pytest.raises(ConfigError, match=r"'reduce_by_key-1' was given no name"):
        goes_on(in_a_row(total, largest), in_a_row(largest, total))
    # What the error says to do:
    assert goes_on(two(total, largest), two(largest, total, ("reduce_by_key-2", "reduce_by_key-1"))) == 1


def test_a_reduction_without_a_name_that_is_inserted_before_another_is_refused(goes_on: Callable[..., int]) -> None:
    for after in (in_a_row(largest, total), two(largest, total)):
        with pytest.raises(ConfigError, match=r"'reduce_by_key-1' was given no name, and is not in the same place"):
            goes_on(in_a_row(total), after)
    assert goes_on(in_a_row(total), two(largest, total, ("max", ""))) == 1


def test_a_reduction_without_a_name_that_is_removed_before_another_is_refused(goes_on: Callable[..., int]) -> None:
    with pytest.raises(ConfigError, match=r"'reduce_by_key-2' has state"):
        goes_on(in_a_row(total, largest), in_a_row(largest))
    with pytest.raises(ConfigError, match=r"'reduce_by_key-1' was given no name, and is not in the same place"):
        goes_on(in_a_row(total, largest), in_a_row(largest), **{"topology.state.allow.dropped": "true"})


def test_operators_that_nothing_tells_apart_are_refused_until_they_have_names(goes_on: Callable[..., int]) -> None:
    with pytest.raises(ConfigError, match=r"'reduce_by_key-1' was given no name, and is like another one"):
        goes_on(two(total, total), two(total, total))
    assert goes_on(two(total, total), two(total, total, ("reduce_by_key-1", "reduce_by_key-2"))) == 1


def test_another_operation_of_the_same_name_is_refused(goes_on: Callable[..., int]) -> None:
    def reduced(builder: Builder) -> None:
        numbers(builder).reduce_by_key(total).set_name("sum")

    def windowed(builder: Builder) -> None:
        numbers(builder).reduce_by_key_and_window(WindowConfig.create_tumbling_window(10), total).set_name("sum")

    refused = r"operator 'sum' is a reduce_by_key_and_window, and its state that of a reduce_by_key: give it another"
    with pytest.raises(ConfigError, match=refused):
        goes_on(reduced, windowed)


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (WindowConfig.create_tumbling_count_window(5), "by number"),
        (WindowConfig.create_global_window(AfterCount(5)), "in panes"),
        (WindowConfig(5, 5).with_trigger(AfterWatermark(early=AfterCount(5))), "in panes"),
        (WindowConfig(5, 5).keep_last(5), "with an evictor"),
    ],
    ids=repr,
)
def test_windows_that_keep_something_else_do_not_go_on_with_those_of_a_checkpoint(
    goes_on: Callable[..., int], after: WindowConfig, what: str
) -> None:
    def program(window: WindowConfig) -> Program:
        return lambda b: numbers(b).event_time(sum).reduce_by_key_and_window(window, total).set_name("sums").log()

    before = WindowConfig(5, 5)
    goes_on(program(before), program(before.with_allowed_lateness(3)))
    goes_on(program(after), program(after))
    message = (
        rf"operator 'sums' is a reduce_by_key_and_window {what}, and its state that of a reduce_by_key_and_window:"
    )
    with pytest.raises(ConfigError, match=message):
        goes_on(program(before), program(after))


def test_what_a_sink_has_prepared_is_for_no_other_sink(goes_on: Callable[..., int]) -> None:
    for before, after in (
        (outputs(OutSink()), outputs(OtherSink())),
        (outputs(OutSink(), names=["out"]), outputs(OtherSink(), names=["out"])),
    ):
        with pytest.raises(ConfigError, match=r"is a sink OtherSink, and its state that of a sink OutSink"):
            goes_on(before, after)
    a, b = Whereabouts("a"), Whereabouts("b")
    with pytest.raises(ConfigError, match=r"call to_sink\(…, name='sink-1'\) on the one that is to go on with it"):
        goes_on(outputs(a, b), outputs(b, a))
    assert goes_on(outputs(a, b), outputs(b, a, names=["sink-2", "sink-1"])) == 1


def test_what_was_prepared_for_a_view_is_for_no_other_view(goes_on: Callable[..., int]) -> None:
    def views(*names: str, stages: Sequence[str | None] = (None, None)) -> Program:
        def program(builder: Builder) -> None:
            pairs = numbers(builder)
            for name, stage in zip(names, stages, strict=True):
                pairs.to_store(name, Sum(), OutStore(), stage_name=stage)

        return program

    refused = r"'store-1' is a store pages, and its state that of a store users: .* to_store\(…, stage_name=…\)"
    with pytest.raises(ConfigError, match=refused):
        goes_on(views("users", "pages"), views("pages", "users"), pipeline=True)
    assert goes_on(views("users", "pages"), views("pages", "users", stages=["store-2", "store-1"]), pipeline=True) == 1


def test_positions_are_for_no_other_source(goes_on: Callable[..., int]) -> None:
    def read(*counts: int) -> Program:
        def program(builder: Builder) -> None:
            for count in counts:
                builder.new_source(ListSource([0] * count)).map(lambda n: n)

        return program

    assert goes_on(read(1, 2), read(1, 2)) == 1
    with pytest.raises(ConfigError, match=r"operator 'source-1' was given no name"):
        goes_on(read(1, 2), read(2, 1))


def test_the_sides_of_a_join_are_not_swapped(goes_on: Callable[..., int]) -> None:
    def joined(first: str, second: str) -> Program:
        def program(builder: Builder) -> None:
            read = {name: builder.new_source(ListSource([(1, 1)])).set_name(name) for name in ("clicks", "views")}
            read[first].join(read[second], WindowConfig.create_tumbling_window(10), total)

        return program

    assert goes_on(joined("clicks", "views"), joined("clicks", "views")) == 1
    with pytest.raises(ConfigError, match=r"operator 'join-1' was given no name, and is not in the same place"):
        goes_on(joined("clicks", "views"), joined("views", "clicks"))


def test_at_least_once_only_operators_have_state(goes_on: Callable[..., int]) -> None:
    keys = {"topology.reliability.mode": "ATLEAST_ONCE", "topology.stateful.checkpoint.interval.seconds": 10}
    kinds = {owner.kind for owner in state_owners(plan(outputs(OutSink()), **keys))}
    assert kinds == set()
    assert {owner.kind for owner in state_owners(plan(in_a_row(total), **keys))} == {"reduce_by_key"}


# State that no operator takes


def test_the_state_of_an_operator_that_is_renamed_is_not_dropped_without_a_word(
    goes_on: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    def transformed(name: str) -> Program:
        return lambda builder: numbers(builder).transform(Through()).set_name(name)

    with pytest.raises(
        ConfigError, match=r"component 'source-1' has no operator 'seen' any more \(transform\): --allow-dropped-state"
    ):
        goes_on(transformed("seen"), transformed("counted"))
    with caplog.at_level(logging.WARNING):
        assert goes_on(transformed("seen"), transformed("counted"), **{"topology.state.allow.dropped": "true"}) == 1
    assert "no operator 'seen' any more (transform): its state is dropped" in caplog.text


def test_an_operator_that_would_leave_its_state_in_another_component_is_refused(goes_on: Callable[..., int]) -> None:
    def transformed(tasks: int) -> Program:
        return lambda builder: numbers(builder).transform(Through()).set_name("seen").set_num_partitions(tasks)

    with pytest.raises(ConfigError, match=r"operator 'seen' has state in component 'source-1', and runs in 'seen'"):
        goes_on(transformed(1), transformed(3))


def test_a_checkpoint_that_does_not_say_where_operators_were_is_restored_with_a_warning(
    goes_on: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert goes_on(two(total, largest), two(largest, total), recorded=False) == 1
    assert "those without a name must be where they were: reduce_by_key-1, reduce_by_key-2, source-1" in caplog.text


# New code for what runs


def test_new_code_is_refused_where_it_would_take_the_state_of_another_operator() -> None:
    every = {"topology.stateful.checkpoint.interval.seconds": 10}
    before, after = plan(two(total, largest), **every), plan(two(largest, total), **every)
    assert [*misfits_of(before, before, {"source-1": 1, "reduce_by_key-1": 1, "reduce_by_key-2": 1})] == []
    first, second = misfits_of(before, after, {})
    assert first.startswith("operator 'reduce_by_key-1' was given no name, and is not in the same place")
    assert second.startswith("operator 'reduce_by_key-2' was given no name, and is not in the same place")


def test_new_code_without_checkpoints_takes_no_state() -> None:
    def at_most_once(program: Program) -> LogicalPlan:
        return plan(program, **{"topology.reliability.mode": "ATMOST_ONCE"})

    assert [*misfits_of(at_most_once(two(total, largest)), at_most_once(two(largest, total)), {})] == []
