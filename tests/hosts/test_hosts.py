"""Test hosts: what they have in common, what not, and what faults of their links do."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heronpy.testing import eventually_sync
from heronpy.testing.hosts import Host, Hosts, hosts_missing

pytestmark = pytest.mark.skipif(hosts_missing() is not None, reason=str(hosts_missing()))

ECHO = """
import socket, sys
listening = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print(listening.getsockname()[1], flush=True)
while True:
    connection, _ = listening.accept()
    while data := connection.recv(1 << 16):
        connection.sendall(data)
"""
COUNT = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind((sys.argv[1], 0))
    print(s.getsockname()[1], flush=True)
    received = 0
    while s.recv(100) != b"end":
        received += 1
    print(received)
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Hosts]:
    with Hosts("one", "two") as hosts:
        yield hosts


@pytest.fixture
def hosts(network: Hosts) -> Iterator[Hosts]:
    yield network
    for host in network:
        host.heal()


def output(host: Host, *command: str) -> str:
    return str(host.run(command, check=True, capture_output=True, text=True).stdout)


def python(host: Host, script: str, *args: str) -> subprocess.Popen[str]:
    return host.popen([sys.executable, "-S", "-c", script, *args], stdout=subprocess.PIPE, text=True)


@contextmanager
def echo(host: Host, address: str = "") -> Iterator[int]:
    """A server that sends back what it receives; its port."""
    process = python(host, ECHO, address or host.address)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def round_trip_s(connection: socket.socket, data: bytes = b"x") -> float:
    start_s = time.monotonic()
    connection.sendall(data)
    missing = len(data)
    while missing:
        missing -= len(connection.recv(1 << 16))
    return time.monotonic() - start_s


def dial(host: Host, port: int, timeout_s: float = 10.0) -> socket.socket:
    return socket.create_connection((host.address, port), timeout=timeout_s)


def test_a_host_has_its_own_name_processes_files_and_home(hosts: Hosts) -> None:
    one, two = hosts["one"], hosts["two"]
    assert output(one, "hostname") == "one\n"
    assert output(one, "sh", "-c", "echo $HOME; cd; pwd") == f"{one.home}\n{one.home}\n"
    output(one, "touch", "/tmp/mine", "/dev/shm/mine", str(one.home / "mine"))
    assert (one.tmp / "mine").exists()
    assert output(two, "ls", "/tmp", "/dev/shm", str(one.directory)).split() == [
        "/dev/shm:",
        "/tmp:",
        f"{one.directory}:",
    ]
    assert "sleep" not in output(two, "ps", "-e", "-o", "comm")
    sleeping = one.popen(["sleep", "60"])
    eventually_sync(lambda: _true("sleep" in output(one, "ps", "-e", "-o", "comm")))
    assert "sleep" not in output(two, "ps", "-e", "-o", "comm")
    sleeping.kill()
    sleeping.wait()
    (hosts.shared / "ours").write_text("for all")
    assert output(two, "cat", str(hosts.shared / "ours")) == "for all"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
def test_a_command_ends_as_a_child_would(hosts: Hosts, signum: signal.Signals) -> None:
    assert hosts["one"].run(["sh", "-c", "exit 7"]).returncode == 7
    command = hosts["one"].popen(["sh", "-c", "echo ready; exec sleep 60"], stdout=subprocess.PIPE)
    assert command.stdout is not None
    assert command.stdout.readline() == b"ready\n"
    command.send_signal(signum)
    assert command.wait(10) == -signum
    eventually_sync(lambda: _true("sleep" not in output(hosts["one"], "ps", "-e", "-o", "comm")))


@pytest.mark.parametrize("family", ["address", "address6"])
def test_hosts_reach_each_other_by_address_and_by_name(hosts: Hosts, family: str) -> None:
    one, address = hosts["one"], getattr(hosts["one"], family)
    with echo(one, address) as port:
        socket.create_connection((address, port), timeout=10).close()
        script = "import socket, sys; print(socket.create_connection((sys.argv[1], sys.argv[2]), 10).getpeername()[0])"
        for name in ("one", address):
            found = output(hosts["two"], sys.executable, "-c", script, name, str(port))
            assert found == f"{address}\n"


@pytest.mark.parametrize("fault", ["cut", "mute", "deafen"])
def test_a_link_that_fails_and_heals_delays_what_is_sent(hosts: Hosts, fault: str) -> None:
    with echo(hosts["one"]) as port, dial(hosts["one"], port) as connection:
        round_trip_s(connection)
        getattr(hosts["one"], fault)()
        connection.settimeout(0.5)
        connection.sendall(b"held up")
        with pytest.raises(TimeoutError):
            connection.recv(100)
        with pytest.raises(TimeoutError):
            dial(hosts["one"], port, timeout_s=0.5)
        hosts["one"].heal()
        connection.settimeout(60)
        assert connection.recv(100) == b"held up"


def test_two_hosts_can_be_cut_off_from_each_other_alone(hosts: Hosts) -> None:
    one, two = hosts["one"], hosts["two"]
    with echo(one) as port:
        hosts.cut_between(one, two)
        dial(one, port).close()
        script = "import socket, sys; socket.create_connection(sys.argv[1:], 0.5)"
        reach = [sys.executable, "-c", script, one.address, str(port)]
        assert two.run(reach, stderr=subprocess.DEVNULL).returncode != 0
        one.heal()
        assert two.run(reach).returncode == 0


def test_one_way_means_that_the_other_way_works(hosts: Hosts) -> None:
    """Of UDP, because TCP needs both."""
    for fault, expected in (("mute", "3"), ("deafen", "0")):
        counting = python(hosts["one"], COUNT, hosts["one"].address)
        assert counting.stdout is not None
        port = int(counting.stdout.readline())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect((hosts["one"].address, port))
            getattr(hosts["one"], fault)()
            for _ in range(3):
                s.send(b"x")
            hosts["one"].heal()
            s.send(b"end")
        assert counting.communicate(timeout=30)[0].strip() == expected


def test_lossy_links_lose_their_share(hosts: Hosts) -> None:
    counting = python(hosts["one"], COUNT, hosts["one"].address)
    assert counting.stdout is not None
    port = int(counting.stdout.readline())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((hosts["one"].address, port))
        hosts["one"].lose(30)
        for _ in range(50):
            for _ in range(40):
                s.send(b"x")
            time.sleep(0.002)  # so that nothing is lost for want of room in the receiver's buffer
        hosts["one"].heal()
        s.send(b"end")
    received = int(counting.communicate(timeout=30)[0])
    assert 1200 < received < 1600, "of 2000, 70 %"


def test_a_throttled_link_carries_no_more(hosts: Hosts) -> None:
    data = bytes(1_500_000)
    with echo(hosts["one"]) as port:
        hosts["one"].throttle(1_000_000)
        sent = python(hosts["two"], _SEND, hosts["one"].address, str(port), str(len(data)))
        took_s = float(sent.communicate(timeout=60)[0])
    assert 1.0 < took_s < 30


_SEND = """
import socket, sys, threading, time
size = int(sys.argv[3])
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:
    start = time.monotonic()
    threading.Thread(target=s.sendall, args=(bytes(size),)).start()
    while size:
        size -= len(s.recv(1 << 16))
    print(time.monotonic() - start)
