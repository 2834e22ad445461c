"""New code for a topology that runs: what is decided before anything is done."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import heron_scheduler

from heronpy import loader
from heronpy.config import ALLOW_DROPPED_STATE, is_set, takes_checkpoints
from heronpy.config.cluster import COMMAND_LINE
from heronpy.errors import ConfigError, StateError, TopologyError
from heronpy.plan import Component, InputDecl, LogicalPlan, PackingPlan, next_version, package_of, state_owners
from heronpy.redaction import shown
from heronpy.runtime import Launch
from heronpy.submit._control import defined_plans, plans
from heronpy.submit._plan import prepare
from heronpy.submit._state_owners import misplaced
from heronpy.usersecrets import KEY as SECRETS_KEY

if TYPE_CHECKING:
    from heronpy.loader import Definition

_FIXED: Final = {
    "topology.reliability.mode": "ATMOST_ONCE",
    "topology.stateful.checkpoint.interval.seconds": None,
    "topology.state.key.groups": None,
    SECRETS_KEY: None,
}
"""Configuration that a topology keeps for as long as it runs, and its defaults."""


@dataclass(frozen=True)
class CodeUpdate:
    """New code for a topology, which is not announced yet."""

    launch: Launch
    definition: Definition
    running: LogicalPlan
    """As the code that runs defines it."""
    logical: LogicalPlan
    """As the new code defines it; tasks stay as many as there are."""
    base: PackingPlan
    """What runs."""
    before: str
    """The version that runs."""
    after: str
    requirements: str = ""
    """A requirements file of pip for the new code."""

    @property
    def steps(self) -> list[tuple[int, ...]]:
        """Which containers change their code together."""
        containers = tuple(container.id for container in self.base.containers)
        return [containers] if self.launch.checkpoints else [(id,) for id in containers]

    @property
    def changes(self) -> list[str]:
        """What changes, in words; empty: that code runs already, with that configuration."""
        if self.before == self.after:
            return []
        how = (
            "all tasks go on from a checkpoint"
            if self.launch.checkpoints
            else f"containers are restarted one after the other: {', '.join(str(id) for (id,) in self.steps)}"
        )
        return [f"code: {self.before or '(unknown)'} → {self.after}", how, *_changed_keys(self.running, self.logical)]


def version_of(launch: Launch, packing: PackingPlan) -> str:
    """The version of the code that runs; while new code is on trial, that which was accepted before."""
    running = packing.containers[0].code if packing.trial is None else packing.trial.fallback
    return running or launch.code


def with_running_code(launch: Launch) -> Launch:
    """The same with the code that runs, for `heronpy.loader.activate`.

    Raises:
        NotFoundError: the state manager does not know the topology.
        StateError: the state manager cannot be read.
    """
    packing = plans(launch)[1]
    code = packing.code_of(packing.containers[0].id)
    return launch if code is None else launch.with_code(code.version, code.package_paths)


def plan_code_update(
    launch: Launch,
    definition: Definition,
    *,
    home: Path,
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
) -> CodeUpdate:
    """Compare new code with a topology that runs. Touches nothing.

    What a state is called is known only when a component has been initialized: a state in the checkpoint that the new
    code does not declare fails the trial (see `update_code`), and loses nothing.

    Args:
        launch: The topology.
        definition: What `heronpy.loader.define` has returned for the new code.
        home: HERON_HOME.
        properties: Configuration keys that override the cluster's files, and what was given at submit, which stays.
        config_path: The directory of the clusters' directories, instead of the installed one.

    Raises:
        ConfigError: nothing brings the code to the containers; a wrong configuration; or another release of heronpy.
        NotFoundError: the state manager does not know the topology.
        TopologyError: the new code cannot go on with what runs; names all that does not fit.
    """
    launch.check_release()
    if not heron_scheduler.has_service(launch) and not launch.config.package.url:
        raise ConfigError(
            f"{launch.topology} was submitted without heron.uploader.url, so its hosts cannot be given other code: "
            "take a savepoint with `heron kill --keep-state`, and submit the new code with `heron submit --from`"
        )
    running, packing = defined_plans(launch)
    submitted = prepare(
        definition,
        cluster=launch.cluster,
        role=launch.role,
        environ=launch.environ,
        home=home,
        properties=_with_secrets_of(running, {**_given_at_submit(launch, running), **(properties or {})}),
        config_path=config_path,
    )
    if misfits := [*misfits_of(running, submitted.logical, packing.parallelism)]:
        raise TopologyError(f"the new code is not compatible with the running {launch.topology}: {'; '.join(misfits)}")
    requirements = submitted.launch.config.package.requirements or launch.config.package.requirements
    with tempfile.TemporaryDirectory(prefix="heron-code-") as scratch:
        loader.stage(definition, Path(scratch))
        package = loader.version_of(Path(scratch), requirements)
    before = version_of(launch, packing)
    # While code is on trial, `running` is as that defines it, and it is rolled back first.
    runs = packing.trial is None and package_of(before) == package and submitted.logical.defines_like(running)
    after = before if runs else next_version(before, package)
    return CodeUpdate(launch, definition, running, submitted.logical, packing, before, after, requirements)


def _changed_keys(running: LogicalPlan, new: LogicalPlan) -> Iterator[str]:
    """The topology's keys that have other values with the new code, in words that everybody may see."""
    for key in sorted({*running.config, *new.config}):
        was, will = (str(shown(key, one.config.get(key, "(unset)"))) for one in (running, new))
        if key.startswith("topology.") and was != will:
            yield f"{key}: {was} → {will}"


