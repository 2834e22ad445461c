"""A heron-shell over gRPC: whom it answers, and that no request leads out of its container or takes without a bound."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
from topology_on_disk import EngineProcess, launch_in

from heronpy.errors import HeronError, NotFoundError, UnavailableError, UsageError
from heronpy.host import HostProcess, PidFiles, read_pids
from heronpy.proto import shell_pb2, state_pb2
from heronpy.rpc import channel
from heronpy.runtime import Launch, running
from heronpy.security import Security, authority, container_identity
from heronpy.shell import LISTED_MAX, READ_BYTES_MAX
from heronpy.shell.client import RemoteShell, ShellUnreachableError
from heronpy.shell.service import HeronShell
from heronpy.statemgr import Kind, StateManager, container_node, open_statemgr
from heronpy.testing import eventually

MIB = 1 << 20
NODE = container_node("words", 1)


@pytest.fixture
def submitted(tmp_path: Path) -> Launch:
    """The topology's directory on the submitter's machine: no container is there."""
    return launch_in(tmp_path)


@pytest.fixture
def remote(submitted: Launch, tmp_path: Path) -> Launch:
    """The directory on the host of container 1, with what a container has there."""
    launch = dataclasses.replace(submitted, dir=tmp_path / "elsewhere" / "words")
    launch.save(submitted.token())
    launch.tls_dir.mkdir(mode=0o700)
    for name in ("ca.pem", "container-1.pem"):
        shutil.copy(submitted.tls_dir / name, launch.tls_dir / name)
    launch.make_log_dir(1)
    return launch


@contextlib.asynccontextmanager
async def asking(endpoint: str, security: Security, container: int = 1) -> AsyncIterator[RemoteShell]:
    shell = RemoteShell(endpoint, security, container)
    try:
        yield shell
    finally:
        await shell.close()


@pytest.fixture
async def served(remote: Launch) -> AsyncIterator[HeronShell]:
    async with running(HeronShell(remote, 1)) as service:
        yield service


@pytest.fixture
async def shell(served: HeronShell, submitted: Launch) -> AsyncIterator[RemoteShell]:
    async with asking(served.address, submitted.security("tracker")) as shell:
        yield shell


@pytest.mark.parametrize("caller", ["tracker", "heron"])
async def test_the_cli_and_the_tracker_are_answered(
    served: HeronShell, submitted: Launch, remote: Launch, caller: str
) -> None:
    (remote.log_dir(1) / "a.log").write_text("one\ntwo\n")
    async with asking(served.address, submitted.security(caller)) as shell:
        assert [found.name for found in (await shell.files()).files] == ["a.log"]
        part = await shell.read("a.log", 4, -1)
        assert (part.data, part.size) == (b"two\n", 8)


@pytest.mark.parametrize("caller", ["stmgr-2", "container_1_word_1", "tmaster", "scheduler"])
async def test_containers_are_refused_whatever_they_ask(served: HeronShell, submitted: Launch, caller: str) -> None:
    async with asking(served.address, submitted.security(caller)) as shell:
        with pytest.raises(ShellUnreachableError, match=f"{caller} may not call this"):
            await shell.files()


async def test_a_container_that_says_it_is_the_cli_is_refused(served: HeronShell, submitted: Launch) -> None:
    user_code = submitted.security("container_1_word_1")
    async with channel(served.address, user_code, container_identity(1)) as link:
        ask = link.unary_unary("/heronpy.Shell/ReadFile")
        with pytest.raises(grpc.aio.AioRpcError, match="the certificate is not that of heron"):
            await ask(b"", metadata=submitted.security("heron").metadata, timeout=60)


async def test_another_topologys_tracker_gets_no_connection(
    served: HeronShell, submitted: Launch, tmp_path: Path
) -> None:
    authority.create(tmp_path / "tls", submitted.topology_id, range(2), days=1)
    stranger = dataclasses.replace(submitted.security("tracker"), tls=tmp_path / "tls")
    async with asking(served.address, stranger) as shell:
        with pytest.raises(ShellUnreachableError):
            await shell.files()


async def test_who_has_no_certificate_gets_nothing_but_a_tls_alert(served: HeronShell) -> None:
    host, _, port = served.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        plain.sendall(b"GET /file/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n")
        assert len(answer := _to_the_end(plain)) < 16
        assert not answer.strip(b"\x15\x03\x01\x00\x02\x46"), f"{answer!r} is more than an alert"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    answer = b""
    with (
        socket.create_connection((host, int(port)), timeout=60) as raw,
        contextlib.suppress(ssl.SSLError),
        context.wrap_socket(raw) as tls,  # in TLS 1.3 a client is done before it hears that it is refused
    ):
        tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        answer = tls.recv(1000)
    assert answer == b""


def _to_the_end(connection: socket.socket) -> bytes:
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(4096):
            answer += part
    return answer


PATHS = (
    "../secret", "/etc/passwd", "~/.ssh/id_rsa", "log-files/../secret", "a/../../secret", "link", "out/secret", "pipe",
    ".", "", "log-files", "\0", "a" * 5000, "/".join(["d"] * 200), "..%2fsecret", "sub/link", "sub/../../secret",
    "\\etc",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_no_path_leads_out_of_the_log_files(shell: RemoteShell, remote: Launch, path: str) -> None:
    logs = remote.log_dir(1)
    (remote.container_dir(1) / "secret").write_text("swordfish")
    (logs / "link").symlink_to("../secret")
    (logs / "out").symlink_to("..")
    (logs / "sub").mkdir()
    (logs / "sub" / "link").symlink_to("../../secret")
    os.mkfifo(logs / "pipe")
    with pytest.raises((NotFoundError, UsageError)):  # an answer, not a timeout: the pipe blocks nobody
        await shell.read(path, 0, -1)
    with contextlib.suppress(NotFoundError, UsageError):
        assert "secret" not in {found.name for found in (await shell.files(path)).files}


async def test_a_path_that_is_no_text_is_a_usage_error(shell: RemoteShell) -> None:
    with pytest.raises(UsageError):
        await shell.read("\ud800.log", 0, -1)
    with pytest.raises(NotFoundError, match="no log file"):
        await shell.read("none.log", 1 << 90, -1)


async def searched(shell: RemoteShell, text: str) -> shell_pb2.SearchReply:
    """What all steps of a search have found."""
    request, all_found = shell_pb2.SearchRequest(text=text), shell_pb2.SearchReply()
    while not all_found.complete:  # each takes a few seconds at most
        found = await shell.search(request)
        request.after_path, request.after_offset = found.next_path, found.next_offset
        request.after_inode = found.next_inode
        all_found.matches.extend(found.matches)
        all_found.searched_bytes += found.searched_bytes
        all_found.complete = found.complete
    return all_found


async def test_a_large_and_a_sparse_file_are_read_in_bounded_parts(shell: RemoteShell, remote: Launch) -> None:
    with (remote.log_dir(1) / "a.log").open("wb") as sparse:
        sparse.truncate(1 << 40)
        sparse.seek(0, os.SEEK_END)
        sparse.write(b"\nthe needle\n")
    size = (await shell.read("a.log", -1, 0)).size
    assert size == (1 << 40) + 12
    first = await shell.read("a.log", 0, -1)
    assert len(first.data) == READ_BYTES_MAX
    assert (await shell.read("a.log", size - 11, -1)).data == b"the needle\n"
    found = await searched(shell, "needle")
    assert [match.line for match in found.matches] == [b"the needle"]
    assert found.searched_bytes < MIB, "holes are not read"


async def test_of_ten_thousand_files_some_are_listed_and_all_can_be_read(shell: RemoteShell, remote: Launch) -> None:
    for n in range(10_000):
        (remote.log_dir(1) / f"{n:05}.log").write_bytes(b"%d" % n)
    found = await shell.files()
    assert (len(found.files), found.truncated) == (LISTED_MAX, True)
    assert (await shell.read("00000.log", 0, -1)).data == b"0"
    assert (await shell.read("09999.log", 0, -1)).data == b"9999"


async def test_binary_garbage_is_passed_as_it_is(shell: RemoteShell, remote: Launch) -> None:
    data = os.urandom(100_000)
    (remote.log_dir(1) / "a.log").write_bytes(data)
    (remote.log_dir(1) / os.fsdecode(b"\xff\xfe.log")).write_bytes(b"x")
    assert (await shell.read("a.log", 0, -1)).data == data
    assert len((await shell.files()).files) == 2
    assert not (await searched(shell, "nowhere to be found")).matches


async def test_reading_a_growing_file_by_its_end_misses_nothing(shell: RemoteShell, remote: Launch) -> None:
    path, seen = remote.log_dir(1) / "a.log", b""
    with path.open("ab", buffering=0) as log:
        for n in range(200):
            log.write(b"line %d\n" % n)
            part = await shell.read("a.log", len(seen), -1)
            assert part.size >= len(seen)
            seen += part.data
    assert seen == path.read_bytes()


async def test_a_rotation_shows_in_the_inode(shell: RemoteShell, remote: Launch) -> None:
    path = remote.log_dir(1) / "a.log"
    path.write_text("old\n")
    before = await shell.read("a.log", 0, -1)
    path.rename(f"{path}.1")
    path.write_text("new and longer\n")
    assert (await shell.read("a.log", 0, -1)).inode != before.inode
    assert {found.name: found.inode for found in (await shell.files()).files}["a.log.1"] == before.inode


async def test_a_process_is_looked_into_and_another_topologys_is_not(
    shell: RemoteShell, remote: Launch, submitted: Launch
) -> None:
    stranger = HostProcess.of(os.getpid())
    assert stranger is not None
    PidFiles(remote.container_dir(1)).started("container_1_word_1", stranger)  # user code could do that
    for kind in ("pid", "jstack", "jmap", "histo", "pmap"):
        with pytest.raises(UnavailableError, match="is not container_1_word_1"):
            await shell.look(kind, "container_1_word_1")
        with pytest.raises(UnavailableError, match="does not run now"):
            await shell.look(kind, "../../../../1")
    with pytest.raises(UsageError, match="did you mean 'jstack'"):
        await shell.look("jstak", "container_1_word_1")
    with pytest.raises(UsageError, match="a profile takes"):
        await shell.profile("container_1_word_1", 1e9)
    (found,) = (await shell.processes()).processes
    assert (found.id, found.pid, found.alive) == ("container_1_word_1", os.getpid(), True)
    assert found.rss_bytes > MIB


async def test_a_record_with_numbers_that_no_process_has_is_no_error(shell: RemoteShell, remote: Launch) -> None:
    me = HostProcess.of(os.getpid())
    assert me is not None
    PidFiles(remote.container_dir(1)).started("metricsmgr-1", me)
    path = remote.container_dir(1) / "pids" / "metricsmgr-1.pid"
    text = path.read_text()  # a small file
    path.write_text(text.replace('"restarts": 0', f'"restarts": {1 << 80}'))  # a small file
    assert read_pids(remote.container_dir(1))["metricsmgr-1"].restarts == 1 << 80
    assert [found.id for found in (await shell.processes()).processes] == ["metricsmgr-1"]


def recorded(state: StateManager) -> state_pb2.ContainerRecord:
    return state_pb2.ContainerRecord.FromString(state.get(Kind.CONTAINERS, NODE) or b"")


async def test_its_address_is_kept_in_the_record_of_its_incarnation(
    remote: Launch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HERON_INCARNATION", "7")
    record = state_pb2.ContainerRecord(topology_id=remote.topology_id, container=1, incarnation=7, host="a")
    newer = state_pb2.ContainerRecord(topology_id=remote.topology_id, container=1, incarnation=8, host="b")
    with open_statemgr(remote.statemgr) as state:
        state.set(Kind.CONTAINERS, NODE, record.SerializeToString())
        async with running(HeronShell(remote, 1)) as service:

            async def announced() -> None:
                found = recorded(state)
                assert (found.host, found.shell_endpoint) == (record.host, service.address)

            await eventually(announced)
            state.set(Kind.CONTAINERS, NODE, b"\xff\xff")

            def damage_seen() -> None:
                assert "damaged" in caplog.text

            await eventually(damage_seen)
            state.delete(Kind.CONTAINERS, NODE)
            record.host = "c"
            state.set(Kind.CONTAINERS, NODE, record.SerializeToString())  # the executor has written it again
            await eventually(announced)
            state.set(Kind.CONTAINERS, NODE, newer.SerializeToString())
            before = state.get(Kind.CONTAINERS, NODE)
            monkeypatch.setenv("HERON_INCARNATION", "8")
            async with running(HeronShell(remote, 1)) as second:

                async def announced_again() -> None:
                    assert recorded(state).shell_endpoint == second.address

                await eventually(announced_again)
            assert before == newer.SerializeToString(), "the older incarnation leaves it alone"
            state.delete(Kind.CONTAINERS, NODE)
        assert state.get(Kind.CONTAINERS, NODE) is None, "who ends writes nothing"


async def test_the_process_starts_answers_and_looks_into_itself(submitted: Launch, remote: Launch) -> None:
    log = remote.log_dir(1) / "heron-shell-1.log"
    with EngineProcess("shell", remote, 1) as process:

        async def address() -> str:
            text = log.read_text() if log.exists() else ""  # a small file
            assert "serves at" in text
            return text.rpartition("serves at ")[2].split()[0]

        await eventually(address)
        async with asking(await address(), submitted.security("heron")) as shell:
            assert "heron-shell-1.log" in {found.name for found in (await shell.files()).files}
        assert process.terminate() == 0


async def test_who_does_not_answer_is_told_from_who_refuses(submitted: Launch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        async with asking(endpoint, submitted.security("tracker")) as shell:
            with pytest.raises(ShellUnreachableError):
                await shell.files()
    assert issubclass(ShellUnreachableError, HeronError)
