"""What the API server does for a user: `heronpy.submit`, within what the user may. All of it blocks."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import heron_scheduler

from heronpy import submit
from heronpy.apiserver._config import ApiServerConfig
from heronpy.apiserver._users import Access, User, private_directory
from heronpy.errors import AlreadyExistsError, ForbiddenError, UsageError
from heronpy.loader import Definition
from heronpy.plan import LogicalPlan
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
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Define and start a topology; with `dry_run` only plan it."""
        _check_keys(user, properties, "the request")
        with tempfile.TemporaryDirectory(prefix="submit-", dir=self.scratch) as directory:
            definition = self._defined(user, program, Path(directory))
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
                return {**_named(launch), "id": "", "status": status, "containers": containers}
            launch = submit.submit(definition, **where)
            containers = len(submit.plans(launch)[1].containers)
            return {**_named(launch), "id": launch.topology_id, "status": "Submitted", "containers": containers}

    def activate(self, launch: Launch) -> dict[str, Any]:
        return {**_named(launch), "status": submit.activate(launch)}

    def deactivate(self, launch: Launch) -> dict[str, Any]:
        return {**_named(launch), "status": submit.deactivate(launch)}

    def restart(self, launch: Launch, container: int | None) -> dict[str, Any]:
        submit.restart(launch, container)
        return {**_named(launch), "status": "Restarted"}

    def kill(self, launch: Launch, *, keep_state: bool, final_s: float | None) -> dict[str, Any]:
        submit.kill(launch, keep_state=keep_state, final_s=final_s)
        return {**_named(launch), "status": "Killed"}

    def update(
        self, launch: Launch, tasks: Mapping[str, int], containers: int | None, *, timeout_s: float, dry_run: bool
    ) -> dict[str, Any]:
        planned = submit.plan_update(
            launch, tasks, containers, home=self._config.home, config_path=self._config.config_path
        )
        if planned.changes and not dry_run:
            submit.update(planned, timeout_s=timeout_s)
        status = "Unchanged" if not planned.changes else "Planned" if dry_run else "Updated"
        return {**_named(launch), "status": status, "changes": planned.changes}

    def update_code(
        self, user: User, launch: Launch, program: Program, *, timeout_s: float, dry_run: bool
    ) -> dict[str, Any]:
        """Have a topology run new code, on trial first; with `dry_run` only compare it with what runs."""
        self._check_separate(user, launch)
        with tempfile.TemporaryDirectory(prefix="code-", dir=self.scratch) as directory:
            definition = self._defined(user, program, Path(directory))
            planned = submit.plan_code_update(
                launch, definition, home=self._config.home, config_path=self._config.config_path
            )
            if planned.changes and not dry_run:
                submit.update_code(planned, timeout_s=timeout_s)
        status = "Unchanged" if not planned.changes else "Planned" if dry_run else "Updated"
        return {**_named(launch), "status": status, "changes": planned.changes, "code": planned.after}

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
