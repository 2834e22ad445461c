"""Who is answered by an API server, what it accepts, and what it writes down."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import re
import threading
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from heronpy.apiserver import Access, ApiServerApp, ApiServerConfig, Users, add_user, create_app
from heronpy.cli.parts import Service, pack_program
from heronpy.errors import AlreadyExistsError, ConfigError, ForbiddenError, NotFoundError
from heronpy.testing import eventually

TOPOLOGY = "/api/v1/topologies/local/ada/default/words"
SUBMIT = {"cluster": "local", "role": "ada", "topology_class": "C"}


@pytest.fixture
def config(tmp_path: Path) -> ApiServerConfig:
    home = tmp_path / "home"
    return ApiServerConfig(
        home=home,
        users_file=tmp_path / "users.yaml",
        audit_file=tmp_path / "audit.jsonl",
        upload_bytes_max=10_000,
        trusts_users=True,
    )


@pytest.fixture
def tokens(config: ApiServerConfig) -> dict[str, str]:
    return {
        "reader": add_user(config.users_file, "reader", Access.READ, ["ada"]),
        "ada": add_user(config.users_file, "ada", Access.SUBMIT, []),
        "root": add_user(config.users_file, "root", Access.ADMIN, []),
    }


@pytest.fixture
async def http(config: ApiServerConfig, tokens: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(config)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:9000") as client:
        yield client
    app.state.server.actions.close()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def audited(config: ApiServerConfig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in config.audit_file.read_text().splitlines()]


async def test_nobody_is_answered_without_a_token(http: httpx.AsyncClient, config: ApiServerConfig) -> None:
    for headers in (
        {},
        bearer("wrong"),
        bearer(""),
        {"authorization": "Basic YTpi"},
        [(b"authorization", "Bearer ü".encode())],
    ):
        for method, path in (("GET", "/api/v1/version"), ("DELETE", TOPOLOGY), ("POST", "/api/v1/topologies")):
            answer = await http.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["message"].count("\n")) == (401, 0)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await http.get("/health")).text == "ok"
    assert (await http.get("/docs")).status_code == 200
    assert audited(config) == []


async def test_a_request_by_another_name_is_refused(http: httpx.AsyncClient, tokens: dict[str, str]) -> None:
    answer = await http.get("/api/v1/version", headers={**bearer(tokens["root"]), "host": "evil.example"})
    assert answer.status_code == 421


async def test_a_request_is_refused_before_it_is_read(http: httpx.AsyncClient, tokens: dict[str, str]) -> None:
    read: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        for piece in (b"x" * 1000,) * 100:
            read.append(piece)
            yield piece

    async def post(path: str = "/api/v1/topologies", **headers: str) -> int:
        read.clear()
        return (await http.post(path, params=SUBMIT, headers=headers, content=body())).status_code

    assert (await post(), read) == (401, [])
    assert (await post(**bearer(tokens["reader"])), read) == (403, [])
    assert (await post(**bearer(tokens["ada"]), **{"content-length": "100000"}), read) == (413, [])
    assert await post(**bearer(tokens["ada"])) == 413
    assert len(read) <= 12
    assert (await post(f"{TOPOLOGY}/code", **bearer(tokens["reader"])), read) == (403, [])
    assert (await post(f"{TOPOLOGY}/code", **bearer(tokens["ada"])), read) == (404, [])


async def test_who_sends_slowly_holds_up_nobody_else(http: httpx.AsyncClient, tokens: dict[str, str]) -> None:
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        begun.release()
        await go_on.wait()
        yield b""

    async def post(user: str, body: AsyncIterator[bytes] | bytes) -> int:
        answer = await http.post("/api/v1/topologies", params=SUBMIT, headers=bearer(tokens[user]), content=body)
        return answer.status_code

    waiting = [asyncio.create_task(post("ada", slowly())) for _ in range(10)]
    await begun.acquire()
    assert await post("root", b"no archive") == 400
    go_on.set()
    assert set(await asyncio.gather(*waiting)) == {400}


async def test_who_may_what(http: httpx.AsyncClient, tokens: dict[str, str], config: ApiServerConfig) -> None:
    other = TOPOLOGY.replace("/ada/", "/eve/")
    for name, path, status in (
        ("reader", TOPOLOGY, 403),
        ("ada", other, 403),
        ("ada", TOPOLOGY, 404),  # there is none
        ("root", other, 404),
    ):
        for verb in ("", "/activate", "/deactivate", "/restart", "/update?container_number=2"):
            method = "POST" if verb else "DELETE"
            answer = await http.request(method, path + verb, headers=bearer(tokens[name]))
            assert (name, verb, answer.status_code) == (name, verb, status), answer.text
            assert answer.json()["error"] in ("ForbiddenError", "NotFoundError")
        assert (await http.get("/api/v1/topologies", headers=bearer(tokens[name]))).json() == []
    lines = audited(config)
    assert [line["outcome"] for line in lines if line["user"] == "reader"] == ["refused"] * 5
    mine = [line for line in lines if line["user"] == "root"]
    assert [line["outcome"] for line in mine] == ["started", "failed"] * 5
    assert {line["status"] for line in mine if line["outcome"] == "failed"} == {404}
    assert mine[0]["topology"] == "local/eve/default/words"
    assert not any(token in config.audit_file.read_text() for token in tokens.values())
    assert config.audit_file.stat().st_mode & 0o777 == 0o600


async def test_the_status_of_a_topology_is_for_users_of_its_role(
    http: httpx.AsyncClient, tokens: dict[str, str], config: ApiServerConfig
) -> None:
    for name, path, status in (
        ("reader", TOPOLOGY, 404),  # there is none
        ("reader", TOPOLOGY.replace("/ada/", "/eve/"), 403),
        ("ada", TOPOLOGY.replace("/ada/", "/eve/"), 403),
        ("root", TOPOLOGY.replace("/ada/", "/eve/"), 404),
    ):
        answer = await http.get(path, headers=bearer(tokens[name]))
        assert (name, path, answer.status_code) == (name, path, status), answer.text
    assert audited(config) == []


async def test_what_makes_no_sense_is_one_line(http: httpx.AsyncClient, tokens: dict[str, str]) -> None:
    ada = bearer(tokens["ada"])
    for method, path in (
        ("DELETE", TOPOLOGY + "?timeout=soon"),
        ("POST", TOPOLOGY + "/restart?container_id=-1"),
        ("POST", TOPOLOGY + "/update"),
        ("POST", TOPOLOGY + "/update?component_parallelism=x"),
        ("DELETE", "/api/v1/topologies/local/ada/default/..%2f..%2fx"),
        ("POST", "/api/v1/topologies"),
        ("POST", "/api/v1/topologies?cluster=local&role=ada&topology_class=C"),
        ("POST", "/api/v1/topologies?cluster=local&role=ada&topology_class=C&property=x"),
    ):
        answer = await http.request(method, path, headers=ada)
        assert answer.status_code in (400, 404), (path, answer.text)
        assert "\n" not in answer.json()["message"]
    assert (await http.get("/nothing", headers=ada)).status_code == 404


async def test_the_configuration_of_others_is_not_a_users_to_change(
    http: httpx.AsyncClient, tokens: dict[str, str], config: ApiServerConfig
) -> None:
    async def submit(user: str, key: str) -> tuple[int, str]:
        answer = await http.post(
            "/api/v1/topologies", params={**SUBMIT, "property": f"{key}=x"}, headers=bearer(tokens[user]), content=b"x"
        )
        return answer.status_code, answer.json()["message"]

    for key in (
        "heron.statemgr.root.path",
        "heron.uploader.url",
        "heron.class.scheduler",
        "heron.statefulstorage.url",
        "heron.executor.docker.image",
        "heron.executor.cgroup.parent",
        "heron.executor.limits",
    ):
        assert await submit("ada", key) == (403, f"the request sets {key}: only an admin may")
    for key in ("heron.package.requirements", "topology.secrets"):  # the server's own files
        refused = (400, f"the request sets {key}, which does not work through an API server")
        assert await submit("root", key) == refused
    assert await submit("ada", "heron.instance.nice") == (400, "the program is not a zip archive")
    assert list((config.home / "apiserver").iterdir()) == []


async def test_what_cannot_be_written_down_is_not_done(
    http: httpx.AsyncClient, tokens: dict[str, str], config: ApiServerConfig
) -> None:
    config.audit_file.unlink()
    config.audit_file.mkdir()
    answer = await http.delete(TOPOLOGY, headers=bearer(tokens["root"]))
    assert answer.status_code == 503
    assert "audit log" in answer.json()["message"]


async def test_a_program_for_which_there_is_no_room_is_one_line(
    http: httpx.AsyncClient, tokens: dict[str, str], config: ApiServerConfig, tmp_path: Path
) -> None:
    scratch = config.home / "apiserver"
    scratch.rename(tmp_path / "moved")
    answer = await http.post("/api/v1/topologies", params=SUBMIT, content=b"x", headers=bearer(tokens["root"]))
    assert (answer.status_code, answer.json()["message"]) == (
        503,
        "the program cannot be written: No such file or directory",
    )


class BlockedKills:
    """Kills that end when they may."""

    def __init__(self, app: ApiServerApp) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        app.state.server.actions.find = lambda *place, **_: None
        app.state.server.actions.kill = self._kill

    def check_begun(self) -> None:
        assert self.begun.acquire(blocking=False)

    def _kill(self, _launch: None, **_: Any) -> dict[str, Any]:
        self.begun.release()
        assert self.may_end.wait(600)
        return {"cluster": "local", "role": "ada", "environment": "default", "name": "words", "status": "Killed"}


@contextlib.asynccontextmanager
async def blocked_kills(
    config: ApiServerConfig, token: str, count: int
) -> AsyncIterator[tuple[ApiServerApp, httpx.AsyncClient, BlockedKills]]:
    app = create_app(config)
    kills = BlockedKills(app)
    transport = httpx.ASGITransport(app)
    # As on a host with a single core, but for the actions.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1:9000", headers=bearer(token)
    ) as client:
        asked = [asyncio.create_task(client.delete(TOPOLOGY)) for _ in range(count)]
        try:
            await eventually(kills.check_begun)
            yield app, client, kills
        finally:
            kills.may_end.set()
            answers = await asyncio.gather(*asked)
            app.state.server.actions.close()
    assert [answer.status_code for answer in answers] == [200] * count


async def test_actions_that_wait_hold_up_nobody_who_only_looks(config: ApiServerConfig, tokens: dict[str, str]) -> None:
    async with blocked_kills(config, tokens["ada"], 2) as (_, client, _kills), asyncio.timeout(300):
        assert (await client.get("/api/v1/topologies")).json() == []


async def test_a_user_who_asks_for_many_lists_holds_up_no_other(
    config: ApiServerConfig, tokens: dict[str, str]
) -> None:
    app = create_app(config)
    begun, may_end, is_first = threading.Semaphore(0), threading.Event(), True

    def listed() -> list[dict[str, Any]]:
        if is_first:
            begun.release()
            assert may_end.wait(600)
        return []

    def check_begun() -> None:
        assert begun.acquire(blocking=False)

    app.state.server.actions.listed = listed
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # as on a host with a single core
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:9000") as client:
        path = "/api/v1/topologies"
        asked = [asyncio.create_task(client.get(path, headers=bearer(tokens["reader"]))) for _ in range(20)]
        try:
            await eventually(check_begun)
            is_first = False
            async with asyncio.timeout(60):
                assert (await client.get(path, headers=bearer(tokens["ada"]))).status_code == 200
            assert not any(one.done() for one in asked)
        finally:
            may_end.set()
            answers = await asyncio.gather(*asked)
            app.state.server.actions.close()
    assert [answer.status_code for answer in answers] == [200] * 20


async def test_what_is_done_is_answered_also_if_its_outcome_cannot_be_written_down(
    config: ApiServerConfig, tokens: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with blocked_kills(config, tokens["root"], 1):  # expects 200
        config.audit_file.unlink()
        config.audit_file.mkdir()
    assert "the outcome of action" in caplog.text
    assert "'result': 'Killed'" in caplog.text


async def test_no_more_actions_wait_than_are_configured(config: ApiServerConfig, tokens: dict[str, str]) -> None:
    async with blocked_kills(replace(config, actions_max=1), tokens["ada"], 1) as (_, client, _kills):
        async with asyncio.timeout(300):
            refused = await client.delete(TOPOLOGY)
        assert (refused.status_code, "try again" in refused.text) == (503, True)
        assert list((config.home / "apiserver").iterdir()) == []
    async with blocked_kills(replace(config, actions_max=1), tokens["root"], 1) as (_, client, _kills):
        with io.BytesIO() as data:
            zipfile.ZipFile(data, "w").close()
            refused = await client.post("/api/v1/topologies", params=SUBMIT, content=data.getvalue())
        assert (refused.status_code, "was not started" in refused.text) == (503, True)
        assert list((config.home / "apiserver").iterdir()) == []


async def test_a_server_that_stops_ends_what_it_has_begun(config: ApiServerConfig, tokens: dict[str, str]) -> None:
    async with blocked_kills(config, tokens["ada"], 1) as (app, _client, kills):
        lifespan = app.router.lifespan_context(app)
        await lifespan.__aenter__()
        stopped = asyncio.create_task(lifespan.__aexit__(None, None, None))
        await asyncio.wait({stopped}, timeout=0.5)
        assert not stopped.done()
        with pytest.raises(AlreadyExistsError, match="HERON_HOME"):
            create_app(config)
        kills.may_end.set()
        await stopped
        create_app(config).state.server.actions.close()
    assert [line["outcome"] for line in audited(config)] == ["started", "done"]


def check_done(tasks: Sequence[asyncio.Task[httpx.Response]], count: int) -> None:
    assert sum(task.done() for task in tasks) == count


class SlowActivations:
    """Activations of role ada's topologies end when they may; all else is done at once."""

    def __init__(self, app: ApiServerApp) -> None:
        self.started = 0
        self.may_end = threading.Event()
        actions = app.state.server.actions
        actions.find = lambda *place, **_: place
        actions.activate = self._activate
        actions.kill = lambda place, **_: {**self._named(place), "status": "Killed"}

    def check_started(self, count: int) -> None:
        assert self.started == count

    def _activate(self, place: tuple[str, ...]) -> dict[str, Any]:
        self.started += 1
        assert place[1] != "ada" or self.may_end.wait(30)
        return {**self._named(place), "status": "RUNNING"}

    def _named(self, place: tuple[str, ...]) -> dict[str, Any]:
        return dict(zip(("cluster", "role", "environment", "name"), place, strict=True))


async def test_a_user_whose_actions_wait_holds_up_neither_others_nor_a_kill(
    config: ApiServerConfig, tokens: dict[str, str]
) -> None:
    eve = bearer(add_user(config.users_file, "eve", Access.SUBMIT, []))
    ada, root = bearer(tokens["ada"]), bearer(tokens["root"])
    app = create_app(config)
    slow = SlowActivations(app)
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:9000") as client,
        asyncio.timeout(300),
    ):
        asked = [asyncio.create_task(client.post(f"{TOPOLOGY}/activate", headers=ada)) for _ in range(40)]
        refused = 40 - config.actions_max // 4
        await eventually(lambda: slow.check_started(4))
        await eventually(lambda: check_done(asked, refused))
        assert {one.result().status_code for one in asked if one.done()} == {503}
        others = TOPOLOGY.replace("/ada/", "/eve/")
        assert (await client.post(f"{others}/activate", headers=eve)).status_code == 200
        assert (await client.post(f"{others}/activate", headers=root)).status_code == 200
        for headers in (ada, root):
            assert (await client.delete(TOPOLOGY, headers=headers)).status_code == 200
        slow.may_end.set()
        answers = [(await one).status_code for one in asked]
    app.state.server.actions.close()
    assert sorted(answers) == [200] * (40 - refused) + [503] * refused
    lines = [line for line in audited(config) if line["outcome"] == "refused"]
    assert [(line["user"], "of user ada" in line["error"]) for line in lines] == [("ada", True)] * refused


