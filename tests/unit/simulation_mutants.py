"""Mistakes that are planted in the cores, one at a time, to see that the simulator finds them.

    python tests/unit/simulation_mutants.py [--seeds 200] [NAME …]

prints after how many seeds, with their own random faults, each is found. `test_simulation_mutants.py` repeats one run
of each.

Tried and not found in some dozens of seeds, and so not listed: an instance that takes batches of an older epoch (its
link is in order, so the Stream Manager's check comes first; `test_instance_epochs.py` has it).
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import operator
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from heronpy.proto import stmgr_pb2
from heronpy.stmgr.flow import EPOCH
from heronpy.testing.simulation import (
    Break,
    Cut,
    Damage,
    Detach,
    Expire,
    Kill,
    Pause,
    Restore,
    Schedule,
    StateAway,
    StateEmptied,
    Stop,
    failure_of,
)
from heronpy.tmaster.checkpoints import ManifestWritten, WriteManifest

CHECK_EVERY = 10


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One mistake."""

    where: str
    """module:function or module:Class.method."""
    make: Callable[[Any], Any]
    """Makes the wrong function of the right one."""
    seed: int
    faults: Schedule | None = None
    """With these, or with its own, the seed finds it."""
    checkpoints: bool = False
    """Effectively once."""
    at_least_once: bool = False
    """With checkpoints, at least once."""

    @property
    def failure(self) -> str:
        """How its run breaks a promise; empty: it does not."""
        return self.failure_with(self.seed, self.faults)

    def failure_with(self, seed: int, faults: Schedule | None = None) -> str:
        """The same with another seed and its faults."""
        return failure_of(
            seed, faults, check_every=CHECK_EVERY, checkpoints=self.checkpoints, at_least_once=self.at_least_once
        )

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        module, _, path = self.where.partition(":")
        *outer, name = path.split(".")
        owner = operator.attrgetter(".".join(outer))(import_module(module)) if outer else import_module(module)
        patch.setattr(owner, name, self.make(getattr(owner, name)))


def _nothing(_right: Any) -> Any:
    return lambda *_args, **_kwargs: None


def _empty(_right: Any) -> Any:
    return lambda *_args, **_kwargs: []


def _twice(right: Any) -> Any:
    """What was being written when a link broke is queued again."""

    def lose(self: Any, link: Any, now_ns: int) -> None:
        data = link.in_flight
        right(self, link, now_ns)
        if data is not None:
            for batch in stmgr_pb2.Frame.FromString(data).batches:
                link.outbox.put(batch)

    return lose


def _any_epoch(right: Any) -> Any:
    def take_batches(self: Any, link: Any, frame: Any, size: int, now_ns: int) -> None:
        frame.epoch = self.epoch
        right(self, link, frame, size, now_ns)

    return take_batches


def _last_segment_first(right: Any) -> Any:
    def refill(self: Any) -> Any:
        if len(self._segments) > 1 and self._segments[0].place is self._segments[-1].place:
            self._segments.rotate(1)
        return right(self)

    return refill


def _same_version(right: Any) -> Any:
    """Another content under the version of the plan before."""

    def planned(state: Any) -> Any:
        made, effects = right(state)
        if not effects or state.plan is None or made.plan.restore_epoch != state.plan.restore_epoch:
            return made, effects
        plan = dataclasses.replace(made.plan, version=state.version)
        return dataclasses.replace(made, plan=plan, version=plan.version), [type(effects[0])(plan)]

    return planned


def _stops_are_lost(right: Any) -> Any:
    def announce(self: Any, effect: Any) -> None:
        if effect.started:
            right(self, effect)

    return announce


def _last_first(_right: Any) -> Any:
    def put(self: Any, batch: Any, body_bytes: int = 0) -> None:
        size = (body_bytes or len(batch.body)) + 64
        self._queue.appendleft((size, batch))
        self.bytes += size

    return put


def _never(right: Any) -> Any:
    return lambda self, before_ns, now_ns: right(self, 0, now_ns)


def _acked_at_once(right: Any) -> Any:
    """A spout's tuples count as acked with the first ack of a part of their tree."""

    def ack(self: Any, roots: Any, values: Any, now_ns: int) -> Any:
        return self._finish(self._distinct(self._sequences(roots)[0][self._sequences(roots)[1]]), now_ns)

    return ack


def _compares_nothing(_right: Any) -> Any:
    def set_if(self: Any, kind: Any, topology: str, value: bytes, **_condition: Any) -> bool:
        self.set(kind, topology, value)
        return True

    return set_if


def _not_after_a_restore(right: Any) -> Any:
    def opened(self: Any, name: str) -> None:
        if name != EPOCH:
            right(self, name)

    return opened


def _any_number(_right: Any) -> Any:
    return lambda self, source, number, expected: ""


