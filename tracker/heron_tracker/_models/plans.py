"""Logical, physical and packing plans, as Heron has them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

Config = dict[str, Any]


class Link(BaseModel):
    name: str
    formatter: str
    url: str


class OutputStream(BaseModel):
    stream_name: str


class InputStream(BaseModel):
    stream_name: str
    component_name: str
    grouping: str


class Operator(BaseModel):
    """An operator of a streamlet program. Not of Heron."""

    name: str
    operation: str = Field(description="The method that made it: map, filter, …")
    function: str = Field(description="The user's function, source or sink; empty if it has no name.")
    follows: str = Field(description="The operator of the component before it; empty for the first.")


class Operators(BaseModel):
    """What a component of a streamlet program runs. Not of Heron."""

    operators: list[Operator] = []
    chain: str = Field(default="", description="What follows what, in one line.")


class LogicalSpout(Operators):
    config: Config
    spout_type: str
    spout_source: str
    version: str
    outputs: list[OutputStream]
    extra_links: list[Link]


class LogicalBolt(Operators):
    config: Config
    outputs: list[OutputStream]
    inputs: list[InputStream]
    inputComponents: list[str]


class LogicalPlan(BaseModel):
    stages: int = Field(description="Components on the longest way from a spout.")
    spouts: dict[str, LogicalSpout]
    bolts: dict[str, LogicalBolt]


class PhysicalInstance(BaseModel):
    id: str
    name: str = Field(description="The component.")
    stmgr_id: str
    logfile: str


class PhysicalStmgr(BaseModel):
    id: str
    host: str
    port: int
    shell_port: int = Field(description="Always 0: files are read through the Tracker itself.")
    cwd: str
    pid: int
    joburl: str
    logfiles: str = Field(description="Where the Tracker lists its container's log files.")
    instance_ids: list[str]


class ComponentConfig(BaseModel):
    config: Config


class PhysicalPlan(BaseModel):
    instances: dict[str, PhysicalInstance]
    instance_groups: dict[str, list[str]]
    stmgrs: dict[str, PhysicalStmgr]
    spouts: dict[str, list[str]]
    bolts: dict[str, list[str]]
    config: Config
    components: dict[str, ComponentConfig]


class Resources(BaseModel):
    cpu: float
    ram: int = Field(description="Bytes.")
    disk: int = Field(description="Bytes.")


class PackedInstance(BaseModel):
    component_name: str
    task_id: int
    component_index: int
    instance_resources: Resources


class ContainerPlan(BaseModel):
    id: int
    instances: list[PackedInstance]
    required_resources: Resources
    scheduled_resources: Resources | None


class PackingPlan(BaseModel):
    id: str
    container_plans: list[ContainerPlan]
