"""Groupings: which tasks of a consumer get a tuple. Pure: values in, edges out.

A chooser is a function from a tuple's values to its target. It runs once per emitted tuple, so each is a closure made
for its case: a constant for a single task, an iterator for shuffle, a dictionary of keys seen before for fields.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol
from zlib import crc32

from heronpy.errors import TupleError
from heronpy.hashing import (
    CELL_MASK,
    KEY_GROUPS,
    SPREAD,
    TEXT_SEED,
    groups_of_cells,
    index_of_group,
    key_group,
    mix,
    stable_hash,
)
from heronpy.instance._edges import Edge, Fan, MakeFan, Target
from heronpy.plan import GroupingKind
from heronpy.shown import said

Chooser = Callable[[Sequence[Any]], Target]

KEYS_MAX = 1 << 18
"""Keys whose task is remembered, per stream and consumer; when full the memory starts anew."""
QUICK_KEYS_MAX = 1 << 14
"""The same where the group of text and numbers is quickly found: to look up more costs more, in cold caches."""


class CustomGrouping(Protocol):
    """Heron's ICustomGrouping, after `prepare`."""

    def choose_tasks(self, values: Any) -> Sequence[int]: ...


def shuffle(edges: Sequence[Edge], seed: int) -> Chooser:
    """Even: every task gets one tuple of every `len(edges)`, in an order that differs between senders."""
    if len(edges) == 1:
        return constant(edges[0])
    order = list(edges)
    random.Random(seed).shuffle(order)
    advance = itertools.cycle(order).__next__
    return lambda _values: advance()


def constant(target: Target) -> Chooser:
    """Always the same target: all, global, and every grouping of a single task."""
    return lambda _values: target


def fields(edges: Sequence[Edge], indexes: Sequence[int], key_groups: int, *, lasting: bool) -> Chooser:
    """Equal keys meet: a hash of the key fields gives their group, and each task owns a range of groups."""
    if len(edges) == 1:
        return constant(edges[0])
    count = len(edges)
    owners = [edges[index_of_group(group, count, key_groups)] for group in range(key_groups)]
    by_cell = [] if lasting else [owners[group] for group in groups_of_cells(key_groups)]
    known: dict[Hashable, Edge] = {}
    key_of = operator.itemgetter(*indexes)
    many = False

    def learn(values: Sequence[Any]) -> Edge:
        try:
            key = key_of(values)
        except IndexError:
            raise _lacks_key(edges, values) from None
        nonlocal many
        try:
            edge = owners[key_group(key, key_groups, lasting=lasting)]
        except TupleError:
            raise
        except Exception as error:
            raise _no_key(edges, error) from error
        try:
            if len(known) >= KEYS_MAX:
                known.clear()
            if by_cell and len(known) >= QUICK_KEYS_MAX and type(key) in (str, int):
                many = True
                known.clear()
            known[key] = edge
        except Exception:
            pass  # an unhashable key (a list, a dict, one whose methods raise) is computed every time
        return edge

    if len(indexes) == 1:
        index = indexes[0]

        def choose_by_one(values: Sequence[Any]) -> Edge:
            # A key type with a stable hash that compares equal to another has the same hash, so the dictionary can
            # not answer differently from the computation.
            try:
                key = values[index]
                if many:  # as `heronpy.hashing` does, in place
                    kind = type(key)
                    if kind is str:
                        return by_cell[crc32(key.encode(), TEXT_SEED) & CELL_MASK]
                    if kind is int:
                        number = hash(key)
                        return by_cell[((number ^ number >> 32) * SPREAD >> 19) & CELL_MASK]
                return known[key]
            except Exception:  # new, unhashable, half of a surrogate pair, or whatever a key of the user's raises
                return learn(values)

        return choose_by_one

    def choose(values: Sequence[Any]) -> Edge:
        try:
            return known[key_of(values)]
        except Exception:
            return learn(values)

    return choose


def partial_key(edges: Sequence[Edge], indexes: Sequence[int]) -> Chooser:
    """The power of two choices (Nasir et al., ICDE 2015): a key has two tasks, and the one sent less gets the tuple."""
    if len(edges) == 1:
        return constant(edges[0])
    key_of = operator.itemgetter(*indexes)
    sent = dict.fromkeys(edges, 0)
    known: dict[Hashable, tuple[Edge, Edge]] = {}

    def learn(key: Any) -> tuple[Edge, Edge]:
        try:
            number = stable_hash(key)
        except TupleError:
            raise
        except Exception as error:
            raise _no_key(edges, error) from error
        first = number % len(edges)
        second = (first + 1 + mix(number ^ 0x9E3779B97F4A7C15) % (len(edges) - 1)) % len(edges)
        pair = edges[first], edges[second]
        try:
            if len(known) >= KEYS_MAX:
                known.clear()
            known[key] = pair
        except Exception:
            pass  # as in `fields`
        return pair

    def choose(values: Sequence[Any]) -> Edge:
        try:
            key = key_of(values)
        except IndexError:
            raise _lacks_key(edges, values) from None
        try:
            pair = known[key]
        except Exception:
            pair = learn(key)
        edge = pair[0] if sent[pair[0]] <= sent[pair[1]] else pair[1]
        sent[edge] += 1
        return edge

    return choose


