"""Which operators of a program have state, and where in it those are that the user gave no name. Pure.

A place is the names of the operators with state that an operator reads from, however many without state are in between:
inserting a filter moves nothing. Those have places of their own, so it says all that is before it. If several operators
of one operation have no names, the user's functions on the way from there to them are compared as well, by their
bytecode: it differs when two that look alike are swapped. It also differs when a function is edited or Python is
upgraded, so one that is alone is free of it.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

from heronpy.plan import StateOwner
from heronpy.streamlet._generated import GeneratorSource, SupplierSource
from heronpy.streamlet._spout import can_go_back
from heronpy.streamlet._stages import Stage
from heronpy.streamlet.graph import (
    WINDOWED,
    Graph,
    Node,
    ReduceByKeyNode,
    SinkNode,
    SourceNode,
    StoreNode,
    TransformNode,
)

_PARTS = ("function", "source", "sink", "operator", "window", "how")
"""What a node may have of the user's."""
_PLAIN = (str, bytes, int, float, complex, type(None))


def owners_by_component(graph: Graph, stages: Iterable[Stage]) -> dict[str, list[StateOwner]]:
    """The operators with state of each component of a named graph."""
    component_of = {step.name: stage.name for stage in stages for step in stage.head.steps()}
    nodes = list(graph.nodes())
    kinds = {node: kind for node in nodes if (kind := _kind(node))}
    places = _places(nodes, kinds)
    owners: dict[str, list[StateOwner]] = {component: [] for component in component_of.values()}
    for node, kind in kinds.items():
        component = component_of[node.stage]
        owners[component].append(StateOwner(component, node.stage, kind, places.get(node, "")))
    return owners


def _kind(node: Node) -> str:
    """Which others could restore a node's state: those of its kind. Empty: it has none."""
    if isinstance(node, SourceNode):
        what = "generator" if isinstance(node.source, GeneratorSource) else f"source {type(node.source).__name__}"
        return what if can_go_back(node.source) else ""
    if isinstance(node, SinkNode):
        return f"sink {type(node.sink).__name__}" if node.sink.exactly_once else ""
    if isinstance(node, StoreNode):
        return f"store {node.store_name}" if node.store.exactly_once else ""
    if isinstance(node, WINDOWED):
        return node.OP + node.window.state_kind
    return node.OP if isinstance(node, (TransformNode, ReduceByKeyNode)) else ""


def _places(nodes: Sequence[Node], kinds: dict[Node, str]) -> dict[Node, str]:
    """Those of nodes with state and without a name. A view has a name in any case, which is in its kind."""
    numbered = [node for node in kinds if node.is_numbered and not isinstance(node, StoreNode)]
    count = Counter(node.op for node in numbered)
    before: dict[Node, frozenset[str]] = {}
    """By node: what its readers read from, past nodes without state."""
    for node in nodes:
        above = frozenset(name for parent in node.parents for name in before[parent])
        before[node] = frozenset((node.stage,)) if node in kinds else above
    # With its operation, which is in its name. In the order of the parents: a join has a left and a right.
    places: dict[Node, list[Any]] = {
        node: [node.op, *(sorted(before[parent]) for parent in node.parents)] for node in numbered
    }
    if max(count.values(), default=0) > 1:
        ways = _ways(nodes, kinds)
        for node in numbered:
            if count[node.op] > 1:
                places[node] += [_parts(node), [ways[parent] for parent in node.parents]]
    return {node: _digest(place) for node, place in places.items()}


def _ways(nodes: Iterable[Node], kinds: Container[Node]) -> dict[Node, str]:
    """By node: what becomes of the elements of nodes with state on their way to its readers."""
    ways: dict[Node, str] = {}
    for node in nodes:
        above = sorted(ways[parent] for parent in node.parents)
        ways[node] = node.stage if node in kinds else _digest(node.op, _parts(node), above)
    return ways


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _parts(node: Node) -> list[str]:
    return [_identity(getattr(node, part, None), frozenset()) for part in _PARTS]


def _identity(part: Any, within: frozenset[int]) -> str:
    """What distinguishes a function or object of the user from others, alike in every process of one Python."""
    if id(part) in within:
        return "itself"
    within |= {id(part)}
    if isinstance(part, SupplierSource):
        part = part.function
    if isinstance(part, functools.partial):
        inner = (part.func, *part.args, *part.keywords.values())
        return f"partial {[*part.keywords]} {[_identity(each, within) for each in inner]}"
    if isinstance(part, MethodType):
        return f"{type(part.__self__).__qualname__} {_identity(part.__func__, within)}"
    if isinstance(part, FunctionType):
        held = [*(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values(), *_cells(part)]
        return f"{_code(part.__code__)} {[_identity(each, within) for each in held]}"
    if isinstance(part, (type, BuiltinFunctionType)):
        return f"{part.__module__}.{part.__qualname__}"
    if isinstance(part, _PLAIN):
        return repr(part)
    what = type(part).__qualname__
    return what if len(within) > 1 else f"{what} {_shown(part)}"  # what a function holds may be large


def _shown(part: Any) -> str:
    try:
        text = repr(part)
    except Exception:  # the user's code
        return ""
    return "" if " at 0x" in text else text


def _cells(function: FunctionType) -> list[Any]:
    """What a function has from where it was defined; of a name that has no value yet, nothing."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(None)
    return found


def _code(code: CodeType) -> str:
    consts = [_code(const) if isinstance(const, CodeType) else _const(const) for const in code.co_consts]
    return repr((code.co_code, code.co_names, consts))


def _const(const: Any) -> str:
    return repr(sorted(map(repr, const)) if isinstance(const, frozenset) else const)  # a set's order is a process's own
