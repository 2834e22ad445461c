"""Three members of ZooKeeper and of etcd, whose leader is killed and stopped while many clients use them at once."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from registers import KIND, NAME, Client, History, version_of

from heronpy.errors import StateError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually_sync
from heronpy.testing.etcd import EtcdServer, etcd_ensemble, etcd_missing
from heronpy.testing.servers import ZookeeperServer, zookeeper_ensemble, zookeeper_missing
from heronpy.testing.statemgr_kit import StatemgrKit

Member = ZookeeperServer | EtcdServer
SESSION_S = 20.0
CALL_S = 15.0
CLIENTS = 6
WITHIN_S = 120.0
PROGRESS = 10
"""Writes that must succeed without the leader before it comes back."""


class Ensemble:
    """Members that run, and how they are reached."""

    def __init__(self, kind: str, members: list[Member]) -> None:
        self.kind, self.members = kind, members
        connection = ",".join(member.connection for member in members)
        self.spec = StatemgrSpec(type=kind, connection=connection, root="/heron")

    def leader(self, *, but: Member | None = None) -> Member:
        """The member that leads now; waits for one."""

        def found() -> Member:
            for member in self.members:
                if member is not but and leads(member):
                    return member
            raise AssertionError("there is no leader")

        return eventually_sync(found, within_s=WITHIN_S)


def leads(member: Member) -> bool:
    return member.is_leader() if isinstance(member, EtcdServer) else member.mode() == "leader"


@pytest.fixture(params=["zookeeper", "etcd"])
def ensemble(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ensemble]:
    missing = zookeeper_missing() if request.param == "zookeeper" else etcd_missing()
    if missing is not None:
        pytest.skip(missing)
    start: Callable[[Path], contextlib.AbstractContextManager[list[Member]]]
    start = zookeeper_ensemble if request.param == "zookeeper" else etcd_ensemble  # type: ignore[assignment]
    with start(tmp_path) as members:
        yield Ensemble(request.param, members)


def open_one(ensemble: Ensemble) -> StateManager:
    return open_statemgr(ensemble.spec, session_timeout_s=SESSION_S, call_timeout_s=CALL_S)


def newest_of(state: StateManager) -> bytes:
    def answered() -> bytes:
        try:
            return state.get(KIND, NAME) or b"0"
        except StateError as e:
            raise AssertionError(str(e)) from None

    return eventually_sync(answered, within_s=WITHIN_S)


def test_a_leader_that_is_killed_or_stopped_breaks_no_promise(ensemble: Ensemble) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"\n{ensemble.kind}: seed {seed}")
    rng = random.Random(seed)
    history = History()
    with contextlib.ExitStack() as stack:
        states = [stack.enter_context(open_one(ensemble)) for _ in range(CLIENTS)]
        watched: list[list[int]] = [[] for _ in states]
        last: list[list[bytes | None]] = [[None] for _ in states]
        for n, state in enumerate(states):
            state.create(Kind.TMASTERS, f"node-{n}", b"%d" % n, ephemeral=True)

            def told(value: bytes | None, n: int = n) -> None:
                watched[n].append(version_of(value))
                last[n][0] = value

            state.watch(KIND, NAME, told)
        clients = [Client(n, state, history) for n, state in enumerate(states)]
        try:
            faults = ["kill", "stop"] * 3
            rng.shuffle(faults)
            for fault in faults:
                disturb(ensemble, fault, history)
        finally:
            for client in clients:
                client.stop()
        final = newest_of(states[0])

        def told_the_last() -> None:
            assert [one for (one,) in last] == [final] * CLIENTS

        eventually_sync(told_the_last, within_s=WITHIN_S)

        def nodes_are_there() -> None:
            try:
                found = [states[0].get(Kind.TMASTERS, f"node-{n}") for n in range(CLIENTS)]
            except StateError as e:
                raise AssertionError(str(e)) from None
            assert found == [b"%d" % n for n in range(CLIENTS)]

        eventually_sync(nodes_are_there, within_s=WITHIN_S)
    for versions in watched:
        assert versions == sorted(set(versions)), "a watch went back in time or repeated itself"
    writes = sum(op.what == "write" for op in history.operations)
    print(
        f"{len(history.operations)} operations, {writes} writes, {len(history.sections)} locks, "
        f"{history.unanswered} unanswered, {history.lost_locks} locks lost"
    )
    history.check()
    assert version_of(final) >= max(op.version for op in history.operations)


def disturb(ensemble: Ensemble, fault: str, history: History) -> None:
    leader = ensemble.leader()
    began_s = time.monotonic()
    if fault == "kill":
        leader.kill()
    else:
        leader.freeze()
    try:
        ensemble.leader(but=leader)
        led_s = time.monotonic() - began_s
        before = sum(op.what == "write" for op in history.operations)

        def progress() -> None:
            assert sum(op.what == "write" for op in history.operations) >= before + PROGRESS

        eventually_sync(progress, within_s=WITHIN_S)
        print(
            f"leader {fault}: another after {led_s:.1f} s, {PROGRESS} writes after {time.monotonic() - began_s:.1f} s"
        )
    finally:
        if fault == "kill":
            leader.start(wait=False)
            leader.wait_serving()
        else:
            leader.thaw()


def test_a_leader_that_hung_does_not_answer_with_what_was_overwritten(ensemble: Ensemble) -> None:
    leader = ensemble.leader()
    others = ",".join(member.connection for member in ensemble.members if member is not leader)
    with (
        open_statemgr(replace(ensemble.spec, connection=leader.connection), call_timeout_s=WITHIN_S) as reader,
        open_statemgr(replace(ensemble.spec, connection=others), call_timeout_s=WITHIN_S) as writer,
        ThreadPoolExecutor(20) as pool,
    ):
        writer.set(KIND, NAME, b"1 before")
        assert reader.get(KIND, NAME) == b"1 before"
        leader.freeze()
        try:
            ensemble.leader(but=leader)
            writer.set(KIND, NAME, b"2 after")
            reads = [pool.submit(reader.get, KIND, NAME) for _ in range(20)]
            time.sleep(0.5)  # so that the requests wait for the leader, which has not been told that it is none
        finally:
            leader.thaw()
        assert {read.result() for read in reads} == {b"2 after"}


@pytest.fixture(scope="module", params=["zookeeper", "etcd"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    missing = zookeeper_missing() if request.param == "zookeeper" else etcd_missing()
    if missing is not None:
        pytest.skip(missing)
    start = zookeeper_ensemble if request.param == "zookeeper" else etcd_ensemble
    with start(tmp_path_factory.mktemp(request.param)) as members:
        yield Ensemble(request.param, list(members))


class TestEnsemble(StatemgrKit):
    """The kit on three members."""

    @pytest.fixture
    def spec(self, shared: Ensemble, request: pytest.FixtureRequest) -> StatemgrSpec:
        root = f"/test-{abs(hash(request.node.nodeid))}"
        return StatemgrSpec(type=shared.kind, connection=shared.spec.connection, root=root)
