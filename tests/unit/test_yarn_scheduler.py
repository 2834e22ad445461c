"""The YARN scheduler without YARN: its keys, what it submits and asks for, what follows when a container has ended."""

from __future__ import annotations

import base64
import http.server
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from heron_scheduler import ContainerPhase
from heron_scheduler.driven import Order, Run
from heron_scheduler.yarn import (
    BOOTSTRAP,
    Application,
    Attempts,
    Requests,
    Rest,
    YarnConfig,
    YarnScheduler,
    application,
    container_name,
    one_line,
    order_of,
    reason_in,
    request_id,
    shell_command,
)

from heronpy.errors import ConfigError, HeronError, NotFoundError, UnavailableError
from heronpy.plan import Resources
from heronpy.proto import hadoop_pb2
from heronpy.runtime import Launch, StatemgrSpec

KEY = "heron.scheduler.yarn."
MASTER = {f"{KEY}resourcemanager": "http://m:8088"}
MIB = 1 << 20


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "resourcemanager is not set"),
        ({f"{KEY}resourcemanager": "m:8088"}, "URL of a ResourceManager"),
        ({f"{KEY}resourcemanager": "http://m:8088/ws/v1"}, "URL of a ResourceManager"),
        ({**MASTER, f"{KEY}scheduler.address": "m"}, "must be host:8030"),
        ({**MASTER, f"{KEY}queue": "a b"}, "name of a queue"),
        ({**MASTER, f"{KEY}user": "me&x=1"}, "name of a user"),
        ({**MASTER, f"{KEY}driver.memory.mb": 64}, "must be 128 or more"),
        ({**MASTER, f"{KEY}driver.memory.mb": "1g"}, "whole number"),
        ({**MASTER, f"{KEY}python": ["x"]}, "must be text"),
        ({**MASTER, f"{KEY}qeue": "x"}, "did you mean 'heron.scheduler.yarn.queue'"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        YarnScheduler.check_config(values)


def test_herons_keys_mean_what_they_mean_there() -> None:
    config = YarnConfig.of({**MASTER, f"{KEY}queue": "root.stream", f"{KEY}driver.memory.mb": "2048"})
    assert (config.queue, config.driver_memory_mb) == ("root.stream", 2048)
    assert YarnConfig.of(MASTER).queue == "default"


@pytest.mark.parametrize(
    ("resources", "order"),
    [
        (Resources(1.0, 512 * MIB, 0), Order(1, 1, 512)),
        (Resources(1.2, 512 * MIB + 1, 0), Order(1, 2, 513)),
        (Resources(0.1, 1, 0), Order(1, 1, 1)),
    ],
)
def test_a_container_asks_for_whole_vcores_and_mebibytes(resources: Resources, order: Order) -> None:
    assert order_of(resources) == order


def test_an_application_has_its_secrets_among_its_credentials_and_nowhere_else(tmp_path: Path) -> None:
    launch = Launch(
        topology="words",
        topology_id="Words-7",
        cluster="yarn",
        role="me",
        environ="default",
        statemgr=StatemgrSpec(root=str(tmp_path)),
        dir=tmp_path,
    )
    config = YarnConfig.of({**MASTER, f"{KEY}queue": "q", f"{KEY}node.label": "ssd", f"{KEY}python": "/v/python"})
    made = application(launch, config, id="application_1_2", document=b"secret!", addresses=["m:8030", "n:8030"])
    entry = {"key": BOOTSTRAP, "value": base64.b64encode(b"secret!").decode()}
    assert made["am-container-spec"].pop("credentials") == {"tokens": {}, "secrets": {"entry": [entry]}}
    assert "secret!" not in json.dumps(made)
    assert base64.b64encode(b"secret!").decode() not in json.dumps(made)
    command = made.pop("am-container-spec")["commands"]["command"]
    assert _program(command) == ["/v/python", "-m", "heron_scheduler.yarn.master", "--scheduler", "m:8030,n:8030"]
    assert made == {
        "application-id": "application_1_2",
        "application-name": "heron Words-7",
        "application-type": "HERON",
        "application-tags": {"tag": ["heron-words-7"]},
        "queue": "q",
        "priority": 0,
        "max-app-attempts": 20,
        "attempt-failures-validity-interval": 600_000,
        "keep-containers-across-application-attempts": True,
        "resource": {"memory": 512, "vCores": 1},
        "app-node-label-expression": "ssd",
    }


def _program(command: str) -> list[str]:
    found: list[str] = json.loads(base64.b64decode(command.split("' ")[1].split(" ")[0]))
    return found


def test_a_command_is_run_as_it_is_whatever_is_in_it(tmp_path: Path) -> None:
    # As a launch script has it: braces are variables there, and it stands between double quotes.
    hostile = "print({'a': {'b': \"$HOME `id` \\\\ {{PATH}} <CPS> %s\"}})"
    command = shell_command([sys.executable, "-c", hostile, "a b"]).replace("<LOG_DIR>", str(tmp_path))
    assert not {"$", "`", '"', "\\", "{", "}", "%"} & {*command.replace("<LOG_DIR>", "")}
    subprocess.run(["bash", "-c", f'exec /bin/bash -c "{command}"'], check=True)
    assert (tmp_path / "stdout").read_text() == "{'a': {'b': '$HOME `id` \\\\ {{PATH}} <CPS> %s'}}\n"


def _container(id: int, request: int) -> hadoop_pb2.Container:
    return hadoop_pb2.Container(id=hadoop_pb2.ContainerId(id=id), allocation_request_id=request)


def test_each_container_is_asked_for_once_in_its_own_size() -> None:
    requests = Requests(node_label="ssd")
    requests.want(0, Order(1, 1, 256))
    requests.want(7, Order(3, 4, 4096))
    first = requests.message()
    told = [(ask.allocation_request_id, ask.num_containers, ask.capability.memory_mb) for ask in first.ask]
    assert told == [(request_id(0, 1), 1, 256), (request_id(7, 3), 1, 4096)]
    assert {(ask.resource_name, ask.relax_locality, ask.node_label_expression) for ask in first.ask} == {
        ("*", True, "ssd")
    }
    assert len({ask.allocation_request_id for ask in first.ask}) == 2  # YARN adds up what has the same one
    assert requests.message() == first  # no answer: the same again
    requests.answered(first, hadoop_pb2.AllocateResponse(response_id=1))
    again = requests.message()
    assert (list(again.ask), again.response_id) == ([], 1)


def test_what_is_given_is_used_once_and_only_if_it_is_wanted() -> None:
    requests = Requests()
    requests.want(7, Order(3, 1, 64))
    assert requests.given(_container(1, request_id(7, 2))) is None
    assert requests.given(_container(2, request_id(7, 3))) == (7, 3)
    assert requests.given(_container(3, request_id(7, 3))) is None
    requests.want(8, Order(1, 1, 64))
    requests.answered(requests.message(), hadoop_pb2.AllocateResponse(response_id=1))
    requests.withdraw(8, 1)
    (ask,) = requests.message().ask
    assert (ask.allocation_request_id, ask.num_containers) == (request_id(8, 1), 0)
    assert requests.given(_container(4, request_id(8, 1))) is None


def test_what_changes_before_an_answer_is_asked_after_it() -> None:
    requests = Requests()
    requests.want(1, Order(1, 1, 64))
    sent = requests.message()
    requests.withdraw(1, 1)
    requests.answered(sent, hadoop_pb2.AllocateResponse(response_id=1))
    (ask,) = requests.message().ask
    assert ask.num_containers == 0
    requests.release(hadoop_pb2.ContainerId(id=5))
    sent = requests.message()
    requests.release(hadoop_pb2.ContainerId(id=6))
    requests.answered(sent, hadoop_pb2.AllocateResponse(response_id=2))
    assert [id.id for id in requests.message().release] == [6]


def test_what_the_resource_manager_refuses_is_not_sent_again() -> None:
    requests = Requests()
    requests.want(1, Order(1, 1, 1 << 30))
    requests.message()
    requests.forget(1, 1)
    assert list(requests.message().ask) == []


def test_a_resource_manager_that_has_forgotten_is_asked_for_all_that_is_wanted() -> None:
    requests = Requests()
    for n in (1, 2, 3):
        requests.want(n, Order(1, 1, 64))
    requests.answered(requests.message(), hadoop_pb2.AllocateResponse(response_id=9))
    requests.given(_container(1, request_id(2, 1)))
    requests.withdraw(3, 1)
    requests.registered()
    message = requests.message()
    assert [(ask.allocation_request_id, ask.num_containers) for ask in message.ask] == [(request_id(1, 1), 1)]
    assert message.response_id == 0


def test_containers_are_named_as_yarn_names_them() -> None:
    attempt = hadoop_pb2.ApplicationAttemptId(
        application_id=hadoop_pb2.ApplicationId(id=1, cluster_timestamp=1410901177871), attempt_id=2
    )
    plain = hadoop_pb2.ContainerId(app_attempt_id=attempt, id=5)
    assert container_name(plain) == "container_1410901177871_0001_02_000005"
    later = hadoop_pb2.ContainerId(app_attempt_id=attempt, id=(17 << 40) + 5)
    assert container_name(later) == "container_e17_1410901177871_0001_02_000005"


def _ended(attempts: Attempts, status: int, diagnostics: str = "", now_s: float = 10.0) -> Run:
    run = Run("c", 1, ContainerPhase.RUNNING, host="h")
    attempts.ended(run, status, diagnostics, now_s)
    assert run.over
    return run


def test_what_ends_on_purpose_is_not_run_again() -> None:
    run = _ended(Attempts(), 0)
    assert (run.phase, run.retry_s) == (ContainerPhase.ENDING, None)


def test_what_is_lost_is_run_again_first_at_once_and_then_more_slowly() -> None:
    attempts = Attempts()
    assert [_ended(attempts, status).retry_s for status in (137, 75, -100, 143, 75, 75, 75)] == [
        10.0,
        11.0,
        13.0,
        17.0,
        25.0,
        25.0,
        25.0,
    ]
    assert _ended(attempts, -100).reason == "h: its node was lost, or YARN has taken it back"
    attempts.began_s = 100.0
    assert _ended(attempts, 75, now_s=160.0).retry_s == 160.0  # it has run for a minute


def test_what_fails_five_times_in_a_row_is_given_up_with_its_last_words() -> None:
    attempts, told = Attempts(), "[2026] Exception from container-launch.\nheron: this host has Python 3.2\n\n"
    for _ in range(4):
        assert _ended(attempts, 1, told).phase is ContainerPhase.PENDING
    given_up = _ended(attempts, 1, told)
    assert (given_up.phase, given_up.reason) == (ContainerPhase.FAILED, "h: this host has Python 3.2")
    assert given_up.retry_s is None
    assert _ended(attempts, 1, told).phase is ContainerPhase.PENDING  # a command has ordered it again


@pytest.mark.parametrize(
    ("status", "diagnostics"),
    [
        (2, "heron: this host has Python 3.2"),
        (127, "/nowhere/bin/python: No such file or directory"),
        (1, "/usr/bin/python3: No module named 'heron_scheduler'\n"),
    ],
)
def test_what_a_host_cannot_run_is_given_up_at_once(status: int, diagnostics: str) -> None:
    assert _ended(Attempts(), status, diagnostics).phase is ContainerPhase.FAILED


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("org.apache.hadoop.yarn.exceptions.YarnException: java.io.IOException: no\n\tat org.a.B(C.java)", "no"),
        ("\tat x\nFailed: it\n", "Failed: it"),
    ],
)
def test_of_a_java_error_its_message_is_told(text: str, line: str) -> None:
    assert one_line(text) == line


