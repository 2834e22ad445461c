"""At least once with state: which complete trees a spout is told of, and when."""

from __future__ import annotations

import pytest

from heronpy.instance.checkpoints import CommitLedger


@pytest.fixture
def ledger() -> CommitLedger[str]:
    """A group of two trees was complete before the marker of checkpoint 1, one before that of 2, and one is since."""
    ledger: CommitLedger[str] = CommitLedger(roots_max=5)
    ledger.completed("ab", 2)
    ledger.marker_sent(1)
    ledger.completed("c", 1)
    ledger.marker_sent(2)
    ledger.completed("d", 1)
    ledger.check_invariants()
    return ledger


def test_a_commit_covers_what_was_complete_before_its_marker(ledger: CommitLedger[str]) -> None:
    assert ledger.committed(1) == ["ab"]
    assert ledger.committed(2) == ["c"]
    assert ledger.count == 1


def test_a_commit_covers_what_an_aborted_checkpoint_would_have_covered(ledger: CommitLedger[str]) -> None:
    assert ledger.committed(2) == ["ab", "c"]


def test_a_commit_that_is_repeated_covers_nothing_more(ledger: CommitLedger[str]) -> None:
    ledger.committed(1)
    assert ledger.committed(1) == []


def test_a_restore_fails_whatever_no_commit_covers(ledger: CommitLedger[str]) -> None:
    assert ledger.restored(1) == (["ab"], ["c", "d"])
    ledger.check_invariants()
    assert ledger.count == 0
    ledger.marker_sent(3)
    assert ledger.committed(3) == []


def test_a_restore_of_nothing_fails_all(ledger: CommitLedger[str]) -> None:
    assert ledger.restored(0) == ([], ["ab", "c", "d"])


def test_a_full_ledger_takes_what_was_under_way(ledger: CommitLedger[str]) -> None:
    assert not ledger.full
    ledger.completed("ef", 2)
    assert ledger.full
    ledger.committed(1)
    assert not ledger.full
    ledger.check_invariants()
