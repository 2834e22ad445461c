"""How long to wait between two reports.

Short at first, so that soon after a start `heron status` has numbers and `submit --wait` sees tuples flow; then longer,
because each report costs every process some CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

FIRST_S = 0.5


def pauses(longest_s: float) -> Iterator[float]:
    """Seconds: each pause is twice the one before it, up to `longest_s`. Without end."""
    pause_s = min(FIRST_S, longest_s)
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, longest_s)
