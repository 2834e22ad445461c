"""What a batch run says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class RunReport:
    """What a run did."""

    job: str
    batch_length_ms: int = 0
    batches: list[int] = field(default_factory=list)
    """Batch ids that were computed, ascending."""
    carried: list[int] = field(default_factory=list)
    """Those of which only what is behind reductions was computed, from what is kept: their input is as it was."""
    elements: int = 0
    """Elements of these batches, without duplicates."""
    duplicates: int = 0
    """Elements dropped because another one had the same id."""
    dead_letters: int = 0
    """Elements and rows that were set aside."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows written, by view or sink."""
    committed_watermark: int | None = None
    """All batches up to this one are done."""
    input_bytes: int = 0
    """Of the files of archives that these batches have; 0 if the input is in no archive."""
    seconds: float = 0.0
    blocked: list[int] = field(default_factory=list)
    """Batches that are not done because a part of their input is damaged."""
    damaged: dict[int, str] = field(default_factory=dict)
    """Batches with damaged input, and what it is; those whose damage was accepted, too."""
    notes: list[str] = field(default_factory=list)
    """What a batch run leaves out of the program, and what it could not do."""
