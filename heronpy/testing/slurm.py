"""A real Slurm cluster on one machine: munged, slurmctld and a slurmd for each node. Needs root, and Debian's packages.

    with SlurmCluster(tmp_path) as slurm:
        subprocess.run(["sbatch", …], env={**os.environ, "SLURM_CONF": str(slurm.config)})

Each node has a directory of its own (`host_dir`), where its jobs keep their files; nothing is shared between nodes but
this machine. `slurm_missing()` says why there is none on this machine, for a skip that tells its reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from heronpy.host import find_by_environment
from heronpy.testing._eventually import eventually_sync
from heronpy.testing._server_process import ServerProcess, free_port

_START_S = 60.0
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")

# Short times, so that tests need not wait: a node is down when it has been silent for five seconds, and a job that is
# started again need not wait until the credentials of its last run have expired.
_CONFIG = """\
ClusterName=heron
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={directory}/munge.sock,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=5
SlurmctldTimeout=60
KillWait=5
InactiveLimit=0
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
EnforcePartLimits=NO
MailProg=/bin/true
{nodes}
PartitionName=p Nodes={names} Default=YES LLN=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes={names} MaxTime=1 State=UP
PartitionName=closed Nodes={names} MaxTime=INFINITE State=UP AllowAccounts=others
"""


def slurm_missing() -> str | None:
    """Why no Slurm can be started here, or None if it can."""
    if os.geteuid() != 0:
        return "no Slurm: its daemons are started as root"
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    return f"no Slurm: {', '.join(absent)} missing; install Debian's package slurm-wlm" if absent else None


class SlurmCluster:
    """slurmctld and nodes. A context manager: runs for the duration of the block; nothing of it is left then."""

    def __init__(self, nodes: int = 2, *, cpus: int = 8, memory_mb: int = 8000) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="hs-"))  # short, because a socket is in it
        self.config = self.directory / "slurm.conf"
        self.nodes = [f"n{i + 1}" for i in range(nodes)]
        self._cpus, self._memory_mb = cpus, memory_mb
        self._daemons: dict[str, ServerProcess] = {}

    def host_dir(self, node: str) -> Path:
        """Where the jobs of a node keep their files."""
        return self.directory / node / "tmp"

    def start(self) -> None:
        """Start all daemons. Returns when all nodes are idle.

        Raises:
            RuntimeError: they do not come up; with the end of their output.
        """
        self._write_config()
        munge = [f"--{name}-file={self.directory}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        self._daemon("munged", "munged", "--foreground", "--force", f"--socket={self.directory}/munge.sock", *munge)
        eventually_sync(lambda: _exists(self.directory / "munge.sock"), within_s=_START_S)
        self._daemon("slurmctld", "slurmctld", "-D", "-c", "-f", str(self.config))
        for node in self.nodes:
            self.start_node(node)
        self.wait_idle(*self.nodes)

    def start_node(self, node: str) -> None:
        """Start a node's slurmd."""
        self._daemon(node, "slurmd", "-D", "-N", node, "-f", str(self.config))

    def wait_idle(self, *nodes: str) -> None:
        """Return when the nodes take jobs."""
        eventually_sync(lambda: self._check_up(nodes, {"idle"}), within_s=_START_S)

    def wait_up(self, *nodes: str) -> None:
        """Return when the nodes run, with or without jobs."""
        eventually_sync(lambda: self._check_up(nodes, {"idle", "mixed", "allocated"}), within_s=_START_S)

    def vanish(self, node: str) -> None:
        """End a node's slurmd and all processes of its jobs at once, as when its machine loses power."""
        self._daemons.pop(node).kill()
        self._kill_jobs(node)
        shutil.rmtree(self.host_dir(node), ignore_errors=True)

    def run(self, *command: str) -> str:
        """A command of Slurm's, and what it prints."""
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60, env={**os.environ, **self.env}
        ).stdout

    @property
    def env(self) -> dict[str, str]:
        """What a user's commands need in their environment."""
        return {"SLURM_CONF": str(self.config)}

    def job_processes(self, node: str) -> list[int]:
        """The processes of the jobs of a node, without the slurmstepds above them."""
        mark = {"SLURM_CONF": str(self.config), "SLURMD_NODENAME": node}
        return sorted(process.pid for process, _ in find_by_environment(mark))

    def stop(self) -> None:
        """End all jobs and daemons, and remove the directory."""
        for node in self.nodes:
            daemon = self._daemons.pop(node, None)
            if daemon is not None:
                daemon.kill()
            self._kill_jobs(node)
        for name in ("slurmctld", "munged"):
            if name in self._daemons:
                self._daemons.pop(name).kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _write_config(self) -> None:
        for directory in ("state", *(f"{node}/{name}" for node in self.nodes for name in ("spool", "tmp"))):
            (self.directory / directory).mkdir(parents=True)
        key = self.directory / "munge.key"
        key.touch(mode=0o400)
        key.write_bytes(os.urandom(1024))
        (self.directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        host = socket.gethostname().partition(".")[0]
        ports = _distinct_ports(len(self.nodes) + 1)
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={self._cpus} "
            f"RealMemory={self._memory_mb}"
            for node, port in zip(self.nodes, ports[1:], strict=True)
        )
        self.config.write_text(
            _CONFIG.format(
                host=host, directory=self.directory, controller_port=ports[0], nodes=nodes, names=",".join(self.nodes)
            )
        )

    def _daemon(self, name: str, *command: str) -> None:
        self._daemons[name] = ServerProcess(
            ["env", f"SLURM_CONF={self.config}", *command], self.directory / f"{name}.out"
        )

    def _check_up(self, nodes: tuple[str, ...], wanted: set[str]) -> None:
        for name, daemon in self._daemons.items():
            if not daemon.running():
                raise RuntimeError(f"{name} ended while it started:\n{daemon.tail(20)}")
        try:
            states = dict(line.split() for line in self.run("sinfo", "-h", "-N", "-p", "p", "-o", "%N %T").splitlines())
        except subprocess.SubprocessError as e:
            raise AssertionError(f"slurmctld does not answer: {e}") from None
        assert {states.get(node) for node in nodes} <= wanted, states

    def _kill_jobs(self, node: str) -> None:
        """The processes of the node's jobs, and the slurmstepds above them, which outlive their slurmd."""
        deadline_s = time.monotonic() + _START_S
        while (left := {*_owners_of_sockets(self.directory / node), *self.job_processes(node)}) and (
            time.monotonic() < deadline_s
        ):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def _owners_of_sockets(directory: Path) -> set[int]:
    """The slurmstepds that listen on unix sockets below a directory: nothing else tells whose they are."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    wanted = {f"socket:[{parts[6]}]" for parts in lines if len(parts) > 7 and parts[7].startswith(f"{directory}/")}
    found = set()
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().startswith("slurmstepd"):
                links = {os.readlink(fd) for fd in (path.parent / "fd").iterdir()}
                if links & wanted:
                    found.add(int(path.parent.name))
    return found


def _distinct_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return sorted(ports)


def _exists(path: Path) -> None:
    assert path.exists(), f"{path} is not there"
