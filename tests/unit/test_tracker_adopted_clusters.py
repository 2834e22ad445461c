"""When credentials are asked of a cluster, by whom they may be asked, and what the operator says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from heron_tracker import AdoptedCluster, StateManagerConfig, TrackerConfig, load_config
from heron_tracker.parts import Adoption, Topology, cluster_of
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import ConfigError, UnavailableError
from heronpy.plan import LogicalPlan, TopologyState
from heronpy.proto import state_pb2, topology_pb2
from heronpy.runtime import Launch, StatemgrSpec

SPEC = StatemgrSpec(type="kubernetes", connection="streams", root="/heron")
FARM = AdoptedCluster("farm", SPEC, "kubernetes", {"heron.kubernetes.scheduler.namespace": "streams"})
LAUNCH = Launch(
    topology="words", topology_id="words-1", cluster="farm", role="me", environ="x", statemgr=SPEC, dir=Path("/x")
)


def topology(**said: str) -> Topology:
    names = {"topology": "words", "topology_id": "words-1", "cluster": "farm", "role": "me", "environ": "x", **said}
    return Topology(
        statemgr="farm",
        execution=state_pb2.ExecutionState(**names),
        logical=LogicalPlan(id="words-1", name="words", components={}, config={}, proto=topology_pb2.Topology()),
        state=TopologyState.RUNNING,
    )


def test_a_refusal_is_followed_by_pauses_that_grow_to_ten_minutes() -> None:
    adoption, now_s, pauses = Adoption(), 0.0, []
    for _ in range(12):
        assert adoption.due(now_s)
        adoption.began(now_s)
        assert not adoption.due(now_s + 1e6), "one attempt at a time"
        assert adoption.failed("no", now_s) is (not pauses), "it is logged once"
        pauses.append(adoption.next_s - now_s)
        assert not adoption.due(adoption.next_s - 0.1)
        now_s = adoption.next_s
    assert pauses[:4] == [5, 10, 20, 40]
    assert pauses[-1] == 600
    adoption.began(now_s)
    adoption.succeeded(LAUNCH, now_s)
    assert (adoption.launch, adoption.reason, adoption.refusals) == (LAUNCH, "", 0)


def test_credentials_are_read_again_after_a_day_and_end_before_their_certificates() -> None:
    day_s = 24 * 3600.0
    adoption = Adoption()
    adoption.began(0.0)
    adoption.succeeded(LAUNCH, 0.0)
    assert (adoption.due(day_s - 1), adoption.due(day_s)) == (False, True)
    adoption.began(day_s)
    adoption.failed("refused", day_s)
    assert adoption.launch is LAUNCH, "they are of use for a while"
    assert (adoption.expired(2.9 * day_s), adoption.expired(3 * day_s - 3600)) == (False, True)
    adoption.began(3 * day_s)
    assert not adoption.expired(3 * day_s), "they are replaced, or removed after the attempt"


def test_a_cluster_that_the_operator_has_not_named_is_not_asked() -> None:
    assert cluster_of(topology(), SPEC, [FARM]) is FARM
    with pytest.raises(UnavailableError, match="adopts no topologies of cluster 'mill'"):
        cluster_of(topology(cluster="mill"), SPEC, [FARM])
    with pytest.raises(UnavailableError, match="adopts no topologies of cluster 'farm'"):
        cluster_of(topology(), SPEC, [])


@pytest.mark.parametrize("other", [{"type": "etcd"}, {"connection": "mine/streams"}, {"root": "/other"}])
def test_a_topology_of_another_state_manager_is_none_of_the_clusters(other: dict[str, Any]) -> None:
    with pytest.raises(UnavailableError, match="whose state manager is kubernetes streams/heron: this topology was"):
        cluster_of(topology(), replace(SPEC, **other), [FARM])
    assert cluster_of(topology(), replace(SPEC, root="/heron/", ca_file="/ca"), [FARM]) is FARM


@given(id=st.text(max_size=300), name=st.text(max_size=150))
def test_no_id_reaches_a_cluster_that_could_be_more_than_a_name(id: str, name: str) -> None:
    for given_id in (id, f"{name}-{id}"):
        try:
            cluster_of(topology(topology=name, topology_id=given_id), SPEC, [FARM])
        except UnavailableError:
            continue
        assert given_id.startswith(f"{name}-")
        assert not set(given_id) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.@-")


def test_no_cluster_is_asked_unless_the_configuration_names_it(tmp_path: Path) -> None:
    (tmp_path / "conf/farm").mkdir(parents=True)
    (tmp_path / "conf/farm/cluster.yaml").write_text(
        yaml.safe_dump(
            {
                "heron.class.scheduler": "yarn",
                "heron.scheduler.yarn.resourcemanager": "http://yarn:8088",
                "heron.scheduler.yarn.secrets": "${HERON_HOME}/shared",
                "heron.statemgr.root.path": "/state",
            }
        )
    )
    path = tmp_path / "tracker.yaml"
    path.write_text("tracker.host: 127.0.0.1\n")
    assert load_config(path, home=tmp_path).adopt == ()
    values = {"tracker.adopt.clusters": ["farm"], "tracker.adopt.config.path": "${HERON_HOME}/conf"}
    path.write_text(yaml.safe_dump(values))
    config = load_config(path, home=tmp_path)
    (cluster,) = config.adopt
    assert (cluster.name, cluster.scheduler, cluster.statemgr.root) == ("farm", "yarn", "/state")
    assert cluster.scheduler_config["heron.scheduler.yarn.secrets"] == f"{tmp_path}/shared"
    assert config.adopt_directory == tmp_path / "tracker-credentials"
    path.write_text(yaml.safe_dump({"tracker.adopt.clusters": "farm"}))
    with pytest.raises(ConfigError, match="must be a list"):
        load_config(path, home=tmp_path)


def test_a_tracker_that_adopts_has_a_directory_for_that() -> None:
    with pytest.raises(ConfigError, match="no directory for their credentials"):
        TrackerConfig(statemgrs=(StateManagerConfig("farm", SPEC),), adopt=(FARM,))
