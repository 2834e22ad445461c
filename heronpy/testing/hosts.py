"""Test hosts: hosts of their own on one machine, joined by a network that can be cut, and gone with the test process.

    with Hosts("one", "two") as hosts:
        server = hosts["one"].popen(["python", "-m", "http.server", "--bind", hosts["one"].address])
        hosts["two"].cut()

A host has network, PID, mount and UTS namespaces of its own: addresses (IPv4 and IPv6), processes, `/tmp`, `/dev/shm`,
HOME, `/etc/hosts` and host name. It has no files in common with the others but what is installed on the machine, and
`hosts.shared`, for what a real cluster has on a file server. This process reaches them all by their addresses.

No namespace has a name: each lives as long as its first process, which ends with this process, however that ends. So
does a switch (a bridge in a namespace of its own), where all faults of links are made. `hosts_missing()` says why there
are none on this machine.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from heronpy.errors import UsageError
from heronpy.testing import _delay, _namespace
from heronpy.testing._server_process import ServerProcess

_START_S = 60.0
_POLL_S = 0.01
_TOOLS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "unshare": "util-linux", "nsenter": "util-linux"}
_UNSHARE = ("unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--propagation", "private")
_BASE = "/var/tmp"
"""Not below /tmp, of which each host has its own."""


@functools.cache
def hosts_missing() -> str | None:
    """Why there are no test hosts on this machine, or None if there are."""
    if os.geteuid() != 0:
        return "no test hosts: only root can make namespaces and links"
    if missing := sorted({package for tool, package in _TOOLS.items() if shutil.which(tool) is None}):
        return f"no test hosts: install {', '.join(missing)}"
    for path in (sys.prefix, str(Path(__file__))):
        if Path("/tmp") in Path(path).resolve().parents:
            return f"no test hosts: {path} is below /tmp, of which each host has its own"
    commands = "ip link add br0 type bridge && nft add table bridge t && mount -t tmpfs tmpfs /mnt"
    tried = subprocess.run([*_UNSHARE, "sh", "-ec", commands], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no test hosts: {(tried.stderr.strip().splitlines() or ['namespaces cannot be made'])[-1]}"
    return None


class Host:
    """One host of `Hosts`, which makes it."""

    def __init__(self, network: Hosts, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.address = str(network.subnet[number])
        """IPv4."""
        self.address6 = str(network.subnet6[number])
        self.directory = network.directory / name
        """Its own files. The path is the same from inside and from outside, but not on other hosts."""
        self.home = self.directory / "home"
        self.port = f"v{number}"
        """Its link's name at the switch."""
        self._network = network
        self._init: ServerProcess | None = None
        self._delay: subprocess.Popen[bytes] | None = None

    @property
    def tmp(self) -> Path:
        """Its `/tmp`, from outside."""
        return self.directory / "tmp"

    @property
    def pid(self) -> int:
        """Of its first process, as this process sees it."""
        assert self._init is not None, f"host {self.name} is gone"
        pid = _namespace.inner_pid(self._init.pid)
        assert pid is not None, f"host {self.name} has ended: {self._init.tail()}"
        return pid

    @property
    def lives(self) -> bool:
        return self._init is not None and self._init.running()

    def command(self, command: Sequence[str], cwd: str | Path | None = None) -> list[str]:
        """A command of this machine that runs a command on the host, by default in its HOME."""
        script = [sys.executable, "-S", "-P", _namespace.__file__, "enter", str(self.pid), str(cwd or self.home)]
        return [*script, "env", "-u", "TMPDIR", f"HOME={self.home}", *command]

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Run a command on the host, as `subprocess.Popen` does with these options. It ends with this process.

        Signals reach the command, SIGSTOP excepted; its pid is that of its stand-in.
        """
        return subprocess.Popen(self.command(command, options.pop("cwd", None)), **options)

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Run a command on the host to its end, as `subprocess.run` does with these options."""
        return subprocess.run(self.command(command, options.pop("cwd", None)), **options)

    def inner_pid(self, stand_in: int) -> int | None:
        """The process of the host that a process of this machine stands in for."""
        return _namespace.inner_pid(stand_in)

    def start(self) -> None:
        """Start it with an empty directory, its link up and without faults.

        Raises:
            RuntimeError: it did not start; with the end of its output.
        """
        assert not self.lives, f"host {self.name} runs"
        for path in self.directory.iterdir():  # not the directory itself, which other hosts have hidden
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for directory, mode in ((self.tmp, 0o1777), (self.home, 0o700)):
            directory.mkdir()
            directory.chmod(mode)
        names = self.directory / "hosts"
        known = "".join(f"{h.address} {h.name}\n{h.address6} {h.name}\n" for h in self._network.known())
        names.write_text(f"127.0.0.1 localhost\n::1 localhost\n{known}")
        binds = {"/tmp": str(self.tmp), "/etc/hosts": str(names)}
        hide = [str(other.directory) for other in self._network.known() if other is not self]
        self._init = _first_process(self._network.directory / f"{self.name}.log", self.name, binds, hide)
        self._network.connect(self)

    def vanish(self) -> None:
        """The link goes, and with it all processes at once: no peer is sent a farewell. Its files stay, unreachable."""
        if self._init is not None:
            self._network.disconnect(self)
            self._init.kill()
            self._delay = None

    def come_back(self) -> None:
        """The same name and addresses again, with nothing of what was there."""
        self.start()

    def cut(self) -> None:
        """Nothing that it sends arrives, and nothing that is sent to it."""
        self._network.set_fault(self, f'iifname "{self.port}" drop', f'oifname "{self.port}" drop')

    def mute(self) -> None:
        """It receives, but nothing that it sends arrives."""
        self._network.set_fault(self, f'iifname "{self.port}" drop')

    def deafen(self) -> None:
        """It sends, but nothing that is sent to it arrives."""
        self._network.set_fault(self, f'oifname "{self.port}" drop')

    def lose(self, percent: int) -> None:
        """Of its packets in both directions, this share is lost at random."""
        loss = f"numgen random mod 100 < {percent} drop"
        self._network.set_fault(self, f'iifname "{self.port}" {loss}', f'oifname "{self.port}" {loss}')

    def throttle(self, bytes_per_s: int) -> None:
        """Its link carries no more, in each direction."""
        shape = f"root tbf rate {8 * bytes_per_s}bit burst 32kb latency 400ms"
        self._network.at_switch(f"tc qdisc replace dev {self.port} {shape}")
        self._inside(f"tc qdisc replace dev eth0 {shape}")

    def delay(self, seconds: float) -> None:
        """What it sends over TCP, and the answers, arrive that much later; connections that exist are broken."""
        self._undelay()
        command = [sys.executable, "-S", "-P", _delay.__file__, str(seconds)]
        self._delay = self.popen(command, stdout=subprocess.PIPE)
        assert self._delay.stdout is not None
        port = int(self._delay.stdout.readline())
        for kind, subnet in (("ip", self._network.subnet), ("ip6", self._network.subnet6)):
            where = f"{kind} daddr {subnet} meta mark != {_delay.MARK} tcp dport != 0 redirect to :{port}"
            self._inside(f"nft add table {kind} delay")
            self._inside(f"nft add chain {kind} delay out {{ type nat hook output priority -100 ; }}")
            self._inside(f"nft add rule {kind} delay out {where}")
        self._break_connections()

    def heal(self) -> None:
        """End all faults of its link."""
        self._network.set_fault(self)
        self._network.at_switch(f"tc qdisc del dev {self.port} root", check=False)  # usually there is none
        self._inside("tc qdisc del dev eth0 root", check=False)
        self._undelay()

    def _undelay(self) -> None:
        if self._delay is None:
            return
        for kind in ("ip", "ip6"):
            self._inside(f"nft delete table {kind} delay")
        self._delay.kill()
        self._delay.wait()
        self._delay = None

    def _break_connections(self) -> None:
        subnets = " or ".join(f"dst {net}" for net in (self._network.subnet, f"[{self._network.subnet6}]"))
        self._inside(f"ss --kill --tcp state established ( {subnets} )", check=False)

    def _inside(self, command: str, *, check: bool = True) -> None:
        _nsenter(self.pid, command, check=check)