def test_what_a_failed_container_said_is_found_in_what_its_node_says() -> None:
    said = "Exit code: 127\nbash: line 1: /v/bin/python: No such file or directory\n\nFor more detailed output, check"
    assert reason_in(said) == "/v/bin/python: No such file or directory"
    assert reason_in("Exit code: 1\nLast 4096 bytes of stderr :\nheron: a\nheron: b\n\nFor more") == "b"
    assert reason_in("\nAM Container exited with  exitCode: 9\n") == "AM Container exited with  exitCode: 9"


@pytest.fixture
def resource_manager() -> Iterator[tuple[Rest, list[tuple[str, str]], dict[str, Any]]]:
    """Web services: what they were asked, and what they answer: status and body by path."""
    asked: list[tuple[str, str]] = []
    answers: dict[str, Any] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            asked.append((f"{self.command} {self.path}", self.rfile.read(size).decode()))
            status, body = answers.get(self.path.partition("?")[0], (404, {}))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode() if body is not None else b"")

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        values = {f"{KEY}resourcemanager": f"http://127.0.0.1:{server.server_address[1]}/", f"{KEY}user": "me"}
        yield Rest(YarnConfig.of(values)), asked, answers
        server.shutdown()


@pytest.mark.parametrize(
    "said",
    [
        "Application x submitted by user me to unknown queue: q",
        "User me does not have permission to submit x to queue q",
    ],
)
def test_a_refusal_for_its_queue_names_the_key_to_change(resource_manager: Any, said: str) -> None:
    rest, _, answers = resource_manager
    answers["/ws/v1/cluster/apps"] = (403, {"RemoteException": {"message": said}})
    with pytest.raises(ConfigError, match=rf"{said}; set {KEY}queue to one that"):
        rest.submit({})


def test_calls_are_those_of_yarns_web_services(resource_manager: Any) -> None:
    rest, asked, answers = resource_manager
    app = {"id": "application_1_2", "state": "RUNNING", "queue": "q", "diagnostics": "", "amHostHttpAddress": "h:1"}
    answers["/ws/v1/cluster/apps/new-application"] = (
        200,
        {"application-id": "application_1_2", "maximum-resource-capability": {"memory": 8192, "vCores": 4}},
    )
    answers["/ws/v1/cluster/apps"] = (200, {"apps": {"app": [{**app, "state": "KILLED"}, app]}})
    answers["/ws/v1/cluster/apps/application_1_2/state"] = (202, None)
    answers["/conf"] = (200, {"property": {"value": "0.0.0.0:8030"}})
    assert rest.new_application() == ("application_1_2", 8192, 4)
    assert rest.tagged("heron-x") == [
        Application(id="application_1_2", state="RUNNING", queue="q", diagnostics="", has_container=True)
    ]
    rest.kill("application_1_2")
    assert rest.scheduler_addresses() == ["127.0.0.1:8030"]
    assert asked == [
        ("POST /ws/v1/cluster/apps/new-application?user.name=me", "{}"),
        ("GET /ws/v1/cluster/apps?applicationTypes=HERON&applicationTags=heron-x&user.name=me", ""),
        ("PUT /ws/v1/cluster/apps/application_1_2/state?user.name=me", '{"state": "KILLED"}'),
        ("GET /conf?name=yarn.resourcemanager.scheduler.address&user.name=me", ""),
    ]


