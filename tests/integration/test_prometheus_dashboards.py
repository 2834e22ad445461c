"""A real Prometheus scrapes running topologies: every query of the dashboards finds something, alerts fire."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_server import TOKEN, GrafanaServer
from keyed_count_topology import keyed_count_topology
from slow_topology import slow_topology
from watched_topology import NUMBERS
from watched_topology import Watched as Counted

from heronpy.security import authority
from heronpy.submit import plans
from heronpy.testing import LocalCluster, TopologyHandle
from heronpy.testing import eventually_sync as _eventually_sync
from heronpy.testing.servers import PrometheusServer, prometheus_missing
from heronpy.viz import Dashboard, overview_dashboard, topology_dashboard

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(prometheus_missing() is not None, reason=str(prometheus_missing())),
]

KIB = 1024
KEYS = {
    "heron.metrics.export.interval.ms": 500,
    "heron.executor.stop.timeout.ms": 2000,
    # So little may wait that a second of flood is too much.
    "heron.streammgr.network.backpressure.highwatermark.mb": 0.5,
    "heron.streammgr.network.backpressure.lowwatermark.mb": 0.25,
    "heron.streammgr.connection.write.batch.size.mb": 1 / 16,
    "heron.instance.internal.read.queue.bytes": 128 * KIB,
    "heron.instance.tuning.expected.read.queue.bytes": 64 * KIB,
    "heron.instance.internal.write.queue.bytes": 128 * KIB,
    "heron.instance.set.data.tuple.size.bytes": 64 * KIB,
}
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "heron.rules.yml"
CULPRIT = "container_1_slow_3"


def eventually_sync(check: Callable[[], None]) -> None:
    _eventually_sync(check)


def hurried(rules: str) -> str:
    """The same rules for a test that has no five minutes."""
    return re.sub(r"\bfor: \d+m", "for: 2s", re.sub(r"\[\d+m\]", "[10s]", rules)).replace("offset 5m", "offset 10s")


def evaluated(text: str, variables: Mapping[str, str]) -> str:
    """A query as Grafana sends it, with everything chosen."""
    values = {"__rate_interval": "10s", "__range": "1m", "component": ".*", "container": ".*", "instance": ".*"}
    for name, value in {**values, **variables}.items():
        text = text.replace(f"${name}", value)
    assert "$" not in text
    return text


@dataclass
class Watched:
    """A slow topology, one with known numbers and one with checkpoints, and the Prometheus that scrapes them."""

    cluster: LocalCluster
    slow: TopologyHandle
    counted: TopologyHandle
    kept: TopologyHandle
    prometheus: PrometheusServer

    def dashboards(self) -> Iterator[Dashboard]:
        """One for each topology."""
        for topology in (self.slow, self.counted, self.kept):
            yield topology_dashboard(topology.launch, *plans(topology.launch))

    def ask(self, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.prometheus.get("query", query=query)["result"]
        return found

    def firing(self, alert: str) -> list[dict[str, str]]:
        """The labels of the alerts of this name that fire."""
        return [
            found["labels"]
            for found in self.prometheus.get("alerts")["alerts"]
            if found["labels"]["alertname"] == alert and found["state"] == "firing"
        ]

    def scraped(self) -> dict[tuple[str, str], str]:
        """The health of every target, by topology and container."""
        found = self.prometheus.get("targets", state="active")["activeTargets"]
        return {(t["labels"]["topology"], t["labels"]["container"]): t["health"] for t in found}

    def answered(self, dashboard: Dashboard, variables: Mapping[str, str]) -> dict[str, bool]:
        """Whether there is data, by kind of row, panel and legend. A panel that is never quiet must have some."""
        found: dict[str, bool] = {}
        for row in dashboard.rows:
            for panel in row.panels:
                for query in panel.queries:
                    key = f"{row.title.split()[0]}: {panel.title}: {query.legend}"
                    has_data = bool(self.ask(evaluated(query.expr, variables)))  # raises if it is not valid
                    assert has_data or panel.quiet, f"no data in {row.title}: {panel.title}: {query.expr}"
                    found[key] = has_data or found.get(key, False)
        return found


def heron(cluster: LocalCluster, *args: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "heronpy.cli", *args],
        env={**os.environ, "HERON_HOME": str(cluster.home), **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _prometheus(cluster: LocalCluster, directory: Path, rules: Path) -> PrometheusServer:
    scraper = cluster.home / "tls"
    authority.scraper_certificate(scraper)
    return PrometheusServer(directory, rules=[rules], scraper=scraper / "scraper.pem")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    directory = tmp_path_factory.mktemp("prometheus")
    rules = directory / "hurried.rules.yml"
    rules.write_text(hurried(RULES.read_text()))
    with LocalCluster(KEYS) as cluster, _prometheus(cluster, directory / "server", rules) as prometheus:
        command = heron(cluster, "viz", "--file-sd", str(prometheus.targets_file), "--watch")
        try:
            reliable = {"topology.reliability.mode": "ATLEAST_ONCE", "topology.max.spout.pending": 1_000_000}
            flood = slow_topology(directory / "released", payload_bytes=1000, **reliable)
            slow = cluster.submit(flood).wait_running()
            counted = cluster.submit(Counted, name="counted").wait_running()
            counts = directory / "counts"
            counts.mkdir()
            kept = cluster.submit(keyed_count_topology(counts, rate=50), name="kept").wait_running()
            yield Watched(cluster, slow, counted, kept, prometheus)
        finally:
            command.terminate()
            assert command.wait(300) == 143, command.communicate()


def test_prometheus_finds_every_metrics_manager(watched: Watched) -> None:
    expected = {(topology, str(n)): "up" for topology in ("slow", "counted", "kept") for n in range(3)}

    def all_up() -> None:
        assert {k: v for k, v in watched.scraped().items() if k in expected} == expected

    eventually_sync(all_up)


def test_every_query_of_the_dashboards_has_data_in_one_of_the_topologies(watched: Watched) -> None:
    def all_have_data() -> None:
        found: dict[str, bool] = {}
        for dashboard in watched.dashboards():
            variables = {v.name: v.constant or v.current for v in dashboard.variables if v.constant or v.current}
            for key, has_data in watched.answered(dashboard, variables).items():
                found[key] = has_data or found.get(key, False)
        # No connection is lost here.
        assert [k for k, has_data in found.items() if not has_data and "Lost with a connection" not in k] == []

    eventually_sync(all_have_data)


def test_every_query_of_the_overview_has_data(watched: Watched) -> None:
    every = dict.fromkeys(("cluster", "role", "environ", "topology"), ".*")

    def all_have_data() -> None:
        assert set(watched.answered(overview_dashboard(), every).values()) == {True}

    eventually_sync(all_have_data)


def test_the_command_writes_the_dashboard_that_grafana_imports(watched: Watched, tmp_path: Path) -> None:
    file = tmp_path / "slow.json"
    command = heron(watched.cluster, "viz", "slow", "--output", str(file), "--datasource", "main")
    assert (command.communicate(), command.returncode) == (("", ""), 0)
    dashboard = json.loads(file.read_text())
    launch = watched.slow.launch
    assert dashboard == topology_dashboard(launch, *plans(launch)).to_json("main")
    assert [p["title"] for p in dashboard["panels"] if p["type"] == "row"] == [
        "Health",
        "Resources",
        "Spout flood (1 instance)",
        "Spout bystander (1 instance)",
        "Bolt slow (1 instance)",
        "Bolt quick (1 instance)",
        "Stream Managers",
    ]


def test_the_dashboards_of_all_topologies_are_put_into_grafana(watched: Watched) -> None:
    grafana = GrafanaServer()
    try:
        command = heron(watched.cluster, "viz", "--grafana-url", f"{grafana.url}/grafana", GRAFANA_TOKEN=TOKEN)
        output, errors = command.communicate(timeout=300)
        assert (command.returncode, errors) == (0, "")
        assert [line.split()[0] for line in output.splitlines()] == ["counted", "kept", "slow"]
        titles = {found["title"] for found in grafana.dashboards.values()}
        assert titles == {"Heron: counted", "Heron: kept", "Heron: slow"}
    finally:
        grafana.close()


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ([], "heron: name a topology, or give --overview, --file-sd, --limits or --grafana-url"),
        (["slow", "--watch"], "heron: --file-sd, --limits and --watch are about all topologies"),
        (["--output", "x.json"], "heron: --output is one dashboard: name a topology"),
        (["slow", "--overview"], "heron: --overview is about all topologies: leave out the name"),
        (["slaw"], "heron: no topology 'slaw' runs; did you mean 'slow'?"),
        (["slow", "--output", "/nowhere/x.json"], "heron: /nowhere/x.json: No such file or directory"),
    ],
)
def test_a_wrong_command_is_answered_in_one_line(watched: Watched, args: list[str], error: str) -> None:
    command = heron(watched.cluster, "viz", *args)
    output, errors = command.communicate(timeout=300)
    assert command.returncode in (1, 2, 3)
    assert output == ""
    assert errors.startswith(error)
    assert len(errors.splitlines()) == 1


def test_the_slow_bolt_is_named_by_a_firing_alert(watched: Watched) -> None:
    def fires() -> None:
        assert {labels["key"] for labels in watched.firing("HeronBackpressure")} == {CULPRIT}
        assert CULPRIT in {labels["instance"] for labels in watched.firing("HeronCapacity")}

    eventually_sync(fires)
    assert "container_2_quick_4" not in {labels["instance"] for labels in watched.firing("HeronCapacity")}


def test_prometheus_has_the_exact_counts(watched: Watched) -> None:
    """Of each spout's numbers, the bolt fails on one and forgets one, which times out."""

    def exact() -> None:
        found = {}
        for name in ("emit", "ack", "fail", "timeout", "exception"):
            query = f'sum by (component) (heron_{name}_count_total{{topology="counted"}})'
            found[name] = {series["metric"]["component"]: float(series["value"][1]) for series in watched.ask(query)}
        executed = 2 * (NUMBERS - 1)
        assert found == {
            "emit": {"numbers": 2 * NUMBERS, "doubled": executed},
            "ack": {"numbers": executed - 2, "doubled": executed - 2, "last": executed},
            "fail": {"numbers": 4, "doubled": 2},
            "timeout": {"numbers": 2},
            "exception": {"doubled": 2},
        }

    eventually_sync(exact)


