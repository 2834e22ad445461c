"""Small charts as SVG text, without scripts: readable in any browser, in light and in dark.

Colours are CSS variables of the page. Every bar has a <title>, so that pointing at it shows its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 720
MOST_COLUMNS = 120
"""More values than this are drawn as one column for several."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One value, with what it is called."""

    label: str
    value: float
    hint: str
    """Shown where the mouse points."""
    kind: str = "a"
    """Which colour: `a` or `b`, or `ok`."""


def number(value: float | None) -> str:
    """A number as people read it: 1,234 or 0.125; `-` for None."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) or value == int(value) < 1e15 else f"{value:,.6g}"


def columns(bars: Sequence[Bar], *, height: int = 180, title: str) -> str:
    """Columns above and below a zero line, left to right; empty text if there are no bars."""
    if not bars:
        return ""
    high = max(0.0, *(bar.value for bar in bars)) or 0.0
    low = min(0.0, *(bar.value for bar in bars))
    span = (high - low) or 1.0
    left, top, bottom = 64, 12, 24
    inner = height - top - bottom
    step = (WIDTH - left - 8) / len(bars)
    zero = top + high / span * inner
    parts = [_open(height, title)]
    for value in sorted({high, low, 0.0}):
        y = top + (high - value) / span * inner
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>')
    for n, bar in enumerate(bars):
        y = top + (high - max(bar.value, 0.0)) / span * inner
        tall = max(abs(bar.value) / span * inner, 1.0)
        parts.append(
            f'<rect class="{bar.kind}" x="{left + n * step + step * 0.1:.1f}" y="{y:.1f}" width="{step * 0.8:.1f}" '
            f'height="{tall:.1f}" rx="1"><title>{escape(bar.hint)}</title></rect>'
        )
    parts.append(f'<line class="axis" x1="{left}" x2="{WIDTH - 8}" y1="{zero:.1f}" y2="{zero:.1f}"/>')
    ends = [(left, "start", bars[0])] + ([(WIDTH - 8, "end", bars[-1])] if len(bars) > 1 else [])
    parts += [
        f'<text class="tick" x="{x}" y="{height - 6}" text-anchor="{anchor}">{escape(bar.label)}</text>'
        for x, anchor, bar in ends
    ]
    return "".join([*parts, "</svg>"])


def rows(bars: Sequence[Bar], *, title: str) -> str:
    """Horizontal bars, one below the other, from zero to the left or to the right; empty text if there are none."""
    if not bars:
        return ""
    row, left, right = 26, 190, 96
    most = max(abs(bar.value) for bar in bars) or 1.0
    both = any(bar.value < 0 for bar in bars) and any(bar.value > 0 for bar in bars)
    inner = (WIDTH - left - right) / (2 if both else 1)
    zero = left + inner if both else left
    parts = [_open(row * len(bars) + 8, title)]
    for n, bar in enumerate(bars):
        y = 4 + n * row
        long = abs(bar.value) / most * inner
        x = zero - long if bar.value < 0 and both else zero
        name = bar.label if len(bar.label) <= 26 else f"{bar.label[:25]}…"
        parts.append(
            f'<text class="name" x="{left - 10}" y="{y + 16}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="{bar.kind}" x="{x:.1f}" y="{y + 4}" width="{max(long, 1.0):.1f}" height="{row - 10}" rx="2">'
            f"<title>{escape(bar.hint)}</title></rect>"
            f'<text class="tick" x="{WIDTH - right + 8}" y="{y + 16}">{number(bar.value)}</text>'
        )
    return "".join([*parts, "</svg>"])


def thinned(bars: Sequence[Bar], most: int = MOST_COLUMNS) -> list[Bar]:
    """At most so many bars: neighbours are added up."""
    per = -(-len(bars) // most)
    if per <= 1:
        return list(bars)
    found = []
    for begin in range(0, len(bars), per):
        part = bars[begin : begin + per]
        total = sum(bar.value for bar in part)
        kind = next((bar.kind for bar in part if bar.kind != "ok"), part[0].kind)
        hint = f"{part[0].label} to {part[-1].label}: {number(total)}"
        found.append(Bar(part[0].label, total, hint, kind))
    return found


def _open(height: int, title: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
