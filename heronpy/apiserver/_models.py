"""What the API server answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class Version(BaseModel):
    """Which server this is."""

    version: str
    user: str
    access: str


class Topology(BaseModel):
    """A topology of which there is a trace."""

    cluster: str
    role: str
    environment: str
    name: str
    trouble: str
    """Why it does not run as it should; empty if it does."""


class Done(BaseModel):
    """What was done to a topology."""

    cluster: str
    role: str
    environment: str
    name: str
    status: str
    """Submitted, Planned, RUNNING, PAUSED, Restarted, Updated, Unchanged or Killed."""
    id: str = ""
    containers: int | None = None
    changes: list[str] = []
    code: str = ""
    """The version of new code."""
    checkpoint: int | None = None
    """Of a topology with state that was deactivated: the checkpoint with all that it has emitted."""
    checkpoints: str = ""
    """Where the checkpoints of a topology are that was killed without them."""
    plan: dict[str, Any] | None = None
    """Of a dry run: the packing plan, and what changes; or the versions of the code."""
    shown: str = ""
    """Of a dry run in another format than JSON: the packing plan as text."""


class Status(BaseModel):
    """What runs of a topology."""

    status: dict[str, Any]
    """As `heron status --json` prints it."""
    unavailable: str
    """Why there is no more than files to go by: the Topology Master is silent. Empty: it is not."""


class Failed(BaseModel):
    """An error."""

    message: str
    error: str
    """Its class in heronpy.errors."""
    traceback: str = ""
    """Of the user's code, if that has failed."""


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Failed, "description": text}
    for status, text in {
        400: "The request, or the program, is invalid: says why.",
        401: "The token is missing or wrong.",
        403: "The user may not do this.",
        404: "Not found: says what.",
        409: "The name is taken.",
        413: "The program is too large.",
        503: "The state manager, the cluster or the topology does not answer, or it takes longer.",
    }.items()
}
