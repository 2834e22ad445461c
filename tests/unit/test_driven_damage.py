"""Orders and reports of drivers that make no sense: they end no driver, and keep no topology from being killed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from heron_scheduler import ContainerPhase
from heron_scheduler.driven import DrivenScheduler, DriverReport, Order, Orders, OrdersFollower

from heronpy.errors import UnavailableError
from heronpy.plan import ContainerPacking, PackingPlan, Resources
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually_sync

GARBAGE = b"\xff\xfe not JSON"
EXECUTION = state_pb2.ExecutionState(topology_id="words-7").SerializeToString()
ORDERS = Orders(topology_id="words-7", serial=3, containers={0: Order(1, 1, 512), 1: Order(2, 1, 512)})


class Kept(DrivenScheduler):
    """One whose driver is this test."""

    cluster, driver, secrets_key = "the farm", "driver", "none"
    config_keys = frozenset()

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch, secrets="", grace_s=1.0)

    def order(self, resources: Resources) -> Order:
        return Order(1, 1, 512)

    def check(self, orders: Orders, report: DriverReport | None) -> None: ...

    def start_driver(self, state: StateManager) -> bool:
        return False  # it waits for room

    def driver_ended(self) -> None: ...

    def on_secrets(self) -> None: ...

    def job_links(self) -> Sequence[str]:
        return []


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    place = {"cluster": "farm", "role": "me", "environ": "test"}
    spec = StatemgrSpec(root=str(tmp_path / "state"))
    return Launch(topology="words", topology_id="words-7", **place, statemgr=spec, dir=tmp_path / "words")


@pytest.fixture
def sm(launch: Launch) -> Iterator[StateManager]:
    with contextlib.closing(open_statemgr(launch.statemgr)) as sm:
        yield sm


def test_a_driver_writes_its_orders_over_damaged_ones(launch: Launch, sm: StateManager) -> None:
    sm.set(Kind.DRIVERORDERS, "words", ORDERS.encode())
    with OrdersFollower(launch, sm, mends=True) as follower:

        def knows() -> None:
            assert follower.wanted() == ORDERS

        eventually_sync(knows)
        sm.set(Kind.DRIVERORDERS, "words", GARBAGE)

        def mended() -> None:
            assert follower.wanted() == ORDERS
            assert sm.get(Kind.DRIVERORDERS, "words") == ORDERS.encode()

        eventually_sync(mended)


def test_a_driver_of_a_killed_topology_stops(launch: Launch, sm: StateManager) -> None:
    sm.set(Kind.DRIVERORDERS, "words", ORDERS.encode())
    with OrdersFollower(launch, sm, mends=True) as follower:
        sm.bury("words-7")

        def stops() -> None:
            orders = follower.wanted()
            assert orders is not None
            assert orders.stop

        eventually_sync(stops)


def test_damaged_orders_are_named_and_can_be_killed(launch: Launch, sm: StateManager) -> None:
    sm.set(Kind.EXECUTIONSTATE, "words", EXECUTION)
    sm.set(Kind.DRIVERORDERS, "words", GARBAGE)
    with pytest.raises(UnavailableError, match="node driverorders/words of the state manager is damaged") as error:
        Kept(launch).containers()
    assert "\n" not in str(error.value)
    Kept(launch).on_kill()
    assert Orders.decode(sm.get(Kind.DRIVERORDERS, "words") or b"").stop


def test_damaged_orders_of_nobody_keep_no_name_from_being_used_again(launch: Launch, sm: StateManager) -> None:
    sm.set(Kind.DRIVERORDERS, "words", GARBAGE)
    assert list(Kept(launch).containers()) == []
    sm.set(Kind.EXECUTIONSTATE, "words", EXECUTION)
    Kept(launch).on_schedule(PackingPlan("plan", (ContainerPacking(1, (), Resources(1, 1, 1)),)))
    orders = Orders.decode(sm.get(Kind.DRIVERORDERS, "words") or b"")
    assert (orders.topology_id, [*orders.containers], orders.stop) == ("words-7", [0, 1], False)
    assert orders.serial > ORDERS.serial


def test_damaged_orders_are_the_living_driver_s_to_mend(launch: Launch, sm: StateManager) -> None:
    sm.set(Kind.DRIVERORDERS, "words", GARBAGE)
    sm.set(Kind.DRIVERS, "words", DriverReport(topology_id="words-7", host="a", pid=1).encode())
    for call in (Kept(launch).containers, lambda: Kept(launch).on_schedule(PackingPlan("plan", ()))):
        with pytest.raises(UnavailableError, match="node driverorders/words of the state manager is damaged"):
            call()
    assert sm.get(Kind.DRIVERORDERS, "words") == GARBAGE


def test_a_kill_leaves_the_damaged_orders_of_a_later_submission_alone(launch: Launch, sm: StateManager) -> None:
    sm.set(Kind.EXECUTIONSTATE, "words", state_pb2.ExecutionState(topology_id="words-8").SerializeToString())
    sm.set(Kind.DRIVERORDERS, "words", GARBAGE)
    Kept(launch).on_kill()
    assert sm.get(Kind.DRIVERORDERS, "words") == GARBAGE


def test_a_damaged_report_hides_no_container(launch: Launch, sm: StateManager) -> None:
    sm.set(Kind.DRIVERORDERS, "words", ORDERS.encode())
    sm.set(Kind.DRIVERS, "words", GARBAGE)
    found = Kept(launch).containers()
    assert [(one.container, one.phase) for one in found] == [(0, ContainerPhase.PENDING), (1, ContainerPhase.PENDING)]
