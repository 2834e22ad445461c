"""The packing plan of a dry run, in the formats of `--dry-run-format`."""

from __future__ import annotations

import enum
import json
from typing import Any

from heronpy.config import MIB
from heronpy.plan import ContainerPacking, PackingPlan, Resources
from heronpy.submit import Submission


class Format(enum.StrEnum):
    """How a dry run prints the packing plan."""

    RAW = "raw"
    TABLE = "table"
    COLORED_TABLE = "colored_table"
    JSON = "json"


def show(submission: Submission, format: Format) -> None:
    """Print what a submission would start."""
    if format is Format.JSON:
        print(json.dumps(as_json(submission.packing), indent=2))
    elif format is Format.RAW:
        print("\n".join(_raw(submission)))
    else:
        _tables(submission, colored=format is Format.COLORED_TABLE)


def as_json(plan: PackingPlan) -> dict[str, Any]:
    """The packing plan as Heron's tools show it: cpu in cores, ram and disk in bytes."""
    return {
        "id": plan.id,
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


def _raw(submission: Submission) -> list[str]:
    lines = [
        f"topology {submission.launch.topology}",
        f"containers {len(submission.packing.containers)}",
        f"instances {sum(len(c.instances) for c in submission.packing.containers)}",
    ]
    for container in submission.packing.containers:
        lines.append(f"container {container.id}: {_words(container.required)}")
        lines += [f"  {i.component} task {i.task_id}: {_words(i.resources)}" for i in container.instances]
    return lines


def _words(resources: Resources) -> str:
    return f"{resources.cpu:g} cpu, {resources.ram_bytes // MIB} MB ram, {resources.disk_bytes // MIB} MB disk"


def _tables(submission: Submission, *, colored: bool) -> None:
    from rich.console import Console

    console = Console(force_terminal=colored or None, no_color=not colored, highlight=False, width=500)
    console.print(
        f"{submission.launch.topology}: {len(submission.packing.containers)} containers", soft_wrap=True, markup=False
    )
    for container in submission.packing.containers:
        console.print(_table(container, submission))


def _table(container: ContainerPacking, submission: Submission) -> Any:
    from rich.table import Table

    table = Table(title=f"container {container.id}: {_words(container.required)}", title_justify="left", title_style="")
    table.add_column("component")
    for heading in ("task", "cpu", "ram MB", "disk MB"):
        table.add_column(heading, justify="right")
    for i in container.instances:
        spout = submission.logical.components[i.component].is_spout
        table.add_row(
            i.component,
            str(i.task_id),
            f"{i.resources.cpu:g}",
            str(i.resources.ram_bytes // MIB),
            str(i.resources.disk_bytes // MIB),
            style="green" if spout else "cyan",
        )
    return table
