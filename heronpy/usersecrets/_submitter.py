"""On the machine that a topology is submitted from: values are read, and written into the topology's directory."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping

from heronpy.config import KIB
from heronpy.errors import ConfigError, NotFoundError, StateError, UntrustedError
from heronpy.runtime import USER_SECRETS_DIR, Launch
from heronpy.security import private_directory, read_secret, write_secret
from heronpy.usersecrets._references import kubernetes_reference

_READ_HERE = ".read-here"
"""Beside the values, where they were read: the references. It goes to no other machine, so what was submitted elsewhere
has none: its references may be anything, and this machine's files are not brought to it."""
FILES_BYTES_MAX = 256 * KIB
"""Of all secrets of a topology: they travel in a bootstrap file, and on Kubernetes in a Secret of at most 1 MiB."""


def read_secrets(references: Mapping[str, str]) -> dict[str, str]:
    """The values of secrets that are files or variables here; those of Kubernetes are left to it.

    A single line break at a file's end is not part of it.

    Raises:
        NotFoundError: there is no such file, or variable.
        UntrustedError: others can read or write the file.
        ConfigError: it is not text, empty, or they are too large. No message contains any of a value.
    """
    values = {}
    for name, reference in references.items():
        kind, _, where = reference.partition(":")
        if kind == "kubernetes":
            continue
        values[name] = _file(name, where) if kind == "file" else _variable(name, where)
        if not values[name]:
            raise ConfigError(f"secret {name!r}: {reference} is empty")
        if "\0" in values[name]:
            raise ConfigError(f"secret {name!r}: {reference} is not text")
    if sum(len(value.encode()) for value in values.values()) > FILES_BYTES_MAX:
        raise ConfigError(f"the secrets of the topology are larger than {FILES_BYTES_MAX // KIB} KiB")
    return values


def _file(name: str, path: str) -> str:
    try:
        with open(path, "rb", opener=_at_once) as f:  # links are fine: Kubernetes mounts files so
            mode = os.fstat(f.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError(f"secret {name!r}: {path} is not a file")
            if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
                raise UntrustedError(f"secret {name!r}: others can read or write {path}: chmod 600 it")
            data = f.read(FILES_BYTES_MAX + 1)
        return data.decode().removesuffix("\n").removesuffix("\r")
    except FileNotFoundError:
        raise NotFoundError(f"secret {name!r}: there is no file {path}") from None
    except OSError as e:
        raise ConfigError(f"secret {name!r}: {path} cannot be read: {e.strerror}") from e
    except UnicodeDecodeError:
        raise ConfigError(f"secret {name!r}: {path} is not text in UTF-8") from None


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe, too, that has no writer, and that would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _variable(name: str, variable: str) -> str:
    if variable not in os.environ:
        raise NotFoundError(f"secret {name!r}: the environment has no variable {variable}")
    try:
        os.environ[variable].encode()
    except UnicodeEncodeError:
        raise ConfigError(f"secret {name!r}: env:{variable} is not text in UTF-8") from None
    return os.environ[variable]


def store_secrets(launch: Launch, values: Mapping[str, str]) -> None:
    """Write values into the topology's directory, from where they go to its hosts.

    Raises:
        OSError: they cannot be written.
    """
    if not values:
        return
    directory = private_directory(launch.dir / USER_SECRETS_DIR)
    for name, value in values.items():
        write_secret(directory / name, value.encode())
    write_secret(directory / _READ_HERE, _read_here(launch))


def _read_here(launch: Launch) -> bytes:
    return json.dumps(dict(launch.secrets), sort_keys=True).encode()


def _were_read_here(launch: Launch) -> bool:
    try:
        return read_secret(launch.dir / USER_SECRETS_DIR / _READ_HERE) == _read_here(launch)
    except NotFoundError:
        return False


def renewed_secrets(launch: Launch) -> tuple[dict[str, tuple[str | None, str]], list[str]]:
    """Secrets whose files or variables have changed since they were brought to the topology, and why others stay.

    Returns:
        The old and the new value of each; then a line for each that is not on this machine, or was not read here.

    Raises:
        HeronError: as `read_secrets`, but for what is not on this machine: that stays as it is.
    """
    changed: dict[str, tuple[str | None, str]] = {}
    kept = []
    read_here = _were_read_here(launch)
    for name, reference in launch.secrets.items():
        if not read_here and kubernetes_reference(reference) is None:
            kept.append(f"secret {name!r} was brought from elsewhere; it stays as it is")
            continue
        try:
            values = read_secrets({name: reference})
        except NotFoundError as e:
            kept.append(f"{e}; it stays as it is")
            continue
        for value in values.values():
            if (before := _stored(launch, name)) != value:
                changed[name] = before, value
    return changed, kept


def _stored(launch: Launch, name: str) -> str | None:
    try:
        return read_secret(launch.dir / USER_SECRETS_DIR / name).decode()
    except NotFoundError:
        return None
    except UnicodeDecodeError:
        raise StateError(f"secret {name!r} of {launch.topology} is damaged in {launch.dir}") from None
