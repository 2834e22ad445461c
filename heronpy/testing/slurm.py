"""A real Slurm cluster on one machine: munged, slurmctld and a slurmd for each node. Needs root, and Debian's packages.

    with SlurmCluster(tmp_path) as slurm:
        subprocess.run(["sbatch", …], env={**os.environ, "SLURM_CONF": str(slurm.config)})

Each node has a directory of its own (`host_dir`), where its jobs keep their files; nothing is shared between nodes but
this machine. With `accounting=True` there are slurmdbd and its database, and limits that `run("sacctmgr", …)` sets are
enforced. `slurm_missing()` says why there is none on this machine, for a skip that states its reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

from heronpy.host import find_by_environment
from heronpy.testing._eventually import eventually_sync
from heronpy.testing._server_cluster import START_S, ServerCluster
from heronpy.testing._server_process import free_port

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
_ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr")

# Short times, so that tests need not wait: a node is down when it has been silent for five seconds, and a job that is
# started again need not wait until the credentials of its last run have expired.
_CONFIG = """\
ClusterName=heron
SlurmctldHost={host}({address})
SlurmctldPort={controller_port}
{communication}AuthType=auth/munge
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


_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={directory}/munge.sock
AccountingStorageEnforce=associations,limits,qos
"""
_IPV6 = "CommunicationParameters=EnableIPv6,DisableIPv4\n"
_DATABASE_DAEMON = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
PidFile={directory}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=root
StorageLoc=slurm
"""


def slurm_missing(*, accounting: bool = False) -> str | None:
    """Why no Slurm can be started here, or None if it can."""
    if os.geteuid() != 0:
        return "no Slurm: its daemons are started as root"
    wanted = _PROGRAMS + (_ACCOUNTING_PROGRAMS if accounting else ())
    absent = [name for name in wanted if shutil.which(name) is None]
    return f"no Slurm: {', '.join(absent)} missing; make slurm-server installs Debian's packages" if absent else None


class SlurmCluster(ServerCluster):
    """slurmctld and nodes."""

    up = ("idle", "mixed", "allocated")

    def __init__(
        self,
        nodes: int = 2,
        *,
        cpus: int = 8,
        memory_mb: int = 8000,
        accounting: bool = False,
        address: str = "127.0.0.1",
    ) -> None:
        """Describe it; `address`, IPv4 or IPv6, is that of all its daemons, and its nodes' `NodeAddr`."""
        super().__init__("hs-", [f"n{i + 1}" for i in range(nodes)])
        self.config = self.directory / "slurm.conf"
        self._cpus, self._memory_mb, self._accounting = cpus, memory_mb, accounting
        self._address = address

    def lost_files(self, host: str) -> Path:
        return self.host_dir(host)

    def host_dir(self, node: str) -> Path:
        """Where the jobs of a node keep their files."""
        return self.directory / node / "tmp"

    def start(self) -> None:
        self._write_config()
        munge = [f"--{name}-file={self.directory}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        self._start("munged", "munged", "--foreground", "--force", f"--socket={self.directory}/munge.sock", *munge)
        eventually_sync(lambda: _exists(self.directory / "munge.sock"), within_s=START_S)
        if self._accounting:
            self._start_accounting()
        self._start("slurmctld", "slurmctld", "-D", "-c", "-f", str(self.config))
        for host in self.hosts:
            self.start_host(host)
        self.wait_idle(*self.hosts)

    def start_host(self, host: str) -> None:
        self.host_dir(host).mkdir(exist_ok=True)
        self._start(host, "slurmd", "-D", "-N", host, "-f", str(self.config))

    def wait_idle(self, *hosts: str) -> None:
        """Return when the nodes take jobs and have none."""
        self._wait(hosts, ("idle",))

    def states(self) -> dict[str, str]:
        lines = self.run("sinfo", "-h", "-N", "-p", "p", "-o", "%N %T").splitlines()
        return dict(line.split() for line in lines)

    def run(self, *command: str) -> str:
        """A command of Slurm's, and what it prints."""
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60, env={**os.environ, **self.env}
        ).stdout

    @property
    def env(self) -> dict[str, str]:
        """What a user's commands need in their environment."""
        return {"SLURM_CONF": str(self.config)}

    def processes(self, host: str) -> list[int]:
        """The processes of the jobs of a node, and the slurmstepds above them, which outlive their slurmd."""
        return sorted({*_owners_of_sockets(self.directory / host), *self.job_processes(host)})

    def job_processes(self, host: str) -> list[int]:
        """The processes of the jobs of a node, without the slurmstepds above them."""
        mark = {"SLURM_CONF": str(self.config), "SLURMD_NODENAME": host}
        return sorted(process.pid for process, _ in find_by_environment(mark))

    def _write_config(self) -> None:
        for directory in ("state", *(f"{node}/{name}" for node in self.hosts for name in ("spool", "tmp"))):
            (self.directory / directory).mkdir(parents=True)
        key = self.directory / "munge.key"
        key.touch(mode=0o400)
        key.write_bytes(os.urandom(1024))
        (self.directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        host = socket.gethostname().partition(".")[0]
        ports = _distinct_ports(len(self.hosts) + 1)
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr={self._address} Port={port} CPUs={self._cpus} "
            f"RealMemory={self._memory_mb} Feature=on-{node}"
            for node, port in zip(self.hosts, ports[1:], strict=True)
        )
        self.config.write_text(
            _CONFIG.format(
                host=host,
                address=self._address,
                communication=_IPV6 if ":" in self._address else "",
                directory=self.directory,
                controller_port=ports[0],
                nodes=nodes,
                names=",".join(self.hosts),
            )
        )

    def _start_accounting(self) -> None:
        """Start slurmdbd with a database of its own, which lets in everybody on this machine."""
        data, port, database_port = self.directory / "database", *_distinct_ports(2)
        install = ("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db")
        subprocess.run(install, check=True, capture_output=True, timeout=START_S)
        listen = (f"--port={database_port}", "--bind-address=127.0.0.1", f"--socket={self.directory}/database.sock")
        options = ("--skip-grant-tables", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=16M")
        self._start("mariadbd", "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root", *listen, *options)
        eventually_sync(lambda: _exists(self.directory / "database.sock"), within_s=START_S)
        config = self.directory / "slurmdbd.conf"
        config.touch(mode=0o600)
        config.write_text(_DATABASE_DAEMON.format(directory=self.directory, port=port, database_port=database_port))
        with self.config.open("a") as f:
            f.write(_ACCOUNTING.format(port=port, directory=self.directory))
        self._start("slurmdbd", "slurmdbd", "-D")
        eventually_sync(self._add_cluster, within_s=START_S)

    def _add_cluster(self) -> None:
        try:
            self.run("sacctmgr", "--immediate", "add", "cluster", "heron")
        except subprocess.CalledProcessError as e:
            if "already exists" not in e.stdout:
                raise AssertionError(e.stdout + e.stderr) from e

    def _start(self, name: str, *command: str) -> None:
        self._daemon(name, self.env, command, self.directory / f"{name}.out")


def _owners_of_sockets(directory: Path) -> set[int]:
    """The slurmstepds that listen on unix sockets below a directory: nothing else shows whose they are."""
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
