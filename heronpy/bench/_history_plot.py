"""A plot of costs over the length of a history, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

_LEFT, _WIDTH, _HEIGHT, _GAP = 60, 560, 130, 48


def plot(batches: Sequence[int], panels: Sequence[tuple[str, Sequence[float]]], limit: float) -> str:
    """One panel above the other, each from zero; batches on a logarithmic axis.

    Args:
        batches: how many a history has.
        panels: a title, and a value for each of them.
        limit: a line in each panel shows this many times its first value.
    """
    low, high = math.log10(batches[0]), math.log10(batches[-1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {len(panels) * (_HEIGHT + _GAP)}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
    ]
    for number, (title, values) in enumerate(panels):
        top, most = 24 + number * (_HEIGHT + _GAP), 1.2 * max(*values, limit * values[0], 1e-9)
        at = [
            (
                _LEFT + _WIDTH * ((math.log10(n) - low) / ((high - low) or 1.0)),
                top + _HEIGHT * (1 - value / most),
            )
            for n, value in zip(batches, values, strict=True)
        ]
        parts.append(f'<text x="{_LEFT}" y="{top - 8}">{title}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{top + _HEIGHT}" text-anchor="end">0</text>')
        level = top + _HEIGHT * (1 - limit * values[0] / most)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{level:.1f}" y2="{level:.1f}" stroke="#c33" '
            f'stroke-dasharray="4 3"/><text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">× {limit:g}</text>'
        )
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{line}" fill="none" stroke="#245" stroke-width="1.3"/>')
        for (x, y), n, value in zip(at, batches, values, strict=True):
            anchor = "end" if n == batches[-1] else "start" if n == batches[0] else "middle"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="#245"/>')
            parts.append(f'<text x="{x:.1f}" y="{y - 7:.1f}" text-anchor="{anchor}">{value:.3g}</text>')
            parts.append(f'<text x="{x:.1f}" y="{top + _HEIGHT + 14}" text-anchor="{anchor}">{n:,} batches</text>')
    return "".join([*parts, "</svg>"]) + "\n"
