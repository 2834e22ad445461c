"""The keys of schedulers: the engine carries them to a scheduler, which alone knows which there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIXES = ("heron.scheduler.", "heron.kubernetes.", "heron.executor.docker.")
"""Ours begin with `heron.scheduler.<name>.`; Heron has more for Kubernetes."""


def is_scheduler_key(key: str) -> bool:
    """Whether a key is for a scheduler, whichever that is."""
    return key.startswith(PREFIXES)


def scheduler_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a configuration that are for a scheduler."""
    return {key: value for key, value in values.items() if is_scheduler_key(key)}
