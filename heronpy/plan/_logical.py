"""The logical plan: components, streams and groupings, validated.

Made from Heron's `Topology` message, which is what user code writes and what the state manager keeps. Cycles are
allowed: a bolt may consume what it, or somebody downstream of it, emits.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heronpy.config import takes_checkpoints
from heronpy.errors import TopologyError, nearest
from heronpy.hashing import KEY_GROUPS
from heronpy.plan._values import read_config
from heronpy.proto import topology_pb2

DEFAULT_STREAM = "default"
_PARALLELISM = "topology.component.parallelism"
TASKS_MAX = 100_000
"""Of a topology. A hundred times as many as are measured; its packing plan still fits into a message to a process."""


class GroupingKind(enum.IntEnum):
    """Which task of a consumer gets a tuple. The values are those of the wire."""

    SHUFFLE = topology_pb2.SHUFFLE
    FIELDS = topology_pb2.FIELDS
    ALL = topology_pb2.ALL
    LOWEST = topology_pb2.LOWEST
    NONE = topology_pb2.NONE
    DIRECT = topology_pb2.DIRECT
    CUSTOM = topology_pb2.CUSTOM
    LOCAL_OR_SHUFFLE = topology_pb2.LOCAL_OR_SHUFFLE
    PARTIAL_KEY = topology_pb2.PARTIAL_KEY


@dataclass(frozen=True, slots=True)
class StreamDecl:
    """One output stream of a component."""

    id: str
    fields: tuple[str, ...]
    direct: bool = False


@dataclass(frozen=True, slots=True)
class InputDecl:
    """One input of a bolt: whose stream, and how its tuples are divided among the bolt's tasks."""

    component: str
    stream: str
    grouping: GroupingKind
    fields: tuple[str, ...] = ()
    """Names of the key fields (FIELDS and PARTIAL_KEY)."""
    custom: bytes = b""
    """The pickled ICustomGrouping, or its pickled class path (CUSTOM). Only instances unpickle it."""
    custom_class: str = ""
    """The class path, if the custom grouping is named by one."""