def _anybody(_right: Any) -> Any:
    return lambda self, instance: True


def _same_epoch(_right: Any) -> Any:
    """An epoch that the state manager has lost goes on."""
    return lambda self, epoch: self.leadership.raise_restore_epoch(epoch)


def _members_stay(right: Any) -> Any:
    """The order to restore is passed on, and nothing else."""
    return lambda self, epoch: False


def _manifest_later(right: Any) -> Any:
    """The last snapshot commits, whatever becomes of the manifest."""

    def snapshotted(self: Any, event: Any) -> Any:
        effects = [*right(self, event)]
        if any(isinstance(effect, WriteManifest) for effect in effects):
            effects += self._manifest_written(ManifestWritten(event.checkpoint, event.epoch, event.now_s))
        return effects

    return snapshotted


def _covered_too_early(right: Any) -> Any:
    """A tree that is complete after the spout's marker counts for that checkpoint."""

    def completed(self: Any, group: Any, count: int) -> None:
        right(self, group, count)
        if self._closed:
            checkpoint, groups, roots = self._closed[-1]
            self._closed[-1] = checkpoint, [*groups, *self._open], roots + self._open_count
            self._open, self._open_count = [], 0

    return completed


def _nothing_fails(right: Any) -> Any:
    return lambda self, checkpoint: (right(self, checkpoint)[0], [])


def _logs_nothing(_right: Any) -> Any:
    return lambda self, current, batches: []


STMGR, OUTBOX, FEEDBACK = "heronpy.stmgr._core:StmgrCore", "heronpy.stmgr._outbox:Outbox", "heronpy.stmgr._feedback:"
MEMBERSHIP = "heronpy.stmgr._membership:EpochMembership."
LEDGER = "heronpy.instance._commit_ledger:CommitLedger."
INSTANCE = "heronpy.testing.simulation._instance_node:"

RELAYS = [f"container_{container}_relay_3" for container in (1, 2, 3)]
SINKS = [f"container_{container}_sink_{task}" for container, task in ((1, 5), (2, 6))]


def _one_too_many(original: Any) -> Any:
    def without_newer(self: Any, checkpoint: int) -> Any:
        found = original(self, checkpoint)
        return dataclasses.replace(found, committed=found.committed[:-1])

    return without_newer


BREAKS: Schedule = [(round(1.6 + 0.31 * n, 2), Break("host-1", "host-2")) for n in range(25)]
RESTORES: Schedule = [(round(1.6 + 0.9 * n, 2), Restore()) for n in range(9)]
STOPPED_RELAY: Schedule = [(2.0, Stop(name, 9.0)) for name in RELAYS]
STOPPED_SINKS: Schedule = [*((2.0, Stop(name, 3.0)) for name in SINKS), (3.5, Kill("stmgr-2", 0.4))]
NO_TMASTER: Schedule = [(3.0, Kill("stmgr-1", 0.3)), (3.0, Kill("tmaster-0", 20.0))]
BROKEN_WHILE_STOPPED: Schedule = [*((2.0, Stop(name, 1.5)) for name in SINKS), (3.45, Break("host-1", "host-2"))]
"""Backpressure ends while the links are down over which its end is announced."""
LATE_FOR_RESTORE: Schedule = [
    (2.5, Cut("host-tmaster-0", "host-2", 5.0, one_way=True)),
    (3.0, Restore()),
    (3.01, StateAway(4.5)),
]
"""A Stream Manager gets the plan of the new epoch neither from the Topology Master nor from the state manager."""
EXPIRED: Schedule = [(3.0, Expire("tmaster-0", 3.0)), (3.0, Pause(1.0))]
"""A Topology Master has just lost its session when it is asked for a change."""
LOST: Schedule = [(5.0, Kill("tmaster-0", 0.5)), (5.2, StateEmptied())]
"""The state manager comes back without data while there is no Topology Master."""
DAMAGED: Schedule = [(8.0, Damage("relay")), (8.0, Restore())]
REATTACHED: Schedule = [
    (3.7249, Pause(0.085)),
    (4.31, StateEmptied()),
    (5.8912, Detach("container_2_relay_4")),
    (5.9207, Detach("stmgr-2")),
    (6.8654, Kill("container_1", 0.173)),
]
REPLACED: Schedule = [(2.0, Kill("stmgr-1", 0.2)), (2.2, Kill("tmaster-0", 0.4)), (4.0, Kill("stmgr-2", 0.2))]

