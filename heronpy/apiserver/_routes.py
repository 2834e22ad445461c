"""The routes. Each says who wants what; `Server.change` decides whether, and does it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import yaml
from fastapi import APIRouter, Depends, Query, Request

import heronpy
from heronpy.apiserver._actions import Actions
from heronpy.apiserver._guard import USER
from heronpy.apiserver._models import ERRORS, Done, Status, Topology, Version
from heronpy.apiserver._server import Server
from heronpy.apiserver._upload import upload
from heronpy.apiserver._users import User
from heronpy.cli.parts import DryRunFormat, parallelism_of
from heronpy.config import check_name
from heronpy.errors import ForbiddenError, UsageError
from heronpy.runtime import Launch
from heronpy.sandbox import Program
from heronpy.submit import CHECKPOINT_TIMEOUT_S

router = APIRouter()
PROGRAM = {
    "requestBody": {
        "required": True,
        "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""A program as the body of a request, for OpenAPI."""
TOPOLOGY = "/api/v1/topologies/{cluster}/{role}/{environment}/{name}"


def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


def _place(cluster: str, role: str, environment: str, name: str) -> tuple[str, str, str, str]:
    for kind, text in (("cluster", cluster), ("role", role), ("environment", environment), ("topology name", name)):
        check_name(kind, text)
    return cluster, role, environment, name


TheServer = Annotated[Server, Depends(_server)]
Place = Annotated[tuple[str, str, str, str], Depends(_place)]
DryRun = Annotated[bool, Query(description="Only plan it, and change nothing.")]
Shown = Annotated[DryRunFormat, Query(description="Of a dry run: json answers with values, the others with text.")]


@router.get("/api/v1/version", responses=ERRORS)
async def version(request: Request) -> Version:
    """The server's version, and who is asking."""
    user: User = request.scope[USER]
    return Version(version=heronpy.__version__, user=user.name, access=user.access.name.lower())


@router.get("/api/v1/topologies", responses=ERRORS)
async def topologies(request: Request, server: TheServer) -> list[Topology]:
    """All topologies that were submitted through this server."""
    found = await server.look(request.scope[USER], server.actions.listed)
    return [Topology(**one) for one in found]


@router.post("/api/v1/topologies", status_code=201, responses=ERRORS, openapi_extra=PROGRAM)
async def submit(
    request: Request,
    server: TheServer,
    cluster: str,
    role: str,
    topology_class: Annotated[str, Query(description="The topology's class; - runs the file as a script.")],
    environment: str = "default",
    file: Annotated[
        str,
        Query(description="A script or dotted module in the archive; empty: a zip or pex program."),
    ] = "",
    name: Annotated[str | None, Query(description="Another name than the topology's own.")] = None,
    argument: Annotated[list[str] | None, Query(description="For the program; may be repeated.")] = None,
    property: Annotated[list[str] | None, Query(description="KEY=VALUE of the configuration.")] = None,
    deactivated: Annotated[bool, Query(description="Start it paused.")] = False,
    dry_run: DryRun = False,
    dry_run_format: Shown = DryRunFormat.JSON,
) -> Done:
    """Start a topology. The body is its program, as a zip archive; user code runs in a process of its own.

    All or nothing: after an error, or when the connection breaks before all of the program has arrived, nothing of
    it is left.
    """
    _place(cluster, role, environment, name or "any")
    user: User = request.scope[USER]
    if not user.may_change(role):  # before any of the program is read
        await server.change(
            request, "submit", role, f"{cluster}/{role}/{environment}/{name or ''}", dict, dry_run=dry_run
        )
    properties = _properties(property or [])
    archive, digest = await _received(request, server)
    program = Program(
        archive=archive,
        file=file,
        cls=topology_class,
        args=tuple(argument or ()),
        name=name,
        initial_state="PAUSED" if deactivated else "RUNNING",
    )

    def run() -> dict[str, Any]:
        return server.actions.submit(
            user,
            program,
            cluster=cluster,
            role=role,
            environ=environment,
            properties=properties,
            dry_run=dry_run_format if dry_run else None,
        )

    named = f"{cluster}/{role}/{environment}/{name or ''}"
    return await server.change(
        request,
        "submit",
        role,
        named,
        run,
        archive.unlink,
        dry_run=dry_run,
        deactivated=deactivated,
        properties=" ".join(properties) or None,
        program_sha256=digest,
    )


@router.get(TOPOLOGY, responses=ERRORS)
async def status(request: Request, server: TheServer, place: Place) -> Status:
    """What runs of a topology of the own roles: plan, processes, rates, health."""
    user: User = request.scope[USER]
    if not user.may_see(place[1]):
        raise ForbiddenError(f"user {user.name} may not see topologies of role {place[1]}")
    return Status(**await server.look(user, lambda: server.actions.status(*place)))


@router.delete(TOPOLOGY, responses=ERRORS)
async def kill(
    request: Request,
    server: TheServer,
    place: Place,
    force: Annotated[bool, Query(description="At once, without a last checkpoint.")] = False,
    keep_state: Annotated[bool, Query(description="Leave its checkpoints.")] = False,
    timeout: Annotated[
        float, Query(ge=0, le=3600, description="Seconds for a last checkpoint.")
    ] = CHECKPOINT_TIMEOUT_S,
) -> Done:
    """End a topology and remove everything of it."""
    actions = server.actions
    return await server.change(
        request,
        "kill",
        place[1],
        "/".join(place),
        lambda: actions.kill(
            actions.find(*place, to_kill=True), keep_state=keep_state, final_s=None if force else timeout
        ),
        force=force,
        keep_state=keep_state,
    )