def test_failures_fire_alerts(watched: Watched) -> None:
    # Two events of each kind, and each counter appears with its first: the alerts must not need a second one.
    def fired() -> None:
        for alert, component in (("HeronExceptions", "doubled"), ("HeronTupleTimeouts", "numbers")):
            query = f'max_over_time(ALERTS{{alertname="{alert}",alertstate="firing",topology="counted"}}[5m])'
            assert {found["metric"]["component"] for found in watched.ask(query)} == {component}

    eventually_sync(fired)


def test_dashboards_and_rules_know_only_names_that_are_exported(watched: Watched) -> None:
    """Also those of panels and alerts that are empty as long as all is well."""
    queries = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    for dashboard in (overview_dashboard(), *watched.dashboards()):
        queries += [query.expr for panel in dashboard.panels() for query in panel.queries]
    used = {name for query in queries for name in re.findall(r"(?<![\w\".])heron_\w+", query)}
    used = {name for name in used if not name.endswith("_lost_total")}  # no connection is lost here
    used = {name for name in used if not name.startswith("heron_pipeline_")}  # the Tracker has those
    assert len(used) > 30

    def exported() -> None:
        names = watched.prometheus.get("label/__name__/values")
        assert used - set(names) == set()

    eventually_sync(exported)


def test_targets_go_with_their_topology(watched: Watched) -> None:
    watched.counted.kill()

    def gone() -> None:
        assert {topology for topology, _ in watched.scraped()} == {"slow", "kept"}

    eventually_sync(gone)
