"""The Kubernetes scheduler against a real API server, scheduler and controller manager, with RBAC on.

The nodes are stand-ins (`kubernetes_nodes`), and so are the containers: a program that says that it runs, and ends in
order on SIGTERM.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from heron_scheduler import ContainerPhase
from heron_scheduler.kubernetes import KubernetesScheduler, Settings, container_objects, release_lost_pods
from kubernetes_nodes import IMAGE, Nodes

from heronpy.config import EngineConfig
from heronpy.errors import ConfigError, HeronError, NotFoundError, UnavailableError
from heronpy.kubernetes import Api, KubernetesError, load_access
from heronpy.plan import ContainerPacking, PackingPlan, Resources
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually_sync
from heronpy.testing.kubernetes import ControlPlane, kubernetes_missing
from heronpy.testing.servers import free_port
from heronpy.testing.statemgr_kit import Seen

pytestmark = pytest.mark.skipif(kubernetes_missing() is not None, reason=kubernetes_missing() or "")

WITHIN_S = 120.0
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("ended in order", flush=True), sys.exit(0)))
print("running", os.getpid(), os.getuid(), os.environ["HERON_ADVERTISE_ADDRESS"], open(sys.argv[3]).read(), flush=True)
while True:
    signal.pause()
"""


@pytest.fixture(scope="module")
def nodes(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    if os.getuid() != 0:
        pytest.skip("the nodes' stand-in needs root, for namespaces")
    with Nodes(control_plane, tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers that do no more than to run."""
    monkeypatch.setattr("heronpy.environment.python_command", lambda launch: ["python3", "-c", PROGRAM])
    monkeypatch.setattr("heronpy.container.bootstrap_document", lambda launch, n: json.dumps({"n": n}).encode())


def plan(*containers: int, cpu: float = 0.1, ram_mb: int = 100) -> PackingPlan:
    resources = Resources(cpu, ram_mb * 1024**2, 0)
    return PackingPlan("plan", tuple(ContainerPacking(n, (), resources) for n in containers))


@pytest.fixture
def launch(namespace: str, tmp_path: Path) -> Launch:
    launch = Launch(
        topology="words",
        topology_id=f"words-{namespace}",
        cluster="kubernetes",
        role="ada",
        environ="default",
        statemgr=StatemgrSpec(type="kubernetes", connection=namespace, root="/heron"),
        dir=tmp_path / "words",
        scheduler="kubernetes",
        scheduler_config={"heron.executor.docker.image": IMAGE, "heron.kubernetes.scheduler.namespace": namespace},
        config=EngineConfig.from_keys({"heron.network.bind.address": "0.0.0.0"}),
    )
    launch.save(token="t0ken")
    return launch


def configured(launch: Launch, **keys: Any) -> KubernetesScheduler:
    values = {f"heron.kubernetes.{key}": value for key, value in keys.items()}
    return KubernetesScheduler(dataclasses.replace(launch, scheduler_config={**launch.scheduler_config, **values}))


def running(scheduler: KubernetesScheduler, *numbers: int) -> dict[int, str]:
    """Once exactly these containers run: the pod of each, and where."""

    def all_run() -> dict[int, str]:
        found = scheduler.containers()
        assert [c.container for c in found] == list(numbers), found
        assert {c.phase for c in found} == {ContainerPhase.RUNNING}, found
        return {c.container: c.host for c in found}

    return eventually_sync(all_run, within_s=WITHIN_S)


def uids(scheduler: KubernetesScheduler) -> dict[str, str]:
    """The pods' names and identities."""
    api, namespace = Api(load_access()), scheduler.launch.statemgr.connection
    found = api.get(f"/api/v1/namespaces/{namespace}/pods", query={"labelSelector": "app=heron"}).body["items"]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}


def log_of(nodes: Nodes, launch: Launch, container: int) -> str:
    pods = [p for v in nodes.pods.values() for p in v.values() if p.namespace == launch.statemgr.connection]
    return next((p.directory / "log").read_text() for p in pods if p.name.endswith(f"-{container}-0"))


KINDS = ("apps/v1 statefulsets", "pods", "services", "secrets")


def left(cluster: ControlPlane, namespace: str) -> list[str]:
    return [one["metadata"]["name"] for kind in KINDS for one in cluster.objects(kind, namespace, "app=heron")]


def test_containers_run_with_what_they_need_and_leave_nothing(
    launch: Launch, nodes: Nodes, control_plane: ControlPlane, namespace: str
) -> None:
    scheduler = KubernetesScheduler(launch)
    scheduler.on_schedule(plan(1, 2))
    hosts = running(scheduler, 0, 1, 2)
    assert set(hosts.values()) == {"n1", "n2"}, "they are spread"
    for n in (0, 1, 2):

        def said(n: int = n) -> None:
            assert re.fullmatch(rf'running \d+ 10001 127\.77\.\d+\.1 {{"n": {n}}}\n', log_of(nodes, launch, n))

        eventually_sync(said, within_s=WITHIN_S)
    pods = uids(scheduler)
    scheduler.on_schedule(plan(1, 2))
    assert uids(scheduler) == pods, "what runs is left alone"
    scheduler.on_kill()
    assert left(control_plane, namespace) == []
    assert scheduler.containers() == []
    scheduler.on_kill()


def test_a_killed_container_is_started_again_by_the_cluster(launch: Launch, nodes: Nodes) -> None:
    scheduler = KubernetesScheduler(launch)
    scheduler.on_schedule(plan(1))
    running(scheduler, 0, 1)
    pod = next(
        p
        for v in nodes.pods.values()
        for p in v.values()
        if p.name == next(n for n in uids(scheduler) if n.endswith("-1-0"))
    )
    pod.kill()

    def restarted() -> None:
        assert pod.restarts == 1

    eventually_sync(restarted, within_s=WITHIN_S)
    running(scheduler, 0, 1)
    scheduler.on_kill()


def test_an_update_adds_and_removes_and_leaves_the_others_alone(
    launch: Launch, nodes: Nodes, control_plane: ControlPlane, namespace: str
) -> None:
    scheduler = KubernetesScheduler(launch)
    scheduler.on_schedule(plan(1, 2))
    running(scheduler, 0, 1, 2)
    before = uids(scheduler)
    other = KubernetesScheduler(launch)  # another process, on another machine: it has no state
    other.on_update(plan(1, 2), plan(2, 3))
    running(scheduler, 0, 2, 3)
    after = uids(scheduler)
    assert {n: u for n, u in before.items() if not n.endswith("-1-0")}.items() <= after.items()
    assert not any(name.endswith(("-1", "-1-0")) for name in left(control_plane, namespace))
    other.on_update(plan(1, 2), plan(2, 3))  # repeated, it changes nothing
    assert uids(scheduler) == after
    scheduler.on_kill()
    assert left(control_plane, namespace) == []


def test_a_restart_is_in_order_and_of_the_chosen_container(launch: Launch, nodes: Nodes) -> None:
    scheduler = KubernetesScheduler(launch)
    scheduler.on_schedule(plan(1))
    running(scheduler, 0, 1)
    before = uids(scheduler)
    with pytest.raises(NotFoundError, match="no container 7"):
        scheduler.on_restart(7)
    pod = next(
        p
        for v in nodes.pods.values()
        for p in v.values()
        if p.pod["metadata"]["uid"] in before.values() and "-1-0" in p.name[-5:]
    )

    def said() -> None:
        assert "running" in (pod.directory / "log").read_text()

    eventually_sync(said, within_s=WITHIN_S)
    scheduler.on_restart(1)
    assert (pod.directory / "log").read_text().endswith("ended in order\n")
    running(scheduler, 0, 1)
    changed = {name for name, uid in uids(scheduler).items() if before[name] != uid}
    assert {name[-3:] for name in changed} == {"1-0"}
    scheduler.on_restart(None)
    running(scheduler, 0, 1)
    assert not set(uids(scheduler).values()) & set(before.values())
    scheduler.on_kill()


def test_containers_of_a_lost_node_run_on_another_though_it_never_says_that_they_ended(
    launch: Launch, nodes: Nodes, namespace: str
) -> None:
    grace = EngineConfig.from_keys({"heron.network.bind.address": "0.0.0.0", "heron.executor.stop.timeout.ms": 0})
    scheduler = KubernetesScheduler(dataclasses.replace(launch, config=grace))
    scheduler.on_schedule(plan(1, 2, 3))
    hosts = running(scheduler, 0, 1, 2, 3)
    lost = {n for n, host in hosts.items() if host == "n2"}
    assert lost
    nodes.vanish("n2")
    try:
        api = Api(load_access())

        def moved() -> None:
            release_lost_pods(api, namespace, "app=heron")  # what the chart's Deployment does
            found = {c.container: c for c in scheduler.containers()}
            assert all(found[n].phase is ContainerPhase.RUNNING and found[n].host == "n1" for n in lost), found

        eventually_sync(moved, within_s=WITHIN_S)
    finally:
        nodes.join("n2")
    scheduler.on_kill()


def refused(scheduler: KubernetesScheduler, kind: type[HeronError], message: str, within_s: float = 30.0) -> None:
    """A submission is refused in one line, and undone as the CLI does it."""
    began_s = time.monotonic()
    with pytest.raises(kind, match=message) as caught:
        scheduler.on_schedule(plan(1, 2))
    assert time.monotonic() - began_s < within_s
    assert "\n" not in str(caught.value)


def test_a_namespace_a_template_or_rights_that_are_missing_are_named_and_nothing_is_made(
    launch: Launch, control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = configured(launch, **{"scheduler.namespace": "nowhere"})
    refused(nowhere, ConfigError, "no namespace 'nowhere': create it, or set heron.kubernetes.scheduler.namespace")
    refused(
        configured(launch, **{"executor.pod.template": "pods.gpu"}),
        ConfigError,
        f"ConfigMap pods of namespace {namespace} does not exist",
    )
    refused(
        configured(launch, **{"scheduler.serviceAccount": "robot"}),
        UnavailableError,
        'serviceaccount "robot" not found',
    )
    refused(
        configured(launch, **{"executor.limits.memory": "1Mi", "executor.requests.memory": "2Mi"}),
        ConfigError,
        "must be less than or equal to memory limit",
    )
    assert left(control_plane, namespace) == []
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig("stranger", namespace)))
    refused(
        KubernetesScheduler(launch),
        UnavailableError,
        r'"stranger" cannot list.*ask for the rights in deploy/kubernetes/rbac\.yaml',
    )


