"""Whether a monoid keeps its promises: the laws, on examples that are searched for."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle

from heronpy.streamlet.monoid import Monoid

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Equal = Callable[[Any, Any], bool]


def check_monoid(
    monoid: Monoid,
    values: SearchStrategy[Any] | Sequence[Any],
    *,
    equal: Equal | None = None,
    examples: int = 100,
) -> None:
    """Check that the order and the place of merging do not matter, and that accumulators can be stored.

        def test_best_bids_are_a_monoid():
            check_monoid(BestBid(), st.integers())

    Args:
        monoid: yours.
        values: what `lift` takes: a hypothesis strategy, or a list to choose from.
        equal: whether two results (of `monoid.result`) are the same; `==` without it. Sums of floats are associative
            but for the last digits: give `math.isclose`.
        examples: how many to try.

    Raises:
        AssertionError: a law is broken; with the smallest example that hypothesis finds (without it: the first).
    """
    cloudpickle.loads(cloudpickle.dumps(monoid))  # it travels to the tasks
    laws = _Laws(monoid, equal or _same)
    strategy = _strategy(values)
    if strategy is None:
        _at_random(laws, list(values), examples)  # type: ignore[arg-type]  # no strategies without hypothesis
    else:
        _searched(laws, strategy, examples)


def _strategy(values: Any) -> SearchStrategy[Any] | None:
    try:
        from hypothesis import strategies
    except ImportError:
        return None
    return strategies.sampled_from(list(values)) if isinstance(values, (list, tuple)) else values


def _searched(laws: _Laws, strategy: SearchStrategy[Any], examples: int) -> None:
    from hypothesis import HealthCheck, Phase, given, settings, strategies

    some = strategies.lists(strategy, min_size=1, max_size=4)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    @given(some, some, some)
    def check(a: list[Any], b: list[Any], c: list[Any]) -> None:
        laws.check(a, b, c)

    check()


def _at_random(laws: _Laws, values: list[Any], examples: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"check_monoid: seed {seed}")
    rng = random.Random(seed)
    for _ in range(examples):
        laws.check(*([rng.choice(values) for _ in range(rng.randint(1, 4))] for _ in range(3)))


class _Laws:
    """The laws for one monoid."""

    def __init__(self, monoid: Monoid, equal: Equal) -> None:
        self._monoid = monoid
        self._equal = equal

    def check(self, a: list[Any], b: list[Any], c: list[Any]) -> None:
        """Check all laws for the values of three places. Each side is built anew: merging may change what it gets."""
        merge, of = self._monoid.merge, self._of
        values = f"with a of {a!r}, b of {b!r} and c of {c!r}"
        self._law(
            f"merge(merge(a, b), c) is merge(a, merge(b, c)) {values}",
            merge(merge(of(a), of(b)), of(c)),
            merge(of(a), merge(of(b), of(c))),
        )
        self._law(f"merge(a, b) is merge(b, a) {values}", merge(of(a), of(b)), merge(of(b), of(a)))
        self._law(f"adding values one by one is merging them {values}", self._added([*a, *b]), merge(of(a), of(b)))
        right = of(b)
        merge(of(a), right)
        self._law(f"merge(a, b) leaves b as it is {values}", right, of(b))
        self._stored(of(a), of(b), values)

    def _stored(self, acc: Any, other: Any, values: str) -> None:
        monoid = self._monoid
        data = monoid.encode(acc)
        assert isinstance(data, bytes), f"{monoid!r}: encode gives a {type(data).__name__}, not bytes"
        self._law(f"decode(encode(a)) is a {values}", monoid.decode(data), acc)
        self._law(f"pickle.loads(pickle.dumps(a)) is a {values}", pickle.loads(pickle.dumps(acc)), acc)
        self._law(
            f"what was decoded merges like the accumulator itself {values}",
            monoid.merge(monoid.decode(data), monoid.decode(monoid.encode(other))),
            monoid.merge(acc, other),
        )

    def _law(self, law: str, left: Any, right: Any) -> None:
        left, right = self._monoid.result(left), self._monoid.result(right)
        assert self._equal(left, right), f"{self._monoid!r} breaks a law: {law}; got {left!r} and {right!r}"

    def _of(self, values: list[Any]) -> Any:
        """The accumulator of values, by lift and merge only."""
        acc = self._monoid.lift(values[0])
        for value in values[1:]:
            acc = self._monoid.merge(acc, self._monoid.lift(value))
        return acc

    def _added(self, values: list[Any]) -> Any:
        acc = self._monoid.lift(values[0])
        for value in values[1:]:
            acc = self._monoid.add(acc, value)
        return acc


def _same(left: Any, right: Any) -> bool:
    return bool(left == right or (left != left and right != right))  # nan is nan
