"""The plans of a topology in Heron's shapes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlencode

from heron_tracker import _models as m
from heron_tracker._config import ExtraLink
from heron_tracker._topology import Topology
from heronpy import submit
from heronpy.errors import NotFoundError
from heronpy.plan import Component, Resources, chain, operators_of
from heronpy.redaction import redacted, shown, shown_config
from heronpy.runtime import Launch


def effective_config(topology: Topology, launch: Launch | None, why: str | None) -> m.EffectiveConfig:
    """The whole configuration.

    Args:
        topology: Whose.
        launch: Its launch values, which have the engine's; None: they cannot be read from here.
        why: Why not.
    """
    settings = [
        m.Setting(of=s.of, key=redacted(s.key), value=shown(s.key, s.value), origin=redacted(s.origin))
        for s in submit.effective_config(topology.logical, launch)
    ]
    return m.EffectiveConfig(settings=settings, incomplete=why)


def links(topology: Topology, extra: Sequence[ExtraLink]) -> list[m.Link]:
    """The configured links, for this topology."""
    key = topology.key
    variables = {
        "CLUSTER": key.cluster,
        "ENVIRON": key.environ,
        "TOPOLOGY": key.name,
        "ROLE": key.role,
        "USER": topology.execution.submission_user,
    }
    return [m.Link(name=link.name, formatter=link.formatter, url=link.url(variables)) for link in extra]


def metadata(topology: Topology, extra: Sequence[ExtraLink]) -> m.Metadata:
    """Who submitted what, and when."""
    e = topology.execution
    return m.Metadata(
        cluster=e.cluster,
        environ=e.environ,
        role=e.role,
        jobname=e.topology,
        submission_time=e.submission_time_s,
        submission_user=e.submission_user,
        release_username=e.submission_user,
        release_tag=e.release_version,
        release_version=e.release_version,
        instances=len(topology.instances()),
        extra_links=links(topology, extra),
    )


def execution_state(topology: Topology, extra: Sequence[ExtraLink]) -> m.ExecutionState:
    """The metadata, which parts of the state there are, and the status."""
    return m.ExecutionState(
        **{**dict(metadata(topology, extra)), **has_parts(topology)},
        status=topology.status,
    )


def has_parts(topology: Topology) -> dict[str, bool]:
    """Which parts of the topology the state manager has now."""
    return {
        "has_physical_plan": topology.physical is not None,
        "has_packing_plan": topology.packing is not None,
        "has_tmanager_location": topology.tmaster is not None,
        "has_scheduler_location": topology.scheduler is not None,
    }


def logical_plan(topology: Topology, extra: Sequence[ExtraLink]) -> m.LogicalPlan:
    """Components, their streams and who reads them."""
    plan = topology.logical
    return m.LogicalPlan(
        stages=_stages(plan.components),
        spouts={
            c.name: m.LogicalSpout(
                **_operators(c),
                config=shown_config(c.config),
                spout_type=str(c.config.get("spout.type", "default")),
                spout_source=str(c.config.get("spout.source", "NA")),
                version=str(c.config.get("spout.version", "NA")),
                outputs=[m.OutputStream(stream_name=stream) for stream in c.outputs],
                extra_links=links(topology, extra),
            )
            for c in plan.spouts
        },
        bolts={
            c.name: m.LogicalBolt(
                **_operators(c),
                config=shown_config(c.config),
                outputs=[m.OutputStream(stream_name=stream) for stream in c.outputs],
                inputs=[
                    m.InputStream(stream_name=i.stream, component_name=i.component, grouping=i.grouping.name)
                    for i in c.inputs
                ],
                inputComponents=list(dict.fromkeys(i.component for i in c.inputs)),
            )
            for c in plan.bolts
        },
    )


def _operators(component: Component) -> dict[str, Any]:
    """Names as everybody may see them: users choose them."""
    found = [
        replace(o, name=redacted(o.name), function=redacted(o.function), follows=redacted(o.follows))
        for o in operators_of(component.config)
    ]
    return {"operators": [m.Operator(**asdict(operator)) for operator in found], "chain": redacted(chain(found))}


def _stages(components: Mapping[str, Component]) -> int:
    """The longest way from a spout, in components; with a circle on it, at most as many as there are."""
    depth = {name: 1 for name, c in components.items() if c.is_spout}
    for _ in components:  # as many rounds as the longest way can have
        changed = False
        for name, component in components.items():
            above = max((depth[i.component] for i in component.inputs if i.component in depth), default=0)
            if above and depth.get(name, 0) < above + 1 <= len(components):
                depth[name] = above + 1
                changed = True
        if not changed:
            break
    return max(depth.values(), default=0)


def packing_plan(topology: Topology) -> m.PackingPlan:
    """Which instances share a container, and what they may use.

    Raises:
        NotFoundError: there is none yet.
    """
    plan = topology.packing
    if plan is None:
        raise NotFoundError(f"topology {topology.key.name} has no packing plan yet: it is being submitted")
    return m.PackingPlan(
        id=plan.id,
        container_plans=[
            m.ContainerPlan(
                id=container.id,
                instances=[
                    m.PackedInstance(
                        component_name=i.component,
                        task_id=i.task_id,
                        component_index=i.component_index,
                        instance_resources=_resources(i.resources),
                    )
                    for i in container.instances
                ],
                required_resources=_resources(container.required),
                scheduled_resources=None,
            )
            for container in plan.containers
        ],
    )


def _resources(r: Resources) -> m.Resources:
    return m.Resources(cpu=r.cpu, ram=r.ram_bytes, disk=r.disk_bytes)


def physical_plan(topology: Topology) -> m.PhysicalPlan:
    """What runs where.

    Raises:
        NotFoundError: there is none yet.
    """
    plan = topology.physical
    if plan is None:
        raise NotFoundError(
            f"topology {topology.key.name} has no physical plan yet: not all of its containers have been up at once"
        )
    groups = {
        container.id: [instance.instance_id(container.id) for instance in container.instances]
        for container in plan.packing.containers
    }
    tasks = {
        component.name: [plan.instance_id(task) for task in plan.component_tasks[component.name]]
        for component in plan.logical.components.values()
    }
    return m.PhysicalPlan(
        instances={
            instance.instance_id(container.id): m.PhysicalInstance(
                id=instance.instance_id(container.id),
                name=instance.component,
                stmgr_id=container.stmgr_id,
                logfile=f"{_cwd(topology, container.id)}/log-files/{instance.instance_id(container.id)}.log",
            )
            for container in plan.packing.containers
            for instance in container.instances
        },
        instance_groups={f"container_{id}": ids for id, ids in groups.items()},
        stmgrs={
            stmgr.id: m.PhysicalStmgr(
                id=stmgr.id,
                host=stmgr.host,
                port=stmgr.port,
                shell_port=0,
                cwd=_cwd(topology, stmgr.container),
                pid=stmgr.pid,
                joburl=topology.scheduler.job_link if topology.scheduler is not None else "",
                logfiles=_log_files(topology, stmgr.container),
                instance_ids=groups.get(stmgr.container, []),
            )
            for stmgr in plan.stmgrs
        },
        spouts={c.name: tasks[c.name] for c in plan.logical.spouts},
        bolts={c.name: tasks[c.name] for c in plan.logical.bolts},
        config=shown_config(plan.logical.config),
        components={
            name: m.ComponentConfig(config=shown_config(component.config))
            for name, component in plan.logical.components.items()
        },
    )


def _cwd(topology: Topology, container: int) -> str:
    return f"{topology.directory}/container_{container}"


def _log_files(topology: Topology, container: int) -> str:
    key = topology.key
    named = {"cluster": key.cluster, "role": key.role, "environ": key.environ, "topology": key.name}
    return f"/topologies/container/filestats?{urlencode({**named, 'container': container, 'path': 'log-files'})}"


def scheduler_location(topology: Topology) -> m.SchedulerLocation | None:
    """Where its scheduler is, if it says so."""
    if topology.scheduler is None:
        return None
    return m.SchedulerLocation(
        name=topology.key.name,
        http_endpoint=topology.scheduler.endpoint,
        job_page_link=topology.scheduler.job_link,
    )


def tmanager_location(topology: Topology) -> m.TmanagerLocation | None:
    """Where its Topology Master is, if there is one. One port serves all that Heron has three for."""
    found = topology.tmaster
    if found is None:
        return None
    return m.TmanagerLocation(
        name=found.topology,
        id=found.topology_id,
        host=found.host,
        controller_port=found.port,
        server_port=found.port,
        stats_port=found.port,
    )
