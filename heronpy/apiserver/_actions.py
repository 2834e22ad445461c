"""What the API server does for a user: `heronpy.submit`, within what the user may. All of it blocks."""

from __future__ import annotations

import fcntl
import io
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import heron_scheduler

from heronpy import submit
from heronpy.apiserver._config import ApiServerConfig
from heronpy.apiserver._upload import scratch_directory
from heronpy.apiserver._users import Access, User, private_directory
from heronpy.cli.parts import DryRunFormat, code_values, collect_status, plan_values, show_plan
from heronpy.errors import AlreadyExistsError, ForbiddenError, UsageError
from heronpy.loader import Definition
from heronpy.plan import LogicalPlan, PackingPlan
from heronpy.redaction import redacted
from heronpy.runtime import Launch
from heronpy.sandbox import Program, define

SCRATCH = "apiserver"
"""Below HERON_HOME: programs while they are submitted."""
_TUNING = ("heron.instance.", "heron.streammgr.", "heron.tmanager.", "heron.executor.", "heron.metrics.")
"""Keys of the engine that a user may set who is not an admin. All others name places, addresses and code."""
_NOT_TUNING = ("heron.executor.docker.", "heron.executor.cgroup.", "heron.executor.limits")
"""Of these, the image and the control groups that containers run in, and whether what they ask for binds them."""
_SERVERS_FILES = ("heron.package.requirements", "topology.secrets")
"""Keys that would have the server itself read or run something: not for admins either."""


