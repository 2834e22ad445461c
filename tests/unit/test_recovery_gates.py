"""Whoever is held by an instance that is full is let go when that instance moves to another container."""

from __future__ import annotations

import dataclasses

from test_failures_router import FAR, opens, router
from test_router import batch, changed, plan


async def test_who_is_held_is_let_go_when_the_instance_moves_to_another_peer() -> None:
    # Nothing that is in force moves instances today, but a number may be given again after its task was scaled away,
    # and a plan in between is not sent to a Stream Manager that is busy.
    one, two = plan().packing.containers
    moved = [i for i in two.instances if i.task_id == 4]
    stays = dataclasses.replace(two, instances=tuple(i for i in two.instances if i.task_id != 4))
    third = dataclasses.replace(two, id=3, instances=tuple(moved))
    r = router()
    r.far_full(FAR, True)
    (gate,) = r.route([batch(4)])
    r.replan(changed(plan(), (one, stays, third)))
    assert await opens(gate)
    assert r.route([batch(4)]) == []
