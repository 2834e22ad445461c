"""A real API server, and the command line without access to the cluster: submitted, steered and killed through it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from heronpy import submit
from heronpy.apiserver import Access, add_user
from heronpy.errors import UnavailableError
from heronpy.runtime import Launch
from heronpy.testing import eventually_sync

HERON = [sys.executable, "-m", "heronpy.cli"]
PROGRAM = """
import helper
from heronpy.api.bolt import Bolt
from heronpy.api.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import Topology
class Numbers(Spout):
    outputs = ["number"]
    def initialize(self, config, context): pass
    def next_tuple(self): self.emit([helper.NUMBER])
class Print(Bolt):
    def initialize(self, config, context): pass
    def process(self, tup): pass
class Words(Topology):
    numbers = Numbers.spec()
    printed = Print.spec(inputs={numbers: Grouping.SHUFFLE})
"""


class ApiServer:
    """`heron apiserver` as a process, with a HERON_HOME of its own."""

    def __init__(self, directory: Path, *args: str, **more: str) -> None:
        self.home = directory / "server-home"
        self.home.mkdir()
        self.tokens = {
            "reader": add_user(self.home / "apiserver.users.yaml", "reader", Access.READ, ["ada"]),
            "ada": add_user(self.home / "apiserver.users.yaml", "ada", Access.SUBMIT, []),
            "root": add_user(self.home / "apiserver.users.yaml", "root", Access.ADMIN, []),
        }
        environment = {**os.environ, "HERON_HOME": str(self.home), "SERVERS_SECRET": "swordfish", **more}
        self.process = subprocess.Popen(
            [*HERON, "apiserver", "--port", "0", "--json", *args],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=(directory / "server.log").open("w"),
            text=True,
        )
        self.log = directory / "server.log"
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def audited(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home / "apiserver.audit.jsonl").read_text().splitlines()]

    def run(self, *args: str) -> str:
        """What a command prints that is run on the server's machine."""
        environment = {**os.environ, "HERON_HOME": str(self.home)}
        done = subprocess.run([*HERON, *args], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(120)


class Client:
    """The command line of somebody who has a token, and nothing of the cluster."""

    def __init__(self, directory: Path, server: ApiServer, user: str) -> None:
        self.home = directory / f"{user}-home"
        self.home.mkdir()
        self._server = server
        token = self.home / "service.token"
        token.touch(0o600)
        token.write_text(server.tokens[user] + "\n")

    def run(self, *args: str, **more: str) -> tuple[int, str, str]:
        environment = {**os.environ, "HERON_HOME": str(self.home), "HERON_SERVICE_URL": self._server.url, **more}
        done = subprocess.run([*HERON, *args], env=environment, cwd=self.home, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def serving(directory: Path, *args: str, **more: str) -> Iterator[ApiServer]:
    server = ApiServer(directory, *args, **more)
    try:
        yield server
    finally:
        environment = {**os.environ, "HERON_HOME": str(server.home)}
        for name in ("Words", "Broken"):
            kill = [*HERON, "kill", "--force", "local/ada", name]
            subprocess.run(kill, env=environment, capture_output=True)
        assert server.stop() == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with serving(tmp_path, "--trust-users") as server:
        yield server


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("NUMBER = 1\n")
    (tmp_path / "words.py").write_text(PROGRAM)
    return tmp_path / "words.py"


def left(server: ApiServer) -> list[str]:
    """What a submission may leave in a server's home."""
    below = [*(server.home / "apiserver").iterdir(), *(server.home / "topologies").glob("*/*/*/*")]
    return sorted(path.name for path in below)


def without_id(text: str) -> str:
    """A plan without the id of its topology, which every dry run makes anew."""
    return re.sub(r"Words-[0-9a-f-]{36}", "Words-…", text)


def states(server: ApiServer) -> Sequence[Path]:
    return [path for path in (server.home / "state").rglob("Words*") if path.is_file()]


def test_a_topology_is_submitted_steered_and_killed_without_access(
    server: ApiServer, program: Path, tmp_path: Path
) -> None:
    ada = Client(tmp_path, server, "ada")
    place = "local/ada/default"
    for format in ("table", "raw", "json"):
        dry = ("submit", "--dry-run", "--dry-run-format", format, place, str(program), "Words")
        code, said, error = ada.run(*dry)
        assert (code, without_id(said)) == (0, without_id(server.run(*dry))), error
        assert "numbers" in said
    assert left(server) == []
    assert ada.run("topologies") == (0, "no topology runs\n", "")
    assert ada.run("submit", place, str(program), "Words") == (0, f"submitted Words to {place}\n", "")
    code, _, said = ada.run("submit", place, str(program), "Words")
    assert (code, said.count("\n"), "already running" in said) == (4, 1, True)

    launch = submit.find(server.home, "local", "ada", "default", "Words")

    eventually_sync(lambda: assert_runs(launch), within_s=120.0)
    reader = Client(tmp_path, server, "reader")
    assert reader.run("topologies", "local/ada") == (0, f"Words  {place}\n", "")
    assert reader.run("topologies", "local/eve") == (0, "no topology runs\n", "")
    code, said, error = reader.run("status", place, "Words")
    assert (code, "RUNNING" in said, "printed" in said, str(server.home) in said) == (0, True, True, False), error
    code, said, error = reader.run("status", "--json", place, "Words")
    assert (code, json.loads(said)["topology"], str(server.home) in said) == (0, "Words", False), error
    code, _, error = reader.run("logs", place, "Words")
    assert (code, "does not work through an API server" in error, error.count("\n")) == (2, True, 1)
    code, _, error = reader.run("kill", place, "Words")
    assert (code, "may not kill" in error) == (8, True)
    assert ada.run("deactivate", place, "Words")[:2] == (0, "deactivated Words\n")
    assert ada.run("activate", place, "Words")[:2] == (0, "activated Words\n")
    assert ada.run("restart", place, "Words", "1")[:2] == (0, "restarted container 1 of Words\n")
    for format in ("table", "raw", "json"):
        dry = (
            "update",
            "--dry-run",
            "--dry-run-format",
            format,
            "--component-parallelism",
            "printed:2",
            place,
            "Words",
        )
        code, said, error = ada.run(*dry)
        assert (code, said) == (0, server.run(*dry)), error
        assert ("added" in said, "printed" in said) == (True, True)
    code, said, error = ada.run("update", "--component-parallelism", "printed:2", "--containers", "1", place, "Words")
    assert (code, said) == (0, "printed: 1 → 2 tasks\nupdated Words\n"), error
    before = submit.plans(launch)[1]
    new_code = ("update", "--code", str(program), "--class", "Words", place, "Words")
    assert ada.run(*new_code)[:2] == (0, f"nothing to change: Words runs code {launch.code} already\n")
    (tmp_path / "helper.py").write_text("NUMBER = 2\n")
    code, said, error = ada.run(*new_code, "--dry-run")
    assert (code, said.startswith(f"code: {launch.code} → ")) == (0, True), error
    code, said, error = ada.run(*new_code, "--dry-run", "--dry-run-format", "json")
    assert (code, json.loads(said)["code"]["before"]) == (0, launch.code), error
    direct = json.loads(server.run(*new_code, "--dry-run", "--dry-run-format", "json"))
    assert (direct.keys(), direct["code"]["before"]) == (json.loads(said).keys(), launch.code)
    assert submit.plans(launch)[1] == before
    code, said, error = ada.run(*new_code)
    assert (code, said.splitlines()[-1][:21]) == (0, "Words runs code " + said.splitlines()[-1][16:21]), error
    accepted = submit.plans(launch)[1]
    assert (accepted.trial, accepted.versions) == (None, {said.split()[-1]})
    (tmp_path / "helper.py").write_text("import os\nNUMBER = 1 if 'HERON_INSTANCE' not in os.environ else 1 / 0\n")
    code, said, error = ada.run(*new_code)
    assert (code > 0, "is rolled back" in error, "ZeroDivisionError" in error, error.count("\n")) == (
        True,
        True,
        True,
        1,
    )
    (tmp_path / "helper.py").write_text("import os\nNUMBER = os.environ['SERVERS_SECRET']\n")
    code, said, error = ada.run(*new_code)
    assert (code > 0, "KeyError" in error, "swordfish" in error) == (True, True, False)
    assert submit.plans(launch)[1] == accepted
    assert ada.run("kill", place, "Words") == (0, "killed Words\n", "")
    assert left(server) == []
    assert states(server) == []
    code, _, said = ada.run("kill", place, "Words")
    assert (code, said.count("\n")) == (3, 1)
    lines = [(line["action"], line["outcome"]) for line in server.audited() if line["user"] == "ada"]
    done = [(line["action"], line["result"]) for line in server.audited() if line["outcome"] == "done"]
    assert done == [
        *[("submit", "Planned")] * 3,
        ("submit", "Submitted"),
        ("deactivate", "PAUSED"),
        ("activate", "RUNNING"),
        ("restart", "Restarted"),
        *[("update", "Planned")] * 3,
        ("update", "Updated"),
        ("update", "Unchanged"),
        *[("update", "Planned")] * 2,
        ("update", "Updated"),
        ("kill", "Killed"),
    ]
    assert lines[-1] == ("kill", "failed")


def test_what_is_refused_leaves_nothing_and_is_one_line(server: ApiServer, program: Path, tmp_path: Path) -> None:
    ada, reader = Client(tmp_path, server, "ada"), Client(tmp_path, server, "reader")
    (tmp_path / "broken.py").write_text("import os\nraise ValueError(os.environ.get('SERVERS_SECRET', 'nothing'))\n")
    for client, words, expected in (
        (reader, ("submit", "local/ada", str(program), "Words"), "may not submit"),
        (ada, ("submit", "local/eve", str(program), "Words"), "may not submit"),
        (ada, ("submit", "nowhere/ada", str(program), "Words"), "unknown cluster"),
        (ada, ("submit", "local/ada", str(program), "Wrods"), "did you mean 'Words'?"),
        (ada, ("submit", "local/ada", str(tmp_path / "broken.py"), "-"), "ValueError: nothing"),
        (ada, ("submit", "--config-property", "heron.class.scheduler=x", "local/ada", str(program), "Words"), "admin"),
        (ada, ("submit", "--requirements", "r.txt", "local/ada", str(program), "Words"), "--requirements"),
        (ada, ("kill", "Words"), "CLUSTER"),
    ):
        code, said, error = client.run(*words)
        assert code > 0, words
        assert said == ""
        assert expected in error.splitlines()[-1]
        assert "swordfish" not in error
        assert str(server.home) not in error
    assert left(server) == []
    wrong = tmp_path / "wrong.token"
    wrong.touch(0o600)
    wrong.write_text("wrong\n")
    code, _, error = ada.run("kill", "local/ada", "Words", HERON_SERVICE_TOKEN_FILE=str(wrong))
    assert (code > 0, "authentication required" in error, error.count("\n")) == (True, True, 1)
    wrong.chmod(0o644)
    code, _, error = ada.run("kill", "local/ada", "Words", HERON_SERVICE_TOKEN_FILE=str(wrong))
    assert (code, error.count("\n")) == (2, 1)
    code, _, error = ada.run("kill", "local/ada", "Words", HERON_SERVICE_URL="http://127.0.0.1:1")
    assert (code, "does not answer" in error, error.count("\n")) == (7, True, 1)
    code, _, error = ada.run("kill", "local/ada", "Words", HERON_SERVICE_URL="http://heron.example")
    assert (code, "in the clear" in error) == (2, True)


def test_code_of_users_who_are_no_admins_does_not_run_as_the_server(program: Path, tmp_path: Path) -> None:
    place = "local/ada/default"
    with serving(tmp_path) as server:
        ada, root = Client(tmp_path, server, "ada"), Client(tmp_path, server, "root")
        (said,) = server.log.read_text().splitlines()
        assert ("programs of ada are refused" in said, "--trust-users" in said) == (True, True)
        users = server.home / "apiserver.users.yaml"
        before = users.read_text()
        (tmp_path / "evil.py").write_text(f"with open({str(users)!r}, 'a') as file:\n    file.write('# evil')\n")
        for words in (("submit", "--dry-run"), ("submit",)):
            code, _, error = ada.run(*words, place, str(tmp_path / "evil.py"), "-")
            assert (code, "--define-user" in error, "--trust-users" in error, error.count("\n")) == (8, True, True, 1)
        assert users.read_text() == before
        assert left(server) == []
        assert root.run("submit", place, str(program), "Words") == (0, f"submitted Words to {place}\n", "")
        code, _, error = ada.run("update", "--code", str(program), "--class", "Words", place, "Words")
        assert (code, "as the server's own unix user" in error, error.count("\n")) == (8, True, 1)
        assert ada.run("kill", place, "Words") == (0, "killed Words\n", "")


def test_a_topology_of_the_servers_machine_does_not_have_its_environment(tmp_path: Path) -> None:
    place, found = "local/ada/default", tmp_path / "found.json"
    own = PROGRAM.replace("import helper", "import json, os").replace("helper.NUMBER", "1")
    stored = f"open({str(found)!r} + '.new', 'w').write(json.dumps(dict(os.environ))); "
    stored += f"os.rename({str(found)!r} + '.new', {str(found)!r})"
    (tmp_path / "words.py").write_text(
        own.replace(
            "def initialize(self, config, context): pass", f"def initialize(self, config, context): {stored}", 1
        )
    )
    with serving(tmp_path, "--pass-environment", "REGION", REGION="north") as server:
        root = Client(tmp_path, server, "root")
        assert root.run("submit", place, str(tmp_path / "words.py"), "Words")[0] == 0
        eventually_sync(lambda: assert_some([*tmp_path.glob(found.name)]), within_s=120.0)
        environment = json.loads(found.read_text())
        assert (environment.get("REGION"), "SERVERS_SECRET" in environment, "PATH" in environment) == (
            "north",
            False,
            True,
        )
        assert root.run("kill", "--force", place, "Words")[0] == 0


def test_a_topology_with_state_is_paused_and_killed_with_a_last_checkpoint(
    server: ApiServer, program: Path, tmp_path: Path
) -> None:
    place, ada = "local/ada/default", Client(tmp_path, server, "ada")
    stateful = ("topology.reliability.mode=EFFECTIVELY_ONCE", "topology.state.allow.lossy.spouts=true")
    words = [word for each in stateful for word in ("--config-property", each)]
    code, _, error = ada.run("submit", *words, place, str(program), "Words")
    assert code == 0, error
    launch = submit.find(server.home, "local", "ada", "default", "Words")
    eventually_sync(lambda: assert_runs(launch), within_s=120.0)
    code, said, error = ada.run("deactivate", place, "Words")
    assert (code, said.splitlines()[0], "has all that was emitted" in said) == (0, "deactivated Words", True), error
    assert ada.run("deactivate", "--timeout", "0", place, "Words") == (0, "deactivated Words\n", "")
    code, said, error = ada.run("kill", "--keep-state", place, "Words")
    assert (code, said) == (0, f"killed Words\nits checkpoints are left in {launch.checkpoints}\n"), error


def test_a_submission_goes_on_while_the_server_stops_and_that_is_said(program: Path, tmp_path: Path) -> None:
    place, begun = "local/ada/default", tmp_path / "begun"
    (tmp_path / "helper.py").write_text(f"import time\nopen({str(begun)!r}, 'w')\ntime.sleep(10)\nNUMBER = 1\n")
    with serving(tmp_path, "--trust-users") as server, ThreadPoolExecutor(1) as thread:
        ada = Client(tmp_path, server, "ada")
        asked = thread.submit(ada.run, "submit", place, str(program), "Words")
        eventually_sync(lambda: assert_some([*tmp_path.glob(begun.name)]), within_s=120.0)
        server.process.send_signal(signal.SIGTERM)
        code, _, error = asked.result()
        assert (code, "the server stops; submit of" in error, error.count("\n")) == (7, True, 1), error
        assert server.process.wait(120) == 0
        assert server.log.read_text() == ""
        outcomes = [(line["action"], line["outcome"]) for line in server.audited()]
        assert outcomes == [("submit", "started"), ("submit", "done")]
        assert server.run("topologies") == f"Words  {place}\n"


def test_a_submission_that_is_cut_in_the_middle_leaves_nothing(server: ApiServer, tmp_path: Path) -> None:
    parts = urlsplit(server.url)
    query = "cluster=local&role=ada&topology_class=Words&file=words.py"
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=30) as s:
        s.sendall(
            f"POST /api/v1/topologies?{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
            f"{server.tokens['ada']}\r\nContent-Length: 1000000\r\n\r\n".encode()
        )
        s.sendall(bytes(300_000))
        eventually_sync(lambda: assert_some(left(server)))
    eventually_sync(lambda: assert_none(left(server)))
    assert server.audited() == []
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
    connection.request("GET", "/health")
    assert connection.getresponse().read() == b"ok"
    connection.close()


def test_tokens_do_not_travel_in_the_clear(tmp_path: Path) -> None:
    environment = {**os.environ, "HERON_HOME": str(tmp_path)}
    done = subprocess.run([*HERON, "apiserver", "--host", "0.0.0.0"], env=environment, capture_output=True, text=True)
    assert (done.returncode, "--tls-cert" in done.stderr, done.stderr.count("\n")) == (2, True, 1)


def test_a_server_has_a_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    server = ApiServer(tmp_path, "--tls-cert", str(certificate), "--tls-key", str(key))
    try:
        assert server.url.startswith("https://")
        ada = Client(tmp_path, server, "ada")
        code, _, error = ada.run("kill", "local/ada", "Words", HERON_SERVICE_CA_FILE=str(certificate))
        assert (code, "no topology 'Words'" in error) == (3, True), error
        code, _, error = ada.run("kill", "local/ada", "Words")
        assert (code, "self-signed" in error, error.count("\n")) == (7, True, 1), error
    finally:
        assert server.stop() == 0


def assert_runs(launch: Launch) -> None:
    try:
        assert submit.status(launch).ready
    except UnavailableError as e:
        raise AssertionError(str(e)) from e


def assert_some(found: list[str]) -> None:
    assert found


def assert_none(found: list[str]) -> None:
    assert found == []