def _lacks_key(edges: Sequence[Edge], values: Sequence[Any]) -> TupleError:
    return TupleError(f"a tuple of {len(values)} values on stream {edges[0].stream!r} lacks a field it is grouped by")


def _no_key(edges: Sequence[Edge], error: Exception) -> TupleError:
    """What there is of the user's to find its hash raises."""
    return TupleError(f"the key of a tuple on stream {edges[0].stream!r} cannot be grouped: {said(error)}")


def custom(edges: Sequence[Edge], grouping: CustomGrouping, make_fan: MakeFan = Fan) -> Chooser:
    """The user's own choice of tasks, checked."""
    by_task = {edge.task: edge for edge in edges}
    fans: dict[tuple[int, ...], Target] = {}

    def choose(values: Sequence[Any]) -> Target:
        tasks = tuple(grouping.choose_tasks(values))
        target = fans.get(tasks)
        if target is None:
            unknown = [task for task in tasks if task not in by_task]
            if unknown:
                raise TupleError(
                    f"{type(grouping).__name__}.choose_tasks() chose task {unknown[0]!r}, "
                    f"which is none of the targets {sorted(by_task)}"
                )
            if len(fans) >= KEYS_MAX:
                fans.clear()
            target = fans[tasks] = combine([by_task[task] for task in tasks], make_fan)
        return target

    return choose


def combine(edges: Sequence[Edge], make_fan: MakeFan = Fan) -> Target:
    """One target for several edges, or for none."""
    return edges[0] if len(edges) == 1 else make_fan(edges)


def for_all(choosers: Sequence[Chooser], make_fan: MakeFan = Fan) -> Chooser:
    """Several consumers of one stream: each gets the tuple by its own grouping."""
    if len(choosers) == 1:
        return choosers[0]
    if not choosers:
        return constant(make_fan(()))
    fans: dict[tuple[Target, ...], Fan] = {}

    def choose(values: Sequence[Any]) -> Target:
        targets = tuple(chooser(values) for chooser in choosers)
        fan = fans.get(targets)
        if fan is None:
            if len(fans) >= KEYS_MAX:
                fans.clear()
            fan = fans[targets] = make_fan([edge for target in targets for edge in target.edges])
        return fan

    return choose


def chooser(
    kind: GroupingKind,
    edges: Sequence[Edge],
    *,
    indexes: Sequence[int] = (),
    key_groups: int = KEY_GROUPS,
    lasting: bool = True,
    local: Callable[[Edge], bool] = lambda _edge: False,
    grouping: CustomGrouping | None = None,
    seed: int = 0,
    make_fan: MakeFan = Fan,
) -> Chooser:
    """The chooser of one consumer.

    Args:
        kind: the grouping.
        edges: the consumer's tasks, ascending by task id.
        indexes: positions of the key fields (fields, partial key).
        key_groups: number of key groups (fields).
        lasting: whether keys are in the groups of checkpoints (fields).
        local: whether an edge's task is in the sender's container (local-or-shuffle).
        grouping: the prepared custom grouping (custom).
        seed: differs between senders, so that they do not all start with the same task.
        make_fan: makes the target of a tuple that goes to several tasks, or to none.
    """
    if kind is GroupingKind.FIELDS:
        return fields(edges, indexes, key_groups, lasting=lasting)
    if kind is GroupingKind.PARTIAL_KEY:
        return partial_key(edges, indexes)
    if kind is GroupingKind.ALL:
        return constant(combine(edges, make_fan))
    if kind is GroupingKind.LOWEST:
        return constant(min(edges, key=lambda edge: edge.task))
    if kind is GroupingKind.CUSTOM:
        assert grouping is not None, "a custom grouping must be loaded before it is used"
        return custom(edges, grouping, make_fan)
    if kind is GroupingKind.LOCAL_OR_SHUFFLE:
        return shuffle([edge for edge in edges if local(edge)] or edges, seed)
    if kind is GroupingKind.DIRECT:
        return constant(make_fan(()))  # only an emit with direct_task reaches the consumer of a direct grouping
    return shuffle(edges, seed)  # SHUFFLE and NONE