async def test_a_server_that_stops_says_what_goes_on_and_what_was_not_started(
    config: ApiServerConfig, tokens: dict[str, str]
) -> None:
    app = create_app(config)
    slow = SlowActivations(app)
    sent = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        sent.set()
        await asyncio.Event().wait()
        yield b""

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:9000", headers=bearer(tokens["ada"])
    ) as client:
        asked = [asyncio.create_task(client.post(f"{TOPOLOGY}/activate")) for _ in range(6)]
        uploading = asyncio.create_task(client.post("/api/v1/topologies", params=SUBMIT, content=body()))
        await eventually(lambda: slow.check_started(4))
        await sent.wait()
        app.state.server.stop()
        async with asyncio.timeout(300):
            answers = [await one for one in (*asked, uploading)]
        assert {answer.status_code for answer in answers} == {503}
        said = [answer.json()["message"] for answer in answers]
        assert sum("goes on: see `heron topologies`" in message for message in said) == 4
        assert sum("was not started" in message for message in said) == 2
        assert "the server stops" in said[-1]
        assert (await client.post(f"{TOPOLOGY}/activate")).status_code == 503
        slow.may_end.set()
        await app.state.server.close()
    outcomes = [line["outcome"] for line in audited(config)]
    assert (outcomes.count("started"), outcomes.count("done"), outcomes.count("refused")) == (4, 4, 3)


