"""Where the API server is and who we are: kubeconfigs, credential plugins, and what is refused by name."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from heronpy.errors import ConfigError
from heronpy.kubernetes import Access, Api, KubernetesError, load_access


def kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "streams"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_token_and_a_namespace(tmp_path: Path) -> None:
    access = load_access(kubeconfig=kubeconfig(tmp_path / "config", {"token": "t0p"}))
    assert (access.namespace, access.server, access.token()) == ("streams", "http://127.0.0.1:1", "t0p")
    assert "t0p" not in repr(access)


def test_a_token_file_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0p\n")
    assert load_access(kubeconfig=kubeconfig(tmp_path / "config", {"tokenFile": "token"})).token() == "t0p"


def test_a_credential_plugin_is_run_once_while_its_credential_is_good(tmp_path: Path) -> None:
    program = (
        "import json, os, pathlib; calls = pathlib.Path('calls'); calls.open('a').write('x');"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential';"
        "print(json.dumps({'status': {'token': os.environ['WORD'], 'expirationTimestamp': '2999-01-01T00:00:00Z'}}))"
    )
    calls = tmp_path / "calls"
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", program.replace("'calls'", repr(str(calls)))],
            "env": [{"name": "WORD", "value": "t0p"}],
        }
    }
    access = load_access(kubeconfig=kubeconfig(tmp_path / "config", user))
    assert [access.token(), access.token()] == ["t0p", "t0p"]
    assert calls.read_text() == "x"


@pytest.mark.parametrize(
    ("user", "cluster", "context", "message"),
    [
        ({}, {"proxy-url": "http://p"}, "", "proxy-url of cluster 'c' is not supported"),
        ({"auth-provider": {"name": "gcp"}}, {}, "", "auth-provider, which is obsolete: use exec"),
        ({}, {"server": "ftp://x"}, "", "has no server that is an http"),
        ({}, {}, "y", "has no context 'y'"),
        ({}, {"server": "https://x", "certificate-authority": "none.pem"}, "", "certificates of context 'x' cannot be"),
        ({}, {"server": "https://x", "certificate-authority-data": "!"}, "", "certificates of context 'x' cannot be"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], context: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_access(context, kubeconfig=kubeconfig(tmp_path / "config", user, **cluster))
    assert "\n" not in str(caught.value)


def test_a_credential_plugin_that_is_missing_or_fails_is_named(tmp_path: Path) -> None:
    missing = {"exec": {"command": "no-such-plugin", "installHint": "get it\nthere"}}
    with pytest.raises(ConfigError, match=r"'no-such-plugin' of the kubeconfig is not installed: get it$"):
        load_access(kubeconfig=kubeconfig(tmp_path / "config", missing)).token()
    failing = {"exec": {"command": sys.executable, "args": ["-c", "raise SystemExit('log in first')"]}}
    with pytest.raises(ConfigError, match="failed: log in first"):
        load_access(kubeconfig=kubeconfig(tmp_path / "config", failing)).token()


class Script:
    """A server that answers as it is told, one answer per request."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], Any]] = []
        self.requests: list[str] = []


@pytest.fixture
def script() -> Iterator[tuple[Script, Api]]:
    script = Script()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            script.requests.append(f"{self.command} {self.path}")
            status, headers, body = script.answers.pop(0)
            if status == 0:  # the answer is lost
                self.close_connection = True
                return
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_PUT = do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    api = Api(Access(server=f"http://127.0.0.1:{server.server_port}"))
    yield script, api
    api.close()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_busy_server_is_asked_again_and_that_is_no_repetition(script: tuple[Script, Api]) -> None:
    answers, api = script
    answers.answers = [(429, {"Retry-After": "1"}, {}), (200, {}, {"kind": "Pod"})]
    found = api.call("PUT", "/x", {})
    assert (found.body, found.repeated) == ({"kind": "Pod"}, False)


@pytest.mark.parametrize(
    "lost", [(0, {}, None), (503, {}, {}), (500, {}, {"message": "etcdserver: request timed out"})]
)
def test_who_repeats_what_may_have_been_done_knows_it(script: tuple[Script, Api], lost: tuple[int, Any, Any]) -> None:
    answers, api = script
    answers.answers = [lost, (409, {}, {"reason": "Conflict", "message": "it\nmoved"})]
    with pytest.raises(KubernetesError, match="refuses PUT /x: it moved") as caught:
        api.call("PUT", "/x", {})
    assert (caught.value.status, caught.value.reason, caught.value.repeated) == (409, "Conflict", True)


def test_a_refusal_is_not_tried_again(script: tuple[Script, Api]) -> None:
    answers, api = script
    answers.answers = [(401, {}, {"message": "Unauthorized"})]
    with pytest.raises(KubernetesError, match="credentials are not accepted"):
        api.get("/x")
    assert len(answers.requests) == 1


def test_how_long_a_server_was_waited_for_is_said_in_a_round_number() -> None:
    with pytest.raises(KubernetesError, match=r"127\.0\.0\.1:1 does not answer \(waited 0\.2 s\): Connection refused"):
        Api(Access(server="https://127.0.0.1:1")).get("/api", timeout_s=0.199999)