@dataclass(frozen=True, slots=True)
class Component:
    """A spout or a bolt."""

    name: str
    is_spout: bool
    class_name: str
    """`module.Class`, importable from the topology's package."""
    parallelism: int
    outputs: Mapping[str, StreamDecl]
    inputs: tuple[InputDecl, ...]
    config: Mapping[str, Any]
    """The component's own configuration, without the topology's."""


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    """A whole topology."""

    id: str
    name: str
    components: Mapping[str, Component]
    config: Mapping[str, Any]
    proto: topology_pb2.Topology = field(repr=False, compare=False)

    @property
    def spouts(self) -> list[Component]:
        return [c for c in self.components.values() if c.is_spout]

    @property
    def bolts(self) -> list[Component]:
        return [c for c in self.components.values() if not c.is_spout]

    def consumers(self, component: str, stream: str) -> list[tuple[Component, InputDecl]]:
        """Who reads a stream, in the order of declaration."""
        return [
            (bolt, decl)
            for bolt in self.bolts
            for decl in bolt.inputs
            if decl.component == component and decl.stream == stream
        ]

    @property
    def key_groups(self) -> int:
        """Number of key groups that fields groupings divide keys into: see `heronpy.hashing`."""
        return int(self.config.get("topology.state.key.groups", KEY_GROUPS))

    @property
    def lasting_key_groups(self) -> bool:
        """Whether a key is in the same group in every topology, as in checkpoints: see `heronpy.hashing.key_group`."""
        return takes_checkpoints(self.config)

    def config_of(self, component: str) -> dict[str, Any]:
        """The topology's configuration, overridden by the component's."""
        return {**self.config, **self.components[component].config}

    def with_parallelism(self, tasks: Mapping[str, int]) -> LogicalPlan:
        """The same with other numbers of tasks; components that are not named keep theirs.

        Raises:
            TopologyError: unknown component, or a number that it cannot have.
        """
        if unknown := tasks.keys() - self.components.keys():
            name = min(unknown)
            raise TopologyError(f"unknown component {name!r}{nearest(name, self.components)}")
        changed = {name: count for name, count in tasks.items() if count != self.components[name].parallelism}
        if not changed:
            return self
        proto = topology_pb2.Topology()
        proto.CopyFrom(self.proto)
        comps = [*(spout.comp for spout in proto.spouts), *(bolt.comp for bolt in proto.bolts)]
        for comp in (comp for comp in comps if comp.name in changed):
            others = [kv for kv in comp.config.kvs if kv.key != _PARALLELISM]
            del comp.config.kvs[:]
            comp.config.kvs.extend(others)
            comp.config.kvs.add(key=_PARALLELISM, value=str(changed[comp.name]), type=topology_pb2.STRING_VALUE)
        return LogicalPlan.from_proto(proto)

    def defines_like(self, other: LogicalPlan) -> bool:
        """Whether both are the same but for ids, state and numbers of tasks."""
        return self.config == other.config and _without_tasks(self) == _without_tasks(other)

    @classmethod
    def from_proto(cls, proto: topology_pb2.Topology) -> LogicalPlan:
        """Read and validate a topology.

        Raises:
            TopologyError: no spout, a duplicate name, an unknown stream or field, parallelism below 1, …
        """
        _refuse_bytes(proto)
        if missing := proto.FindInitializationErrors():  # type: ignore[attr-defined]  # the stubs lack it
            raise TopologyError(f"the topology is damaged: it has no {missing[0]}")
        components: dict[str, Component] = {}
        for spout in proto.spouts:
            _add(components, _component(spout.comp, spout.outputs, (), is_spout=True))
        for bolt in proto.bolts:
            _add(components, _component(bolt.comp, bolt.outputs, bolt.inputs, is_spout=False))
        plan = cls(proto.id, proto.name, components, read_config(proto.topology_config), proto)
        _validate(plan)
        return plan


def _without_tasks(plan: LogicalPlan) -> list[Component]:
    def config(component: Component) -> dict[str, Any]:
        return {key: value for key, value in component.config.items() if key != _PARALLELISM}

    return [replace(c, parallelism=1, config=config(c)) for _, c in sorted(plan.components.items())]


def _refuse_bytes(message: Any) -> None:
    """Refuse text that is not UTF-8, which protobuf 2 hands out as bytes."""
    for descriptor, value in message.ListFields():
        for item in value if descriptor.is_repeated else (value,):
            if descriptor.type == descriptor.TYPE_MESSAGE:
                _refuse_bytes(item)
            elif descriptor.type == descriptor.TYPE_STRING and isinstance(item, bytes):
                raise TopologyError(f"the topology is damaged: a {descriptor.name} is not UTF-8")


def _add(components: dict[str, Component], component: Component) -> None:
    if component.name in components:
        raise TopologyError(f"two components are named {component.name!r}: give one another name")
    components[component.name] = component


def _component(
    comp: topology_pb2.Component,
    outputs: Any,
    inputs: Any,
    *,
    is_spout: bool,
) -> Component:
    config = read_config(comp.config)
    raw = config.get(_PARALLELISM, "1")
    try:
        parallelism = int(raw)
    except (TypeError, ValueError):
        raise TopologyError(f"{comp.name}: parallelism must be a number, not {raw!r}") from None
    if parallelism < 1:
        raise TopologyError(f"{comp.name}: parallelism must be at least 1, not {parallelism}")
    streams: dict[str, StreamDecl] = {}
    for out in outputs:
        if out.stream.id in streams:
            raise TopologyError(f"{comp.name}: stream {out.stream.id!r} is declared twice")
        fields = tuple(k.key for k in out.schema.keys)
        duplicates = [f for f, n in Counter(fields).items() if n > 1]
        if duplicates:
            raise TopologyError(f"{comp.name}: stream {out.stream.id!r} declares field {min(duplicates)!r} twice")
        streams[out.stream.id] = StreamDecl(out.stream.id, fields, out.direct)
    return Component(
        name=comp.name,
        is_spout=is_spout,
        class_name=comp.class_name,
        parallelism=parallelism,
        outputs=streams,
        inputs=tuple(
            InputDecl(
                component=i.stream.component_name,
                stream=i.stream.id,
                grouping=GroupingKind(i.gtype),
                fields=tuple(k.key for k in i.grouping_fields.keys),
                custom=i.custom_grouping_object,
                custom_class=i.custom_grouping_class,
            )
            for i in inputs
        ),
        config=config,
    )


