"""Each promise of SECURITY.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_security_md_names_is_there() -> None:
    named = re.findall(r"`(?:tests/\w+/)?(test_\w+(?:\.py)?)`", (ROOT / "SECURITY.md").read_text())
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    there = {path.name for path in paths}
    there |= {
        name for path in paths for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert len(named) > 50
    assert sorted(set(named) - there) == []
