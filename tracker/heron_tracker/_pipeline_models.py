"""The shape of `/topologies/pipeline`. Not of Heron."""

from __future__ import annotations

from pydantic import BaseModel, Field


class PipelineNext(BaseModel):
    """The first batch that is archived and not done."""

    batch: int
    name: str = Field(description="When it begins, in UTC; its id where that is not a date.")
    end_ms: int
    complete_at_ms: int = Field(description="When nothing earlier than its end is to be expected any more.")
    complete: int = Field(description="Batches that are complete and not done: the next run computes them.")


class PipelineArchive(BaseModel):
    archive: str
    component: str | None = Field(description="What writes it.")
    complete_before_ms: int | None = Field(description="Every element before this time is in it.")
    ended: bool = Field(description="No more elements will come.")
    newest: str | None = Field(description="Its newest batch.")
    batches: int
    files: int
    bytes: int
    waiting_batches: int = Field(description="Those that are not done.")
    waiting_bytes: int


class PipelineView(BaseModel):
    view: str
    batch_rows: int | None
    newest_live: str | None = Field(description="The newest batch that the live view has.")
    drifted: int | None = Field(description="Keys that live and batch view did not agree on at the last reconcile.")
    keys: int | None = Field(description="Keys that were compared.")
    drift_percent: float | None = Field(description="What the live view had more (or less), where results are numbers.")


class PipelineBatch(BaseModel):
    batch: int
    name: str
    version: str
    elements: int
    duplicates: int
    dead_letters: int
    rows: int = Field(description="Of all views.")
    damaged: str | None = Field(description="What of its input was left out.")
    finished_ms: int
    took_s: float = Field(description="The Spark job that computed it, maybe with others.")


class PipelineRun(BaseModel):
    began_ms: int
    seconds: float
    batches: int
    error: str | None


class PipelineLetters(BaseModel):
    origin: str
    reason: str = Field(description="Its kind, such as the exception's class.")
    side: str = Field(
        description="`live` or `batch`: what neither can compute both have. Empty: an earlier heronpy added them up."
    )
    count: int


class Pipeline(BaseModel):
    """The batch side of a topology's program. Times are ms since the epoch."""

    now_ms: int
    batch_length_ms: int
    max_lateness_ms: int | None = Field(description="For how long late elements are waited for.")
    reported_ms: int | None = Field(description="When a batch run has last reported; None: never, since submission.")
    problem: str | None = Field(description="Why that cannot be read.")
    tmaster: str = Field(description="`ok`, or why the archive's progress is as old as the report.")
    closed: str | None = Field(description="The last batch that is done, with all before it.")
    closed_before_ms: int | None
    lag_ms: int | None = Field(description="How far batch views are behind live ones.")
    archive_complete_before_ms: int | None
    archive_ended: bool
    archive_lag_ms: int | None = Field(description="How far batch views are behind the archives.")
    next: PipelineNext | None
    done: int | None
    waiting: int | None = Field(description="Archived batches that were not done.")
    elements: int | None
    duplicates: int | None
    damaged_batches: int | None = Field(description="Computed without what is damaged of their input.")
    dead_letters: list[PipelineLetters]
    run: PipelineRun | None
    reconciled_ms: int | None
    archives: list[PipelineArchive]
    views: list[PipelineView]
    batches: list[PipelineBatch] = Field(description="The last ones that are done, the newest first.")
