"""What windows hold does not time out: whose timeouts begin anew, and what is kept for it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from heronpy.instance.task import ACKED, FAILED, RENEWALS_PER_TIMEOUT, InBatch, TimeoutRenewals
from heronpy.wire import RESET_TIMEOUT, SEQUENCE_BITS, decode_roots, decode_tuples, tuple_batch

TIMEOUT_NS = 4_000
QUARTER_NS = TIMEOUT_NS // RENEWALS_PER_TIMEOUT
TASK = 7
SPOUT = 3


def origins_of(sequences: Iterable[int], streams: list[str] | None = None) -> list[InBatch]:
    """A batch of tuples with these roots, of one stream or of as many as there are tuples."""
    roots = np.array([SPOUT << SEQUENCE_BITS | sequence for sequence in sequences], dtype=np.uint64)
    names = streams or ["words"]
    batch = tuple_batch(
        src_task=SPOUT,
        dest_task=TASK,
        streams=names,
        count=len(roots),
        values=b"",
        stream_indexes=None if streams is None else np.arange(len(names)),
        ids=roots,
        roots=roots,
    )
    tuples = decode_tuples(batch.body)
    return [InBatch(tuples, "source", name, ("word",)) for name in names]


def renewed(renewals: TimeoutRenewals, now_ns: int) -> list[int]:
    batches = renewals.due(now_ns)
    assert all((batch.kind, batch.src_task, batch.dest_task) == (RESET_TIMEOUT, TASK, SPOUT) for batch in batches)
    mask = (1 << SEQUENCE_BITS) - 1
    return sorted(int(root) & mask for batch in batches for root in decode_roots(batch.body, with_values=False).roots)


def test_timeouts_of_what_is_neither_acked_nor_failed_begin_anew_each_quarter_of_them() -> None:
    renewals = TimeoutRenewals(TASK, TIMEOUT_NS)
    (of_one,) = origins_of(range(4))
    two = origins_of([10, 11], ["words", "letters"])
    renewals.received([of_one])
    renewals.received(two)
    assert renewed(renewals, QUARTER_NS) == [0, 1, 2, 3, 10, 11]
    of_one.marks[0], of_one.marks[2], two[1].marks[1] = ACKED, FAILED, ACKED
    assert renewed(renewals, QUARTER_NS + 1) == []
    assert renewed(renewals, 2 * QUARTER_NS) == [1, 3, 10]
    of_one.marks[1] = of_one.marks[3] = two[0].marks[0] = ACKED
    assert renewed(renewals, 3 * QUARTER_NS) == []
    assert len(renewals) == 0


def test_what_has_just_come_is_left_alone() -> None:
    renewals = TimeoutRenewals(TASK, TIMEOUT_NS)
    (young,) = origins_of([5])
    young.began_ns = QUARTER_NS
    renewals.received([young])
    assert renewed(renewals, QUARTER_NS + 1) == []
    assert renewed(renewals, 2 * QUARTER_NS + 1) == [5]


def test_batches_that_are_settled_are_not_kept_until_the_next_time() -> None:
    renewals = TimeoutRenewals(TASK, TIMEOUT_NS)
    held = [origins_of([number]) for number in range(10)]
    for origins in held:
        renewals.received(origins)
    for number in range(1000):
        (origin,) = origins_of([100 + number])
        renewals.received([origin])
        origin.marks[0] = ACKED
        assert len(renewals) <= 2 * len(held) + 3
    assert renewed(renewals, QUARTER_NS) == list(range(10))
