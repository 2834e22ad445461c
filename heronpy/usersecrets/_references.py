"""What a configuration says about secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from heronpy.errors import ConfigError, nearest
from heronpy.files import user_path

KEY: Final = "topology.secrets"
USED: Final = re.compile(r"\$\{secret:([^}]*)\}")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_KUBERNETES = re.compile(r"([a-z0-9][a-z0-9.-]{0,252})/([A-Za-z0-9._-]{1,253})")
_FORMS = "file:PATH, env:VARIABLE or kubernetes:SECRET/KEY"
COUNT_MAX: Final = 100


def references_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The secrets that a configuration declares: references by name, with absolute paths.

    Raises:
        ConfigError: it is not a map of names to references. The message has no reference in it: somebody may have
            written the secret itself.
    """
    declared = config.get(KEY) or {}
    if not isinstance(declared, dict) or len(declared) > COUNT_MAX:
        raise ConfigError(f"{KEY} must be a map of at most {COUNT_MAX} names to {_FORMS}")
    return {_named(name): _reference(name, reference) for name, reference in declared.items()}


def _named(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{KEY}: {name!r} cannot be the name of a secret: use letters, digits, '-', '_' and '.'")
    return name


def _reference(name: str, reference: Any) -> str:
    kind, colon, where = reference.partition(":") if isinstance(reference, str) else ("", "", "")
    if kind == "file" and where:
        return f"file:{user_path(where).absolute()}"
    matches = {"env": _VARIABLE, "kubernetes": _OF_KUBERNETES}.get(kind)
    if not colon or matches is None or not matches.fullmatch(where):
        raise ConfigError(f"{KEY}: secret {name!r} must be {_FORMS}, not the secret itself")
    return f"{kind}:{where}"


def kinds_of(references: Mapping[str, str]) -> dict[str, str]:
    """Of each secret, `file`, `env` or `kubernetes`."""
    return {name: reference.partition(":")[0] for name, reference in references.items()}


def kubernetes_reference(reference: str) -> tuple[str, str] | None:
    """The Secret and its key that a reference means; None: it means something else."""
    kind, _, where = reference.partition(":")
    secret, _, key = where.partition("/")
    return (secret, key) if kind == "kubernetes" else None


def check_used(config: Mapping[str, Any], references: Mapping[str, str], where: str) -> None:
    """Refuse configuration values that use a secret which is not declared.

    Raises:
        ConfigError: there is one.
    """
    for key, value in config.items():
        if key == KEY:
            continue
        for name in _used(value):
            if name not in references:
                raise ConfigError(
                    f"{where}: {key} uses a secret {name!r:.80}, which {KEY} does not declare"
                    f"{nearest(name, references)}"
                )


def _used(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from USED.findall(value)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _used(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _used(one)
