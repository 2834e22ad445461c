"""`--service-url`: the verbs through an API server, for users who have no access to the cluster.

The token is in the file that HERON_SERVICE_TOKEN_FILE names, or in `service.token` below HERON_HOME, readable by its
owner alone. HERON_SERVICE_CA_FILE names the authority of the server's certificate, if the system does not know it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from heronpy import errors
from heronpy.address import is_loopback
from heronpy.cli._options import home
from heronpy.cli._target import Place
from heronpy.errors import ConfigError, HeronError, NotFoundError, UnavailableError, UsageError, UserCodeError
from heronpy.files import read_owned_file, user_path
from heronpy.submit import default_role

TOKEN_FILE_ENV = "HERON_SERVICE_TOKEN_FILE"
CA_FILE_ENV = "HERON_SERVICE_CA_FILE"
ANSWER_BYTES_MAX = 64 << 20  # a plan of 100,000 tasks
_TOKEN_BYTES_MAX = 4096
_TIMEOUT_S = 600.0
_NOT_PACKED = frozenset(("__pycache__", ".git", ".hg", ".svn", ".venv", "node_modules"))


@dataclass(frozen=True, slots=True)
class Service:
    """An API server."""

    url: str
    token: str

    @classmethod
    def at(cls, url: str) -> Service:
        """The server at a URL, with this user's token.

        Raises:
            UsageError: it is not a URL of a server, or the token would travel in the clear.
            ConfigError: there is no token, or others can read it.
        """
        try:
            parts = urlsplit(url)
            port_is_one = parts.port is None or parts.port > 0
        except ValueError:
            port_is_one = False
        if not port_is_one or parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise UsageError(f"--service-url {url!r} must have the form https://HOST[:PORT]")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise UsageError(f"--service-url {url}: the token would travel in the clear: use https")
        path = user_path(os.environ.get(TOKEN_FILE_ENV) or home() / "service.token")
        try:
            token = read_owned_file(path, max_bytes=_TOKEN_BYTES_MAX, private=True).decode("ascii").strip()
        except (HeronError, UnicodeDecodeError) as e:
            why = e if isinstance(e, HeronError) else "it is not ASCII"
            raise ConfigError(
                f"the token for {url} cannot be read: {why}; write it there, or set {TOKEN_FILE_ENV}"
            ) from e
        if not token or any(character.isspace() for character in token):
            raise ConfigError(f"the token in {path} is not one word")
        return cls(url.rstrip("/"), token)

    def act(self, words: Sequence[str], verb: str, *, body: IO[bytes] | None = None, **query: Any) -> dict[str, Any]:
        """Have a verb done to the topology of `CLUSTER[/ROLE[/ENV]] NAME`: `kill`, or what is behind its path."""
        if verb == "kill":
            return self.call("DELETE", _path(words), query)
        return self.call("POST", f"{_path(words)}/{verb}", query, body)

    def topologies(self) -> list[dict[str, Any]]:
        """All topologies that were submitted through the server."""
        found: list[dict[str, Any]] = self._ask("GET", "topologies", {}, None, list)
        return found

    def status(self, words: Sequence[str]) -> dict[str, Any]:
        """The status of a topology, and why there is no more, if its Topology Master is silent."""
        return self.call("GET", _path(words), {})

    def call(self, method: str, path: str, query: Mapping[str, Any], body: IO[bytes] | None = None) -> dict[str, Any]:
        """Ask the server.

        Raises:
            UnavailableError: it does not answer, or not as such a server.
            HeronError: what it refuses with.
        """
        found: dict[str, Any] = self._ask(method, path, query, body, dict)
        return found

    def _ask(self, method: str, path: str, query: Mapping[str, Any], body: IO[bytes] | None, answer: type) -> Any:
        parts = urlsplit(self.url)
        given = {key: value for key, value in query.items() if value or (value is not False and value == 0)}
        text = urlencode({k: "true" if v is True else v for k, v in given.items()}, doseq=True)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/zip"}
        if body is not None:
            headers["Content-Length"] = str(os.fstat(body.fileno()).st_size)
        connection = self._connection(parts.scheme, str(parts.hostname), parts.port)
        try:
            target = f"{parts.path.rstrip('/')}/api/v1/{path}{'?' if text else ''}{text}"
            status, data = _exchange(connection, method, target, body, headers)
        except (OSError, http.client.HTTPException) as e:
            why = e.verify_message if isinstance(e, ssl.SSLCertVerificationError) else str(e) or type(e).__name__
            raise UnavailableError(f"the API server at {self.url} does not answer: {why}") from e
        finally:
            connection.close()
        try:
            values = json.loads(data)
            if status < 300 and isinstance(values, answer):
                return values
            message = str(values["message"])
        except (ValueError, LookupError, TypeError):
            raise UnavailableError(f"what is at {self.url} is not an API server: it answers {status}") from None
        raise _error(values, message, status)

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        try:
            context = ssl.create_default_context(cafile=os.environ.get(CA_FILE_ENV) or None)
        except OSError as e:
            raise ConfigError(f"{CA_FILE_ENV} cannot be read: {e.strerror or e}") from e
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)


def refuse(url: str, given: Mapping[str, object]) -> None:
    """Refuse options that only work without an API server, if there is one.

    Raises:
        UsageError: names the first that is given.
    """
    option = next((option for option, value in given.items() if value), "")
    if url and option:
        raise UsageError(f"{option} does not work through an API server (--service-url): leave one of them out")


def submit(
    url: str,
    place: Place,
    file: str,
    class_name: str,
    args: Sequence[str],
    *,
    properties: Sequence[str],
    name: str | None,
    deactivated: bool,
    dry_run: bool,
    dry_run_format: str,
) -> dict[str, Any]:
    """Send a program to an API server, and have it started there. The program does not run here."""
    service = Service.at(url)
    with tempfile.TemporaryFile() as archive:
        within = pack_program(file, class_name, archive)
        archive.seek(0)
        query = {
            "cluster": place.cluster,
            "role": place.role or default_role(),
            "environment": place.environ or "default",
            "topology_class": class_name,
            "file": within,
            "argument": list(args),
            "property": list(properties),
            "name": name,
            "deactivated": deactivated,
            "dry_run": dry_run,
            "dry_run_format": dry_run_format if dry_run else None,
        }
        return service.call("POST", "topologies", query, archive)


def update_code(
    url: str, words: Sequence[str], file: str, class_name: str, args: Sequence[str], *, timeout_s: float, dry_run: bool
) -> dict[str, Any]:
    """Send new code to an API server, for a topology that runs. The program does not run here."""
    service = Service.at(url)
    with tempfile.TemporaryFile() as archive:
        within = pack_program(file, class_name, archive)
        archive.seek(0)
        query = {"topology_class": class_name, "file": within, "argument": list(args)}
        return service.act(words, "code", body=archive, **query, timeout=timeout_s, dry_run=dry_run)


def pack_program(file: str, class_name: str, archive: IO[bytes]) -> str:
    """Write a program as a zip archive. Returns its script or module in the archive; empty: the archive is the program.

    With a script go the modules that it imports, by reading the import statements, from its own directory and from
    PYTHONPATH; with a dotted module those of the working directory.

    Raises:
        NotFoundError: there is no such file or module.
    """
    path = Path(file)
    if path.suffix in (".pex", ".zip"):
        try:
            archive.write(path.read_bytes())
        except OSError as e:
            raise NotFoundError(f"{file} cannot be read: {e.strerror}") from e
        return ""
    from heronpy.loader.sources import collect, roots

    if path.suffix == ".py":
        if not path.is_file():
            raise NotFoundError(f"no file {file}")
        path = path.resolve()
        root, within = _root_of(path, class_name)
        scripts, names = (
            {path.name: path} if root == path.parent else {},
            [within.partition("/")[0].removesuffix(".py")],
        )
    else:
        root, within = Path.cwd(), file
        scripts, names = {}, [file.partition(".")[0]]
    where = roots([str(root), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    sources = collect(names, where, scripts)
    if not sources:
        raise NotFoundError(f"no file {file}, and no module of this name in {root}")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for place, source in sources.items():
            for found in [source] if source.is_file() else sorted(source.rglob("*")):
                relative = Path(place) / found.relative_to(source)
                if found.is_file() and _NOT_PACKED.isdisjoint(relative.parts) and found.suffix != ".pyc":
                    out.write(found, relative.as_posix())
    return within


def _root_of(path: Path, class_name: str) -> tuple[Path, str]:
    """The directory that a script's imports start from, and the script below it: `a.b.Class` may be in …/a/b.py."""
    parts, own = class_name.split("."), path.with_suffix("").parts
    for length in range(len(parts) - 1, 1, -1):
        if own[-length:] == tuple(parts[:length]):
            root = path.parents[length - 1]
            return root, path.relative_to(root).as_posix()
    return path.parent, path.name


def _path(words: Sequence[str]) -> str:
    if len(words) != 2:
        raise UsageError("through an API server (--service-url), a topology is named as CLUSTER[/ROLE[/ENV]] NAME")
    place = Place.parse(words[0])
    names = (place.cluster, place.role or default_role(), place.environ or "default", words[1])
    return "/".join(("topologies", *(quote(name, safe="") for name in names)))


def _exchange(
    connection: http.client.HTTPConnection, method: str, target: str, body: IO[bytes] | None, headers: dict[str, str]
) -> tuple[int, bytes]:
    # It may refuse before it has read everything; then its answer says why.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, target, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read(ANSWER_BYTES_MAX)


def _error(values: Mapping[str, Any], message: str, status: int) -> HeronError:
    kind = getattr(errors, str(values.get("error")), None)
    if kind is UserCodeError:
        return UserCodeError(message, str(values.get("traceback") or ""))
    if isinstance(kind, type) and issubclass(kind, HeronError):
        return kind(message)
    return UsageError(message) if status < 500 else HeronError(message)
