"""The life of state beyond a topology: paused, copied, killed, and gone on with under another name by more tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from keyed_count_topology import KEYS, counts_in, keyed_count_topology

from heronpy import submit
from heronpy.api import TopologyBuilder
from heronpy.checkpoints import newest_intact, open_storage
from heronpy.connectors import ListSource
from heronpy.errors import AlreadyExistsError, ConfigError
from heronpy.streamlet import Builder, Config
from heronpy.testing import LocalCluster, eventually_sync

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}


@pytest.mark.long
def test_a_topology_goes_on_with_the_checkpoint_of_another_and_every_number_counts_once(tmp_path: Path) -> None:
    numbers, saved = 6000, tmp_path / "saved"
    keys = {"topology.stmgrs": 1, "topology.stateful.checkpoint.interval.seconds": 1000}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    program = keyed_count_topology(tmp_path / "first", numbers=numbers, rate=2000, counts=1, **keys)
    with LocalCluster(FAST) as cluster:
        first = cluster.submit(program).wait_running()

        def counted() -> None:
            assert sum(counts_in(tmp_path / "first").values()) > numbers // 10

        eventually_sync(counted)
        checkpoint = submit.save_checkpoint(first.launch, str(saved))
        with pytest.raises(AlreadyExistsError, match="choose an empty place"):
            submit.save_checkpoint(first.launch, str(saved))
        submit.kill(first.launch, final_s=60.0)
        assert not list(Path(first.launch.checkpoints).rglob("*.json")), "its own are removed with it"
        program = keyed_count_topology(tmp_path / "second", numbers=numbers, rate=2000, counts=3, **keys)
        second = cluster.submit(program, name="second", start_from=saved).wait_running()
        assert second.launch.start_checkpoint == checkpoint

        def exact() -> None:
            counts = counts_in(tmp_path / "second")
            assert set(counts.values()) == {numbers // KEYS}
            assert len(counts) == KEYS

        eventually_sync(exact)
        submit.deactivate(second.launch)
        final = submit.take_checkpoint(second.launch)
        (stored,) = submit.checkpoints(second.launch)
        assert (stored.id, stored.committed, stored.tasks["count"]) == (final, True, 3)


def two_reductions(*, swapped: bool) -> TopologyBuilder:
    """A sum and a maximum, without names."""
    builder, topology, config = Builder(), TopologyBuilder("reductions"), Config()
    pairs = builder.new_source(ListSource([*range(100)])).map(lambda n: (n % 3, n))
    functions = [lambda a, b: a + b, lambda a, b: max(a, b)]
    for function in functions[::-1] if swapped else functions:
        pairs.reduce_by_key(function)
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    config.set_user_config("topology.stateful.checkpoint.interval.seconds", 1000)
    config.set_user_config("topology.stmgrs", 1)
    builder.build(topology, config)
    return topology


@pytest.mark.long
def test_a_program_with_swapped_operators_does_not_begin_with_what_a_running_one_has_saved(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    with LocalCluster(FAST) as cluster:
        first = cluster.submit(two_reductions(swapped=False)).wait_running()
        checkpoint = submit.save_checkpoint(first.launch, str(saved))
        with open_storage(str(saved)) as storage:
            recorded = newest_intact(storage)[0].components["reduce_by_key-1"].operators
        assert [operator.kind for operator in recorded.values()] == ["reduce_by_key"]
        with pytest.raises(ConfigError, match=r"'reduce_by_key-1' was given no name, and is not in the same place"):
            cluster.submit(two_reductions(swapped=True), name="swapped", start_from=saved)
        second = cluster.submit(two_reductions(swapped=False), name="second", start_from=saved).wait_running()
        assert second.launch.start_checkpoint == checkpoint
        # Its own checkpoints say so, too.
        later = tmp_path / "later"
        submit.save_checkpoint(second.launch, str(later))
        with open_storage(str(later)) as storage:
            assert newest_intact(storage)[0].components["reduce_by_key-1"].operators == recorded
