"""The checkpoints of a topology. Not of Heron."""

from __future__ import annotations

from pydantic import BaseModel, Field


class MissingTask(BaseModel):
    task: int
    component: str
    instance: str


class CheckpointUnderWay(BaseModel):
    id: int
    elapsed_ms: int
    missing: list[MissingTask] = Field(description="Tasks that have not stored their snapshots.")


class StoredState(BaseModel):
    """The state of a component in a checkpoint."""

    tasks: int
    size: int = Field(description="Bytes.")
    by_task: list[int] = Field(description="Bytes that each task has written, by index.")


class Checkpoint(BaseModel):
    id: int
    state: str = Field(
        description="`committed`: can be restored; `replaced`: was committed, and is not kept; `failed`; `damaged`; "
        "`not committed`: stored, and never decided upon."
    )
    time: str | None = Field(description="When it was committed or failed, or when its manifest was made.")
    duration_ms: int | None
    aligned_ms: int | None = Field(description="The longest that a task waited from its first marker to its last.")
    size: int | None = Field(description="Bytes, with all that it shares with others.")
    added: int | None = Field(description="Bytes that the one before did not have.")
    logged: int | None = Field(description="Bytes that tasks had yet to execute.")
    reason: str | None = Field(description="Why it failed, or cannot be read.")
    components: dict[str, StoredState] | None = Field(description="Of those that are stored.")


class Restore(BaseModel):
    epoch: int
    checkpoint: int = Field(description="0: none was committed yet.")
    time: str
    reason: str | None = Field(description="What was lost; null: another Topology Master knew.")


class Checkpoints(BaseModel):
    """How the checkpoints of a topology go. Not of Heron."""

    tmaster: str = Field(description="`ok`, or since when the Topology Master is unreachable; then the rest is older.")
    storage: str = Field(description="`ok`, or why the stored checkpoints cannot be read from here.")
    location: str | None = Field(description="The storage.")
    start_from: str | None = Field(description="The storage whose checkpoint the topology began with, if it did.")
    start_checkpoint: int | None
    phase: str | None = Field(description="running, restoring, …; null: the Topology Master has never said.")
    restore_epoch: int | None
    newest: int | None = Field(description="The one that a restore takes; 0: none.")
    interval_ms: int | None = Field(description="From one to the next, as it is wanted.")
    age_ms: int | None = Field(description="Since the last commit, or since all tasks run; null: they never did.")
    under_way: CheckpointUnderWay | None
    problem: str | None = Field(description="Why nothing can be restored, and so nothing runs.")
    fallback: str | None = Field(description="Which checkpoint was restored instead of which, and why.")
    committed: int | None = Field(description="How many, since this Topology Master began.")
    failed: int | None = Field(description="How many, since this Topology Master began.")
    restores: int | None = Field(description="How many, since this Topology Master began.")
    checkpoints: list[Checkpoint] = Field(description="The last ones, the newest first.")
    rollbacks: list[Restore] = Field(description="The last ones, the newest first.")
