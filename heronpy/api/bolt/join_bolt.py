"""Storm's JoinBolt: joins the tuples of several inputs that are in one window.

    joined = (
        JoinBolt.of("clicks", "user")
        .join("views", "user", "clicks")
        .left_join("orders", "user", "views")
        .select("user, clicks:at, views:page, total")
        .with_tumbling_window(timedelta(seconds=10))
        .with_timestamp_field("at")
    )
    builder.add_bolt("joined", joined, 4, {clicks: by_user, views: by_user, orders: by_user})

Read `.join("views", "user", "clicks")` as: views join on views.user = clicks.<the field that clicks are joined by>.
None equals nothing. A window is of one task, so tuples that are to meet must be grouped by what they have in common;
where inputs are joined by several fields, that takes one task, or grouping `ALL` of the smaller inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from heronpy.api.bolt.window_settings import Extent
from heronpy.api.bolt.windowed_bolt import BaseWindowedBolt, TupleWindow, WindowedBoltBuilder
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.stream import Stream
from heronpy.api.tuple import Tuple
from heronpy.errors import ConfigError

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext

JOIN = "join_bolt_join"
"""Configuration key of the `Join`."""
_Record = tuple[Tuple | None, ...]
"""One tuple of each input, in the order of the join; None: a left join found none."""


@dataclass(frozen=True, slots=True)
class _Side:
    """An input of a join."""

    source: str
    """A component, or a stream."""
    field: str
    """What it is joined by; `a.b` is what the dict in field a has for b."""
    prior: str | None = None
    """The input whose field equals this one's; None: it is the first."""
    prior_field: str | None = None
    """That field, if it is not the one that `prior` is joined by."""
    outer: bool = False
    """Whether what was joined before is kept where this input has no partner for it."""


@dataclass(frozen=True, slots=True)
class Join:
    """A join in the making, and then the bolt of it: give it windows last."""

    sides: tuple[_Side, ...]
    by_stream: bool = False
    """Whether inputs are named by their streams; by their components otherwise."""
    selected: tuple[str, ...] = ()
    output_stream: str = Stream.DEFAULT_STREAM_ID

    def join(self, source: str, field: str, prior: str, *, prior_field: str | None = None) -> Join:
        """Join another input: pairs in which its `field` equals one of an input before it.

        Args:
            source: the input.
            field: its field.
            prior: the input before it.
            prior_field: the field of that; the one that it is joined by without this, as in Storm.

        Raises:
            ConfigError: there is no such input before it, or this one is there already.
        """
        return self._joined(_Side(source, field, prior, prior_field))

    def left_join(self, source: str, field: str, prior: str, *, prior_field: str | None = None) -> Join:
        """The same, and what has no partner in it is kept: what is selected of the new input is None then.

        Raises:
            ConfigError: as `join`.
        """
        return self._joined(_Side(source, field, prior, prior_field, outer=True))

    def select(self, fields: str) -> Join:
        """What is emitted: `field` of the first input that has it, or `input:field`, separated by commas.

        The fields of the output are called as they are written here.

        Raises:
            ConfigError: none, or of an input that is not joined.
        """
        selected = tuple(part.strip() for part in fields.split(","))
        if not all(selected):
            raise ConfigError(f"select() takes names of fields, separated by commas, not {fields!r}")
        for selector in selected:
            source, colon, _ = selector.partition(":")
            if colon:
                self._known(source)
        return replace(self, selected=selected)

    def with_output_stream(self, stream_id: str) -> Join:
        """Emit on this stream, which is declared with it, instead of the default one."""
        return replace(self, output_stream=stream_id)

    def with_window(self, length: Extent, slide: Extent | None = None) -> WindowedBoltBuilder:
        """Join in windows of the last `length`, one every `slide`; see `BaseWindowedBolt.with_window`.

        Raises:
            ConfigError: nothing is selected.
        """
        if not self.selected:
            raise ConfigError("a JoinBolt needs the fields that it emits: call select()")
        windowed = JoinBolt.with_window(length, slide)
        return WindowedBoltBuilder(JoinBolt, {**windowed.config, JOIN: self})

    def with_tumbling_window(self, length: Extent) -> WindowedBoltBuilder:
        """Join in windows that follow one another: every tuple is in one."""
        return self.with_window(length, length)

    def place(self, source: str) -> int:
        """Which of the inputs this is."""
        return [side.source for side in self.sides].index(source)

    def _joined(self, side: _Side) -> Join:
        assert side.prior is not None
        self._known(side.prior)
        if any(side.source == other.source for other in self.sides):
            raise ConfigError(f"{side.source!r} is joined already")
        return replace(self, sides=(*self.sides, side))

    def _known(self, source: str) -> None:
        known = [side.source for side in self.sides]
        if source not in known:
            raise ConfigError(f"{source!r} is not joined: there are {known}")


