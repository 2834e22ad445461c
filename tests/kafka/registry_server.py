"""A schema registry in memory: as much of its protocol as confluent-kafka's serializers use."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class RegistryServer:
    """A context manager: serves for the duration of the block. `away` and `user_info` may be changed meanwhile."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.away = False
        """Answers 503."""
        self.hangs = threading.Event()
        """Unless it is set, nothing is answered."""
        self.hangs.set()
        self.user_info = ""
        """`user:password`, without which it answers 401."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.hangs.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, body: dict[str, Any], authorization: str) -> tuple[int, dict[str, Any]]:
        """The status and body of an answer; each subject has one schema."""
        self.hangs.wait()
        if self.away:
            return 503, {"error_code": 50003, "message": "no leader"}
        if self.user_info and authorization != f"Basic {b64encode(self.user_info.encode()).decode()}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match method, path.partition("?")[0].strip("/").split("/"):
            case "POST", ["subjects", subject, *_]:
                schema = {"subject": subject, **{key: body[key] for key in ("schema", "schemaType") if key in body}}
                if schema not in self.schemas:
                    self.schemas.append(schema)
                return 200, {**schema, "id": self.schemas.index(schema) + 1, "version": 1}
            case "GET", ["schemas", "ids", number] if 1 <= int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case "GET", ["schemas", "ids", number]:
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _answer(self, body: dict[str, Any]) -> None:
            status, found = registry.answer(self.command, self.path, body, self.headers.get("Authorization", ""))
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler
