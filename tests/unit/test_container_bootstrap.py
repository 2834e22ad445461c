"""The bootstrap file of a container, and the directory that a host makes of it."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.config import EngineConfig
from heronpy.container import TRY_AGAIN, Bootstrap, bootstrap_document, make_directory, remove_secrets, take_sockets
from heronpy.container.parts import ending
from heronpy.errors import ConfigError, NotFoundError, UnavailableError, UntrustedError
from heronpy.executor import ReplacedError
from heronpy.proto import state_pb2
from heronpy.runtime import SECRETS_DIR, TOKEN_FILE, Launch, StatemgrSpec
from heronpy.security import authority
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually_sync

CA_KEY = "tls/authority/ca-key.pem"


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    spec = StatemgrSpec(type="file", root=str(tmp_path / "state"))
    made = Launch(
        topology="words",
        topology_id="words-1",
        cluster="c",
        role="r",
        environ="e",
        statemgr=spec,
        dir=tmp_path / "words",
    )
    made.save()
    authority.create(made.tls_dir, made.topology_id, [0], days=1)
    return made


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return tmp_path / "host"


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """TMPDIR: a directory whose name leaves room for those of sockets."""
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


def changed(document: bytes, **values: object) -> bytes:
    return json.dumps({**json.loads(document), **values}).encode()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UnavailableError("no store answers"), TRY_AGAIN, "no store answers; will be retried"),
        (ConfigError("wrong clock"), 2, "wrong clock"),
        (ReplacedError("incarnation 2 on n2 replaces this one"), 0, "incarnation 2 on n2 replaces this one; exiting"),
        (OSError(errno.ENOSPC, "No space", "/tmp/x"), TRY_AGAIN, "/tmp/x: No space; will be retried"),
        (OSError(errno.EINVAL, "Invalid argument"), TRY_AGAIN, "system error: Invalid argument; will be retried"),
    ],
)
def test_a_container_that_is_not_up_yet_ends_with_one_line_and_a_code(
    error: Exception, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended, ending("container 1 of words"):
            raise error
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == code
    assert capsys.readouterr().err == f"heron: container 1 of words: {said}\n"


def test_a_container_is_given_its_bootstrap_certificate_and_never_the_authoritys_key(launch: Launch) -> None:
    files = Bootstrap.decode(bootstrap_document(launch, 3)).files
    assert files.keys() == {"token", "tls/ca.pem", "tls/bootstrap-3.pem"}
    assert files["token"] == launch.token()
    assert (launch.tls_dir / "authority/ca-key.pem").read_text() not in "".join(files.values())


def test_container_0_signs_so_it_has_the_authoritys_key(launch: Launch) -> None:
    files = Bootstrap.decode(bootstrap_document(launch, 0)).files
    assert files.keys() == {"token", "tls/ca.pem", CA_KEY}


def test_a_bootstrap_file_that_is_made_again_is_the_same(launch: Launch) -> None:
    assert bootstrap_document(launch, 2) == bootstrap_document(launch, 2)


def test_a_bootstrap_certificate_is_valid_for_as_long_as_its_topology_may_run(launch: Launch) -> None:
    bootstrap_document(launch, 1)
    of_bootstrap, ca = (authority.described(launch.tls_dir / f"{name}.pem") for name in ("bootstrap-1", "ca"))
    assert abs((of_bootstrap.not_after - ca.not_after).days) <= 1
    assert of_bootstrap.uri == "heron://words-1/bootstrap/1"
    assert of_bootstrap.dns_names == (), "nobody can be served with it"


def test_secrets_of_the_state_manager_travel_with_it(launch: Launch, tmp_path: Path, host: Path) -> None:
    path = tmp_path / "mine"
    path.write_text("user:password")
    path.chmod(0o600)
    spec = dataclasses.replace(launch.statemgr, credentials_file=str(path)).in_directory(launch.dir)
    document = bootstrap_document(dataclasses.replace(launch, statemgr=spec), 1)
    there = make_directory(Bootstrap.decode(document), host)
    assert there.statemgr.credentials_file == str(there.dir / "secrets/statemgr-credentials")
    assert Path(there.statemgr.credentials_file).read_text() == "user:password"
    assert b"user:password" not in (there.dir / "launch.json").read_bytes()


def test_a_machine_without_the_authoritys_key_cannot_make_one(launch: Launch) -> None:
    (launch.dir / CA_KEY).unlink()
    with pytest.raises(NotFoundError, match="ca-key"):
        bootstrap_document(launch, 0)


@pytest.mark.parametrize("values", [{"heronpy": "0.0.1"}, {"python": "2.7"}, {"heronpy": 7, "files": None}])
def test_another_release_or_python_is_refused_by_name(launch: Launch, values: dict[str, object]) -> None:
    document = changed(bootstrap_document(launch, 1), **values)
    with pytest.raises(ConfigError, match=r"this host has heronpy \S+ and Python 3\.\d+, the topology was submitted"):
        Bootstrap.decode(document)


@pytest.mark.parametrize(
    "document",
    [b"", b"no JSON", b"[1]", b"{}", b"[" * 100_000],
)
def test_what_is_no_bootstrap_file_is_refused(document: bytes) -> None:
    with pytest.raises(ConfigError, match="not a bootstrap file"):
        Bootstrap.decode(document)


@pytest.mark.parametrize(
    "values",
    [
        {"container": -1},
        {"container": True},
        {"launch": {}},
        {"files": ["token"]},
        {"files": {"token": 1}},
        {"files": {"../token": "secret"}},
        {"files": {"tls/../../x.pem": "secret"}},
        {"files": {"secrets/..": "secret"}},
        {"files": {"/etc/passwd": "secret"}},
    ],
)
def test_a_damaged_or_hostile_bootstrap_file_is_refused_unread(launch: Launch, values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="damaged bootstrap file") as refused:
        Bootstrap.decode(changed(bootstrap_document(launch, 1), **values))
    assert "secret" not in str(refused.value)


def test_the_directory_of_a_container_is_its_users_alone(launch: Launch, host: Path) -> None:
    os.umask(0o022)
    there = make_directory(Bootstrap.decode(bootstrap_document(launch, 0)), host)
    assert there.dir == host / "words-1" / "0"
    assert Launch.load(there.dir) == there
    assert there.token() == launch.token()
    secret = [path for path in there.dir.rglob("*") if path.name in ("token", "ca-key.pem", "tls", "authority")]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in [there.dir, *secret]} == {0}
    assert len(secret) == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_nothing_secret_is_put_into_a_directory_that_another_user_has_made_for_it(launch: Launch, host: Path) -> None:
    """Its owner may exchange what is in it at any time, also just before a file is written there."""
    host.mkdir(mode=0o777, exist_ok=True)
    host.chmod(0o777)
    os.chown(host, 65534, -1)
    with pytest.raises(UntrustedError, match=f"{host} belongs to another user: .*--dir"):
        make_directory(Bootstrap.decode(bootstrap_document(launch, 1)), host)
    assert [*host.iterdir()] == []


def test_a_container_that_is_started_again_finds_its_directory_unless_an_earlier_one_has_it(
    launch: Launch, host: Path, tmp_path: Path
) -> None:
    document = tmp_path / "bootstrap.json"
    document.write_bytes(bootstrap_document(launch, 1))
    holds = (
        "import pathlib, sys; from heronpy.container import *\n"
        "here = make_directory(Bootstrap.decode(pathlib.Path(sys.argv[1]).read_bytes()), pathlib.Path(sys.argv[2]))\n"
        "print(here.dir, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holds, str(document), str(host)]
    places = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        places.append(Path(first.stdout.readline().strip()))
        for _ in range(2):
            places.append(Path(subprocess.run(command, input="", capture_output=True, text=True).stdout.strip()))
        first.kill()
    places.append(Path(subprocess.run(command, input="", capture_output=True, text=True).stdout.strip()))
    assert places[0] == places[3] == host / "words-1" / "1"
    assert len(set(places)) == 3
    assert {place.parent for place in places} == {host / "words-1"}


def test_sockets_of_killed_containers_are_removed_by_the_next_one_and_those_of_others_are_not(
    launch: Launch, short_tmp: Path
) -> None:
    program = (
        "import dataclasses, os, pathlib, sys; from heronpy.container import *; from heronpy.runtime import Launch\n"
        "launch = dataclasses.replace(Launch.load(pathlib.Path(sys.argv[1])), topology_id=sys.argv[2])\n"
        "if len(sys.argv) < 4:\n"
        "    take_sockets(launch, 1)\n"
        "    os.execv(sys.executable, [*sys.orig_argv, 'executor'])\n"
        "(launch.socket_dir(1) / 'stmgr.sock').touch(); print(launch.socket_root().name, flush=True); sys.stdin.read()"
    )

    def start(topology_id: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", program, str(launch.dir), topology_id]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    local = launch.socket_dir(2)  # of the local scheduler
    killed, lives = start("words-2"), start("words-3")
    (sockets,) = short_tmp.iterdir()
    assert {path.name for path in sockets.iterdir()} == {local.parent.name, killed[1], lives[1]}
    killed[0].kill()
    killed[0].communicate()
    again = start("words-4")
    assert {path.name for path in sockets.iterdir()} == {local.parent.name, lives[1], again[1]}
    for process, _ in (lives, again):
        process.communicate()
    take_sockets(launch, 1)
    assert {path.name for path in sockets.iterdir()} == {local.parent.name}


def test_a_container_starts_while_another_removes_what_was_killed(launch: Launch, short_tmp: Path) -> None:
    program = (
        "import dataclasses, pathlib, sys; from heronpy.container import *; from heronpy.runtime import Launch\n"
        "launch = Launch.load(pathlib.Path(sys.argv[1]))\n"
        "for n in range(100):\n"
        "    mine = dataclasses.replace(launch, topology_id=f'{sys.argv[2]}-{n}')\n"
        "    take_sockets(mine, 1)\n"
        "    assert (mine.socket_root() / '1').exists()\n"
        "    if n % 2: mine.remove_sockets()\n"
    )
    command = [sys.executable, "-c", program, str(launch.dir)]
    running = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in ("a", "b", "c")]
    assert [process.communicate()[1] for process in running] == [""] * 3
    take_sockets(launch, 1)
    assert [*short_tmp.glob("*/*")] == [launch.socket_root()]


def test_a_container_that_has_ended_leaves_its_logs_and_no_secret(launch: Launch, host: Path) -> None:
    there = make_directory(Bootstrap.decode(bootstrap_document(launch, 1)), host)
    (there.dir / "package").mkdir()
    log = there.make_log_dir(1) / "executor.log"
    log.write_text("its last words")
    remove_secrets(there, 1)
    left = {str(path.relative_to(there.dir)) for path in there.dir.rglob("*") if path.is_file()}
    assert left == {"launch.json", "container.lock", "container_1/log-files/executor.log"}


# The process, as far as it comes without a cluster.


class Started:
    """What `python -m heronpy.container` has said and returned."""

    def __init__(self, document: bytes, directory: Path, mode: int = 0o600) -> None:
        path = directory / "bootstrap.json"
        path.write_bytes(document)
        path.chmod(mode)
        command = [sys.executable, "-m", "heronpy.container", str(path), "--dir", str(directory / "host")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "TZ": "UTC"})
        self.code, self.said = ended.returncode, ended.stderr


@pytest.fixture
def running(launch: Launch) -> Iterator[Launch]:
    with open_statemgr(launch.statemgr) as state:
        execution = state_pb2.ExecutionState(topology="words", topology_id="words-1")
        state.set(Kind.EXECUTIONSTATE, "words", execution.SerializeToString())
    return launch


def test_another_release_on_the_host_is_one_line_and_final(running: Launch, tmp_path: Path) -> None:
    started = Started(changed(bootstrap_document(running, 1), heronpy="0.0.1"), tmp_path)
    assert started.code == 2
    assert started.said.count("\n") == 1
    assert "0.0.1" in started.said


def test_a_bootstrap_file_that_others_can_read_is_refused(running: Launch, tmp_path: Path) -> None:
    started = Started(bootstrap_document(running, 1), tmp_path, mode=0o644)
    assert started.code == 6
    assert "chmod 600" in started.said
    assert started.said.count("\n") == 1


def test_a_state_manager_that_is_away_is_one_line_and_another_attempt(running: Launch, tmp_path: Path) -> None:
    spec = StatemgrSpec(type="file", root=str(tmp_path / "nowhere" / "state"))
    started = Started(bootstrap_document(dataclasses.replace(running, statemgr=spec), 1), tmp_path)
    assert started.code == TRY_AGAIN
    assert started.said.count("\n") == 1
    assert "nowhere" in started.said
    assert started.said.startswith("heron: container 1 of words: ")


@pytest.mark.long
@pytest.mark.parametrize("container", [0, 1])
def test_beside_an_empty_state_manager_a_container_asks_for_another_attempt(
    launch: Launch, tmp_path: Path, container: int
) -> None:
    started = Started(bootstrap_document(launch, container), tmp_path)
    assert started.code == TRY_AGAIN, "its cluster would take 0 for the end of a topology that was only lost sight of"
    assert started.said.count("\n") == 1
    assert "was killed, or the state manager has lost its data" in started.said


def test_a_container_of_another_submission_ends_on_purpose(running: Launch, tmp_path: Path) -> None:
    other = dataclasses.replace(running, topology_id="words-0")
    started = Started(bootstrap_document(other, 1), tmp_path)
    assert started.code == 0
    assert "topology words is words-1 now" in started.said
    with open_statemgr(running.statemgr) as state:
        assert state.list(Kind.CONTAINERS) == []


@pytest.mark.parametrize("again", [False, True])
def test_a_container_that_is_ended_before_it_runs_leaves_no_secret(
    running: Launch, tmp_path: Path, again: bool
) -> None:
    document = tmp_path / "bootstrap.json"
    document.write_bytes(bootstrap_document(running, 1))
    document.chmod(0o600)
    command = [sys.executable, "-m", "heronpy.container", str(document), "--dir", str(tmp_path / "host")]
    with open_statemgr(running.statemgr) as state, subprocess.Popen(command) as container:
        eventually_sync(lambda: _true(state.list(Kind.CONTAINERS)))  # it waits for its certificate from now on
        container.terminate()
        while again and container.poll() is None:  # also while the interpreter ends
            container.terminate()
        assert container.wait(300) == 0
    left = [str(path.relative_to(tmp_path / "host")) for path in (tmp_path / "host").rglob("*") if path.is_file()]
    assert sorted(left) == ["words-1/1/container.lock", "words-1/1/launch.json"]


ENDED_WITH_A_LOCK = """
import os, signal, threading
from heronpy.child import Child
from heronpy.container import __main__ as container
from heronpy.container.parts import ending

