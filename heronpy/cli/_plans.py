"""`components`, `logical-plan` and `physical-plan`."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from heronpy import submit
from heronpy.address import join_address
from heronpy.cli._options import AsJson, ConfigPath, ConfigProperty, Verbose, Words, home, read_properties
from heronpy.cli._plan_shapes import logical_shape, physical_shape, stages
from heronpy.cli._show import WIDTH, empty_table
from heronpy.cli._target import resolve
from heronpy.config import MIB
from heronpy.errors import NotFoundError
from heronpy.plan import Component, InputDecl, LogicalPlan, Operator, PackingPlan, PhysicalPlan, chain, operators_of
from heronpy.proto import tmaster_pb2


class ComponentType(enum.StrEnum):
    """Which components."""

    ALL = "all"
    SPOUTS = "spouts"
    BOLTS = "bolts"


def components(
    words: Words,
    as_json: AsJson = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """List the spouts and bolts of a topology."""
    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    logical, packing = submit.plans(launch)
    rows = [_component(c, packing) for c in by_stage(logical)]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = empty_table("component", "kind", "runs", "reads", right=("tasks", "containers"))
    for row in rows:
        runs = chain([Operator(**one) for one in row["operators"]]) or row["class"]
        reads = ", ".join(row["inputs"])
        table.add_row(row["name"], row["kind"], runs, reads, str(row["parallelism"]), _ranges(row["containers"]))
    _show(table)


def logical_plan(
    words: Words,
    component_type: Annotated[ComponentType, typer.Option(help="Which components.")] = ComponentType.ALL,
    as_json: AsJson = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Show the components of a topology, and what they send to which."""
    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    logical, _ = submit.plans(launch)
    chosen = [c for c in by_stage(logical) if wanted(c, component_type)]
    if as_json:
        print(json.dumps(logical_shape(logical, chosen), indent=2))
    else:
        print("\n".join(drawn(logical, chosen)))


def physical_plan(
    words: Words,
    container: Annotated[int | None, typer.Option("--container", "-c", help="Only this one.")] = None,
    as_json: AsJson = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Show what runs where, as the Topology Master has it."""
    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    plan = submit.physical_plan(launch)
    containers = [c for c in plan.packing.containers if container in (None, c.id)]
    if not containers:
        known = _ranges([c.id for c in plan.packing.containers])
        raise NotFoundError(
            f"topology {launch.topology} has no instances in container {container}: they are in {known}"
        )
    if as_json:
        print(json.dumps(physical_shape(plan, containers, launch.dir), indent=2))
        return
    print(f"plan {plan.version}, {plan.state.name}")
    _show(_stmgrs(plan, [c.stmgr_id for c in containers]))
    _show(_instances(plan, [c.id for c in containers], submit.status(launch)))


def wanted(component: Component, chosen: ComponentType) -> bool:
    """Whether a component is of the chosen type."""
    return chosen is ComponentType.ALL or component.is_spout == (chosen is ComponentType.SPOUTS)


def by_stage(logical: LogicalPlan) -> list[Component]:
    """The components, each after those that it reads (but for circles)."""
    stage = stages(logical)
    return sorted(logical.components.values(), key=lambda c: stage[c.name])


def drawn(logical: LogicalPlan, components: Iterable[Component]) -> Iterator[str]:
    """A text of the plan: below each component its streams, and who reads them."""
    for component in components:
        kind = "spout" if component.is_spout else "bolt"
        runs = chain(operators_of(component.config)) or component.class_name
        yield f"{component.name}  ({kind} × {component.parallelism}, {runs})"
        for stream in component.outputs.values():
            readers = logical.consumers(component.name, stream.id)
            name = f"{stream.id}({', '.join(stream.fields)})"
            if not readers:
                yield f"  {name}  no consumers"
            for bolt, decl in readers:
                yield f"  {name} ──{_grouping(decl)}──▶ {bolt.name}"


def _grouping(decl: InputDecl) -> str:
    return f"{decl.grouping.name}({', '.join(decl.fields)})" if decl.fields else decl.grouping.name


def _component(component: Component, packing: PackingPlan) -> dict[str, Any]:
    return {
        "name": component.name,
        "kind": "spout" if component.is_spout else "bolt",
        "class": component.class_name,
        "operators": [asdict(operator) for operator in operators_of(component.config)],
        "parallelism": component.parallelism,
        "inputs": [f"{i.component}:{i.stream} {i.grouping.name}" for i in component.inputs],
        "outputs": list(component.outputs),
        "containers": [c.id for c in packing.containers if any(i.component == component.name for i in c.instances)],
    }


def _stmgrs(plan: PhysicalPlan, chosen: list[str]) -> Any:
    table = empty_table("stream manager", "address", right=("container", "pid", "instances"))
    for stmgr in plan.stmgrs:
        if stmgr.id in chosen:
            packed = plan.packing.container(stmgr.container)
            count = len(packed.instances) if packed is not None else 0
            table.add_row(
                stmgr.id, join_address(stmgr.host, stmgr.port), str(stmgr.container), str(stmgr.pid), str(count)
            )
    return table


def _instances(plan: PhysicalPlan, chosen: list[int], status: tmaster_pb2.StatusReply) -> Any:
    now = {i.id: i for i in status.instances}
    right = ("container", "task", "index", "pid", "cores", "RAM MB")
    table = empty_table("instance", "component", "state", right=right)
    for task in sorted(plan.tasks):
        container, packed = plan.tasks[task]
        if container.id in chosen:
            id = packed.instance_id(container.id)
            known = now.get(id, tmaster_pb2.InstanceStatus())
            table.add_row(
                id,
                packed.component,
                "attached" if known.attached else "not attached",
                str(container.id),
                str(task),
                str(packed.component_index),
                str(known.pid or ""),
                f"{packed.resources.cpu:g}",
                f"{packed.resources.ram_bytes / MIB:,.0f}",
            )
    return table


def _show(table: Any) -> None:
    from rich.console import Console

    Console(highlight=False, markup=False, emoji=False, width=WIDTH).print(table)


def _ranges(numbers: Iterable[int]) -> str:
    """`1-3, 7` of 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