MUTANTS = {
    "frames that were lost with a link are sent again": Mutant(f"{STMGR}._lose", _twice, 7, BREAKS),
    "batches overtake each other in an outbox": Mutant(f"{OUTBOX}.put", _last_first, 0),
    "an ack does not wait for what was made of a tuple": Mutant(
        "heronpy.instance._inbatch:InBatch.add_children", _nothing, 0
    ),
    "an ack of a part counts for the whole tree": Mutant("heronpy.instance._roots:RootRing.ack", _acked_at_once, 0),
    "trees do not time out": Mutant("heronpy.instance._roots:RootRing.expire", _never, 1),
    "an older epoch passes a Stream Manager": Mutant(f"{STMGR}._take_batches", _any_epoch, 0, RESTORES),
    "what waits in an instance survives a restore": Mutant(
        f"{INSTANCE}SimulatedChannel.enter_epoch", _nothing, 1, RESTORES
    ),
    "outboxes survive a restore": Mutant(f"{OUTBOX}.clear", _empty, 1, RESTORES),
    "spilled feedback survives a restore": Mutant(
        f"{FEEDBACK}FeedbackQueue.clear", _empty, 17, [*STOPPED_RELAY, (8.0, Restore())]
    ),
    "spilled segments are read in the wrong order": Mutant(
        f"{FEEDBACK}FeedbackQueue.refill", _last_segment_first, 17, STOPPED_RELAY
    ),
    "the end of backpressure is not announced": Mutant(f"{STMGR}._announce", _stops_are_lost, 17, STOPPED_SINKS),
    "culprits of a lost peer stay": Mutant("heronpy.stmgr._culprits:Culprits.lost", _nothing, 21, BROKEN_WHILE_STOPPED),
    "senders stay held after a restore": Mutant(
        "heronpy.stmgr.flow:FlowControl._opened", _not_after_a_restore, 13, LATE_FOR_RESTORE
    ),
    "compare-and-set compares nothing": Mutant(
        "heronpy.testing.simulation._state_store:MemoryStateManager.set_if", _compares_nothing, 381, EXPIRED
    ),
    "a writer is not woken": Mutant(f"{STMGR}._wake_if_needed", _nothing, 0),
    "a version of a plan is used twice": Mutant("heronpy.tmaster._state:_planned", _same_version, 0, REPLACED),
    "a replaced Stream Manager ignores the saved plan": Mutant(
        "heronpy.stmgr._plans:PlanIntake.saved", _nothing, 0, NO_TMASTER
    ),
    "a missing frame is not noticed": Mutant(f"{MEMBERSHIP}_gap", _any_number, 0, BREAKS, checkpoints=True),
    "an instance is given batches before it has restored": Mutant(
        f"{MEMBERSHIP}has_restored", _anybody, 13, checkpoints=True
    ),
    "outboxes survive the order to restore": Mutant(f"{OUTBOX}.clear", _empty, 1, RESTORES, checkpoints=True),
    "a Stream Manager is no member of what it has restored": Mutant(
        f"{MEMBERSHIP}restored", _members_stay, 0, REATTACHED, checkpoints=True
    ),
    "what is intact is passed over": Mutant(
        "heronpy.tmaster.checkpoints._record:Record.without_newer", _one_too_many, 6, DAMAGED, checkpoints=True
    ),
    "no copy of the record is kept": Mutant(
        "heronpy.tmaster._checkpointing:Checkpointing._keep", _nothing, 0, LOST, checkpoints=True
    ),
    "an epoch that was lost goes on": Mutant(
        "heronpy.tmaster._core:Core._raise_to",
        _same_epoch,
        0,
        [*LOST, (5.2, Kill(RELAYS[0], 0.1))],
        checkpoints=True,
    ),
    "a checkpoint is committed before its manifest": Mutant(
        "heronpy.tmaster.checkpoints._coordinator:CheckpointCoordinator._snapshotted",
        _manifest_later,
        0,
        [],
        checkpoints=True,
    ),
    "a tree that is complete after the marker counts for its checkpoint": Mutant(
        f"{LEDGER}completed", _covered_too_early, 0, at_least_once=True
    ),
    "what no commit covers is not failed at a restore": Mutant(
        f"{LEDGER}restored", _nothing_fails, 0, RESTORES, at_least_once=True
    ),
    "what comes before late markers is not logged": Mutant(
        "heronpy.instance._alignment:Alignment._log", _logs_nothing, 10, at_least_once=True
    ),
}


def found_after(mutant: Mutant, seeds: int, first: int = 0) -> tuple[int, str] | None:
    """The number of seeds that it takes to find a mistake, and how it shows; None if they do not."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        for seed in range(first, first + seeds):
            if failure := mutant.failure_with(seed):
                return seed + 1 - first, failure
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for name in options.names or MUTANTS:
        found = found_after(MUTANTS[name], options.seeds, options.first)
        shown = f"not in {options.seeds} seeds" if found is None else f"{found[0]} seeds: {found[1][:110]}"
        print(f"{name}: {shown}", flush=True)


if __name__ == "__main__":
    main()
