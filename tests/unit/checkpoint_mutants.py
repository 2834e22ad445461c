"""Mistakes that are planted in the checkpoint protocol, one at a time, to see that the model finds them.

    python tests/unit/checkpoint_mutants.py [--seeds 200] [NAME …]

prints after how many seeds, with their own random faults, each is found. `test_checkpoint_model.py` repeats one run of
each.
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
from checkpoint_model import failure_of

from heronpy.instance.checkpoints import InputBatch
from heronpy.tmaster.checkpoints import ManifestWritten, TaskPhase, WriteManifest

COORDINATOR = "heronpy.tmaster.checkpoints._coordinator:"
MEMBERS = "heronpy.tmaster.checkpoints._members:Members."
ALIGNMENT = "heronpy.instance._alignment:Alignment."
LEDGER = "heronpy.instance._commit_ledger:CommitLedger."


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One mistake."""

    where: str
    """module:function or module:Class.method."""
    make: Callable[[Any], Any]
    """Makes the wrong function of the right one."""
    seed: int
    """Finds it with its own faults."""
    at_least_once: bool = False

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        module, _, path = self.where.partition(":")
        *outer, name = path.split(".")
        owner = operator.attrgetter(".".join(outer))(import_module(module)) if outer else import_module(module)
        patch.setattr(owner, name, self.make(getattr(owner, name)))


def _nothing(_right: Any) -> Any:
    return lambda *_args, **_kwargs: []


def _no_problem(_right: Any) -> Any:
    return lambda *_args, **_kwargs: ""


def _first_marker(right: Any) -> Any:
    """The first marker counts for all inputs."""

    def marked(self: Any, source: int, checkpoint: int, now_s: float) -> Any:
        effects = right(self, source, checkpoint, now_s)
        for other in self._open if self.in_progress == checkpoint else ():
            effects += right(self, other, checkpoint, now_s)
        return effects

    return marked


def _first_snapshot(right: Any) -> Any:
    """One snapshot is taken for all."""

    def snapshotted(self: Any, event: Any) -> Any:
        if self._current is not None and event.task in self._current.missing:
            self._current.missing = {event.task}
        return right(self, event)

    return snapshotted


def _before_the_manifest(right: Any) -> Any:
    """The last snapshot commits, whatever becomes of the manifest."""

    def snapshotted(self: Any, event: Any) -> Any:
        effects = [*right(self, event)]
        if any(isinstance(effect, WriteManifest) for effect in effects):
            effects += self._manifest_written(ManifestWritten(event.checkpoint, event.epoch, event.now_s))
        return effects

    return snapshotted


def _uncommitted(right: Any) -> Any:
    """What was under way counts as committed."""

    def record_of(value: bytes | None, known: Any) -> Any:
        found = right(value, known)
        return found.with_commit(found.in_progress, 1) if found.in_progress else found

    return record_of


def _remembered(_right: Any) -> Any:
    """What is restored is what the Topology Master remembers."""
    return lambda _value, known: known


def _no_back_edges(right: Any) -> Any:
    def log(self: Any, current: Any, batches: Any) -> Any:
        return right(self, current, [batch for batch in batches if batch.source not in self._back])

    return log


def _only_what_comes(right: Any) -> Any:
    """What waits for the task is not logged."""
    return lambda self, checkpoint, _unexecuted: right(self, checkpoint, [])


def _whole_batches(right: Any) -> Any:
    """What a task has executed of the batch in hand is logged, too."""

    def taken(self: Any, checkpoint: int, unexecuted: Any) -> Any:
        return right(self, checkpoint, [InputBatch(batch.source, batch.data) for batch in unexecuted])

    return taken


def _not_what_waited(right: Any) -> Any:
    """What came while the snapshot was being taken is not logged."""

    def taken(self: Any, checkpoint: int, unexecuted: Any) -> Any:
        if (current := self._current) is not None:
            current.aside = [(batch, False) for batch, _ in current.aside]
        return right(self, checkpoint, unexecuted)

    return taken