def _given_at_submit(launch: Launch, running: LogicalPlan) -> dict[str, Any]:
    """What the submission's command line has set: no file has it, and the code that comes need not know of it."""
    values = {**launch.config.to_keys(), **launch.scheduler_config, **running.config}
    return {key: value for key, value in values.items() if launch.origins.get(key) == COMMAND_LINE}


def _with_secrets_of(running: LogicalPlan, properties: Mapping[str, Any]) -> dict[str, Any]:
    """With the secrets that the topology was submitted with: they are where they were, whatever the new code says."""
    secrets = running.config.get(SECRETS_KEY)
    given = properties.get(SECRETS_KEY) or {}
    if not isinstance(secrets, dict) or not isinstance(given, dict):
        return dict(properties)
    return {**properties, SECRETS_KEY: {**secrets, **given}}


def refuse_on_trial(packing: PackingPlan) -> None:
    """Refuse to change a plan whose code is not accepted yet.

    Raises:
        StateError: it is not.
    """
    if packing.trial is not None:
        raise StateError(
            f"new code is on trial, and is accepted or rolled back within {packing.trial.timeout_s:g} s: ask again"
        )


def misfits_of(running: LogicalPlan, new: LogicalPlan, tasks: Mapping[str, int]) -> Iterator[str]:
    """What keeps new code from going on with what runs, each in a few words.

    Args:
        running: As the code that runs defines it.
        new: As the new code does.
        tasks: How many tasks each component has by now. It keeps them if the new code defines as many as the old did.
    """
    if running.name != new.name:
        yield f"it defines topology {new.name!r}"
    for key, default in _FIXED.items():
        was, will = running.config.get(key, default), new.config.get(key, default)
        if str(was) != str(will):
            yield f"{key} is {was}, and {will} in the new code"
    for name in sorted(running.components.keys() - new.components.keys()):
        yield f"component {name!r} is missing"
    for name in sorted(new.components.keys() - running.components.keys()):
        yield f"component {name!r} is new"
    for name in sorted(running.components.keys() & new.components.keys()):
        yield from _misfits(running.components[name], new.components[name], tasks.get(name, 0))
    if takes_checkpoints(running.config):
        yield from _misplaced(running, new)


def _misplaced(running: LogicalPlan, new: LogicalPlan) -> Iterator[str]:
    """State that would come to other operators than those that have it, or to none."""
    drops = is_set(new.config, ALLOW_DROPPED_STATE)
    saved = [owner for owner in state_owners(running) if owner.component in new.components]
    for each in misplaced(saved, state_owners(new)):
        if not each.droppable:
            yield each.text
        elif not drops:
            yield f"{each.text}: {ALLOW_DROPPED_STATE}=true leaves its state behind"


def _misfits(was: Component, will: Component, tasks: int) -> Iterator[str]:
    name = was.name
    if was.is_spout != will.is_spout:
        yield f"component {name!r} is a {_kind(was)}, and a {_kind(will)} in the new code"
        return
    if will.parallelism not in (was.parallelism, tasks):
        yield (
            f"component {name!r} has {tasks} tasks, and {will.parallelism} in the new code: change that by "
            f"--component-parallelism {name}:{will.parallelism} before"
        )
    for stream in sorted({*was.outputs, *will.outputs}):
        if was.outputs.get(stream) != will.outputs.get(stream):
            yield f"stream {name}:{stream} is {_shown(was, stream)}, and {_shown(will, stream)} in the new code"
    inputs, wanted = _inputs(was), _inputs(will)
    for key in sorted({*inputs, *wanted}):
        if inputs.get(key) != wanted.get(key):
            yield f"component {name!r} reads {':'.join(key)} by another grouping"


def _kind(component: Component) -> str:
    return "spout" if component.is_spout else "bolt"


def _shown(component: Component, stream: str) -> str:
    if (declared := component.outputs.get(stream)) is None:
        return "not declared"
    return f"({', '.join(declared.fields)}){' direct' if declared.direct else ''}"


def _inputs(component: Component) -> dict[tuple[str, str], tuple[Any, ...]]:
    # Whatever a custom grouping is made of is code.
    return {(i.component, i.stream): _grouping(i) for i in component.inputs}


def _grouping(decl: InputDecl) -> tuple[Any, ...]:
    return decl.grouping, decl.fields