class Hosts:
    """Hosts and their network, for the duration of a `with` block. All run when it begins; nothing is left of them.

    Args:
        names: of the hosts, as they know each other.
    """

    def __init__(self, *names: str) -> None:
        if len(set(names)) != len(names) or not all(name.isidentifier() for name in names):
            raise UsageError(f"hosts need different names, of letters and digits: {', '.join(names)}")
        self.subnet, self.subnet6 = _free_subnets()
        self.directory = Path()
        self._hosts: dict[str, Host] = {}
        self._names = names
        self._faults: dict[str, Sequence[str]] = {}
        self._switch: ServerProcess | None = None
        self._janitor: subprocess.Popen[bytes] | None = None

    @property
    def shared(self) -> Path:
        """A directory that all hosts have, at the same path as this process."""
        return self.directory / "shared"

    @property
    def own_address(self) -> str:
        """Where the hosts reach this process."""
        return str(self.subnet[254])

    def known(self) -> Sequence[Host]:
        """All hosts, also those that have vanished."""
        return tuple(self._hosts.values())

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.known())

    def __enter__(self) -> Self:
        if why := hosts_missing():
            raise UsageError(why)
        self.directory = Path(tempfile.mkdtemp(prefix="heron-hosts-", dir=_BASE))
        self.directory.chmod(0o755)
        self._janitor = _janitor(self.directory)
        try:
            self.shared.mkdir()
            self._hosts = {name: Host(self, name, number) for number, name in enumerate(self._names, start=1)}
            for host in self:
                host.directory.mkdir()  # before any starts, each of which hides the others'
            self._make_switch()
            for host in self:
                host.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all hosts and remove their files."""
        for host in self:
            host.vanish()
        self.at_switch("ip link del leg", check=False)  # it would go with the switch, but a little later
        if self._switch is not None:
            self._switch.kill()
        if self._janitor is not None and self._janitor.stdin is not None:
            self._janitor.stdin.close()
            self._janitor.wait()

    def cut_between(self, one: Host, other: Host) -> None:
        """Nothing passes between two hosts; both reach the rest. `heal` of the first ends it."""
        ports = (one.port, other.port)
        self.set_fault(one, *(f'iifname "{a}" oifname "{b}" drop' for a, b in (ports, ports[::-1])))

    def set_fault(self, host: Host, *rules: str) -> None:
        """Replace the rules by which the switch drops frames of a host."""
        self._faults[host.name] = rules
        lines = [rule for rules in self._faults.values() for rule in rules]
        table = "".join(f"add rule bridge faults forward {line}\n" for line in lines)
        self.at_switch("nft -f -", f"flush chain bridge faults forward\n{table}")

    def connect(self, host: Host) -> None:
        """Put a link between a host that has just started and the switch. Called by `Host`."""
        self.set_fault(host)
        # With an Ethernet address of its own: when it comes back, neighbours still find it.
        mac = f"02:00:00:00:00:{host.number:02x}"
        self.at_switch(f"ip link add {host.port} type veth peer name eth0 address {mac} netns {host.pid}")
        self.at_switch(f"ip link set {host.port} master br0 up")
        _nsenter(host.pid, "ip link set eth0 up")
        _nsenter(host.pid, f"ip addr add {host.address}/{self.subnet.prefixlen} dev eth0")
        _nsenter(host.pid, f"ip addr add {host.address6}/{self.subnet6.prefixlen} dev eth0 nodad")

    def disconnect(self, host: Host) -> None:
        """Remove a host's link. Called by `Host`."""
        self.at_switch(f"ip link del {host.port}", check=False)

    def at_switch(self, command: str, stdin: str = "", *, check: bool = True) -> None:
        """Run a command where the links of all hosts meet."""
        if self._switch is not None and self._switch.running():
            pid = _namespace.inner_pid(self._switch.pid)
            assert pid is not None
            _nsenter(pid, command, stdin, check=check)

    def _make_switch(self) -> None:
        self._switch = _first_process(self.directory / "switch.log", "switch", {}, [])
        pid = _namespace.inner_pid(self._switch.pid)
        leg = f"hh{secrets.token_hex(4)}"
        self.at_switch("ip link add br0 type bridge")
        self.at_switch("ip link set br0 up")
        self.at_switch("nft add table bridge faults")
        self.at_switch("nft add chain bridge faults forward { type filter hook forward priority 0 ; }")
        _call(["ip", "link", "add", leg, "type", "veth", "peer", "name", "leg", "netns", str(pid)])
        self.at_switch("ip link set leg master br0 up")
        _call(["ip", "link", "set", leg, "up"])
        _call(["ip", "addr", "add", f"{self.own_address}/{self.subnet.prefixlen}", "dev", leg])
        _call(["ip", "addr", "add", f"{self.subnet6[254]}/{self.subnet6.prefixlen}", "dev", leg, "nodad"])


