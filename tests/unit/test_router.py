"""The router: where a batch goes next, and what a new plan changes."""

from __future__ import annotations

import dataclasses

from test_outputs import plan_of

from heronpy.api import Grouping
from heronpy.config import StmgrConfig
from heronpy.packing import RoundRobinPacking
from heronpy.plan import ContainerPacking, LogicalPlan, PackingPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.stmgr._outbox import Outbox
from heronpy.stmgr._router import Router

CONFIG = StmgrConfig(outbox_bytes_high=1000, outbox_bytes_low=500)


def make_outbox(name: str) -> Outbox:
    return Outbox(name, CONFIG, lambda _: None, lambda _: None)


def plan() -> PhysicalPlan:
    """source_1 and sink_3 in container 1, sink_2 and sink_4 in container 2."""
    return plan_of(sink={"default": Grouping.SHUFFLE})


def batch(task: int, size: int = 10) -> stmgr_pb2.Batch:
    return stmgr_pb2.Batch(dest_task=task, body=b"x" * size)


def waiting(router: Router) -> dict[str, int]:
    return {outbox.name: len(outbox) for outbox in router.all()}


def without(plan: PhysicalPlan, task: int) -> PhysicalPlan:
    containers = tuple(
        dataclasses.replace(c, instances=tuple(i for i in c.instances if i.task_id != task))
        for c in plan.packing.containers
    )
    return changed(plan, tuple(c for c in containers if c.instances))


def changed(plan: PhysicalPlan, containers: tuple[ContainerPacking, ...]) -> PhysicalPlan:
    return dataclasses.replace(plan, version=plan.version + 1, packing=PackingPlan(plan.packing.id, containers))


def test_local_tasks_and_tasks_behind_a_peer() -> None:
    router = Router(1, make_outbox)
    assert router.replan(plan()) == []
    assert router.spouts == {"container_1_source_1"}
    assert router.route([batch(3), batch(2), batch(4), batch(1), batch(4)]) == []
    assert waiting(router) == {"container_1_source_1": 1, "container_1_sink_3": 1, "stmgr-2": 3}


def test_a_router_without_a_plan_and_unknown_tasks_drop_the_batch() -> None:
    router = Router(1, make_outbox)
    assert router.route([batch(1)]) == []
    router.replan(plan())
    assert router.route([batch(77)]) == []
    assert set(waiting(router).values()) == {0}


def test_an_outbox_outlives_a_new_plan_empty_or_not() -> None:
    router = Router(1, make_outbox)
    router.replan(plan())
    router.route([batch(3)])
    before = {outbox.name: outbox for outbox in router.all()}
    assert router.replan(dataclasses.replace(plan(), version=2)) == []
    assert {outbox.name: outbox for outbox in router.all()} == before
    assert all(router.instances.get(n, router.peers.get(n)) is before[n] for n in before)
    assert waiting(router)["container_1_sink_3"] == 1


def test_what_is_no_longer_in_the_plan_is_handed_back() -> None:
    router = Router(1, make_outbox)
    router.replan(plan())
    router.route([batch(3)])
    (gone,) = router.replan(without(plan(), 3))
    assert (gone.name, len(gone)) == ("container_1_sink_3", 1)
    assert router.route([batch(3)]) == []
    assert set(waiting(router)) == {"container_1_source_1", "stmgr-2"}
    (peer,) = router.replan(without(without(without(plan(), 3), 2), 4))
    assert peer.name == "stmgr-2"
    assert router.route([batch(2)]) == []


def test_a_task_that_moves_is_found_at_its_new_place() -> None:
    router = Router(1, make_outbox)
    before = plan()
    router.replan(before)
    one, two = before.packing.containers
    moved = next(i for i in two.instances if i.task_id == 4)
    router.replan(
        changed(
            before,
            (
                dataclasses.replace(one, instances=(*one.instances, moved)),
                dataclasses.replace(two, instances=tuple(i for i in two.instances if i is not moved)),
            ),
        )
    )
    router.route([batch(4)])
    assert waiting(router)["container_1_sink_4"] == 1
    assert waiting(router)["stmgr-2"] == 0


def test_route_tells_the_outboxes_at_their_hard_limit() -> None:
    router = Router(1, make_outbox)
    router.replan(plan())
    assert router.route([batch(3, 900)]) == []
    assert [outbox.name for outbox in router.route([batch(3, 5000), batch(1)])] == ["container_1_sink_3"]


def test_bolts_are_no_spouts() -> None:
    router = Router(2, make_outbox)
    router.replan(plan())
    assert router.spouts == set()


def test_the_packing_of_these_tests_is_what_they_say() -> None:
    logical = LogicalPlan.from_proto(plan().logical.proto)
    packed = [sorted(i.task_id for i in c.instances) for c in RoundRobinPacking(logical).pack().containers]
    assert packed == [[1, 3], [2, 4]]
