"""A component that takes more RAM than it was given: every view of the topology says so, and the others go on."""

from __future__ import annotations

import time

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.testing import LocalCluster, eventually_sync


class Clicks(Spout):
    outputs = ("shop",)

    def next_tuple(self) -> None:
        time.sleep(0.01)
        self.emit(["books"])


class Keeps(Bolt):
    """Keeps everything that it sees, and more."""

    def initialize(self, config: object, context: object) -> None:
        self.kept: list[bytes] = []

    def process(self, tup: object) -> None:
        self.kept.append(b"x" * (1 << 18))


def test_health_names_an_instance_over_its_ram() -> None:
    builder = TopologyBuilder("shop")
    clicks = builder.add_spout("clicks", Clicks, 1)
    builder.add_bolt("keeps", Keeps, 1, {clicks: Grouping.SHUFFLE})
    builder.set_config({"topology.component.rammap": {"keeps": "150MB"}, "heron.executor.limits": "rlimit"})
    with LocalCluster() as cluster:
        topology = cluster.submit(builder.build()).wait_running()

        def check() -> None:
            reasons = [reason.text for reason in topology.status().health.reasons]
            assert any("container_1_keeps_2 (killed: used " in text for text in reasons), reasons
            assert any(" MB of its 150 MB" in text for text in reasons), reasons
            assert not any("container_1_clicks_1" in text for text in reasons), reasons

        eventually_sync(check, within_s=120.0)