async def test_the_audit_log_says_what_was_asked_for_and_what_came_of_it(
    config: ApiServerConfig, tokens: dict[str, str]
) -> None:
    app = create_app(config)
    SlowActivations(app)
    actions = app.state.server.actions
    named = dict(zip(("cluster", "role", "environment", "name"), TOPOLOGY.split("/")[4:], strict=True))
    actions.update = lambda *_, dry_run, **__: {**named, "status": "Planned" if dry_run else "Updated"}
    actions.update_code = lambda *_, **__: {**named, "status": "Unchanged", "code": "1-abc"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:9000", headers=bearer(tokens["ada"])
    ) as client:
        for query in ({}, {"dry_run": "true"}):
            params: dict[str, Any] = {"component_parallelism": ["a:2", "b:3"], "container_number": 4, **query}
            assert (await client.post(f"{TOPOLOGY}/update", params=params)).status_code == 200
        code = await client.post(f"{TOPOLOGY}/code", params={"argument": "hunter2"}, content=b"program")
        assert code.status_code == 200
        assert (await client.delete(TOPOLOGY, params={"force": "true", "keep_state": "true"})).status_code == 200
    actions.close()
    update, dry, code_update, kill = [line for line in audited(config) if line["outcome"] == "done"]
    asked = {"component_parallelism": "a:2 b:3", "container_number": 4}
    assert asked | {"dry_run": False, "result": "Updated"} == {k: update[k] for k in (*asked, "dry_run", "result")}
    assert (dry["dry_run"], dry["result"]) == (True, "Planned")
    digest = hashlib.sha256(b"program").hexdigest()
    assert (code_update["program_sha256"], code_update["result"], code_update["code"]) == (digest, "Unchanged", "1-abc")
    assert (kill["force"], kill["keep_state"], kill["result"]) == (True, True, "Killed")
    assert "hunter2" not in config.audit_file.read_text()


