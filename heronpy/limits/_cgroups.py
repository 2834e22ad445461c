"""Control groups of one container, one for each instance that is limited: cgroup v1 and v2, also both at once.

The groups of a container are made in one directory of each hierarchy, below the executor's own cgroup, so that what
limits the executor limits them too, or below `heron.executor.cgroup.parent`. Version 2 allows no group that has both
processes and children with controllers: there the executor moves into a group of its own, if it is alone in its cgroup;
if it is not, as in the session of a user's terminal, a parent must be given.

Where groups are made is written to `cgroups` in the container's directory beforehand, so that they can be removed also
after the executor was killed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from heronpy.errors import HeronError, UnavailableError
from heronpy.files import ABSENT, read_owned_file, replace_file

RECORD = "cgroups"
_RECORD_BYTES_MAX = 1 << 16
_CONTROLLERS = frozenset({"memory", "cpu"})
_PERIOD_US = 100_000
_QUOTA_US_MIN = 1000
_REMOVE_S = 2.0
"""How long a group is tried to be removed whose processes were killed."""


class Limits(Struct, frozen=True):
    """Of one instance; 0: none."""

    ram_bytes: int = 0
    cpu: float = 0.0
    """Cores."""


class Hierarchy(Struct, frozen=True):
    """A mounted tree of cgroups with controllers for us."""

    version: int
    controllers: frozenset[str]
    mount: Path
    root: Path
    """Where groups are made."""


def hierarchies(mountinfo: str, own: str, parent: str = "") -> list[Hierarchy]:
    """The trees that have the controllers of memory and CPU, each of them once.

    Args:
        mountinfo: /proc/self/mountinfo, see proc_pid_mountinfo(5).
        own: /proc/self/cgroup, see cgroups(7).
        parent: Below which group of each tree groups are made; empty: below the process's own.
    """
    paths: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    found: list[Hierarchy] = []
    for line in mountinfo.splitlines():
        fields, _, tail = line.partition(" - ")
        kind, _, options = tail.partition(" ")
        if kind not in ("cgroup", "cgroup2"):
            continue
        mounted, mount = fields.split()[3], Path(fields.split()[4])
        ours = _CONTROLLERS & {*options.replace(" ", ",").split(",")}
        path = next((paths[c] for c in (sorted(ours) or [""]) if c in paths), "/")
        inside = parent or (path.removeprefix(mounted) if mounted != "/" else path)
        root = mount / inside.strip("/")
        if kind == "cgroup2":
            available = _read(root / "cgroup.controllers") or _read(mount / "cgroup.controllers")
            ours = _CONTROLLERS & {*available.split()}
        taken = {controller for one in found for controller in one.controllers}
        if ours - taken:
            found.append(Hierarchy(2 if kind == "cgroup2" else 1, frozenset(ours - taken), mount, root))
    return found


class Cgroups:
    """The groups of one container."""

    def __init__(self, trees: Sequence[Hierarchy], name: str, record: Path) -> None:
        """Make the container's directory in each tree.

        Args:
            trees: What `hierarchies` has found.
            name: Of the directories.
            record: The file that names them.

        Raises:
            UnavailableError: there is no controller of memory, or no group can be made.
        """
        memory = next((tree for tree in trees if "memory" in tree.controllers), None)
        if memory is None:
            raise UnavailableError("no cgroup hierarchy has the memory controller")
        self._bases: dict[Path, Hierarchy] = {}
        self._oom_before: dict[str, int] = {}
        replace_file(record, "".join(f"{tree.root / name}\n" for tree in trees), durable=False, mode=0o600)
        for tree in trees:
            try:
                _make(tree, tree.root / name)
            except OSError as e:
                if tree is memory:
                    raise UnavailableError(f"no cgroup can be made in {tree.root}: {e.strerror}") from e
                continue
            self._bases[tree.root / name] = tree
        self.limits_cpu = any("cpu" in tree.controllers for tree in self._bases.values())
        """False: CPU cannot be limited here."""
        self._memory = next(base for base, tree in self._bases.items() if tree is memory)

    @classmethod
    def of(cls, directory: Path, identity: str, container: int, parent: str) -> Cgroups:
        """Those of a container of this host. Raises UnavailableError.

        Args:
            directory: The container's.
            identity: Of its topology on this host.
            container: Its number.
            parent: See `hierarchies`.
        """
        try:
            trees = hierarchies(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text(), parent)
            digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
            return cls(trees, f"heron-{digest}-{container}", directory / RECORD)
        except OSError as e:
            raise UnavailableError(f"cgroups cannot be used: {e}") from e

    def make(self, id: str, limits: Limits) -> None:
        """Make the group of an instance, empty and without a history. Raises OSError."""
        for base, tree in self._bases.items():
            _remove(base / id, within_s=0)
            (base / id).mkdir(exist_ok=True)
            for name, value, needed in _settings(tree, limits):
                with contextlib.suppress(*(() if needed else (OSError,))):
                    (base / id / name).write_text(value)
        self._oom_before[id] = self._oom_kills(id)

    def add(self, id: str, pid: int) -> None:
        """Put a process, and what it starts from now on, into a group. Raises OSError."""
        for base in self._bases:
            (base / id / "cgroup.procs").write_text(str(pid))

    def oom_kills(self, id: str) -> int:
        """How many processes the kernel has killed in a group since it was made, because they were over its RAM."""
        return self._oom_kills(id) - self._oom_before.get(id, 0)

    def peak_bytes(self, id: str) -> int:
        """The most RAM that a group has used; 0 where the kernel does not say."""
        group = self._memory / id
        text = _read(group / "memory.max_usage_in_bytes") or _read(group / "memory.peak")
        return int(text) if text.strip().isdecimal() else 0

    def remove(self, id: str) -> None:
        """Kill what is left of a group, and remove it; `close` tries again what fails."""
        for base in self._bases:
            _remove(base / id, within_s=0)

    def close(self) -> None:
        """Kill what is left and remove all groups."""
        for base in self._bases:
            _remove(base, within_s=_REMOVE_S)

    def _oom_kills(self, id: str) -> int:
        text = _read(self._memory / id / "memory.oom_control") or _read(self._memory / id / "memory.events")
        pairs = (line.split() for line in text.splitlines())
        return next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == "oom_kill"), 0)


def remove_cgroups(directory: Path) -> None:
    """Kill and remove what an executor has left that did not end by itself.

    Args:
        directory: The container's.
    """
    # User code can write here, too: nothing that could block, and nothing but groups with our names.
    try:
        lines = os.fsdecode(read_owned_file(directory / RECORD, max_bytes=_RECORD_BYTES_MAX)).splitlines()
    except HeronError:
        lines = []
    for line in lines:
        if (base := Path(line)).name.startswith("heron-") and os.path.exists(base / "cgroup.procs"):
            _remove(base, within_s=_REMOVE_S)
    with contextlib.suppress(OSError):
        (directory / RECORD).unlink()


def _settings(tree: Hierarchy, limits: Limits) -> Iterator[tuple[str, str, bool]]:
    """Files, what is written to them, and whether it must succeed; in this order."""
    if "memory" in tree.controllers and limits.ram_bytes:
        ram = str(limits.ram_bytes)
        if tree.version == 1:
            yield "memory.limit_in_bytes", ram, True
            yield "memory.memsw.limit_in_bytes", ram, False  # RAM and swap; not every kernel has it
        else:
            yield "memory.max", ram, True
            yield "memory.swap.max", "0", False
            yield "memory.oom.group", "1", False
    if "cpu" in tree.controllers and limits.cpu:
        quota = max(int(limits.cpu * _PERIOD_US), _QUOTA_US_MIN)
        if tree.version == 1:
            yield "cpu.cfs_period_us", str(_PERIOD_US), True
            yield "cpu.cfs_quota_us", str(quota), True
        else:
            yield "cpu.max", f"{quota} {_PERIOD_US}", True


def _make(tree: Hierarchy, base: Path) -> None:
    if tree.version == 1:
        base.mkdir(parents=True, exist_ok=True)
        return
    below = base.relative_to(tree.mount).parts
    above = [tree.mount.joinpath(*below[:n]) for n in range(len(below))]
    for group in above:
        group.mkdir(exist_ok=True)
        _enable(tree, group, required=group == tree.root)
    base.mkdir(exist_ok=True)
    _enable(tree, base, required=True)


def _enable(tree: Hierarchy, group: Path, *, required: bool) -> None:
    """Let the children of a group have the controllers."""
    control = group / "cgroup.subtree_control"
    if tree.controllers <= {*_read(control).split()}:
        return
    wanted = " ".join(f"+{controller}" for controller in sorted(tree.controllers))
    try:
        control.write_text(wanted)
    except OSError as e:
        if not required:
            return
        me = str(os.getpid())
        if e.errno != errno.EBUSY or _read(group / "cgroup.procs").split() != [me]:
            raise
        (group / "heron-executor").mkdir(exist_ok=True)
        (group / "heron-executor" / "cgroup.procs").write_text(me)
        control.write_text(wanted)


def _remove(group: Path, *, within_s: float) -> None:
    """Kill the processes of a group and of those below it, and remove them, if that is done in time."""
    try:
        below = [path for path in group.iterdir() if path.is_dir()]
    except OSError:  # it is gone already, or not ours to remove
        return
    for path in below:
        _remove(path, within_s=within_s)
    deadline_s = time.monotonic() + within_s
    while True:
        for pid in _read(group / "cgroup.procs").split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            group.rmdir()
            return
        except OSError as e:
            if e.errno != errno.EBUSY or time.monotonic() >= deadline_s:
                return
        time.sleep(0.01)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (*ABSENT, OSError):
        return ""
