"""A stranger with a port scanner, on a host without a certificate, beside a topology that runs on three hosts."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import port_scan
import pytest
from hosts_scene import Scene, scene_on

from heronpy.address import join_address
from heronpy.security import authority
from heronpy.testing.hosts import Host, Hosts, hosts_missing
from heronpy.testing.servers import zookeeper_missing

MISSING = hosts_missing() or zookeeper_missing()
FOREIGN = ("QuorumPeerMain",)
"""Servers that are not ours, by a word of their command line: ZooKeeper's ports are its administrator's to protect."""
_LISTEN = "0A"

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@dataclass(frozen=True)
class Listening:
    """A socket in state LISTEN, and whose it is."""

    address: str
    port: int
    command: str

    @property
    def foreign(self) -> bool:
        return any(word in self.command for word in FOREIGN)

    @property
    def local(self) -> bool:
        return self.address == "::1" or self.address.startswith("127.")


def listening(host: Host) -> list[Listening]:
    """All sockets of a host that accept connections, from the kernel's tables."""
    owners = _owners_of_sockets(host)
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{host.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN:
                address, _, port = fields[1].partition(":")
                found.append(Listening(_address(address), int(port, 16), owners.get(fields[9], "?")))
    return found


def _address(text: str) -> str:
    words = [struct.pack("=I", int(text[i : i + 8], 16)) for i in range(0, len(text), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))


def _owners_of_sockets(host: Host) -> dict[str, str]:
    """Command lines by the inodes of their sockets."""
    namespace = os.readlink(f"/proc/{host.pid}/ns/net")
    owners: dict[str, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if os.readlink(process / "ns/net") != namespace:
                continue
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            for fd in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(fd)
                    if target.startswith("socket:["):
                        owners[target[8:-1]] = command
    return owners


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Scene, Host]]:
    with Hosts("one", "two", "three", "stranger") as hosts, scene_on(hosts, tmp_path, workers=3) as scene:
        yield scene, hosts["stranger"]


class Silent(http.server.BaseHTTPRequestHandler):
    """Answers everything with an error, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_the_scanner_hears_who_answers(tmp_path: Path) -> None:
    """Without this, silence would prove nothing."""
    authority.create(tmp_path / "tls", "another", [0], days=1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls" / "container-0.pem")
    for secured in (False, True):
        with http.server.HTTPServer(("127.0.0.1", 0), Silent) as server:
            server.handle_error = lambda *_: None  # type: ignore[method-assign]  # some probes are no HTTP
            if secured:
                server.socket = context.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                answers = port_scan.scan(join_address("127.0.0.1", server.server_port))
            finally:
                server.shutdown()
                thread.join()
        assert "501" in answers["HTTP/1 over TLS 1.3" if secured else "HTTP/1"]


def test_a_stranger_hears_nothing_but_tls_alerts(scene: tuple[Scene, Host]) -> None:
    running, stranger = scene
    running.words.raise_goal(100_000)  # tuples flow meanwhile
    ours, foreign = {}, []
    for host in running.hosts:
        for one in listening(host) if host is not stranger else []:
            if one.foreign:
                foreign.append(f"{join_address(host.address, one.port)} {one.command[-60:]}")
            elif not one.local:
                for address in (host.address, host.address6) if ":" in one.address else (host.address,):
                    ours[join_address(address, one.port)] = one.command
    assert not (stranger.directory / "tls").exists()
    done = stranger.run(
        [sys.executable, "-S", port_scan.__file__, *ours], capture_output=True, text=True, check=True, timeout=600
    )
    scanned = {line["address"]: line["answers"] for line in map(json.loads, done.stdout.splitlines())}
    for address, answers in sorted(scanned.items()):
        module = next((word for word in ours[address].split() if word.startswith("heronpy")), ours[address][-60:])
        print(f"{address} {module}: {'; '.join(f'{k}: {v}' for k, v in answers.items() if v) or 'silent'}")
    print("not ours, not scanned:", *sorted(foreign), sep="\n  ")
    assert scanned.keys() == ours.keys()
    said = {
        (address, probe): answer
        for address, answers in scanned.items()
        for probe, answer in answers.items()
        if answer not in ("", "alert")
    }
    assert not said, "what is answered without a certificate"
    kinds = ("tmaster", "stmgr", "metricsmgr", "heronpy.shell")
    assert all(any(kind in command for command in ours.values()) for kind in kinds), "these have ports"
    assert len(foreign) >= 3, "ZooKeeper was seen, so that the tables are what they are taken for"
