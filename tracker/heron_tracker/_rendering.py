"""Answers made in a thread: plans and metrics may be large, and the event loop serves others meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from fastapi import Response
from pydantic import BaseModel

from heron_tracker import _models as m


async def rendered(make: Callable[[], BaseModel | m.Config]) -> Response:
    """What `make` returns as JSON. Both are made in a thread, so `make` must not touch what the loop changes."""

    def render() -> bytes:
        made = make()
        return msgspec.json.encode(made) if isinstance(made, dict) else made.model_dump_json().encode()

    return Response(await asyncio.to_thread(render), media_type="application/json")