def _no_log_delivered(_right: Any) -> Any:
    return lambda self, log: []


def _old_marker(right: Any) -> Any:
    """A marker counts for whatever is under way."""

    def marked(self: Any, source: int, checkpoint: int, now_s: float) -> Any:
        return right(self, source, self.in_progress or checkpoint, now_s)

    return marked


def _restored_anyway(right: Any) -> Any:
    def behind(self: Any, phase: TaskPhase, stmgr_id: str = "") -> Any:
        return right(self, phase, stmgr_id) if stmgr_id or phase is TaskPhase.RUNNING else []

    return behind


def _at_once(right: Any) -> Any:
    """A tree counts for the checkpoint whose marker was sent last."""

    def completed(self: Any, group: Any, count: int) -> None:
        right(self, group, count)
        if self._closed:
            self._closed[-1][1].extend(self._open)
            self._open.clear()

    return completed


def _nothing_fails(right: Any) -> Any:
    """A restore forgets no tree."""
    return lambda self, checkpoint: (self.committed(checkpoint), [])


MUTANTS = {
    "nobody waits for the markers of others": Mutant(f"{ALIGNMENT}marked", _first_marker, 0),
    "a checkpoint is committed with the first snapshot": Mutant(
        f"{COORDINATOR}CheckpointCoordinator._snapshotted", _first_snapshot, 0
    ),
    "a checkpoint is committed before its manifest": Mutant(
        f"{COORDINATOR}CheckpointCoordinator._snapshotted", _before_the_manifest, 0
    ),
    "a checkpoint of a tainted epoch is committed": Mutant(f"{MEMBERS}_stmgr_problem", _no_problem, 0),
    "a task that was restarted belongs to the epoch": Mutant(f"{MEMBERS}_task_problem", _no_problem, 2),
    "what was set aside is forgotten": Mutant(f"{ALIGNMENT}_release", _nothing, 1),
    "a checkpoint that is not committed is restored": Mutant(f"{COORDINATOR}record_of", _uncommitted, 2),
    "a commit whose answer was lost is not restored": Mutant(f"{COORDINATOR}record_of", _remembered, 9),
    "a back edge is not logged": Mutant(f"{ALIGNMENT}_log", _no_back_edges, 4),
    "what waits for an unaligned task is not logged": Mutant(f"{ALIGNMENT}snapshot_taken", _only_what_comes, 1),
    "the batch in hand is logged as a whole": Mutant(f"{ALIGNMENT}snapshot_taken", _whole_batches, 7),
    "what comes during an unaligned snapshot is not logged": Mutant(f"{ALIGNMENT}snapshot_taken", _not_what_waited, 4),
    "a restore does not deliver the log": Mutant(f"{ALIGNMENT}restored", _no_log_delivered, 2),
    "a marker of another checkpoint counts": Mutant(f"{ALIGNMENT}marked", _old_marker, 8),
    "some resume before all have restored": Mutant(f"{MEMBERS}behind", _restored_anyway, 3),
    "strangers are adopted": Mutant(f"{MEMBERS}strangers", _nothing, 0),
    "a commit acks trees that were complete after its marker": Mutant(
        f"{LEDGER}completed", _at_once, 0, at_least_once=True
    ),
    "a restore does not fail what no commit covers": Mutant(
        f"{LEDGER}restored", _nothing_fails, 10, at_least_once=True
    ),
}


def found_after(mutant: Mutant, seeds: int, first: int = 0) -> tuple[int, str] | None:
    """The seed that finds a mistake, and how it shows; None if none does."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        for seed in range(first, first + seeds):
            if failure := failure_of(seed, at_least_once=mutant.at_least_once):
                return seed, failure
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
        shown = f"not in {options.seeds} seeds" if found is None else f"seed {found[0]}: {found[1][:110]}"
        print(f"{name}: {shown}", flush=True)


if __name__ == "__main__":
    main()
