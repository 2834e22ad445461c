"""A server that takes dashboards as Grafana's HTTP API does."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "glsa_secret"


class GrafanaServer:
    """Takes dashboards with the right token."""

    def __init__(self) -> None:
        self.dashboards: dict[str, Any] = {}
        self.authorization: list[str | None] = []
        self.answer: tuple[int, str, dict[str, str]] | None = None
        """What it answers instead: status, body, headers."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.authorization.append(self.headers["Authorization"])
                status, text, headers = outer.answer or outer.take(self.path, self.headers["Authorization"], body)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def take(self, path: str, authorization: str | None, body: dict[str, Any]) -> tuple[int, str, dict[str, str]]:
        if path != "/grafana/api/dashboards/db":
            return 404, '{"message": "Not found"}', {}
        if authorization != f"Bearer {TOKEN}":
            return 401, '{"message": "Unauthorized"}', {}
        uid = body["dashboard"]["uid"]
        if uid in self.dashboards and not body["overwrite"]:
            return 412, '{"message": "A dashboard with that uid already exists"}', {}
        self.dashboards[uid] = body["dashboard"]
        return 200, json.dumps({"uid": uid, "status": "success", "version": 1}), {}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(300)
