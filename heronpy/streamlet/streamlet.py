"""The functional API: a streamlet is a stream of elements, and its methods make other streamlets of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.config import check_name
from heronpy.connectors import Sink
from heronpy.errors import TopologyError
from heronpy.filesystem import Location, location
from heronpy.streamlet.graph import (
    WINDOWED,
    ArchiveNode,
    ConsumeNode,
    EventTimeNode,
    FilterNode,
    FlatMapNode,
    JoinNode,
    JoinType,
    LateNode,
    LogNode,
    MapNode,
    Node,
    ReduceByKeyAndWindowNode,
    ReduceByKeyNode,
    ReduceByWindowNode,
    RepartitionNode,
    SinkNode,
    StoreNode,
    TransformNode,
    UnionNode,
)
from heronpy.streamlet.monoid import Monoid
from heronpy.streamlet.transformoperator import TransformOperator
from heronpy.streamlet.windowconfig import WindowConfig

if TYPE_CHECKING:
    from heronpy.stores import Store


class Streamlet:
    """A stream of elements. Made by `Builder.new_source` and by the methods of other streamlets.

    Keyed operations take pairs (key, value): tuples or lists of length 2.
    """

    def __init__(self, node: Node) -> None:
        """Wrap an operation. For the package: begin with `Builder.new_source`."""
        self._node = node

    # Names and partitions

    def set_name(self, name: str) -> Streamlet:
        """Name this stage; the default is `<op>-<n>`.

        Raises:
            ConfigError: a name that cannot be part of a path.
        """
        self._node.name, self._node.is_numbered = check_name("streamlet name", name), False
        return self

    def get_name(self) -> str | None:
        """The name that was set, or None."""
        return self._node.name

    def set_num_partitions(self, num_partitions: int) -> Streamlet:
        """How many tasks compute this streamlet.

        Raises:
            TopologyError: less than one, or not a number.
        """
        self._node.partitions = _partitions(num_partitions)
        return self

    def get_num_partitions(self) -> int:
        """How many tasks compute this streamlet."""
        return self._node.partitions

    # Element by element

    def map(self, map_function: Callable[[Any], Any]) -> Streamlet:
        """`map_function(element)` for each element."""
        return self._then(MapNode, function=_callable("map", map_function))

    def flat_map(self, flatmap_function: Callable[[Any], Any]) -> Streamlet:
        """All elements of `flatmap_function(element)`, an iterable, for each element."""
        return self._then(FlatMapNode, function=_callable("flat_map", flatmap_function))

    def filter(self, filter_function: Callable[[Any], Any]) -> Streamlet:
        """The elements for which `filter_function(element)` is true."""
        return self._then(FilterNode, function=_callable("filter", filter_function))

    def transform(self, transform_operator: TransformOperator) -> Streamlet:
        """What the operator emits for each element."""
        if not isinstance(transform_operator, TransformOperator):
            raise TopologyError(f"transform() takes a TransformOperator, not {transform_operator!r}")
        return self._then(TransformNode, operator=transform_operator)

    def key_by(
        self, key_extractor: Callable[[Any], Any], value_extractor: Callable[[Any], Any] | None = None
    ) -> Streamlet:
        """Pairs (key, value) of each element; the value is the element itself without `value_extractor`."""
        key = _callable("key_by", key_extractor)
        if value_extractor is None:
            return self._then(MapNode, "key_by", function=lambda element: (key(element), element))
        value = _callable("key_by", value_extractor)
        return self._then(MapNode, "key_by", function=lambda element: (key(element), value(element)))

    def event_time(self, time_extractor: Callable[[Any], Any]) -> Streamlet:
        """The same elements with an event time: `time_extractor(element)` in seconds since the epoch, or a datetime.

        Windows and batch ids are made of it from here on.
        """
        return self._then(EventTimeNode, function=_callable("event_time", time_extractor))

    def split(self, predicates: Mapping[str, Callable[[Any], Any]]) -> SplitStreamlet:
        """Several streamlets by name, each with the elements for which its predicate is true."""
        if not predicates:
            raise TopologyError("split() takes a dict of names and predicates, which is empty")
        return SplitStreamlet(
            {
                name: self._then(FilterNode, "split", function=_callable("split", predicate))
                for name, predicate in predicates.items()
            }
        )

    # Between tasks

    def repartition(
        self, num_partitions: int, repartition_function: Callable[[Any], int | list[int]] | None = None
    ) -> Streamlet:
        """The same elements, divided anew among `num_partitions` tasks.

        Args:
            num_partitions: how many.
            repartition_function: says which partition gets an element, from 0, or a list of them, each of which gets
                it; evenly without it.
        """
        if repartition_function is not None:
            _callable("repartition", repartition_function)
        return Streamlet(
            RepartitionNode(
                parents=(self._node,), partitions=_partitions(num_partitions), function=repartition_function
            )
        )

    def clone(self, num_clones: int) -> list[Streamlet]:
        """So many streamlets, each with all elements."""
        return [self.repartition(self.get_num_partitions()) for _ in range(_partitions(num_clones))]

    def union(self, other_streamlet: Streamlet) -> Streamlet:
        """The elements of both."""
        return Streamlet(
            UnionNode(parents=(self._node, _node("union", other_streamlet)), partitions=self._node.partitions)
        )

    # By key and window

    def reduce_by_key(self, reduce_function: Callable[[Any, Any], Any]) -> Streamlet:
        """For each pair (key, value): the key with the reduction of all its values so far.

        The function is associative and commutative, and returns a new value or one that cannot change.
        A batch job emits one pair for each key and batch: the value at the batch's end.
        """
        return self._then(ReduceByKeyNode, function=_callable("reduce_by_key", reduce_function))

    def count_by_key(self, key_extractor: Callable[[Any], Any] | None = None) -> Streamlet:
        """For each element: its key with the number of elements so far that had it.

        Without `key_extractor` elements are pairs (key, value).
        """
        return self._ones("count_by_key", key_extractor)._then(ReduceByKeyNode, "count_by_key", function=_plus)

    def reduce_by_window(self, window_config: WindowConfig, reduce_function: Callable[[Any, Any], Any]) -> Streamlet:
        """(Window, reduction of its elements) for each window that has any.

        The function is associative and commutative, and returns a new value or one that cannot change.
        """
        return self._then(
            ReduceByWindowNode,
            window=_window("reduce_by_window", window_config),
            function=_callable("reduce_by_window", reduce_function),
        )

    def reduce_by_key_and_window(
        self, window_config: WindowConfig, reduce_function: Callable[[Any, Any], Any]
    ) -> Streamlet:
        """(KeyedWindow, reduction of the values) of pairs (key, value), for each window and each key in it.

        The function is associative and commutative, and returns a new value or one that cannot change.
        """
        return self._then(
            ReduceByKeyAndWindowNode,
            window=_window("reduce_by_key_and_window", window_config),
            function=_callable("reduce_by_key_and_window", reduce_function),
        )

    def count_by_key_and_window(
        self, window_config: WindowConfig, key_extractor: Callable[[Any], Any] | None = None
    ) -> Streamlet:
        """(KeyedWindow, number of elements) for each window and each key in it."""
        return self._ones("count_by_key_and_window", key_extractor)._then(
            ReduceByKeyAndWindowNode,
            "count_by_key_and_window",
            window=_window("count_by_key_and_window", window_config),
            function=_plus,
        )

    def join(
        self, join_streamlet: Streamlet, window_config: WindowConfig, join_function: Callable[[Any, Any], Any]
    ) -> Streamlet:
        """(KeyedWindow, join_function(left, right)) for all pairs of values with one key in one window."""
        return self._join(JoinType.INNER, join_streamlet, window_config, join_function)

    def outer_left_join(
        self, join_streamlet: Streamlet, window_config: WindowConfig, join_function: Callable[[Any, Any], Any]
    ) -> Streamlet:
        """`join`, and join_function(left, None) for what has no partner on the right."""
        return self._join(JoinType.OUTER_LEFT, join_streamlet, window_config, join_function)

    def outer_right_join(
        self, join_streamlet: Streamlet, window_config: WindowConfig, join_function: Callable[[Any, Any], Any]
    ) -> Streamlet:
        """`join`, and join_function(None, right) for what has no partner on the left."""
        return self._join(JoinType.OUTER_RIGHT, join_streamlet, window_config, join_function)

    def outer_join(
        self, join_streamlet: Streamlet, window_config: WindowConfig, join_function: Callable[[Any, Any], Any]
    ) -> Streamlet:
        """`join`, and both kinds of elements without a partner."""
        return self._join(JoinType.OUTER, join_streamlet, window_config, join_function)

    def late(self) -> Streamlet:
        """What came too late for the windows that this is made of, as it came: elements, or pairs (key, value).

        Of a join, pairs of both sides.

        Raises:
            TopologyError: nothing is too late, because this is not made of windows with an allowed lateness.
        """
        node = self._node
        if not isinstance(node, WINDOWED) or node.window.allowed_lateness_ms is None:
            raise TopologyError(
                f"{node.name or node.op} has no late elements: late() is of a window operation whose WindowConfig was "
                "given with_allowed_lateness()"
            )
        return self._then(LateNode)

    # Ends

    def consume(self, consume_function: Callable[[Any], Any]) -> None:
        """Call a function for each element. A batch job cannot repeat what it does, so it refuses such a program."""
        self._then(ConsumeNode, function=_callable("consume", consume_function))

    def log(self) -> None:
        """Log each element. Left out of a batch job."""
        self._then(LogNode)

    def to_sink(self, sink: Sink, *, name: str | None = None, num_partitions: int | None = None) -> None:
        """Hand each element to a sink.

        Args:
            sink: it.
            name: by which its files in batch runs are known, and what it has prepared in checkpoints. Without it that
                is `sink-<n>`, another's when sinks come or go before it: of several in a batch run, all but one need
                names, and from a checkpoint a changed program goes on only where none takes another's.
            num_partitions: tasks that write it; as many as this streamlet has without it.
        """
        if not isinstance(sink, Sink):
            raise TopologyError(f"to_sink() takes a heronpy.connectors.Sink, not {sink!r}")
        written = self._then(SinkNode, sink=sink, num_partitions=num_partitions)
        if name is not None:
            written.set_name(name)

    def to_store(
        self,
        name: str,
        monoid: Monoid,
        store: Store | str | None = None,
        *,
        stage_name: str | None = None,
        num_partitions: int | None = None,
    ) -> None:
        """Merge the value of each pair (key, value) into the view `name`.

        Args:
            name: of the view; unique in the program, part of paths.
            monoid: how values are merged.
            store: where the live view is kept, or its URL (`redis://…`, `postgresql://…`, see
                `heronpy.stores.store_at`); where `Config.set_pipeline` says without it, else in SQLite files.
            stage_name: by which what is prepared for it is known in checkpoints. Without it that is `store-<n>`,
                another's when views come or go before it.
            num_partitions: tasks that write it; as many as this streamlet has without it.
        """
        if not isinstance(monoid, Monoid):
            raise TopologyError(f"to_store() takes a heronpy.streamlet.monoid.Monoid, not {monoid!r}")
        from heronpy.stores import SqliteStore, as_store  # stores import monoids, and so this package

        written = self._then(
            StoreNode,
            num_partitions=num_partitions,
            store_name=check_name("view name", name),
            monoid=monoid,
            store=SqliteStore() if store is None else as_store(store),
            chosen=store is not None,
        )
        if stage_name is not None:
            written.set_name(stage_name)

    def archive(
        self, path: str | Location | None = None, *, name: str | None = None, codec: str = "columns"
    ) -> Streamlet:
        """Write each element to the archive, from which batch jobs compute their views; returns the same elements.

        Args:
            path: the archive's directory, or a URL (`s3://bucket/prefix?endpoint=…&region=…`, `hdfs://host:port/path`);
                `archive/<name>` in the job's directory without it.
            name: unique in the program; `events` without it.
            codec: `columns` (dicts of plain values, text, numbers, bytes) or `pickle` (anything).
        """
        return self._then(
            ArchiveNode,
            archive_name=check_name("archive name", name or "events"),
            path=None if path is None else location("the archive", path),
            codec=codec,
        )

    def _then(
        self, kind: type[Node], name: str | None = None, num_partitions: int | None = None, **fields: Any
    ) -> Streamlet:
        partitions = self._node.partitions if num_partitions is None else _partitions(num_partitions)
        node = kind(parents=(self._node,), partitions=partitions, **fields)
        if name is not None:
            node.op = name
        return Streamlet(node)

    def _ones(self, name: str, key_extractor: Callable[[Any], Any] | None) -> Streamlet:
        if key_extractor is None:
            return self.map(_key_and_one)
        key = _callable(name, key_extractor)
        return self.map(lambda element: (key(element), 1))

    def _join(
        self, how: JoinType, other: Streamlet, window: WindowConfig, function: Callable[[Any, Any], Any]
    ) -> Streamlet:
        return Streamlet(
            JoinNode(
                parents=(self._node, _node("join", other)),
                partitions=self._node.partitions,
                window=_window("join", window),
                function=_callable("join", function),
                how=how,
            )
        )


class SplitStreamlet:
    """What `split` makes: streamlets by name."""

    def __init__(self, streamlets: Mapping[str, Streamlet]) -> None:
        self._streamlets = dict(streamlets)

    def with_stream(self, name: str) -> Streamlet:
        """The streamlet of a name.

        Raises:
            TopologyError: `split` was not given that name.
        """
        if name not in self._streamlets:
            raise TopologyError(f"split() made no streamlet {name!r}; it made {sorted(self._streamlets)}")
        return self._streamlets[name]

    __getitem__ = with_stream


def _plus(a: int, b: int) -> int:
    return a + b


def _key_and_one(pair: Sequence[Any]) -> tuple[Any, int]:
    return pair[0], 1


def _callable(method: str, function: Any) -> Callable[..., Any]:
    if not callable(function):
        raise TopologyError(f"{method}() takes a function, not {function!r}")
    return function  # type: ignore[no-any-return]  # checked


def _window(method: str, window: Any) -> WindowConfig:
    if not isinstance(window, WindowConfig):
        raise TopologyError(f"{method}() takes a WindowConfig, not {window!r}")
    assert window.windowing  # refuses what would be kept forever, where the user can see it
    return window


def _node(method: str, other: Any) -> Node:
    if not isinstance(other, Streamlet):
        raise TopologyError(f"{method}() takes a Streamlet, not {other!r}")
    return other._node


def _partitions(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise TopologyError(f"a number of partitions must be at least 1, not {number!r}")
    return number
