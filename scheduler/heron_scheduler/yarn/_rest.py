"""The ResourceManager's web services: how applications are submitted, looked at and killed."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from heron_scheduler.yarn._config import PREFIX, YarnConfig
from heronpy.errors import ConfigError, NotFoundError, UnavailableError

T = TypeVar("T")

TIMEOUT_S = 10.0
APPLICATION_TYPE = "HERON"
OVER = frozenset({"FINISHED", "FAILED", "KILLED"})
_BYTES_MAX = 64 << 20
_HOPELESS = ("unknown queue", "cannot submit", "does not have permission", "is STOPPED", "AccessControlException")
_QUEUE = f"set {PREFIX}queue to one that is there and takes applications of {PREFIX}user"
"""What to do about all of these."""
_LABEL = f"set {PREFIX}node.label to one that is there, and {PREFIX}queue to one that may use it"
_EXIT_CODE = re.compile(r"exitCode: (-?\d+)")
_SIGNALS = 128
_LOOPBACK = ("localhost", "127.", "0.0.0.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What the ResourceManager says of an application."""

    id: str
    state: str
    queue: str
    diagnostics: str
    has_container: bool
    """Whether its application master has been given a container."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        return cls(
            id=_part(values, "id", str),
            state=_part(values, "state", str),
            queue=str(values.get("queue", "")),
            diagnostics=one_line(str(values.get("diagnostics") or "")),
            has_container=bool(values.get("amHostHttpAddress")),
        )

    @property
    def over(self) -> bool:
        return self.state in OVER


class Rest:
    """The web services of a cluster, as one user. Each call raises UnavailableError if no ResourceManager answers."""

    def __init__(self, config: YarnConfig) -> None:
        self._config = config

    def new_application(self) -> tuple[str, int, int]:
        """An id for an application, and the largest container that there can be: its MiB and vcores."""
        found = self._call("POST", "/ws/v1/cluster/apps/new-application", body={})
        largest = _part(found, "maximum-resource-capability", dict)
        memory, vcores = (int(str(_part(largest, name, object))) for name in ("memory", "vCores"))
        return _part(found, "application-id", str), memory, vcores

    def submit(self, document: Mapping[str, Any]) -> None:
        """Submit an application.

        Raises:
            ConfigError: the cluster refuses it as it is.
        """
        self._call("POST", "/ws/v1/cluster/apps", body=document)

    def application(self, id: str) -> Application:
        """Raises NotFoundError: there is no such application any more."""
        return Application.of(_part(self._call("GET", f"/ws/v1/cluster/apps/{id}"), "app", dict))

    def tagged(self, tag: str) -> list[Application]:
        """The applications with a tag that are not over, the newest last."""
        query = urllib.parse.urlencode({"applicationTypes": APPLICATION_TYPE, "applicationTags": tag})
        found = _part(self._call("GET", f"/ws/v1/cluster/apps?{query}"), "apps", dict, {})
        alive = (Application.of(one) for one in found.get("app", []))
        return sorted((one for one in alive if not one.over), key=lambda one: one.id)

    def failed_attempt(self, id: str) -> str:
        """Why an application master has ended by itself; empty: none has. One that was lost or killed is run again."""
        attempts = f"/ws/v1/cluster/apps/{id}/appattempts"
        found = _part(self._call("GET", attempts), "appAttempts", dict, {})
        for attempt in found.get("appAttempt", []):
            if attempt.get("appAttemptState") == "FAILED":
                text = str(self._call("GET", f"{attempts}/{attempt['appAttemptId']}").get("diagnosticsInfo") or "")
                code = _EXIT_CODE.search(text)
                if code is not None and 0 < int(code[1]) < _SIGNALS:
                    return reason_in(text) or f"exit code {code[1]}"
        return ""

    def kill(self, id: str) -> None:
        """Order the end of an application."""
        self._call("PUT", f"/ws/v1/cluster/apps/{id}/state", body={"state": "KILLED"})

    def scheduler_addresses(self) -> list[str]:
        """Where application masters reach the ResourceManager: what the configuration says, else what that says."""
        if self._config.scheduler_address:
            return [one.strip() for one in self._config.scheduler_address.split(",")]
        key = "yarn.resourcemanager.scheduler.address"
        try:
            address = str(self._call("GET", f"/conf?name={key}")["property"]["value"])
        except (UnavailableError, NotFoundError, LookupError, TypeError) as e:
            raise ConfigError(f"the ResourceManager does not report {key}: set {PREFIX}scheduler.address") from e
        host, _, port = address.rpartition(":")
        if host.startswith(_LOOPBACK):  # as it calls itself
            host = urllib.parse.urlsplit(self._config.urls[0]).hostname or host
        return [f"{host}:{port}"]

    def page(self, id: str) -> str:
        """Where a user can look at an application."""
        return f"{self._config.urls[0]}/cluster/app/{id}"

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        trouble = ""
        for url in self._config.urls:
            separator = "&" if "?" in path else "?"
            address = f"{url}{path}{separator}user.name={urllib.parse.quote(self._config.caller)}"
            data = None if body is None else json.dumps(body).encode()
            headers = {"Accept": "application/json", "Content-Type": "application/json"}
            request = urllib.request.Request(address, data, headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
                    found = reply.read(_BYTES_MAX)
                value = json.loads(found) if found.strip() else {}
                if isinstance(value, dict):
                    return value
                trouble = f"{url} is not a ResourceManager"
            except urllib.error.HTTPError as e:
                if e.code != 307:  # else it is a standby
                    raise _refusal(url, e) from e
                trouble = f"{url} is a standby"
            except (OSError, ValueError) as e:
                reason = getattr(e, "reason", e)
                trouble = f"{url} does not answer: {getattr(reason, 'strerror', None) or reason}"
            except http.client.HTTPException as e:
                trouble = f"{url} does not speak HTTP ({type(e).__name__})"
        raise UnavailableError(f"no ResourceManager of YARN: {trouble}; see {PREFIX}resourcemanager")


def _part(values: Mapping[str, Any], name: str, kind: type[T], if_null: T | None = None) -> T:
    """A part of an answer; a ResourceManager says null where there is nothing of a kind.

    Raises:
        UnavailableError: the answer has none: it is no ResourceManager's.
    """
    value = values.get(name, ...) or if_null
    if value is ... or not isinstance(value, kind):
        raise UnavailableError(f"what answers is not a ResourceManager of YARN: it says nothing of {name}")
    return value


def _refusal(url: str, error: urllib.error.HTTPError) -> Exception:
    with error:
        text = error.read(1 << 20).decode(errors="replace")
    try:
        message = one_line(json.loads(text)["RemoteException"]["message"])
    except (ValueError, LookupError, TypeError):
        message = f"HTTP {error.code} {error.reason}"
    if error.code == 401:
        return UnavailableError(
            f"{url} requires authentication by other means than a user's name, which is not supported: {message}"
        )
    if error.code == 404:
        return NotFoundError(message)
    if error.code == 400 or hopeless(message):
        return ConfigError(f"YARN refuses: {message}{remedy(message)}")
    return UnavailableError(f"YARN refuses: {message}")


def hopeless(text: str) -> bool:
    """Whether an application has been refused for what it asks."""
    return any(word in text for word in _HOPELESS)


def remedy(text: str) -> str:
    """`; …` with what to do about a refusal, or nothing."""
    if "label" in text.lower():
        return f"; {_LABEL}"
    if "cannot accept submission" in text and "already has" in text:
        return f"; kill one of them, or set {PREFIX}queue to another"
    return f"; {_QUEUE}" if hopeless(text) else ""


def one_line(text: str) -> str:
    """The first line that says something, without Java's names and stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = next((line for line in lines if not line.startswith("at ")), "")
    while (head := line.partition(": "))[0].startswith(("org.apache.", "java.", "javax.")):
        line = head[2]
    return line[:400]


def reason_in(diagnostics: str) -> str:
    """What a container that has failed has said last, out of what a NodeManager says of it."""
    lines = [line.strip() for line in diagnostics.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("heron: ")]
    if ours:
        return ours[-1].removeprefix("heron: ")[:300]
    shell = [line for line in lines if ": No such file or directory" in line or ": Permission denied" in line]
    if shell:
        return shell[-1].rpartition("line ")[2].partition(": ")[2][:300] or shell[-1][:300]
    return one_line(diagnostics)[:300]
