"""Which container of which topology."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Container:
    """One container, where its files would be on this host."""

    topology: str
    topology_id: str
    number: int
    topology_dir: Path
    """The topology's directory, which need not be here."""

    @property
    def directory(self) -> Path:
        return self.topology_dir / f"container_{self.number}"

    def __str__(self) -> str:
        return f"container {self.number} of {self.topology}"