def _first_process(output: Path, name: str, binds: Mapping[str, str], hide: Sequence[str]) -> ServerProcess:
    output.unlink(missing_ok=True)
    spec = json.dumps({"name": name, "binds": dict(binds), "hide": list(hide)})
    process = ServerProcess([*_UNSHARE, sys.executable, "-S", "-P", _namespace.__file__, "init", spec], output)
    deadline_s = time.monotonic() + _START_S
    while _namespace.READY not in output.read_text().split():
        if not process.running() or time.monotonic() > deadline_s:
            process.kill()
            raise RuntimeError(f"test host {name} did not start:\n{process.tail(20)}")
        time.sleep(_POLL_S)
    return process


def _janitor(directory: Path) -> subprocess.Popen[bytes]:
    """Removes the directory when this process closes its end of a pipe, which the kernel does if it is killed."""
    script = f'cat; for n in $(seq 100); do rm -rf "{directory}" 2>/dev/null && break; sleep 0.1; done'
    return subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={"PATH": os.environ["PATH"]},  # no part of the test run: it outlives it
    )


def _free_subnets() -> tuple[ipaddress.IPv4Network, ipaddress.IPv6Network]:
    """Private networks that this machine has no route to."""
    taken = subprocess.run(["ip", "-o", "route"], capture_output=True, text=True).stdout
    while True:
        subnet = ipaddress.IPv4Network(f"10.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}.0/24")
        if str(subnet) not in taken:
            return subnet, ipaddress.IPv6Network(f"fd{secrets.token_hex(1)}:{secrets.token_hex(2)}:7e57::/64")


def _nsenter(pid: int, command: str, stdin: str = "", *, check: bool = True) -> None:
    _call(["nsenter", "--target", str(pid), "--net", *command.split()], stdin, check=check)


def _call(command: Sequence[str], stdin: str = "", *, check: bool = True) -> None:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def kill_quietly(process: subprocess.Popen[Any]) -> None:
    """End a process that `Host.popen` made, if it still runs."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()