@router.post(f"{TOPOLOGY}/activate", responses=ERRORS)
async def activate(request: Request, server: TheServer, place: Place) -> Done:
    """Have its spouts emit."""
    actions = server.actions
    run = _acting(actions.activate, actions, place)
    return await server.change(request, "activate", place[1], "/".join(place), run)


@router.post(f"{TOPOLOGY}/deactivate", responses=ERRORS)
async def deactivate(
    request: Request,
    server: TheServer,
    place: Place,
    timeout: Annotated[
        float, Query(ge=0, le=3600, description="Seconds for a checkpoint of all that was emitted; 0: none.")
    ] = CHECKPOINT_TIMEOUT_S,
) -> Done:
    """Have its spouts stop. With state, it answers when a checkpoint has all that they emitted."""
    actions = server.actions
    run = _acting(lambda launch: actions.deactivate(launch, timeout), actions, place)
    return await server.change(request, "deactivate", place[1], "/".join(place), run)


@router.post(f"{TOPOLOGY}/restart", responses=ERRORS)
async def restart(
    request: Request,
    server: TheServer,
    place: Place,
    container_id: Annotated[int | None, Query(ge=0, description="Only this container.")] = None,
) -> Done:
    """End the processes of a container, or of all, and have them started again."""
    actions = server.actions
    run = _acting(lambda launch: actions.restart(launch, container_id), actions, place)
    return await server.change(request, "restart", place[1], "/".join(place), run, container=container_id)


@router.post(f"{TOPOLOGY}/update", responses=ERRORS)
async def update(
    request: Request,
    server: TheServer,
    place: Place,
    component_parallelism: Annotated[list[str] | None, Query(description="COMPONENT:N; may be repeated.")] = None,
    container_number: Annotated[int | None, Query(ge=1)] = None,
    timeout: Annotated[float, Query(gt=0, le=3600, description="Seconds that it may take.")] = 120.0,
    dry_run: DryRun = False,
    dry_run_format: Shown = DryRunFormat.JSON,
) -> Done:
    """Other numbers of tasks or containers. It happens as a whole or not at all."""
    tasks = parallelism_of(component_parallelism or [])
    if not tasks and container_number is None:
        raise UsageError("nothing to change: give component_parallelism=COMPONENT:N or container_number=N")
    actions = server.actions
    run = _acting(
        lambda launch: actions.update(
            launch, tasks, container_number, timeout_s=timeout, dry_run=dry_run_format if dry_run else None
        ),
        actions,
        place,
    )
    return await server.change(
        request,
        "update",
        place[1],
        "/".join(place),
        run,
        dry_run=dry_run,
        component_parallelism=" ".join(component_parallelism or ()) or None,
        container_number=container_number,
    )


@router.post(f"{TOPOLOGY}/code", responses=ERRORS, openapi_extra=PROGRAM)
async def update_code(
    request: Request,
    server: TheServer,
    place: Place,
    topology_class: Annotated[str, Query(description="The topology's class; - runs the file as a script.")] = "-",
    file: Annotated[
        str,
        Query(description="A script or dotted module in the archive; empty: a zip or pex program."),
    ] = "",
    argument: Annotated[list[str] | None, Query(description="For the program; may be repeated.")] = None,
    timeout: Annotated[float, Query(gt=0, le=3600, description="Seconds that each step may take.")] = 120.0,
    dry_run: DryRun = False,
) -> Done:
    """Have it run new code, the body, as a zip archive. It is on trial until all tasks have run for some seconds.

    If it fails meanwhile, or this server dies, the old code comes back by itself.
    """
    user: User = request.scope[USER]
    actions = server.actions
    if not user.may_change(place[1]):  # before any of the program is read
        await server.change(request, "update", place[1], "/".join(place), dict, dry_run=dry_run)
    await asyncio.to_thread(actions.find, *place)
    archive, digest = await _received(request, server)
    program = Program(archive=archive, file=file, cls=topology_class, args=tuple(argument or ()), name=place[3])
    run = _acting(
        lambda launch: actions.update_code(user, launch, program, timeout_s=timeout, dry_run=dry_run), actions, place
    )
    return await server.change(
        request,
        "update",
        place[1],
        "/".join(place),
        run,
        archive.unlink,
        dry_run=dry_run,
        program_sha256=digest,
    )


async def _received(request: Request, server: Server) -> tuple[Path, str]:
    """The program in the body of a request, as a file that is the caller's to remove, and its SHA-256."""
    return await server.unless_it_stops(_receive(request, server))


async def _receive(request: Request, server: Server) -> tuple[Path, str]:
    config = server.config
    async with (
        server.uploads(request.scope[USER]),
        upload(
            request, server.actions.scratch, bytes_max=config.upload_bytes_max, timeout_s=config.upload_timeout_s
        ) as archive,
    ):
        digest = await asyncio.to_thread(_sha256, archive)
        # Its own copy: this one goes with the request, and what is done with it may take longer.
        return archive.rename(archive.parent.with_suffix(".zip")), digest


def _sha256(archive: Path) -> str:
    with archive.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _acting(
    action: Callable[[Launch], dict[str, Any]], actions: Actions, place: tuple[str, str, str, str]
) -> Callable[[], dict[str, Any]]:
    return lambda: action(actions.find(*place))


def _properties(pairs: list[str]) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"property {pair!r} must have the form KEY=VALUE")
        try:
            found[key.strip()] = yaml.safe_load(value)
        except (yaml.YAMLError, RecursionError):
            found[key.strip()] = value
    return found