RBAC = Path(__file__).parents[2] / "deploy/kubernetes/rbac.yaml"


def test_the_rights_in_deploy_are_enough_and_no_more_than_that(
    launch: Launch, nodes: Nodes, control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    control_plane.kubectl("apply", "-n", namespace, "-f", str(RBAC))
    control_plane.kubectl("create", "rolebinding", "ada", "-n", namespace, "--role=heron-submitter", "--user=stranger")
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig("stranger", namespace)))
    with open_statemgr(launch.statemgr) as state, state.lock("words", "submit"):
        state.set(Kind.TOPOLOGIES, "words", b"x")
        scheduler = configured(launch, **{"scheduler.serviceAccount": "heron-topology"})
        scheduler.on_schedule(plan(1))
        running(scheduler, 0, 1)
        scheduler.on_restart(1)
        scheduler.on_update(plan(1), plan(2))
        running(scheduler, 0, 2)
        scheduler.on_kill()
        assert state.delete(Kind.TOPOLOGIES, "words") is True
    with pytest.raises(KubernetesError, match="forbidden"):
        Api(load_access()).get("/api/v1/nodes")
    token = control_plane.kubectl("create", "token", "heron-topology", "-n", namespace).strip()
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig("pod", namespace, token=token)))
    with open_statemgr(launch.statemgr) as state:
        state.create(Kind.TMASTERS, "words", b"here", ephemeral=True)
        seen = Seen()
        state.watch(Kind.TMASTERS, "words", seen)
        assert seen.next() == b"here"
    with pytest.raises(KubernetesError, match="forbidden"):
        Api(load_access()).get(f"/api/v1/namespaces/{namespace}/secrets")