async def test_the_schema_says_how_to_authenticate(http: httpx.AsyncClient) -> None:
    schema = (await http.get("/openapi.json")).json()
    assert schema["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    assert "get" in schema["paths"]["/api/v1/topologies/{cluster}/{role}/{environment}/{name}"]
    for path in ("/api/v1/topologies", "/api/v1/topologies/{cluster}/{role}/{environment}/{name}/code"):
        assert "application/zip" in schema["paths"][path]["post"]["requestBody"]["content"]
    assert {"401", "403"} <= set(schema["paths"]["/api/v1/topologies"]["post"]["responses"])
    assert "422" not in json.dumps(schema)


def test_two_servers_do_not_share_a_home(config: ApiServerConfig, tokens: dict[str, str]) -> None:
    app = create_app(config)
    with pytest.raises(AlreadyExistsError, match="HERON_HOME"):
        create_app(config)
    app.state.server.actions.close()
    create_app(config).state.server.actions.close()


async def test_a_tenants_code_runs_as_the_tenants_unix_user_or_not_at_all(
    config: ApiServerConfig, http: httpx.AsyncClient
) -> None:
    token = add_user(config.users_file, "tenant", Access.SUBMIT, [], "no-such-user")
    add_user(config.users_file, "next", Access.READ, [])
    program = io.BytesIO()
    with zipfile.ZipFile(program, "w") as archive:
        archive.writestr("main.py", "")
    params = {**SUBMIT, "role": "tenant", "file": "main.py"}
    answer = await http.post("/api/v1/topologies", params=params, content=program.getvalue(), headers=bearer(token))
    assert answer.status_code >= 400
    assert re.search("no user no-such-user|this process is not root's", answer.json()["message"])


class TestUsers:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "users.yaml"

    def test_a_token_is_stored_by_its_hash(self, path: Path) -> None:
        token = add_user(path, "ada", Access.SUBMIT, ["ada", "team"])
        assert path.stat().st_mode & 0o777 == 0o600
        assert token not in path.read_text()
        found = Users(path).find(token)
        assert found is not None
        assert (found.name, found.access, found.roles) == ("ada", Access.SUBMIT, ("ada", "team"))
        with pytest.raises(AlreadyExistsError):
            add_user(path, "ada", Access.READ, [])

    def test_users_that_are_added_at_once_are_all_there(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "users.yaml"
        with ThreadPoolExecutor(8) as threads:
            tokens = list(threads.map(lambda n: add_user(path, f"user{n}", Access.READ, []), range(16)))
        users = Users(path)
        assert [user.name if (user := users.find(token)) else None for token in tokens] == [
            f"user{n}" for n in range(16)
        ]

    def test_who_is_taken_out_is_refused_from_then_on(self, path: Path) -> None:
        ada, eve = add_user(path, "ada", Access.ADMIN, []), add_user(path, "eve", Access.ADMIN, [])
        users = Users(path)
        text = path.read_text()
        path.write_text(text[: text.index("- name: eve")])
        assert users.find(eve) is None
        assert users.find(ada) is not None
        path.write_text("users: {")
        with pytest.raises(ConfigError):
            users.find(ada)
        with pytest.raises(ConfigError):
            users.find(ada)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "users: x",
            "users: [1]",
            "users: [{name: a, access: god, token_sha256: " + "0" * 64 + "}]",
            "users: [{name: a, access: read, token_sha256: short}]",
            "users: [{name: ../a, access: read, token_sha256: " + "0" * 64 + "}]",
            "users: [{name: a, access: read, password: x, token_sha256: " + "0" * 64 + "}]",
            "users: [" + "{name: a, access: read, token_sha256: " + "0" * 64 + "}," * 2 + "]",
        ],
    )
    def test_a_wrong_file_is_one_line(self, path: Path, text: str) -> None:
        path.touch(0o600)
        path.write_text(text)
        with pytest.raises(ConfigError) as error:
            Users(path)
        assert "\n" not in str(error.value)

    def test_a_file_that_others_can_read_is_refused(self, path: Path) -> None:
        add_user(path, "ada", Access.READ, [])
        path.chmod(0o644)
        with pytest.raises(ConfigError, match="users"):
            Users(path)