def _validate(plan: LogicalPlan) -> None:
    if not plan.spouts:
        raise TopologyError(f"topology {plan.name!r} has no spout: it needs at least one")
    if (tasks := sum(component.parallelism for component in plan.components.values())) > TASKS_MAX:
        raise TopologyError(f"topology {plan.name!r} has {tasks:,} tasks: it must not have more than {TASKS_MAX:,}")
    for component in plan.components.values():
        if "topology.state.key.groups" in component.config:
            raise TopologyError(
                f"{component.name}: topology.state.key.groups is the topology's: senders and receivers must agree on it"
            )
    for bolt in plan.bolts:
        if not bolt.inputs:
            raise TopologyError(f"bolt {bolt.name!r} has no input: it would never run")
        seen: set[tuple[str, str]] = set()
        for decl in bolt.inputs:
            if (decl.component, decl.stream) in seen:
                raise TopologyError(
                    f"bolt {bolt.name!r} reads {decl.component}:{decl.stream} twice: use one grouping for a stream"
                )
            seen.add((decl.component, decl.stream))
            _validate_input(plan, bolt, decl)


def _validate_input(plan: LogicalPlan, bolt: Component, decl: InputDecl) -> None:
    source = plan.components.get(decl.component)
    if source is None:
        raise TopologyError(
            f"bolt {bolt.name!r} reads from unknown component {decl.component!r}"
            + nearest(decl.component, plan.components)
        )
    stream = source.outputs.get(decl.stream)
    if stream is None:
        raise TopologyError(
            f"bolt {bolt.name!r} reads unknown stream {decl.stream!r} of {source.name!r}"
            + nearest(decl.stream, source.outputs)
        )
    if stream.direct and decl.grouping is not GroupingKind.DIRECT:
        raise TopologyError(
            f"bolt {bolt.name!r} must read the direct stream {source.name}:{stream.id} with Grouping.DIRECT"
        )
    if decl.grouping is GroupingKind.DIRECT and not stream.direct:
        raise TopologyError(
            f"bolt {bolt.name!r} reads {source.name}:{stream.id} with Grouping.DIRECT, but the stream is not direct: "
            "declare it as Stream(…, direct=True)"
        )
    if decl.grouping in (GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY):
        if not decl.fields:
            raise TopologyError(f"bolt {bolt.name!r} groups {source.name}:{stream.id} by no field: name at least one")
        for name in decl.fields:
            if name not in stream.fields:
                raise TopologyError(
                    f"bolt {bolt.name!r} groups by {name!r}, which is not a field of "
                    f"{source.name}:{stream.id}{nearest(name, stream.fields)}"
                )
    if decl.grouping is GroupingKind.FIELDS and bolt.parallelism > plan.key_groups:
        raise TopologyError(
            f"bolt {bolt.name!r} has {bolt.parallelism} tasks, and keys are divided into {plan.key_groups} groups, so "
            "some would get none: use fewer, or set topology.state.key.groups higher"
        )
    if decl.grouping is GroupingKind.CUSTOM and not decl.custom:
        raise TopologyError(f"bolt {bolt.name!r}: the custom grouping of {source.name}:{stream.id} is empty")