def test_a_quota_that_is_exceeded_is_told_at_once(launch: Launch, control_plane: ControlPlane, namespace: str) -> None:
    def limit(name: str, memory: str) -> None:
        control_plane.kubectl("create", "quota", name, "-n", namespace, f"--hard=requests.memory={memory}")

        def counted() -> None:
            found = {q["metadata"]["name"]: q["status"] for q in control_plane.objects("resourcequotas", namespace)}
            assert found[name].get("hard")

        eventually_sync(counted, within_s=WITHIN_S)

    limit("some", "1200Mi")
    # Each pod fits, all together do not: the controller says so.
    scheduler = KubernetesScheduler(launch)
    refused(scheduler, UnavailableError, "makes no pod for container .*exceeded quota: some", within_s=60.0)
    scheduler.on_kill()
    assert left(control_plane, namespace) == []
    limit("small", "64Mi")
    refused(scheduler, UnavailableError, "exceeded quota: small, requested: requests.memory=")
    assert left(control_plane, namespace) == [], "it is seen before anything is made"


def test_an_image_that_is_missing_is_told_at_once(
    launch: Launch, nodes: Nodes, control_plane: ControlPlane, namespace: str
) -> None:
    values = {**launch.scheduler_config, "heron.executor.docker.image": "registry.test/herring:1"}
    scheduler = KubernetesScheduler(dataclasses.replace(launch, scheduler_config=values))
    refused(
        scheduler,
        ConfigError,
        "container 0 cannot start in Kubernetes: ErrImagePull: registry.test/herring:1: not found",
    )
    scheduler.on_kill()
    assert left(control_plane, namespace) == []