class JoinBolt(BaseWindowedBolt):
    """See the file. Begin with `of()`."""

    @staticmethod
    def of(source: str, field: str, *, by_stream: bool = False) -> Join:
        """Begin with an input, and the field that it is joined by.

        Args:
            source: the name of its component.
            field: the field.
            by_stream: inputs are named by their streams instead: Storm's `Selector.STREAM`.
        """
        return Join((_Side(source, field),), by_stream)

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """As for every bolt; declares what is selected.

        Raises:
            ConfigError: nothing says what is joined.
        """
        join = _join_of(config or {})
        outputs = [Stream(list(join.selected), join.output_stream), *(optional_outputs or ())]
        return super().spec(name=name, inputs=inputs, par=par, config=config, optional_outputs=outputs)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        join = self._join = _join_of(config)
        streams: dict[str, list[Sequence[str]]] = {side.source: [] for side in join.sides}
        for source in context.get_this_sources():
            found = streams.get(source.id if join.by_stream else source.component_name)
            if found is not None:
                found.append(context.get_component_output_fields(source.component_name, source.id) or ())
        by = [(side.source, side.field) for side in join.sides]
        by += [(side.prior, side.prior_field) for side in join.sides if side.prior and side.prior_field]
        for name, field in by:
            if not streams[name]:
                raise ConfigError(f"the bolt joins {name!r}, which is none of its inputs")
            for fields in streams[name]:
                if field.partition(".")[0] not in fields:
                    raise ConfigError(f"the bolt joins {name!r} by {field!r}, but it has {list(fields)}")
        known = [{field for fields in streams[side.source] for field in fields} for side in join.sides]
        self._selected = [_places(join, selector, known) for selector in join.selected]

    def execute(self, window: TupleWindow) -> None:
        for record in self._records(window.get()):
            values = [_selected(record, places, path) for places, path in self._selected]
            anchors = [tup for tup in record if tup is not None] if self._tracking else None
            self.emit(values, stream=self._join.output_stream, anchors=anchors)

    def _records(self, tuples: Sequence[Tuple]) -> list[_Record]:
        join = self._join
        inputs: dict[str, list[Tuple]] = {side.source: [] for side in join.sides}
        for tup in tuples:
            found = inputs.get(tup.stream if join.by_stream else tup.component)
            if found is not None:
                found.append(tup)
        first, *others = join.sides
        records: list[_Record] = [(tup,) for tup in inputs[first.source]]
        for side in others:
            by_key: dict[Any, list[Tuple]] = {}
            for tup in inputs[side.source]:
                if (key := _key(tup, side.field)) is not None:
                    by_key.setdefault(key, []).append(tup)
            assert side.prior is not None
            at = join.place(side.prior)
            field = side.prior_field or join.sides[at].field
            joined: list[_Record] = []
            for record in records:
                prior = record[at]
                partners = () if prior is None else by_key.get(_key(prior, field), ())
                joined += [(*record, partner) for partner in partners]
                if not partners and side.outer:
                    joined.append((*record, None))
            records = joined
        return records


def _join_of(config: Mapping[str, Any]) -> Join:
    join = config.get(JOIN)
    if not isinstance(join, Join):
        raise ConfigError("a JoinBolt needs to know what it joins: begin with JoinBolt.of()")
    return join


def _places(join: Join, selector: str, fields: Sequence[set[str]]) -> tuple[list[int], list[str]]:
    """Where a selected value may be: in which inputs, and there.

    Raises:
        ConfigError: nowhere.
    """
    source, colon, name = selector.rpartition(":")
    path = name.split(".")
    places = [join.place(source)] if colon else range(len(join.sides))
    found = [place for place in places if path[0] in fields[place]]
    if not found:
        raise ConfigError(f"select() takes {selector!r}, which no joined input has")
    return found, path


def _selected(record: _Record, places: Sequence[int], path: Sequence[str]) -> Any:
    for place in places:
        if (tup := record[place]) is not None:
            return _value(tup, path)
    return None


def _value(tup: Tuple, path: Sequence[str]) -> Any:
    try:
        value = tup[path[0]]
    except KeyError:  # a component may have streams with other fields
        return None
    for name in path[1:]:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _key(tup: Tuple, field: str) -> Any:
    return _hashable(_value(tup, field.split(".")))


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


__all__ = ["Join", "JoinBolt"]
