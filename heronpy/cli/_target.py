"""Which topology a command means."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heron_scheduler

from heronpy.config.cluster import clusters
from heronpy.errors import HeronError, UsageError
from heronpy.runtime import Launch
from heronpy.submit import find, find_by_name


@dataclass(frozen=True, slots=True)
class Place:
    """`CLUSTER[/ROLE[/ENV]]`."""

    cluster: str
    role: str | None = None
    environ: str | None = None

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read `CLUSTER[/ROLE[/ENV]]`; an empty part means its default.

        Raises:
            UsageError: no cluster, or too many parts.
        """
        parts = text.split("/")
        if not parts[0] or len(parts) > 3:
            raise UsageError(f"{text!r} must have the form CLUSTER[/ROLE[/ENV]]")
        role, environ = [part or None for part in [*parts[1:], "", ""][:2]]
        return cls(parts[0], role, environ)


def resolve(
    words: Sequence[str],
    *,
    home: Path,
    config_path: Path | None = None,
    properties: Mapping[str, Any] | None = None,
    extra: str = "",
    to_kill: bool = False,
) -> tuple[Launch, str | None]:
    """The topology of `[CLUSTER[/ROLE[/ENV]]] NAME [EXTRA]`, and the extra word.

    Args:
        extra: What a verb calls the word after the name; empty if it takes none.
        to_kill: Also find one of which only traces are left, and do not start the service of one that is dead.

    Raises:
        UsageError: too many arguments.
        NotFoundError: no such topology; names the nearest.
    """
    place, name, rest = _split(list(words), home, config_path, extra)
    if place is None:
        launch = find_by_name(home, name, troubled=to_kill)
        if not to_kill:
            revive(launch)
        return launch, rest
    launch = find(
        home,
        place.cluster,
        place.role,
        place.environ or "default",
        name,
        config_path=config_path,
        properties=properties,
        troubled=to_kill,
    )
    if not to_kill:
        revive(launch)
    return launch, rest


def revive(launch: Launch) -> None:
    """Start the scheduler service of a topology, or containers, if all that could do so by itself is dead.

    Why a container had ended is said here: what the cluster shows from now on is of the one that is started.
    That it cannot be started is no reason for another command to fail: `status` shows that there is none.
    """
    try:
        for dead, reason in heron_scheduler.revive(launch).items():
            why = f" ({reason})" if reason else ""
            print(f"heron: {dead} of {launch.topology} was dead{why}: started again", file=sys.stderr)
    except HeronError as e:
        print(f"heron: {e}", file=sys.stderr)


def _split(words: list[str], home: Path, config_path: Path | None, extra: str) -> tuple[Place | None, str, str | None]:
    most = 3 if extra else 2
    if len(words) > most:
        form = f"[CLUSTER[/ROLE[/ENV]]] NAME{f' [{extra}]' if extra else ''}"
        raise UsageError(f"too many arguments: {' '.join(words[most:])!r} after {form}")
    if len(words) == 1:
        return None, words[0], None
    if len(words) == 3:
        return Place.parse(words[0]), words[1], words[2]
    # Two words are CLUSTER NAME, unless the verb takes a third and the first is not a cluster.
    if extra and "/" not in words[0] and words[0] not in _known_clusters(home, config_path):
        return None, words[0], words[1]
    return Place.parse(words[0]), words[1], None


def _known_clusters(home: Path, config_path: Path | None) -> set[str]:
    used = home / "topologies"
    return {*clusters(config_path), *(d.name for d in used.glob("*") if d.is_dir())}