class Lock:
    # One that is held when SIGTERM comes, at a time when nobody would release it.
    def __init__(self, lock):
        self.lock = lock
    def acquire(self, blocking=True):
        got = self.lock.acquire(blocking)
        os.kill(os.getpid(), signal.SIGTERM)
        return got
    def release(self):
        self.lock.release()
    __enter__ = acquire
    def __exit__(self, *_):
        self.release()

class Locked(Child):
    def __init__(self, *args, **options):
        super().__init__(["sleep", "1000"])
        self._waitpid_lock = Lock(self._waitpid_lock)

container.Child = Locked
launch = type("Launch", (), {"dir": "", "config": None})()
container.child_environment = lambda *_, **__: {}
threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM]).start()
with ending("it"):
    container._enroll(launch, 1, {})
"""


def test_a_sigterm_while_a_child_is_waited_for_ends_it_whenever_it_comes() -> None:
    done = subprocess.run([sys.executable, "-c", ENDED_WITH_A_LOCK], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_container_that_is_ended_while_its_executor_starts_leaves_no_secret(running: Launch, tmp_path: Path) -> None:
    plain = dataclasses.replace(running, config=EngineConfig.from_keys({"heron.security.tls": False}))
    document = tmp_path / "bootstrap.json"
    document.write_bytes(bootstrap_document(plain, 1))
    document.chmod(0o600)
    command = [sys.executable, "-m", "heronpy.container", str(document), "--dir", str(tmp_path / "host")]
    with subprocess.Popen(command) as container:

        def is_executor() -> None:
            assert b"heronpy.container.executor" in Path(f"/proc/{container.pid}/cmdline").read_bytes()

        eventually_sync(is_executor)
        container.terminate()
        assert container.wait(300) == 0
    left = {path.name for path in (tmp_path / "host" / "words-1" / "1").iterdir()}
    assert "launch.json" in left
    assert left.isdisjoint({"tls", SECRETS_DIR, TOKEN_FILE})


def _true(value: object) -> None:
    assert value
