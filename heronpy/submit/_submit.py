"""Submit a topology: everything, or nothing.

Each step registers how it is undone before it is taken, and any error, also Ctrl-C, undoes what was done in reverse
order. A submitter that is killed outright cannot undo: it leaves the file `submitting` in the topology's directory,
unless its scheduler service has come so far that it needs no submitter any more, and then removes the file itself.
Since that file only exists while the topology's lock is held, the next one to hold the lock knows that none is there
any more and clears the rest away; `heron kill` does the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import heron_scheduler

import heronpy
from heronpy import loader
from heronpy.address import bare_host, listening_socket
from heronpy.errors import AlreadyExistsError, ConfigError, DamagedStateError, HeronError, StateError, UnavailableError
from heronpy.files import make_private, outrace_removal, user_path
from heronpy.host import begin_submission, end_submission, in_submission, remove_directory
from heronpy.proto import state_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, StateManager, open_statemgr, records
from heronpy.submit._checkpoints import check_reachable, remove_checkpoints
from heronpy.submit._copies import StateManagers, has_copy, trouble_of
from heronpy.submit._listed import load
from heronpy.submit._packages import add_requirements, remove_packages, store_packages
from heronpy.submit._plan import Submission, default_role, prepare
from heronpy.usersecrets import read_secrets, store_secrets

if TYPE_CHECKING:
    from heronpy.loader import Definition

log = logging.getLogger(__name__)

LOCK, LOCK_TIMEOUT_S = heron_scheduler.LOCK, heron_scheduler.LOCK_TIMEOUT_S


def submit(
    definition: Definition,
    *,
    cluster: str = "local",
    role: str | None = None,
    environ: str | None = "default",
    home: Path,
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
    start_from: str = "",
    on_step: Callable[[str], None] = lambda step: None,
) -> Launch:
    """Start a topology. Returns when its scheduler runs; after an error or Ctrl-C nothing of it is left.

    Args:
        definition: What `heronpy.loader.define` returned.
        home: HERON_HOME; the topology's directory will be `<home>/topologies/<cluster>/<role>/<environ>/<name>`.
        properties: Configuration keys that override the cluster's files.
        config_path: The directory of the clusters' directories, instead of the installed one.
        start_from: URL of a storage with the checkpoint that it begins with; empty: it begins without state.
        on_step: Called with a few words before each step, for progress displays.

    Raises:
        AlreadyExistsError: a topology with this name runs in the cluster.
        ConfigError: unknown cluster or key, or a value of the wrong type.
        NotFoundError: a secret is not where it should be.
        TopologyError: the topology is not valid.
        StateError: the state manager cannot be read or written, or checkpoints not be stored.
        UnavailableError: the scheduler does not start, a port is taken, or a store does not answer.
    """
    submission = prepare(
        definition,
        cluster=cluster,
        role=role,
        environ=environ,
        home=home,
        properties=properties,
        config_path=config_path,
        start_from=start_from,
    )
    launch = submission.launch
    secrets = read_secrets(launch.secrets)
    check_ports(launch, range(len(submission.packing.containers) + 1))
    with (
        contextlib.closing(open_statemgr(launch.statemgr)) as state,
        state.lock(launch.topology, LOCK, LOCK_TIMEOUT_S),
        _undoing(launch.topology) as undo,
    ):
        _clear_leftovers(launch)
        _check_free(state, launch)
        if not heron_scheduler.has_service(launch):
            state.expire_tombstones()  # where nothing else is killed, else they would stay
            # A cluster that does not answer is said before anything is stored: what it was asked could not be undone.
            heron_scheduler.containers(launch)
        check_reachable(launch)
        _warn_of_logs(launch)
        on_step("storing the package")
        launch = _store(submission, home, secrets, undo)
        on_step("writing the plan")
        _record(submission, launch, state, undo)
        on_step("starting the scheduler")
        undo.callback(remove_checkpoints, launch)
        undo.callback(_end_started, launch, undo)
        heron_scheduler.start(launch, submission.packing)
        end_submission(launch.dir)
    log.info("submitted %s as %s", launch.topology, launch.topology_id)
    return launch


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C for the duration of the block, so that undoing cannot be left half-done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def _undoing(topology: str) -> Iterator[contextlib.ExitStack]:
    undo = contextlib.ExitStack()
    try:
        yield undo
    except BaseException:
        with uninterrupted():
            try:
                undo.close()
            except (HeronError, OSError) as e:
                # The first error is the one to report; this one would hide it.
                log.error("undoing the submission of %s: %s", topology, e)
        raise


def check_ports(launch: Launch, containers: Iterable[int]) -> None:
    """Refuse containers whose metrics could not be served.

    Raises:
        ConfigError: there is no such port.
        UnavailableError: it is taken.
    """
    base = launch.config.metrics.prometheus_port
    if not base or not heron_scheduler.has_service(launch):  # else they are other hosts' ports
        return
    for container in containers:
        port = base + container
        try:
            listening_socket(bare_host(launch.config.network.bind), port).close()
        except OverflowError as e:
            raise ConfigError(f"heron.metricsmgr.prometheus.port: there is no port {port}") from e
        except OSError as e:
            why = "is taken" if e.errno == errno.EADDRINUSE else f"cannot be used: {e.strerror or e}"
            raise UnavailableError(
                f"port {port} for the metrics of container {container} {why}; "
                "set heron.metricsmgr.prometheus.port to another"
            ) from e


def _clear_leftovers(launch: Launch) -> None:
    if not in_submission(launch.dir):
        if (copy := load(launch.dir)) is not None and has_copy(copy):
            trouble_of(copy, StateManagers())  # removes it, if it is of a topology that was killed elsewhere
        return
    log.warning("clearing what an interrupted submission of %s left in %s", launch.topology, launch.dir)
    if (earlier := load(launch.dir)) is not None:  # else it did not come to the launch file, and nothing was started

        def remove_stored() -> None:
            remove_checkpoints(earlier)
            remove_packages(earlier)

        heron_scheduler.kill(earlier, remove_stored)
    _remove_directory(launch)


def _check_free(state: StateManager, launch: Launch) -> None:
    raw = state.get(Kind.EXECUTIONSTATE, launch.topology)
    if raw is not None:
        try:
            running = records.execution_state(launch.topology, raw)
        except DamagedStateError as e:
            where = f"{launch.cluster}/{launch.role}/{launch.environ}"
            raise DamagedStateError(f"{e}; `heron kill {where} {launch.topology}` removes it") from e
        where = f"{running.cluster}/{running.role}/{running.environ}"
        raise AlreadyExistsError(
            f"topology {launch.topology} is already running: end it with `heron kill {where} {launch.topology}`"
        )
    if launch.dir.exists():
        raise AlreadyExistsError(
            f"{launch.dir} exists, but the state manager knows no topology {launch.topology}: "
            f"`heron kill {launch.cluster}/{launch.role}/{launch.environ} {launch.topology}` removes what is left of it"
        )


def _warn_of_logs(launch: Launch) -> None:
    """Say now that logs cannot be stored: later only those logs would say it."""
    if not (uri := launch.config.logging.upload_uri):
        return
    # Here, because few topologies have their logs stored.
    from heronpy.shell.stored import stored_containers

    try:
        stored_containers(uri, launch.topology, launch.topology_id)
    except HeronError as e:
        log.warning("logs of %s cannot be kept where heron.logs.upload.uri says: %s", launch.topology, e)


def _store(submission: Submission, home: Path, secrets: Mapping[str, str], undo: contextlib.ExitStack) -> Launch:
    launch = submission.launch
    undo.callback(_remove_directory, launch)
    try:
        outrace_removal(lambda: make_private(launch.dir))
        begin_submission(launch.dir)
        store_secrets(launch, secrets)
        launch = _staged(submission)
        launch = dataclasses.replace(launch, statemgr=launch.statemgr.in_directory(launch.dir))
        launch.save()  # who finds the directory of a submitter that has died must know whose packages to remove
        launch = store_packages(add_requirements(launch, launch.config.package.requirements), undo.callback)
        launch.save()
        _issue_certificates(launch, [c.id for c in submission.packing.containers], home)
    except OSError as e:
        raise StateError(f"the topology's directory {launch.dir} cannot be written: {e.strerror}") from e
    return launch


def _issue_certificates(launch: Launch, containers: Iterable[int], home: Path) -> None:
    if not launch.config.security.tls:
        return
    # Not at the top: most commands make no certificates, and the import takes tens of milliseconds.
    from heronpy.security import authority

    authority.create(
        launch.tls_dir,
        launch.topology_id,
        {0, *containers},
        days=launch.config.security.certificate_days,
        scraper=authority.scraper_certificate(user_path(home).absolute() / "tls"),
    )


def _record(submission: Submission, launch: Launch, state: StateManager, undo: contextlib.ExitStack) -> None:
    execution = state_pb2.ExecutionState(
        topology=launch.topology,
        topology_id=launch.topology_id,
        cluster=launch.cluster,
        role=launch.role,
        environ=launch.environ,
        submission_user=default_role(),
        submission_time_s=int(time.time()),
        release_version=heronpy.__version__,
        topology_dir=str(launch.dir),
    )
    undo.callback(state.remove_topology, launch.topology)
    state.set(Kind.TOPOLOGIES, launch.topology, submission.logical.proto.SerializeToString())
    state.set(Kind.PACKINGPLANS, launch.topology, submission.packing.to_proto().SerializeToString())
    state.set(Kind.LAUNCHES, launch.topology, launch.encode())
    state.set(Kind.EXECUTIONSTATE, launch.topology, execution.SerializeToString())


def _end_started(launch: Launch, undo: contextlib.ExitStack) -> None:
    """End what runs. If that fails, nothing else is undone: by its directory and its state it can be ended later."""

    def remove_stored() -> None:
        for remove in (remove_checkpoints, remove_packages):
            with contextlib.suppress(HeronError):  # what is left is removed, or reported, later on
                remove(launch)

    try:
        heron_scheduler.kill(launch, remove_stored if launch.packages or launch.checkpoints else None)
    except ConfigError as e:
        # The same configuration has started it, or not: what names no cluster has reached none.
        log.debug("nothing of %s was started: %s", launch.topology, e)
    except BaseException:
        undo.pop_all()
        log.error("what was started of %s is not ended: use `heron kill`", launch.topology)
        raise


def _remove_directory(launch: Launch) -> None:
    launch.remove_sockets()
    try:
        remove_directory(launch.dir)
    except OSError as e:
        raise StateError(f"{launch.dir} cannot be removed: {e.strerror or e}; remove it by hand") from e


def _staged(submission: Submission) -> Launch:
    staged = loader.stage(submission.definition, submission.launch.dir)
    return dataclasses.replace(
        submission.launch,
        package_paths=staged.package_paths,
        main_file=staged.main_file,
        code=loader.version_of(submission.launch.dir, submission.launch.config.package.requirements),
    )