def test_an_application_master_that_fails_is_told_and_one_that_is_killed_is_not(resource_manager: Any) -> None:
    rest, _, answers = resource_manager
    one, attempts = {"appAttemptId": "a1", "appAttemptState": "FAILED"}, "/ws/v1/cluster/apps/i/appattempts"
    answers[attempts] = (200, {"appAttempts": {"appAttempt": [one]}})
    told = "AM Container for a1 exited with  exitCode: 137\nFailing this attempt."
    answers[f"{attempts}/a1"] = (200, {"diagnosticsInfo": told})
    assert rest.failed_attempt("i") == ""
    told = "AM Container for a1 exited with  exitCode: 127\nbash: line 1: /v/python: No such file or directory\n"
    answers[f"{attempts}/a1"] = (200, {"diagnosticsInfo": told})
    assert rest.failed_attempt("i") == "/v/python: No such file or directory"
    answers[attempts] = (200, {"appAttempts": None})
    assert rest.failed_attempt("i") == ""


@pytest.mark.parametrize(
    ("status", "message", "error", "why"),
    [
        (400, "app without a command", ConfigError, "YARN refuses: app without a command"),
        (403, "User guest cannot submit applications to queue root.q", ConfigError, "guest cannot submit"),
        (403, "busy", UnavailableError, "YARN refuses: busy"),
        (401, "no", UnavailableError, "requires authentication .* not supported: no"),
        (404, "no such", NotFoundError, "no such"),
        (307, "standby", UnavailableError, "is a standby"),
    ],
)
def test_a_refusal_is_one_line(
    resource_manager: Any, status: int, message: str, error: type[HeronError], why: str
) -> None:
    rest, _, answers = resource_manager
    answers["/ws/v1/cluster/apps"] = (status, {"RemoteException": {"message": f"{message}\n\tat org.x"}})
    with pytest.raises(error, match=why) as refusal:
        rest.submit({})
    assert "\n" not in str(refusal.value)


def test_the_next_resource_manager_is_asked_if_one_is_away(resource_manager: Any) -> None:
    rest, _, answers = resource_manager
    answers["/ws/v1/cluster/apps"] = (200, {"apps": None})
    url = rest.page("").removesuffix("/cluster/app/")
    two = Rest(YarnConfig.of({f"{KEY}resourcemanager": f"http://127.0.0.1:1,{url}"}))
    assert two.tagged("x") == []


def test_what_does_not_speak_http_is_no_resource_manager() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"hello\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="does not speak HTTP"):
            Rest(YarnConfig.of({f"{KEY}resourcemanager": url})).tagged("x")
        thread.join()


@pytest.mark.parametrize("body", [None, {"apps": 7}, {"apps": {"app": [{"id": "x"}]}}, {"something": "else"}])
def test_what_says_something_else_is_no_resource_manager(resource_manager: Any, body: Any) -> None:
    rest, _, answers = resource_manager
    answers["/ws/v1/cluster/apps"] = answers["/ws/v1/cluster/apps/new-application"] = (200, body)
    for ask in (lambda: rest.tagged("x"), rest.new_application):
        with pytest.raises(UnavailableError, match="is not a ResourceManager"):
            ask()
