"""Puts dashboards into Grafana through its HTTP API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from heronpy.errors import UnavailableError, UsageError

TIMEOUT_S = 15.0
ANSWER_BYTES_MAX = 1 << 20


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes to the server that was named and to no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


class GrafanaClient:
    """One Grafana server.

    Args:
        url: where it is, e.g. `https://grafana.example.org/grafana`.
        token: of a service account that may write dashboards; empty where Grafana asks for none.

    Raises:
        UsageError: no http or https URL, or one with a password in it.
    """

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--grafana-url {url!r} must begin with http:// or https:// and name a host")
        if parts.username or parts.password:
            raise UsageError(
                "--grafana-url must not contain a password: command lines are seen by all; use --token-env"
            )
        self._url = url.rstrip("/")
        self._token = token
        self._opener = urllib.request.build_opener(_NoRedirect)

    def put(self, dashboard: dict[str, Any]) -> str:
        """Create a dashboard, or replace the one with its uid. Returns its URL.

        Raises:
            UnavailableError: Grafana does not answer, or refuses.
        """
        answer = self._post("/api/dashboards/db", {"dashboard": {**dashboard, "id": None}, "overwrite": True})
        return f"{self._url}/d/{answer.get('uid') or dashboard['uid']}"

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(f"{self._url}{path}", json.dumps(body).encode(), headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                answer = json.loads(response.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as e:
            raise UnavailableError(f"Grafana at {self._url} refuses the dashboard: {_reason(e)}") from e
        except urllib.error.URLError as e:
            raise UnavailableError(f"Grafana at {self._url} does not answer: {e.reason}") from e
        except (OSError, HTTPException) as e:
            raise UnavailableError(f"Grafana at {self._url} does not answer: {e}") from e
        except ValueError as e:
            raise UnavailableError(f"{self._url} answers, but not as Grafana does: {e}") from e
        if not isinstance(answer, dict):
            raise UnavailableError(f"{self._url} answers, but not as Grafana does")
        return answer


def _reason(error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return f"{error.code}, the token is missing, wrong, or may not write dashboards (see --token-env)"
    if 300 <= error.code < 400:
        return f"{error.code}, it has moved to {error.headers.get('Location')}: use that URL"
    try:
        message = json.loads(error.read(ANSWER_BYTES_MAX))["message"]
    except (OSError, ValueError, KeyError, TypeError):
        message = error.reason
    return f"{error.code} {message}"
