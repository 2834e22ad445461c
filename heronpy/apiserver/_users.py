"""Who may do what: a YAML file of users, with the SHA-256 of each one's token.

    users:
      - name: ada
        access: submit              # read, submit or admin
        roles: [ada, payments]      # whose topologies; default: [ada]
        token_sha256: 9f86d081…
        unix_user: tenant-ada       # as whom programs of this one are defined; the server must be root's

Tokens are long random words that this server makes (`heron apiserver --add-user`) and shows once, so one round of
SHA-256 is enough to store them by, and a reader of the file cannot use it. The file is read again when it has
changed: a user who is removed from it is refused at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import yaml

from heronpy.config import KIB, check_name
from heronpy.errors import AlreadyExistsError, ConfigError, HeronError, NotFoundError, nearest
from heronpy.files import lock_within, read_owned_file, replace_file

USERS_FILE = "apiserver.users.yaml"
"""Below HERON_HOME, unless another is named."""
_BYTES_MAX = 1024 * KIB
_LOCK_S = 10.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEYS = ("name", "access", "roles", "token_sha256", "unix_user")


class Access(IntEnum):
    """What a user may do; each may do what those before it may."""

    READ = 1
    """List topologies, and see the status of those of the user's own roles."""
    SUBMIT = 2
    """Submit, change and kill topologies of the user's own roles, with `topology.*` and the engine's tuning keys."""
    ADMIN = 3
    """The same with all topologies, and with any key."""


@dataclass(frozen=True, slots=True)
class User:
    """One user."""

    name: str
    access: Access
    roles: tuple[str, ...]
    token_sha256: str
    unix_user: str = ""
    """As whom programs of this user are defined; empty: as the server says for all."""

    def may_change(self, role: str) -> bool:
        """Whether the user may submit, change and kill topologies of a role."""
        return self.access is Access.ADMIN or (self.access is Access.SUBMIT and role in self.roles)

    def may_see(self, role: str) -> bool:
        """Whether the user may see the status of topologies of a role."""
        return self.access is Access.ADMIN or role in self.roles


class Users:
    """The users of a file."""

    def __init__(self, path: Path) -> None:
        """Read it for the first time.

        Raises:
            ConfigError: it cannot be read, is not what it should be, or others can read or could have written it.
        """
        self.path = path
        self._seen = self._stamp()
        self._users = _load(path)

    def find(self, token: str) -> User | None:
        """The user with this token.

        Raises:
            ConfigError: the file has changed, and cannot be read.
        """
        if (stamp := self._stamp()) != self._seen:
            self._users = ()  # until it can be read again every request is refused
            self._users = _load(self.path)
            self._seen = stamp
        digest = _digest(token)
        found = None
        for user in self._users:  # all of them: how long it takes does not say which
            if hmac.compare_digest(user.token_sha256, digest):
                found = user
        return found

    def without_unix_user(self) -> list[str]:
        """Names of the users who may submit, are not admins, and have no unix user of their own."""
        return [user.name for user in self._users if user.access is Access.SUBMIT and not user.unix_user]

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self.path.stat()
        except OSError:
            return 0, 0, 0
        return found.st_ino, found.st_mtime_ns, found.st_size


def add_user(path: Path, name: str, access: Access, roles: Sequence[str], unix_user: str = "") -> str:
    """Add a user to the file, which is made if it is not there. Returns the token, which is nowhere else.

    Raises:
        AlreadyExistsError: there is one of this name.
        ConfigError: the file cannot be read or written, or a name is not one.
    """
    check_name("user", name)
    for role in roles:
        check_name("role", role)
    token = secrets.token_hex(32)
    with _locked(path):
        users = list(_load(path)) if path.exists() else []
        if any(user.name == name for user in users):
            raise AlreadyExistsError(f"{path} has a user {name} already: remove that entry first")
        users.append(User(name, access, tuple(roles) or (name,), _digest(token), unix_user))
        values = [_values(user) for user in users]
        try:
            replace_file(path, yaml.safe_dump({"users": values}, sort_keys=False), mode=0o600)
        except OSError as e:
            raise ConfigError(f"{path} cannot be written: {e.strerror or e}") from e
    return token


def _values(user: User) -> dict[str, Any]:
    values: dict[str, Any] = {"name": user.name, "access": user.access.name.lower(), "roles": list(user.roles)}
    values["token_sha256"] = user.token_sha256
    return {**values, "unix_user": user.unix_user} if user.unix_user else values


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Without another one that adds a user: it would not be in what this one writes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(f"{path}.lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise ConfigError(f"{path}.lock cannot be written: {e.strerror}") from e
    try:
        if not lock_within(fd, _LOCK_S):
            raise ConfigError(f"another process has held {path}.lock for {_LOCK_S:g} s: is it stopped?")
        yield
    finally:
        os.close(fd)


def access_of(text: str) -> Access:
    """`read`, `submit` or `admin`.

    Raises:
        ConfigError: it is none of these.
    """
    try:
        return Access[text.upper()]
    except KeyError:
        known = [access.name.lower() for access in Access]
        raise ConfigError(f"access must be read, submit or admin, not {text!r}{nearest(text, known)}") from None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _load(path: Path) -> tuple[User, ...]:
    try:
        values = yaml.safe_load(read_owned_file(path, max_bytes=_BYTES_MAX, private=True))
    except NotFoundError:
        raise ConfigError(f"there is no {path}: make it with `heron apiserver --add-user NAME`") from None
    except HeronError as e:
        raise ConfigError(f"the users in {path} cannot be read: {e}") from e
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise ConfigError(f"{path} is not valid YAML") from None
    items = values.get("users") if isinstance(values, dict) else None
    if not isinstance(items, list):
        raise ConfigError(f"{path} must have a list of users")
    users = tuple(_user(item, path) for item in items)
    if len({user.name for user in users}) < len(users):
        raise ConfigError(f"{path} has two users of one name")
    return users


def _user(item: Any, path: Path) -> User:
    if not isinstance(item, dict) or not set(item) <= set(_KEYS):
        raise ConfigError(f"{path}: a user has {', '.join(_KEYS)}, and nothing else")
    name = check_name("user", str(item.get("name") or ""))
    roles = item.get("roles") or [name]
    digest = str(item.get("token_sha256") or "")
    if not isinstance(roles, list) or not _SHA256.fullmatch(digest):
        raise ConfigError(f"{path}: user {name} needs token_sha256, of 64 hexadecimal digits, and a list of roles")
    access, unix_user = access_of(str(item.get("access") or "")), str(item.get("unix_user") or "")
    return User(name, access, tuple(str(role) for role in roles), digest, unix_user)


def private_directory(path: Path) -> Path:
    """A directory of this user's alone, made if it is not there.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(path, 0o700)
    except OSError as e:
        raise ConfigError(f"{path} cannot be made: {e.strerror}") from e
    return path
