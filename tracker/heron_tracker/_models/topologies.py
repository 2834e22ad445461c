"""What a topology is and where it runs, as Heron has it, and lists of topologies."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from heron_tracker._models.plans import Link, LogicalPlan, PackingPlan, PhysicalPlan


class Metadata(BaseModel):
    cluster: str
    environ: str
    role: str
    jobname: str
    submission_time: int = Field(description="Seconds since the epoch.")
    submission_user: str
    release_username: str
    release_tag: str
    release_version: str
    instances: int = Field(description="How many instances it has.")
    extra_links: list[Link]


class ExecutionState(Metadata):
    has_physical_plan: bool
    has_packing_plan: bool
    has_tmanager_location: bool
    has_scheduler_location: bool
    status: str = Field(description="Running, Paused, Killed or Unknown.")


class Registered(BaseModel):
    is_registered: bool


class RuntimeState(BaseModel):
    has_physical_plan: bool
    has_packing_plan: bool
    has_tmanager_location: bool
    has_scheduler_location: bool
    stmgrs: dict[str, Registered]
    tmaster: str = Field(description="`ok`, or since when the Topology Master is unreachable; then the rest is older.")


class SchedulerLocation(BaseModel):
    name: str
    http_endpoint: str
    job_page_link: str


class TmanagerLocation(BaseModel):
    name: str
    id: str
    host: str
    controller_port: int
    server_port: int
    stats_port: int


class Info(BaseModel):
    id: str
    name: str
    takes_checkpoints: bool = Field(description="Not of Heron.")
    has_pipeline: bool = Field(description="Whether its program has a batch side. Not of Heron.")
    execution_state: ExecutionState
    logical_plan: LogicalPlan
    physical_plan: PhysicalPlan | None
    packing_plan: PackingPlan | None
    metadata: Metadata
    runtime_state: RuntimeState
    scheduler_location: SchedulerLocation | None
    tmanager_location: TmanagerLocation | None


class ActionDone(BaseModel):
    """Not of Heron."""

    topology: str
    action: str
    status: str = Field(description="Running, Paused or Killed.")


class ListedTopology(BaseModel):
    """What a list of topologies shows of one. Not of Heron."""

    cluster: str
    role: str
    environ: str
    name: str
    statemgr: str = Field(description="The state manager that knows of it.")
    id: str
    status: str
    plan_version: int
    has_physical_plan: bool
    tmaster: str = Field(description="`ok`, or since when there is no Topology Master.")
    instances: int
    submission_time: int = Field(description="Seconds since the epoch.")
    submission_user: str
    release_version: str


class Setting(BaseModel):
    of: str = Field(description="Whose: `engine`, `topology`, or the name of a component.")
    key: str
    value: Any
    origin: str = Field(
        description="`default`, `cluster file NAME/FILE`, `command line`, `topology`, `component`, or `unknown`."
    )


class EffectiveConfig(BaseModel):
    """The whole configuration that is in force. Not of Heron."""

    settings: list[Setting]
    incomplete: str | None = Field(description="Why the engine's values and some origins are not known here.")
