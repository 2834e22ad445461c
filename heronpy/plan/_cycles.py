"""The cycles of a topology: which edges lead back."""

from __future__ import annotations

from collections.abc import Iterator

from heronpy.plan._logical import LogicalPlan


def feedback_edges(logical: LogicalPlan) -> frozenset[tuple[str, str]]:
    """The edges (component, consumer) that close a cycle; without them the topology has none.

    Found depth first from the spouts, in the order of declaration: an edge leads back if its consumer is on the path
    from the spout to the component. The same definition has the same feedback edges everywhere.
    """
    consumers: dict[str, list[str]] = {name: [] for name in logical.components}
    for bolt in logical.bolts:
        for decl in bolt.inputs:
            if bolt.name not in consumers[decl.component]:
                consumers[decl.component].append(bolt.name)
    back: set[tuple[str, str]] = set()
    done: set[str] = set()
    # The bolts after the spouts: a cycle may have no input.
    for start in [c.name for c in (*logical.spouts, *logical.bolts)]:
        if start in done:
            continue
        path: dict[str, Iterator[str]] = {start: iter(consumers[start])}  # a dict for its order and its lookup
        while path:
            component, waiting = next(reversed(path.items()))
            consumer = next(waiting, None)
            if consumer is None:
                del path[component]
                done.add(component)
            elif consumer in path:
                back.add((component, consumer))
            elif consumer not in done:
                path[consumer] = iter(consumers[consumer])
    return frozenset(back)