def test_an_api_server_out_of_reach_is_one_line_within_seconds(
    launch: Launch, control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "away"
    port = control_plane.url.rpartition(":")[2]
    away.write_text(control_plane.kubeconfig("admin").read_text().replace(port, str(free_port())))
    monkeypatch.setenv("KUBECONFIG", str(away))
    refused(
        KubernetesScheduler(launch),
        UnavailableError,
        "does not answer .waited 10 s.: Connection refused; is it reachable",
    )


def test_state_in_files_and_servers_on_loopback_are_refused(launch: Launch) -> None:
    files = dataclasses.replace(launch, statemgr=StatemgrSpec(type="file", root="/state"))
    refused(KubernetesScheduler(files), ConfigError, "do not reach a state manager in files")
    unnamed = dataclasses.replace(launch, statemgr=StatemgrSpec(type="kubernetes", connection="admin/", root="/heron"))
    refused(KubernetesScheduler(unnamed), ConfigError, r"heron\.statemgr\.connection\.string names no namespace")
    local = dataclasses.replace(launch, config=EngineConfig())
    refused(
        KubernetesScheduler(local),
        ConfigError,
        "heron.network.bind.address is 127.0.0.1, which other pods do not reach",
    )


def test_a_template_from_a_configmap_is_merged(
    launch: Launch, nodes: Nodes, control_plane: ControlPlane, namespace: str
) -> None:
    template = yaml.safe_dump({"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}})
    control_plane.kubectl("create", "configmap", "pods", "-n", namespace, f"--from-literal=one={template}")
    scheduler = configured(launch, **{"executor.pod.template": "pods.one"})
    scheduler.on_schedule(plan(1, 2))
    hosts = running(scheduler, 0, 1, 2)
    assert (hosts[1], hosts[2]) == ("n2", "n2")
    scheduler.on_kill()
    with pytest.raises(ConfigError, match="has no key 'two': it has one"):
        configured(launch, **{"executor.pod.template": "pods.two"}).on_schedule(plan(1))


def test_every_object_is_valid_by_kubernetes_own_schemas(launch: Launch) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate: pip install it")
    settings = Settings.of({**launch.scheduler_config, "heron.kubernetes.pod.secret.kafka": "/etc/kafka"})
    resources = Resources(1.0, 1024**3, 0)
    for n in (0, 1):
        for one in container_objects(n, resources, launch, settings, bootstrap=b"{}", python=["python3"]):
            for version in ("1.28", "1.31", "1.35"):
                validate.validate(one, version, strict=True)
