"""Dashboards from logical plans: what is on them, and that Grafana can import them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from heron_tracker.parts import PipelineMetrics

from heronpy.api import Bolt, Grouping, Spout, Stream, TopologyBuilder
from heronpy.loader import Definition
from heronpy.metricsmgr.parts import HELP, series_name
from heronpy.plan import (
    BATCH_SIDE_KEY,
    BatchSide,
    ContainerPacking,
    InstancePacking,
    LogicalPlan,
    PackingPlan,
    Resources,
)
from heronpy.proto import topology_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.stmgr import TO_WORKERS, to_stmgr
from heronpy.viz import Dashboard, Panel, Query, Row, overview_dashboard, topology_dashboard

DEPLOY = Path(__file__).parents[2] / "deploy"
SERIES = r"heron_\w+"
GRAFANA_S_OWN = {"__rate_interval", "__range", "__all"}


class Words(Spout):
    outputs = ("word",)


class Count(Bolt):
    outputs = (Stream(fields=["word"]), Stream(fields=["word"], name="rare"))


class Print(Bolt):
    pass


def launch(**changes: Any) -> Launch:
    values: dict[str, Any] = {
        "topology": "wordcount",
        "topology_id": "wordcount-1",
        "cluster": "local",
        "role": "ada",
        "environ": "test",
        "statemgr": StatemgrSpec(),
        "dir": Path("/nowhere"),
    }
    return Launch(**{**values, **changes})


def dashboard(**changes: Any) -> Dashboard:
    builder = TopologyBuilder("wordcount")
    words = builder.add_spout("words", Words, 2)
    count = builder.add_bolt("count", Count, 3, {words: Grouping.SHUFFLE})
    builder.add_bolt("print", Print, 1, {count: Grouping.SHUFFLE})
    logical = LogicalPlan.from_proto(Definition.of(builder).proto)
    share = Resources(cpu=0.5, ram_bytes=1 << 30, disk_bytes=0)
    instances = tuple(InstancePacking(name, task, 0, share) for task, name in enumerate(logical.components, start=1))
    packing = PackingPlan("p", (ContainerPacking(1, instances, share),))
    return topology_dashboard(launch(**changes), logical, packing)


def titles(of: Dashboard, row: str) -> set[str]:
    return {panel.title for found in of.rows if found.title == row for panel in found.panels}


@pytest.fixture(params=["topology", "overview"])
def any_dashboard(request: pytest.FixtureRequest) -> Dashboard:
    return dashboard() if request.param == "topology" else overview_dashboard()


def test_every_component_has_a_row_spouts_first() -> None:
    assert [row.title for row in dashboard().rows] == [
        "Health",
        "Resources",
        "Spout words (2 instances)",
        "Bolt count (3 instances)",
        "Bolt print (1 instance)",
        "Stream Managers",
    ]


def test_panels_fit_the_kind_of_component() -> None:
    made = dashboard()
    assert {"Emitted", "Complete latency", "Pending", "Time in next_tuple()"} <= titles(
        made, "Spout words (2 instances)"
    )
    assert {"Executed", "Emitted", "Capacity"} <= titles(made, "Bolt count (3 instances)")
    last = titles(made, "Bolt print (1 instance)")
    assert "Executed" in last
    assert "Emitted" not in last, "it has no output"
    assert "Pending" not in last


def test_what_the_packing_plan_gives_is_beside_what_is_used() -> None:
    exprs = {query.expr for panel in dashboard().panels() for query in panel.queries}
    assert {"vector(1.5)", f"vector({3 << 30})"} <= exprs


def test_outboxes_are_shown_with_the_mark_where_backpressure_begins() -> None:
    (panel,) = (p for p in dashboard().panels() if p.title == "Waiting for each receiver")
    assert panel.warn_at == 100 * 1024 * 1024


def test_a_topology_that_takes_checkpoints_has_a_row_of_them() -> None:
    titles = {p.title for p in dashboard(checkpoints="/data").panels()} - {p.title for p in dashboard().panels()}
    assert {"Committed", "Rollbacks", "Age of the last checkpoint", "Size of a checkpoint"} <= titles
    used = {
        name for p in dashboard(checkpoints="/data").panels() for q in p.queries for name in re.findall(SERIES, q.expr)
    }
    known = {f"{name}{kind}" for name in HELP for kind in ("", "_total")}
    assert {name for name in used if "checkpoint" in name or "restore" in name} <= known


def test_the_overview_expects_no_checkpoints_of_topologies_that_take_none() -> None:
    panels = [p for p in overview_dashboard().panels() if any("heron_checkpoint" in q.expr for q in p.queries)]
    assert {p.to_json(1, 0, 0)["fieldConfig"]["defaults"]["noValue"] for p in panels} == {"none"}


def test_a_program_with_a_batch_side_has_a_row_of_it() -> None:
    side = BatchSide(batch_length_ms=60_000).to_value()
    logical = LogicalPlan("words-1", "words", {}, {BATCH_SIDE_KEY: side}, topology_pb2.Topology())
    panels = [*topology_dashboard(launch(), logical, PackingPlan("p", ())).panels()]
    used = {name for panel in panels for query in panel.queries for name in re.findall(SERIES, query.expr)}
    tracker_s = {metric.name for metric in PipelineMetrics(list).collect()}
    shown = {name for name in used if name.startswith("heron_pipeline_")}
    assert {"heron_pipeline_lag_seconds", "heron_pipeline_dead_letters"} <= shown <= tracker_s | set(HELP)
    assert not [p for p in dashboard().panels() if "heron_pipeline" in p.queries[0].expr], "others have none"
    rules = (DEPLOY / "prometheus" / "heron.rules.yml").read_text()
    assert set(re.findall(r"heron_pipeline_\w+", rules)) <= tracker_s


def test_links_between_stream_managers_are_shown_by_peer() -> None:
    (panel,) = (p for p in dashboard().panels() if p.title == "Bytes on each link")
    assert "by (instance, key) (rate(heron_client_bytes_to_stmgrs_total{" in panel.queries[0].expr


def test_what_is_lost_is_shown_by_the_names_that_stream_managers_count_by() -> None:
    (panel,) = (p for p in dashboard().panels() if p.title == "Lost with a connection")
    used = {name for query in panel.queries for name in re.findall(r"heron_\w+", query.expr)}
    ways = (TO_WORKERS, to_stmgr("stmgr-2"))
    counted = {series_name(f"{name}_lost").family + "_total" for way in ways for name in way.tuples.values()}
    assert len(used) == 6
    assert used <= counted


def test_no_query_selects_several_names(any_dashboard: Dashboard) -> None:
    """Prometheus refuses a rate of them as soon as two have the same labels: when something has happened at last."""
    assert [panel.title for panel in any_dashboard.panels() for q in panel.queries if "__name__" in q.expr] == []


def test_queries_use_no_variable_that_does_not_exist(any_dashboard: Dashboard) -> None:
    made = any_dashboard.to_json()
    known = {variable["name"] for variable in made["templating"]["list"]} | GRAFANA_S_OWN
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(made))) <= known


def test_ids_are_unique_and_panels_do_not_overlap(any_dashboard: Dashboard) -> None:
    panels = any_dashboard.to_json()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for a, b in combinations([panel["gridPos"] for panel in panels], 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], (a, b)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_every_panel_has_queries_with_references_of_their_own(any_dashboard: Dashboard) -> None:
    for panel in any_dashboard.to_json()["panels"]:
        if panel["type"] != "row":
            references = [target["refId"] for target in panel["targets"]]
            assert references
            assert len(set(references)) == len(references)


def test_a_datasource_can_be_named() -> None:
    def chosen(made: dict[str, Any]) -> str:
        return str(made["templating"]["list"][0]["current"]["value"])

    assert chosen(dashboard().to_json("main")) == "main"
    assert chosen(dashboard().to_json()) == "default"


def test_a_topology_keeps_its_dashboard_and_shares_it_with_no_other() -> None:
    assert dashboard().uid == dashboard(topology_id="wordcount-2").uid
    assert (
        len({dashboard(**{key: "x"}).uid for key in ("topology", "cluster", "role", "environ")} - {dashboard().uid})
        == 4
    )
    assert len(dashboard().uid) <= 40, "Grafana allows no more"


def test_the_row_after_a_row_of_panels_of_different_heights_is_below_all_of_them() -> None:
    def panel(height: int) -> Panel:
        return Panel(title=str(height), queries=(Query("up"),), width=12, height=height)

    made = Dashboard(
        uid="x",
        title="x",
        description="",
        tags=(),
        variables=(),
        rows=(Row("a", (panel(9), panel(4), panel(3))), Row("b", ())),
    )
    assert [p["gridPos"]["y"] for p in made.to_json()["panels"]] == [0, 1, 1, 10, 13]


def test_the_overview_in_deploy_is_the_one_that_heron_viz_makes() -> None:
    text = (DEPLOY / "grafana" / "dashboards" / "heron-overview.json").read_text()
    assert json.loads(text) == overview_dashboard().to_json(), (
        "run `heron viz --overview --output deploy/grafana/dashboards/heron-overview.json`"
    )
