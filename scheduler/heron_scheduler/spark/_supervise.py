"""Supervises one container on a host of Spark. Of the standard library alone: this file is sent to the host as text.

It runs in a session of its own below Spark's Python worker, so that no signal to that reaches the container:

    stdin   a line of JSON, the order; then nothing: its end says that the Python worker is gone, killed or not
    stdout  at the end, a line of JSON: {"ended": "asked" | "purpose" | "failed" | "unreachable", "reason": text}

A TLS connection to the driver says that the container runs, and how it has ended if it is started again, and brings the
word to end it. Exit codes of a container: 0 is an end on purpose; 75 (EX_TEMPFAIL), or a death by a signal, asks to be
started again; others are failures, of which five in a row are one of the host, or one that no other attempt there can
mend (`heronpy.container.is_unusable`).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

TRY_AGAIN = 75
_FAILURES_MAX = 5
_UNUSABLE = (2, 126, 127)
_HEALTHY_S = 60.0
_PAUSE_S_MAX = 15.0
_POLL_S = 0.2
_CONNECT_S = 30.0
"""How long the driver is dialled before the host counts as one that does not reach it."""
_OLD_S = 60.0
_LINE_BYTES_MAX = 4096
_PR_SET_PDEATHSIG = 1
_NOT_OURS = ("SPARK_", "_SPARK_", "PYSPARK_", "PYTHON")
"""Variables of Spark's Python worker, which would also reach the container's Python."""


def main(order: dict[str, Any]) -> None:
    """Run the container until it is to end, and print how it ended."""
    os.umask(0o077)
    print(json.dumps(Supervisor(order).run()), flush=True)


class Supervisor:
    """A container, from its bootstrap file to the removal of its directory."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._ending = threading.Event()
        self._directory = Path()
        self._link: Link | None = None

    def run(self) -> dict[str, str]:
        """Returns how it ended."""
        signal.signal(signal.SIGTERM, lambda *_: self._ending.set())
        threading.Thread(target=self._follow_worker, daemon=True).start()
        base = Path(os.path.expandvars(self._order["directory"]))
        prefix = f"heron-{os.getuid()}-{self._order['topology_id']}-"
        try:
            remove_old(base, prefix)
            self._directory = base / f"{prefix}{self._order['run']}-{os.getpid()}"
            base.mkdir(parents=True, exist_ok=True)
            self._directory.mkdir(mode=0o700)
            lock = lock_of(self._directory)
        except OSError as e:
            return outcome("failed", f"{socket.gethostname()}: {e.filename or base}: {e.strerror}")
        try:
            return self._run_in_directory()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            os.close(lock)

    def _run_in_directory(self) -> dict[str, str]:
        bootstrap = self._directory / "bootstrap.json"
        write_private(bootstrap, self._order.pop("bootstrap"))
        self._link = Link(self._order, self._directory, self._ending)
        threading.Thread(target=self._link.run, daemon=True).start()
        deadline_s = time.monotonic() + _CONNECT_S
        while not self._link.address and not self._ending.is_set():
            if time.monotonic() > deadline_s:
                return outcome("unreachable", f"{socket.gethostname()} cannot reach the driver: {self._link.trouble}")
            time.sleep(_POLL_S)
        where = ["-m", "heronpy.container", str(bootstrap), "--dir", str(self._directory)]
        return self._supervise([*self._order["python"], *where])

    def _supervise(self, command: list[str]) -> dict[str, str]:
        failures, pause_s = 0, 0.0
        while not self._ending.is_set():
            began_s = time.monotonic()
            code, said = self._run_once(command)
            if self._ending.is_set():
                break
            if code == 0:
                return outcome("purpose")
            if time.monotonic() - began_s >= _HEALTHY_S:
                failures, pause_s = 0, 0.0
            if code > 0 and code != TRY_AGAIN:
                failures += 1
                if code in _UNUSABLE or (code == 1 and "No module named" in said) or failures >= _FAILURES_MAX:
                    return outcome("failed", f"{socket.gethostname()}: {said}")
            assert self._link is not None
            self._link.reason = f"{socket.gethostname()}: {said if code > 0 else f'ended by signal {-code}'}"
            self._ending.wait(pause_s)
            pause_s = min(2 * pause_s + 1, _PAUSE_S_MAX)
        return outcome("asked")

    def _run_once(self, command: list[str]) -> tuple[int, str]:
        """The exit code, negative for a signal, and the last line that it said."""
        assert self._link is not None
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
        environment.setdefault("HERON_ADVERTISE_ADDRESS", self._link.address)
        path = self._directory / "container.out"
        libc = ctypes.CDLL(None)
        with path.open("wb") as out:
            try:
                child = subprocess.Popen(
                    command,
                    cwd=self._directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    # Nothing of the container outlives its supervisor, however that ends.
                    preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
                )
            except OSError as e:
                return 127, f"{command[0]}: {e.strerror}"
        code = self._wait(child)
        lines = path.read_text(errors="replace").strip().splitlines()
        return code, lines[-1][:300] if lines else f"exit code {code}"

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        while not self._ending.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(_POLL_S)
        child.terminate()
        try:
            return child.wait(self._order["grace_s"])
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def _follow_worker(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1):
                pass
        self._ending.set()


class Link:
    """The connection to the driver, dialled again for as long as the supervisor lives."""

    def __init__(self, order: dict[str, Any], directory: Path, ending: threading.Event) -> None:
        self._order = order["link"]
        self._hello = json.dumps({"run": order["run"]}).encode() + b"\n"
        self._ending = ending
        self.address = ""
        """Of this host, as the driver sees it; empty before the first connection."""
        self.trouble = ""
        self.reason = ""
        """How the container has ended last; the driver is told when it changes."""
        certificate = directory / "link.pem"
        write_private(certificate, self._order.pop("certificate"))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.load_verify_locations(cadata=self._order["ca"])
        self._context.load_cert_chain(certificate)

    def run(self) -> None:
        """Until the process ends."""
        while True:
            try:
                self._follow()
                self.trouble = "it has closed the connection"
            except OSError as e:
                self.trouble = str(e)
            time.sleep(1.0)

    def _follow(self) -> None:
        server = (self._order["host"], self._order["port"])
        with (
            socket.create_connection(server, timeout=10.0) as plain,
            self._context.wrap_socket(plain, server_hostname=self._order["name"]) as link,
        ):
            link.sendall(self._hello)
            if not link.recv(_LINE_BYTES_MAX):  # its answer: TLS 1.3 refuses a client only after the handshake
                return
            self.address = os.environ.get("HERON_ADVERTISE_ADDRESS") or link.getsockname()[0]
            link.sendall(self.address.encode() + b"\n")
            link.settimeout(_POLL_S)
            told = ""
            while True:
                if (reason := self.reason) != told:
                    link.sendall(json.dumps({"reason": reason}).encode() + b"\n")
                    told = reason
                with contextlib.suppress(TimeoutError):
                    if not (word := link.recv(_LINE_BYTES_MAX)):
                        return
                    if b"end" in word:
                        self._ending.set()


def outcome(ended: str, reason: str = "") -> dict[str, str]:
    return {"ended": ended, "reason": reason}


def write_private(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w") as f:
        f.write(text)


def lock_of(directory: Path) -> int:
    """Held for as long as a supervisor uses its directory. Raises OSError: somebody does."""
    fd = os.open(directory / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def remove_old(base: Path, prefix: str) -> None:
    """What supervisors have left that were killed: nothing else would remove it."""
    for path in base.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            ours = found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
            if ours and time.time() - found.st_mtime > _OLD_S:
                lock = lock_of(path)
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
