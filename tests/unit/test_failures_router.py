"""Holding senders without ever holding a peer: the router's gates."""

from __future__ import annotations

import asyncio
import dataclasses

from test_router import CONFIG, batch, plan, without

from heronpy.proto import stmgr_pb2
from heronpy.stmgr._outbox import Outbox
from heronpy.stmgr._router import Gate, Router

FAR = "container_2_sink_4"


def router() -> Router:
    made = Router(1, lambda name: Outbox(name, CONFIG, lambda _: None, lambda _: None))
    made.replan(plan())
    return made


async def opens(gate: Gate | Outbox) -> bool:
    waiting = asyncio.create_task(gate.has_room())
    for _ in range(3):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return done


async def test_who_sends_to_a_full_instance_behind_a_peer_is_held_until_it_has_room() -> None:
    r = router()
    assert r.route([batch(4)]) == []
    r.far_full(FAR, True)
    r.far_full(FAR, True)
    assert r.route([batch(2)]) == [], "another instance of that peer has room"
    (gate,) = r.route([batch(4)])
    assert not await opens(gate)
    r.far_full(FAR, False)
    assert await opens(gate)
    assert r.route([batch(4)]) == []


async def test_who_is_held_is_let_go_when_the_peer_is_lost_or_the_instance_leaves_the_plan() -> None:
    for let_go in (lambda r: r.peer_lost("stmgr-2"), lambda r: r.replan(without(plan(), 4))):
        r = router()
        r.far_full(FAR, True)
        (gate,) = r.route([batch(4)])
        let_go(r)
        assert await opens(gate)
        assert r.route([batch(4)]) == []


def test_a_new_plan_and_another_lost_peer_let_nobody_go() -> None:
    r = router()
    r.far_full(FAR, True)
    r.peer_lost("stmgr-7")
    r.replan(dataclasses.replace(plan(), version=2))
    assert len(r.route([batch(4)])) == 1


def test_acks_fails_and_resets_hold_nobody() -> None:
    r = router()
    r.far_full(FAR, True)
    kinds = (stmgr_pb2.Batch.ACK, stmgr_pb2.Batch.FAIL, stmgr_pb2.Batch.RESET_TIMEOUT)
    assert r.route([stmgr_pb2.Batch(dest_task=4, kind=kind) for kind in kinds]) == []
    assert r.route([stmgr_pb2.Batch(dest_task=3, kind=kind, body=b"x" * 9999) for kind in kinds]) == []


async def test_a_full_outbox_that_leaves_the_plan_lets_its_senders_go() -> None:
    r = router()
    (full,) = r.route([batch(3, 9999)])
    assert not await opens(full)
    r.replan(without(plan(), 3))
    assert await opens(full)


def test_news_of_an_instance_that_is_not_in_the_plan_are_ignored() -> None:
    r = router()
    r.far_full("container_9_gone_99", True)
    r.far_full("container_9_gone_99", False)
    assert r.route([batch(4)]) == []


async def test_a_link_that_is_replaced_takes_nothing_from_under_the_new_one() -> None:
    outbox = Outbox("slow", dataclasses.replace(CONFIG, merge_interval_ms=5.0), lambda _: None, lambda _: None)
    outbox.put(batch(1))
    outbox.sent(await outbox.next())
    outbox.put(batch(1))
    both = [asyncio.create_task(outbox.next()) for _ in range(2)]
    done, waiting = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    assert [len(task.result()) for task in done] == [1]
    for task in waiting:
        task.cancel()
