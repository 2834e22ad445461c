"""In a process of user code: the values."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heronpy.errors import ConfigError, StateError, nearest
from heronpy.redaction import HIDDEN
from heronpy.runtime import USER_SECRETS_DIR, Launch
from heronpy.usersecrets._references import KEY, USED

MOUNT_ENV = "HERON_USER_SECRETS"
"""Where the cluster has put secrets of its own, as files by their names, if it has."""
_MASKED_CHARACTERS_MIN = 4
"""Shorter ones are in any text."""


class Secrets(Mapping[str, str]):
    """Secrets by name. Never printed."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        lines = {line.strip() for value in values.values() for line in (value, *value.splitlines())}
        shown = lines | {repr(line)[1:-1] for line in lines}  # as an exception quotes it
        shown |= {json.dumps(one, ensure_ascii=ascii)[1:-1] for one in shown for ascii in (True, False)}  # in JSON logs
        # The longest first: one may be part of another.
        self._masked = sorted((m for m in shown if len(m) >= _MASKED_CHARACTERS_MIN), key=len, reverse=True)

    def __getitem__(self, name: str) -> str:
        if name not in self._values:
            raise ConfigError(f"{KEY} declares no secret {name!r}{nearest(name, self._values)}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self._values)})"

    def fill(self, config: dict[str, Any]) -> None:
        """Put the values where a configuration uses them, in place."""
        for key, value in config.items() if self._values else ():
            if key != KEY:
                config[key] = self._filled(value)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return USED.sub(lambda used: self[used[1]], value)
        if isinstance(value, dict):
            return {key: self._filled(one) for key, one in value.items()}
        return [self._filled(one) for one in value] if isinstance(value, list) else value

    def masked(self, text: str) -> str:
        """The text without any of the values."""
        for value in self._masked:
            text = text.replace(value, HIDDEN)
        return text


NO_SECRETS = Secrets({})


class MaskedLogs(logging.Formatter):
    """Formats as another, without secrets."""

    def __init__(self, formatter: logging.Formatter, secrets: Secrets) -> None:
        super().__init__()
        self._formatter, self._secrets = formatter, secrets

    def format(self, record: logging.LogRecord) -> str:
        return self._secrets.masked(self._formatter.format(record))


def load_secrets(launch: Launch) -> Secrets:
    """The secrets of a topology, where its user code runs.

    Raises:
        StateError: one is not there. No message contains any of a value.
    """
    return Secrets({name: _read(launch, name) for name in launch.secrets}) if launch.secrets else NO_SECRETS


def _read(launch: Launch, name: str) -> str:
    places = [launch.dir / USER_SECRETS_DIR / name]
    if mounted := os.environ.get(MOUNT_ENV):
        places.append(Path(mounted) / name)
    for path in places:
        try:
            text = path.read_bytes().decode()
            return text if path is places[0] else text.removesuffix("\n")  # as a file of the submitter is read
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as e:
            raise StateError(f"secret {name!r} of {launch.topology} cannot be read: {type(e).__name__}") from None
    raise StateError(f"secret {name!r} of {launch.topology} is not on this host: kill the topology and submit it again")
