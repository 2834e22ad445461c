"""How `top` looks: a table as wide and as high as the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from heronpy.cli._show import empty_table
from heronpy.cli._top_rows import Row, Snapshot, ordered
from heronpy.config import KIB, MIB

REASONS_SHOWN = 3
"""Of those that a topology is not healthy for."""
_TABLE_LINES = 4
"""Of a table's frame: a blank line, the headings, the line below them, another blank line."""
_EDGES = 2
_GAP = 3
"""Between two columns."""


def count(value: float | None) -> str:
    """A number of tuples, in at most five characters."""
    if value is None:
        return ""
    if value < 10:
        return f"{value:.1f}".removesuffix(".0")
    for unit, size in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if value < 999.5 * size:
            return f"{value / size:.1f}{unit}" if unit and value < 99.95 * size else f"{value / size:.0f}{unit}"
    return f"{value:.0e}"


def milliseconds(value: float | None) -> str:
    """A latency, with three digits."""
    if value is None:
        return ""
    return (
        f"{value:.3f}"
        if value < 1
        else f"{value:.2f}"
        if value < 10
        else f"{value:.1f}"
        if value < 100
        else f"{value:,.0f}"
    )


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}"


def megabytes(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value / MIB:,.0f}M" if value < 10 * KIB * MIB else f"{value / MIB / KIB:,.1f}G"


def _tasks(row: Row) -> str:
    return str(row.tasks) if row.attached == row.tasks else f"{row.attached}/{row.tasks}"


_COLUMNS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "tasks": ("tasks", _tasks),
    "restarts": ("restarts", lambda row: str(row.restarts) if row.restarts else ""),
    "emit": ("emit/s", lambda row: count(row.emit)),
    "execute": ("exec/s", lambda row: count(row.execute)),
    "ack": ("ack/s", lambda row: count(row.ack)),
    "fail": ("fail/s", lambda row: count(row.fail)),
    "latency": ("mean ms", lambda row: milliseconds(row.latency)),
    "p50": ("p50 ms", lambda row: milliseconds(row.p50)),
    "p95": ("p95 ms", lambda row: milliseconds(row.p95)),
    "p99": ("p99 ms", lambda row: milliseconds(row.p99)),
    "capacity": ("capacity %", lambda row: percent(row.capacity)),
    "pending": ("pending", lambda row: count(row.pending)),
    "cpu": ("CPU %", lambda row: percent(row.cpu)),
    "memory": ("memory", lambda row: megabytes(row.memory)),
    "backpressure": ("throttled %", lambda row: percent(row.backpressure) if row.backpressure else ""),
}
_LEAST_FIRST = (
    "tasks",
    "restarts",
    "pending",
    "memory",
    "p50",
    "p95",
    "ack",
    "cpu",
    "latency",
    "p99",
    "capacity",
    "fail",
    "backpressure",
    "execute",
)
"""What a narrow terminal does without, in this order, but first columns with nothing in them; never the column that
rows are sorted by."""


def columns_for(rows: Sequence[Row], width: int, sort: str) -> list[str]:
    """The columns that fit beside the names."""
    shown = list(_COLUMNS)
    names = max((len(row.name) for row in rows), default=0)
    cells = {key: [cell(row) for row in rows] for key, (_, cell) in _COLUMNS.items()}
    widths = {key: max([len(head), *map(len, cells[key])]) for key, (head, _) in _COLUMNS.items()}
    for key in sorted((key for key in _LEAST_FIRST if key != sort), key=lambda key: any(cells[key])):
        if _EDGES + names + sum(widths[key] + _GAP for key in shown) <= width:
            break
        shown.remove(key)
    return shown


def screen(
    title: str, seen: Snapshot | None, *, sort: str, width: int, height: int | None, notes: Sequence[str] = ()
) -> Any:
    """The whole of it, for rich to print.

    Args:
        title: Which topology.
        seen: What there is to show; None if there is nothing yet.
        sort: The column that rows are sorted by.
        width: In characters.
        height: In lines; None for as many as there are rows.
        notes: What the user must know beside it.
    """
    from rich.console import Group
    from rich.text import Text

    def line(text: str, style: str = "") -> Any:
        return Text(text, style=style, no_wrap=True, overflow="ellipsis")

    lines = [line(note, "bold") for note in notes]
    if seen is None:
        return Group(line(title, "bold"), *lines)
    ready = "ready" if seen.ready else "not ready"
    now = time.strftime("%H:%M:%S")
    lines.insert(0, line(f"{title}  {seen.state}, {ready}, {seen.health.state.word}  {now}", "bold"))
    lines += [line(f"{reason.state.word}: {reason.text}") for reason in seen.health.reasons[:REASONS_SHOWN]]
    if seen.culprits:
        lines.append(line(f"backpressure: {_culprits(seen)} of the last minute"))
    rows = ordered(seen.rows, sort)
    room = len(rows) if height is None else max(1, height - len(lines) - _TABLE_LINES - 1)
    shown = rows if len(rows) <= room else rows[:room]
    more = [line(f"and {len(rows) - len(shown)} more")] if len(shown) < len(rows) else []
    return Group(*lines, _table(shown, columns_for(shown, width, sort)), *more)


def _culprits(seen: Snapshot) -> str:
    return ", ".join(f"{who} throttled the spouts for {percent(share)} %" for who, share in seen.culprits[:3])


def _table(rows: Sequence[Row], columns: Sequence[str]) -> Any:
    table = empty_table("", right=tuple(_COLUMNS[key][0] for key in columns))
    table.columns[0].overflow = "ellipsis"
    for row in rows:
        table.add_row(row.name, *(_COLUMNS[key][1](row) for key in columns))
    return table
