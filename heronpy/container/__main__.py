"""A container from its bootstrap file to its executor: `python -m heronpy.container BOOTSTRAP_FILE [--dir WORKDIR]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from heronpy.child import Child
from heronpy.container._bootstrap import BYTES_MAX, Bootstrap
from heronpy.container._directory import default_workdir, make_directory, remove_secrets, take_sockets
from heronpy.container._ending import TRY_AGAIN, ending
from heronpy.container.codes import packing_plan
from heronpy.environment import install
from heronpy.errors import ConfigError, NotFoundError, StateError, UnavailableError, UntrustedError
from heronpy.executor import ReplacedError, remove_record, take_incarnation
from heronpy.host import CONTAINER_ENV, EXECUTOR, child_environment, engine_process, python_module
from heronpy.plan import CodeVersion
from heronpy.proto import state_pb2
from heronpy.runtime import INCARNATION_ENV, PARENT_ENV, Launch
from heronpy.statemgr import StateManager, open_statemgr, records

_POLL_S = 0.5
_ENROLL_POLL_S = 0.02
_TOPOLOGY_WAIT_S = 30.0
"""How long a container that starts waits for its topology to be in the state manager, until it asks to be retried.
Long, because clusters start what fails again later and later."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heronpy.container", description=__doc__)
    parser.add_argument("bootstrap", type=Path, help="the container's bootstrap file")
    parser.add_argument("--dir", type=Path, default=default_workdir(), help="where its directory is made")
    args = parser.parse_args()
    with ending(str(args.bootstrap)):
        bootstrap = _read(args.bootstrap)
    container = bootstrap.container
    with ending(f"container {container} of {bootstrap.topology}") as say:
        launch = make_directory(bootstrap, args.dir)
        try:
            ours = _prepare(launch, container)
        except (ReplacedError, SystemExit) as e:
            if isinstance(e, ReplacedError) or not e.code:  # SIGTERM
                remove_secrets(launch, container)
            raise
        say(f"incarnation {ours[INCARNATION_ENV]} runs in {launch.dir}")
        where = ("--dir", str(launch.dir), "--container", str(container))
        command = engine_process("heronpy.container.executor", *where)
        # The same process: the cluster's signals and its exit code are the executor's. A SIGTERM that comes while that
        # starts waits until it can act on it: it would kill the process, or, in a pod, where it is pid 1, be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.execve(command[0], command, child_environment(launch, EXECUTOR, **ours))


def _prepare(launch: Launch, container: int) -> dict[str, str]:
    """Make everything ready for the executor. Returns what is to be in its environment.

    Raises:
        ReplacedError: the container is not needed any more.
        HeronError: something is missing, or does not answer.
    """
    take_sockets(launch, container)
    _wait_for_topology(launch)
    if container != 0:  # container 0 runs no user code
        _install(launch, container)
    record = _take_incarnation(launch, container)
    ours = {CONTAINER_ENV: str(container), INCARNATION_ENV: str(record.incarnation)}
    if launch.config.security.tls:
        _enroll(launch, container, ours)
    return ours


def _install(launch: Launch, container: int) -> None:
    """Fetch the code that the container is to run, also if that is changed meanwhile."""
    code = _code(launch, container)
    while True:
        try:
            install(launch, code)
            return
        except NotFoundError:
            if (newest := _code(launch, container)) == code:
                raise
            code = newest


def _code(launch: Launch, container: int) -> CodeVersion | None:
    with _opened(launch) as state:
        plan = packing_plan(state, launch)
    return plan.code_of(container) if plan is not None else None


def _read(path: Path) -> Bootstrap:
    """The bootstrap file. Clusters mount it in their own ways: links and other owners are fine, other readers not."""
    try:
        with path.open("rb") as f:
            if os.fstat(f.fileno()).st_mode & (stat.S_IROTH | stat.S_IWOTH):
                raise UntrustedError("all users of this host can read it, and its secrets: chmod 600, and submit again")
            data = f.read(BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError("there is no such bootstrap file") from None
    except OSError as e:
        raise UnavailableError(f"it cannot be read: {e.strerror or e}") from e
    if len(data) > BYTES_MAX:
        raise ConfigError(f"it is not a bootstrap file: larger than {BYTES_MAX} bytes")
    return Bootstrap.decode(data)


@contextlib.contextmanager
def _opened(launch: Launch) -> Iterator[StateManager]:
    """The state manager; what it fails with is worth another attempt."""
    try:
        with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as state:
            yield state
    except StateError as e:
        raise UnavailableError(str(e)) from e


def _wait_for_topology(launch: Launch) -> None:
    """Wait until the topology is in the state manager, which may have lost its data, and is given them again.

    Raises:
        UnavailableError: it is not there. Whether it was killed or its data was lost is unknown; a kill ends the
            cluster's jobs before it removes the data, so what is still started belongs to a topology that should run.
        ReplacedError: it was killed, or another submission has its name.
    """
    deadline_s = time.monotonic() + _TOPOLOGY_WAIT_S
    with _opened(launch) as state:
        if state.is_buried(launch.topology_id):
            raise ReplacedError(f"topology {launch.topology} was killed")
        while (running := _running(state, launch)) is None and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
    if running is None:
        where = f"{launch.cluster}/{launch.role}/{launch.environ}"
        raise UnavailableError(
            f"the state manager knows no topology {launch.topology}: it was killed, or the state manager has lost its "
            f"data, and no Topology Master has a copy; `heron kill {where} {launch.topology}` ends what is left of it"
        )
    if running != launch.topology_id:
        raise ReplacedError(
            f"topology {launch.topology} is {running} now, and this container is of {launch.topology_id}"
        )


def _take_incarnation(launch: Launch, container: int) -> state_pb2.ContainerRecord:
    with _opened(launch) as state:
        record = take_incarnation(state, launch, container)
        if _running(state, launch) is None:  # killed in between, and its records are removed already
            remove_record(state, launch, record)
            raise ReplacedError(f"topology {launch.topology} was killed")
        return record


def _running(state: StateManager, launch: Launch) -> str | None:
    """The id of the submission that has the topology's name; None: none has."""
    return records.submission(state, launch.topology)


def _enroll(launch: Launch, container: int, ours: dict[str, str]) -> None:
    command = python_module("heronpy.container.enroll", "--dir", str(launch.dir), "--container", str(container))
    child = Child(command, env=child_environment(launch, "enroll", **ours, **{PARENT_ENV: str(os.getpid())}))
    try:
        # Not one system call for all: of a SIGTERM just before it, Python runs the handler only after it.
        while child.poll() is None:
            time.sleep(_ENROLL_POLL_S)
    finally:
        child.kill()
        code = child.wait()
    if code:
        raise SystemExit(code if code > 0 else TRY_AGAIN)  # it has said why
    if not (launch.tls_dir / f"container-{container}.pem").exists():
        raise ReplacedError("it was replaced while it waited for its certificate")


if __name__ == "__main__":
    main()