class Actions:
    """The verbs."""

    def __init__(self, config: ApiServerConfig) -> None:
        """Clears away what an earlier server has left half-done.

        Raises:
            AlreadyExistsError: another server has this HERON_HOME.
        """
        self._config = config
        private_directory(config.home)
        self._lock = _locked(config.home / f"{SCRATCH}.lock")
        self.scratch = config.home / SCRATCH
        shutil.rmtree(self.scratch, ignore_errors=True)
        private_directory(self.scratch)

    def submit(
        self,
        user: User,
        program: Program,
        *,
        cluster: str,
        role: str,
        environ: str,
        properties: Mapping[str, Any],
        dry_run: DryRunFormat | None = None,
    ) -> dict[str, Any]:
        """Define and start a topology; with `dry_run` only plan it."""
        _check_keys(user, properties, "the request")
        with scratch_directory(self.scratch, "submit-") as directory:
            definition = self._defined(user, program, directory)
            where: dict[str, Any] = {
                "cluster": cluster,
                "role": role,
                "environ": environ,
                "home": self._config.home,
                "properties": properties,
                "config_path": self._config.config_path,
            }
            planned = submit.prepare(definition, **where)
            self._check_separate(user, planned.launch)
            if dry_run:
                launch, status = planned.launch, "Planned"
                containers = len(planned.packing.containers)
                plan = _planned(dry_run, planned.logical, planned.packing)
                return {**_named(launch), "id": "", "status": status, "containers": containers, **plan}
            launch = submit.submit(definition, **where)
            containers = len(submit.plans(launch)[1].containers)
            return {**_named(launch), "id": launch.topology_id, "status": "Submitted", "containers": containers}

    def activate(self, launch: Launch) -> dict[str, Any]:
        return {**_named(launch), "status": submit.activate(launch)}

    def deactivate(self, launch: Launch, timeout_s: float) -> dict[str, Any]:
        """Have its spouts stop; with state, until a checkpoint has all that they have emitted, unless that is 0 s."""
        status, checkpoint = submit.deactivate(launch), None
        if launch.checkpoints and timeout_s:
            checkpoint = submit.take_checkpoint(launch, timeout_s=timeout_s)
        return {**_named(launch), "status": status, "checkpoint": checkpoint}

    def restart(self, launch: Launch, container: int | None) -> dict[str, Any]:
        submit.restart(launch, container)
        return {**_named(launch), "status": "Restarted"}

    def kill(self, launch: Launch, *, keep_state: bool, final_s: float | None) -> dict[str, Any]:
        submit.kill(launch, keep_state=keep_state, final_s=final_s)
        kept = redacted(launch.checkpoints) if keep_state and launch.checkpoints else ""
        return {**_named(launch), "status": "Killed", "checkpoints": kept}

    def update(
        self,
        launch: Launch,
        tasks: Mapping[str, int],
        containers: int | None,
        *,
        timeout_s: float,
        dry_run: DryRunFormat | None,
    ) -> dict[str, Any]:
        planned = submit.plan_update(
            launch, tasks, containers, home=self._config.home, config_path=self._config.config_path
        )
        if planned.changes and not dry_run:
            submit.update(planned, timeout_s=timeout_s)
        status = "Unchanged" if not planned.changes else "Planned" if dry_run else "Updated"
        plan = _planned(dry_run, planned.logical, planned.after, planned.before) if dry_run else {}
        return {**_named(launch), "status": status, "changes": planned.changes, **plan}

    def update_code(
        self, user: User, launch: Launch, program: Program, *, timeout_s: float, dry_run: bool
    ) -> dict[str, Any]:
        """Have a topology run new code, on trial first; with `dry_run` only compare it with what runs."""
        self._check_separate(user, launch)
        with scratch_directory(self.scratch, "code-") as directory:
            definition = self._defined(user, program, directory)
            planned = submit.plan_code_update(
                launch, definition, home=self._config.home, config_path=self._config.config_path
            )
            if planned.changes and not dry_run:
                submit.update_code(planned, timeout_s=timeout_s)
        status = "Unchanged" if not planned.changes else "Planned" if dry_run else "Updated"
        plan = {"plan": code_values(planned)} if dry_run else {}
        return {**_named(launch), "status": status, "changes": planned.changes, "code": planned.after, **plan}

    def status(self, cluster: str, role: str, environ: str, name: str) -> dict[str, Any]:
        """What runs of a topology; `unavailable` says why there is no more, if its Topology Master is silent."""
        launch = submit.find(self._config.home, cluster, role, environ, name, config_path=self._config.config_path)
        found, silent = collect_status(launch, now_s=time.time())
        del found["directory"]  # of the server's machine
        return {"status": found, "unavailable": str(silent or "")}

    def _defined(self, user: User, program: Program, scratch: Path) -> Definition:
        """What a program defines, within what the user may."""
        limits = self._config.limits
        unix_user = user.unix_user or limits.user
        if not unix_user and not self._trusts(user):
            raise ForbiddenError(
                f"programs of {user.name} would run as the server's own unix user, who can change its list of users: "
                "run it as root with --define-user, or add its users with --unix-user, or trust them all: --trust-users"
            )
        definition = define(program, scratch, replace(limits, user=unix_user))
        logical = LogicalPlan.from_proto(definition.proto)
        _check_keys(user, logical.config, f"topology {logical.name}")
        for component in logical.components.values():
            _check_keys(user, component.config, f"component {component.name}")
        return definition

    def _trusts(self, user: User) -> bool:
        """Whether code of this user may run as the server's own unix user."""
        return self._config.trusts_users or user.access is Access.ADMIN

    def _check_separate(self, user: User, launch: Launch) -> None:
        """Refuse a cluster where containers could read and change the server's files."""
        if heron_scheduler.scheduler_of(launch.scheduler).runs_as_submitter and not self._trusts(user):
            raise ForbiddenError(
                f"topologies of cluster {launch.cluster} run as the server's own unix user: only an admin may submit "
                "there, unless the server trusts all its users: --trust-users"
            )

    def find(self, cluster: str, role: str, environ: str, name: str, *, to_kill: bool = False) -> Launch:
        launch = submit.find(
            self._config.home, cluster, role, environ, name, config_path=self._config.config_path, troubled=to_kill
        )
        if not to_kill:
            heron_scheduler.revive(launch)
        return launch

    def close(self) -> None:
        """Let another server have this HERON_HOME."""
        self._lock.close()

    def listed(self) -> Sequence[dict[str, Any]]:
        """All topologies that this server has submitted."""
        found = submit.listed(self._config.home, config_path=self._config.config_path)
        return [{**_named(one.launch), "trouble": one.trouble} for one in found]


def _locked(path: Path) -> IO[bytes]:
    """A lock for as long as this process, or the file, is there."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise AlreadyExistsError(f"another API server holds {path}: stop it, or set another HERON_HOME") from None
    return file


def _planned(
    format: DryRunFormat, logical: LogicalPlan, after: PackingPlan, before: PackingPlan | None = None
) -> dict[str, Any]:
    """A plan as values or, in another format, as text."""
    if format is DryRunFormat.JSON:
        return {"plan": plan_values(after, before=before)}
    text = io.StringIO()
    show_plan(logical, after, format, before=before, file=text)
    return {"shown": text.getvalue()}


def _named(launch: Launch) -> dict[str, Any]:
    return {
        "cluster": launch.cluster,
        "role": launch.role,
        "environment": launch.environ,
        "name": launch.topology,
    }


def _check_keys(user: User, values: Mapping[str, Any], where: str) -> None:
    for key in values:
        if key in _SERVERS_FILES:
            raise UsageError(f"{where} sets {key}, which does not work through an API server")
        is_tuning = key.startswith(_TUNING) and not key.startswith(_NOT_TUNING)
        if key.startswith("heron.") and user.access is not Access.ADMIN and not is_tuning:
            raise ForbiddenError(f"{where} sets {key}: only an admin may")
