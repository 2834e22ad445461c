"""The packing plan of a dry run, in the formats of `--dry-run-format`; of an update, what it changes too."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from heronpy.cli._plan_changes import ADDED, MOVED, REMOVED, Section, changed, sections
from heronpy.config import MIB
from heronpy.plan import LogicalPlan, PackingPlan, Resources

if TYPE_CHECKING:
    from heronpy.submit import CodeUpdate

_MARKS = {ADDED: "+", REMOVED: "-", MOVED: ">", "": " "}
_STYLES = {ADDED: "bold green", REMOVED: "red strike", MOVED: "yellow"}


class Format(enum.StrEnum):
    """How a dry run prints the packing plan."""

    RAW = "raw"
    TABLE = "table"
    COLORED_TABLE = "colored_table"
    JSON = "json"


def show(
    logical: LogicalPlan,
    after: PackingPlan,
    format: Format,
    *,
    before: PackingPlan | None = None,
    file: TextIO | None = None,
) -> None:
    """Print a plan, by default to stdout; if there is one before it, only the containers that change and how."""
    if format is Format.JSON:
        print(json.dumps(plan_values(after, before=before), indent=2), file=file)
        return
    found = sections(before, after)
    shown = [section for section in found if before is None or section.changes]
    heading = _heading(logical.name, after, unchanged=len(found) - len(shown))
    if format is Format.RAW:
        print("\n".join([*heading, *_raw(shown)]), file=file)
    else:
        colored = format is Format.COLORED_TABLE
        _tables(logical, heading, shown, differs=before is not None, colored=colored, file=file)


def show_planned(done: Mapping[str, Any]) -> None:
    """Print what an API server has answered to a dry run: values, or text if that was asked for."""
    plan, shown = done.get("plan"), str(done.get("shown", ""))  # an older server has neither
    print(json.dumps(plan, indent=2) if plan is not None else shown.rstrip("\n"))


def plan_values(after: PackingPlan, *, before: PackingPlan | None = None) -> dict[str, Any]:
    """A plan as plain values and, if there is one before it, with what changes."""
    values = _as_json(after)
    return values if before is None else {**values, "changes": changed(sections(before, after))}


def code_values(planned: CodeUpdate) -> dict[str, Any]:
    """What new code changes, as plain values."""
    return {
        "topology": planned.launch.topology,
        "code": {"before": planned.before, "after": planned.after},
        "changes": planned.changes,
    }


def _as_json(plan: PackingPlan) -> dict[str, Any]:
    """The packing plan as Heron's tools show it: cpu in cores, ram and disk in bytes."""
    return {
        "id": plan.id,
        "master_resources": _resources(plan.master),
        "container_plans": [
            {
                "id": container.id,
                "instances": [
                    {
                        "component_name": i.component,
                        "task_id": i.task_id,
                        "component_index": i.component_index,
                        "instance_resources": _resources(i.resources),
                    }
                    for i in container.instances
                ],
                "required_resources": _resources(container.required),
            }
            for container in plan.containers
        ],
    }


def _resources(resources: Resources) -> dict[str, Any]:
    return {"cpu": resources.cpu, "ram": resources.ram_bytes, "disk": resources.disk_bytes}


def _heading(name: str, plan: PackingPlan, *, unchanged: int) -> list[str]:
    total = sum((c.required for c in plan.containers), plan.master)
    lines = [
        f"topology {name}",
        f"containers {len(plan.containers)}",
        f"instances {sum(len(c.instances) for c in plan.containers)}",
        f"total {_words(total)}",
        f"container 0, the Topology Master's: {_words(plan.master)}",
    ]
    return [*lines, f"unchanged containers {unchanged}"] if unchanged else lines


def _words(resources: Resources) -> str:
    return f"{resources.cpu:g} cpu, {resources.ram_bytes // MIB} MB ram, {resources.disk_bytes // MIB} MB disk"


def _title(section: Section) -> str:
    change = f" {section.change}" if section.change else ""
    return f"container {section.container.id}{change}: {_words(section.container.required)}"


def _raw(found: list[Section]) -> Iterator[str]:
    for section in found:
        yield _title(section)
        for row in section.rows:
            change = f": {row.words}" if row.change else ""
            yield (
                f"{_MARKS[row.change]} {row.instance.component} task {row.instance.task_id}: "
                f"{_words(row.instance.resources)}{change}"
            )


def _tables(
    logical: LogicalPlan,
    heading: list[str],
    found: list[Section],
    *,
    differs: bool,
    colored: bool,
    file: TextIO | None,
) -> None:
    from rich.console import Console

    console = Console(file=file, force_terminal=colored or None, no_color=not colored, highlight=False, width=500)
    for line in heading:
        console.print(line, soft_wrap=True, markup=False)
    for section in found:
        console.print(_title(section), soft_wrap=True, markup=False)
        console.print(_table(logical, section, differs=differs))


def _table(logical: LogicalPlan, section: Section, *, differs: bool) -> Any:
    from rich.table import Table

    table = Table()
    table.add_column("component")
    for heading in ("task", "cpu", "ram MB", "disk MB"):
        table.add_column(heading, justify="right")
    if differs:
        table.add_column("change")
    for row in section.rows:
        i = row.instance
        table.add_row(
            i.component,
            str(i.task_id),
            f"{i.resources.cpu:g}",
            str(i.resources.ram_bytes // MIB),
            str(i.resources.disk_bytes // MIB),
            *([row.words] if differs else []),
            style=_STYLES.get(row.change) or ("green" if logical.components[i.component].is_spout else "cyan"),
        )
    return table