"""


def test_a_delayed_host_answers_later_and_its_connections_are_made_anew(hosts: Hosts) -> None:
    one, two = hosts["one"], hosts["two"]
    for address in (two.address, two.address6):
        with echo(two, address) as port:
            one.delay(0.2)
            took_s = float(output(one, sys.executable, "-S", "-c", _SEND, address, str(port), "1"))
            assert 0.4 <= took_s < 10
            one.heal()
            assert float(output(one, sys.executable, "-S", "-c", _SEND, address, str(port), "1")) < 0.3


def test_a_host_that_vanishes_says_nothing_and_comes_back_empty(hosts: Hosts) -> None:
    one = hosts["one"]
    output(one, "touch", str(one.home / "mine"))
    with echo(one) as port:
        connection = dial(one, port)
        round_trip_s(connection)
        address = one.address
        one.vanish()
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):  # neither an end nor a reset
            connection.recv(100)
        assert (one.home / "mine").exists(), "its disk has not vanished"
        one.come_back()
        assert one.address == address
        assert not (one.home / "mine").exists()
        connection.settimeout(60)
        connection.send(b"x")
        with pytest.raises(ConnectionResetError):  # nobody knows it there
            connection.recv(100)
        connection.close()


def test_nothing_is_left_when_the_process_that_made_them_is_killed(tmp_path: Path) -> None:
    script = """
import sys, time
from heronpy.testing.hosts import Hosts
with Hosts("left") as hosts:
    hosts["left"].popen(["sleep", "4242"])
    print(hosts.directory, hosts.own_address, flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    directory, address = process.stdout.readline().split()
    assert Path(directory).exists()
    process.kill()
    process.communicate()

    def gone() -> None:
        assert not Path(directory).exists()
        assert address not in subprocess.run(["ip", "address"], capture_output=True, text=True).stdout
        assert "sleep 4242" not in subprocess.run(["ps", "-e", "-o", "args"], capture_output=True, text=True).stdout

    eventually_sync(gone, within_s=30)


def _true(value: Any) -> None:
    assert value