def test_what_is_zero_is_sent_and_what_is_not_given_is_not() -> None:
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        service = Service(f"http://127.0.0.1:{server.server_port}", "token")
        service.act(
            ["local/ada", "words"], "kill", timeout=0.0, force=False, keep_state=True, name=None, other="", more=[]
        )
        thread.join()
    assert asked == [f"{TOPOLOGY}?timeout=0.0&keep_state=true"]


def test_what_a_user_may_not_do_has_an_exit_code_of_its_own() -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            self.send_response(403)
            self.end_headers()
            self.wfile.write(b'{"message": "user eve may not kill", "error": "ForbiddenError"}')

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(ForbiddenError, match="may not kill") as error:
            Service(f"http://127.0.0.1:{server.server_port}", "token").act(["local/ada", "words"], "kill")
        thread.join()
    assert error.value.exit_code == 8


class TestPackProgram:
    @pytest.fixture
    def program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        (tmp_path / "pkg" / "__pycache__").mkdir(parents=True)
        (tmp_path / "pkg" / "__init__.py").write_text("")
        (tmp_path / "pkg" / "words.py").write_text("import helper, json, numpy\nraise SystemExit('never run')\n")
        (tmp_path / "pkg" / "__pycache__" / "x.pyc").write_text("")
        (tmp_path / "helper.py").write_text("def later():\n    import other\n")
        (tmp_path / "other.py").write_text("")
        (tmp_path / "unrelated.py").write_text("")
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def packed(self, tmp_path: Path, file: str, cls: str) -> tuple[str, set[str]]:
        with (tmp_path / "out.zip").open("w+b") as f:
            within = pack_program(file, cls, f)
        with zipfile.ZipFile(tmp_path / "out.zip") as archive:
            return within, set(archive.namelist())

    def test_a_script_goes_with_what_it_imports(self, program: Path) -> None:
        (program / "main.py").write_text("import helper\n")
        assert self.packed(program, "main.py", "-") == ("main.py", {"main.py", "helper.py", "other.py"})

    def test_a_module_goes_with_its_package(self, program: Path) -> None:
        everything = {"pkg/__init__.py", "pkg/words.py", "helper.py", "other.py"}
        assert self.packed(program, "pkg.words", "Words") == ("pkg.words", everything)
        assert self.packed(program, "pkg/words.py", "pkg.words.Words") == ("pkg/words.py", everything)

    def test_what_is_not_there_is_said(self, program: Path) -> None:
        for file in ("nowhere.py", "nowhere.zip", "nowhere.module"):
            with pytest.raises(NotFoundError, match="nowhere"):
                self.packed(program, file, "-")
