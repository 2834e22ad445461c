"""What another packing plan changes, container by container. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan

ADDED, REMOVED, MOVED = "added", "removed", "moved"


@dataclass(frozen=True, slots=True)
class Row:
    """An instance of a container, before or after."""

    instance: InstancePacking
    change: str = ""
    """ADDED, REMOVED, MOVED or nothing."""
    other: int = 0
    """Of one that moves: the other container."""
    leaves: bool = False
    """It is in this container no more."""

    @property
    def words(self) -> str:
        if self.change != MOVED:
            return self.change
        return f"moved {'to' if self.leaves else 'from'} container {self.other}"


@dataclass(frozen=True, slots=True)
class Section:
    """One container: what it has and what it loses."""

    container: ContainerPacking
    """As it will be; one that goes, as it was."""
    change: str
    """ADDED, REMOVED or nothing."""
    rows: tuple[Row, ...]

    @property
    def changes(self) -> bool:
        """Whether anything of it does."""
        return bool(self.change) or any(row.change for row in self.rows)


def sections(before: PackingPlan | None, after: PackingPlan) -> list[Section]:
    """Every container of both plans, in order; without a plan before, nothing counts as a change."""
    if before is None:
        return [Section(c, "", tuple(map(Row, c.instances))) for c in after.containers]
    was, will = _containers_of(before), _containers_of(after)
    found = []
    for id in sorted({c.id for plan in (before, after) for c in plan.containers}):
        old, new = before.container(id), after.container(id)
        rows = [_arriving(i, id, was) for i in (new.instances if new else ())]
        rows += [_leaving(i, will) for i in (old.instances if old else ()) if will.get(i.task_id) != id]
        change = ADDED if old is None else REMOVED if new is None else ""
        container = new or old
        assert container is not None
        found.append(Section(container, change, tuple(rows)))
    return found


def changed(found: Iterable[Section]) -> list[dict[str, object]]:
    """Every instance that comes, goes or moves, as plain values for `--dry-run-format json`."""
    return [
        {
            "component_name": row.instance.component,
            "task_id": row.instance.task_id,
            "change": row.change,
            "from": section.container.id if row.change == REMOVED else row.other or None,
            "to": None if row.change == REMOVED else section.container.id,
        }
        for section in found
        for row in section.rows
        if row.change and not (row.change == MOVED and row.leaves)
    ]


def _arriving(instance: InstancePacking, container: int, was: dict[int, int]) -> Row:
    other = was.get(instance.task_id)
    if other is None:
        return Row(instance, ADDED)
    return Row(instance) if other == container else Row(instance, MOVED, other)


def _leaving(instance: InstancePacking, will: dict[int, int]) -> Row:
    other = will.get(instance.task_id)
    return Row(instance, REMOVED, leaves=True) if other is None else Row(instance, MOVED, other, leaves=True)


def _containers_of(plan: PackingPlan) -> dict[int, int]:
    return {i.task_id: c.id for c in plan.containers for i in c.instances}
