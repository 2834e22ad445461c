"""Plans as plain values, for `--json`: in the shape of Heron's Tracker, as far as the command line knows it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from heronpy.plan import Component, ContainerPacking, LogicalPlan, PhysicalPlan


def stages(logical: LogicalPlan) -> dict[str, int]:
    """How many components a tuple has passed at most when it leaves each, itself included; circles counted once."""
    found: dict[str, int] = {}

    def stage(name: str, below: frozenset[str]) -> int:
        if name not in found:
            readers = below | {name}
            above = {i.component for i in logical.components[name].inputs} - readers
            found[name] = 1 + max((stage(one, readers) for one in sorted(above)), default=0)
        return found[name]

    return {name: stage(name, frozenset()) for name in logical.components}


def logical_shape(logical: LogicalPlan, components: Iterable[Component]) -> dict[str, Any]:
    """Some components of a plan, with their streams and who reads them."""
    shape: dict[str, Any] = {"stages": max(stages(logical).values()), "spouts": {}, "bolts": {}}
    for component in components:
        one: dict[str, Any] = {
            "class": component.class_name,
            "parallelism": component.parallelism,
            "outputs": [{"stream_name": s.id, "fields": list(s.fields)} for s in component.outputs.values()],
        }
        if not component.is_spout:
            one["inputs"] = [
                {"stream_name": i.stream, "component_name": i.component, "grouping": i.grouping.name}
                for i in component.inputs
            ]
            one["inputComponents"] = list(dict.fromkeys(i.component for i in component.inputs))
        shape["spouts" if component.is_spout else "bolts"][component.name] = one
    return shape


def physical_shape(plan: PhysicalPlan, containers: Iterable[ContainerPacking], directory: Path) -> dict[str, Any]:
    """Some containers of a plan: what runs where."""
    chosen = {container.stmgr_id: container for container in containers}
    groups = {id: [i.instance_id(c.id) for i in c.instances] for id, c in chosen.items()}
    where = {id: directory / f"container_{c.id}" for id, c in chosen.items()}
    by_component: dict[str, list[str]] = {name: [] for name in plan.logical.components}
    for container in chosen.values():
        for instance in container.instances:
            by_component[instance.component].append(instance.instance_id(container.id))
    return {
        "version": plan.version,
        "instances": {
            i.instance_id(c.id): {
                "id": i.instance_id(c.id),
                "name": i.component,
                "stmgr_id": id,
                "task_id": i.task_id,
                "component_index": i.component_index,
                "logfile": str(where[id] / "log-files" / f"{i.instance_id(c.id)}.log"),
            }
            for id, c in chosen.items()
            for i in c.instances
        },
        "instance_groups": {f"container_{c.id}": groups[id] for id, c in chosen.items()},
        "stmgrs": {
            s.id: {
                "id": s.id,
                "host": s.host,
                "port": s.port,
                "pid": s.pid,
                "cwd": str(where[s.id]),
                "instance_ids": groups[s.id],
            }
            for s in plan.stmgrs
            if s.id in chosen
        },
        "spouts": {c.name: by_component[c.name] for c in plan.logical.spouts},
        "bolts": {c.name: by_component[c.name] for c in plan.logical.bolts},
    }
