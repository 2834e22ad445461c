"""The data plane under pressure and failure, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from failures_topology import amplifying

from heronpy.testing import LocalCluster, eventually_sync

TIGHT = {
    "heron.metrics.export.interval.ms": 500,
    "heron.executor.stop.timeout.ms": 2000,
    "heron.streammgr.network.backpressure.highwatermark.mb": 0.05,
    "heron.streammgr.network.backpressure.lowwatermark.mb": 0.02,
    "heron.instance.internal.read.queue.bytes": 65536,
    "heron.instance.internal.write.queue.bytes": 65536,
    "heron.instance.tuning.expected.read.queue.bytes": 32768,
    "heron.instance.set.data.tuple.size.bytes": 65536,
}


@pytest.mark.long
def test_bolts_that_make_many_tuples_of_one_do_not_lock_each_other_up(tmp_path: Path) -> None:
    """What one bolt makes fills the outboxes in both containers while the next one must pass its own through them."""
    count, each = 10, 100
    with LocalCluster(TIGHT) as cluster:
        cluster.submit(amplifying(tmp_path, count=count, each=each)).wait_running()

        def check() -> None:
            counted = sum(path.stat().st_size for path in tmp_path.glob("count-*"))
            assert counted == 20 * count * each

        eventually_sync(check)
