"""The Helm chart, rendered by helm and accepted by a real API server; and that its rights are those of rbac.yaml."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from heron_tracker import load_config

from heronpy.testing.kubernetes import VERSION, ControlPlane

DEPLOY = Path(__file__).parents[2] / "deploy"


def helm() -> str:
    """The program: the environment's word, that on the PATH, or that of `make helm-client`; empty: there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = max((cache / "heronpy").glob("helm-[0-9]*/helm"), default="")
    return os.environ.get("HERON_TEST_HELM") or shutil.which("helm") or str(built)


HELM = helm()

pytestmark = pytest.mark.skipif(not HELM, reason="no helm: make helm-client, or put it on the PATH")


def rendered(*settings: str, check: bool = True, namespace: str = "streams") -> str:
    words = [word for setting in settings for word in ("--set-json", setting)]
    chart = DEPLOY / "helm/heron"
    done = subprocess.run(
        [HELM, "template", "one", chart, "--namespace", namespace, "--kube-version", VERSION, *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode == 0) is check, done.stderr
    return done.stdout if check else done.stderr


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


FULL = ('tracker.tokenSecret="heron-token"', "job.enabled=true", 'job.args=["submit","kubernetes/ada/x","/a.py","A"]')


def test_a_real_server_takes_all_of_it(control_plane: ControlPlane, namespace: str) -> None:
    text = rendered(*FULL, namespace=namespace)
    # What is new in one object and used by another is not there in a dry run: so it is really made.
    made = control_plane.kubectl("apply", "-n", namespace, "--validate=strict", "-f", "-", stdin=text)
    kinds = {line.split("/")[0].partition(".")[0] for line in made.splitlines()}
    assert kinds == {"serviceaccount", "role", "rolebinding", "configmap", "service", "deployment", "job"}


def test_its_rights_are_those_of_the_file() -> None:
    def rules(found: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            one["metadata"]["name"]: {
                (*rule["apiGroups"], *rule["resources"]): sorted(rule["verbs"]) for rule in one["rules"]
            }
            for one in found
            if one["kind"] == "Role"
        }

    everything = rules(objects(rendered(*FULL, "tracker.adopt=true")))
    assert everything == rules(objects((DEPLOY / "kubernetes/rbac.yaml").read_text()))


def test_the_tracker_may_read_secrets_only_if_it_adopts_topologies() -> None:
    def may(found: list[dict[str, Any]]) -> dict[str, set[str]]:
        """What the Tracker's service account may do, by kind."""
        rules = {one["metadata"]["name"]: one["rules"] for one in found if one["kind"] == "Role"}
        (pod,) = (
            one["spec"]["template"]["spec"]
            for one in found
            if one["kind"] == "Deployment" and one["metadata"]["name"] == "one-tracker"
        )
        bound = [
            one["roleRef"]["name"]
            for one in found
            if one["kind"] == "RoleBinding" and one["subjects"][0]["name"] == pod["serviceAccountName"]
        ]
        return {kind: set(rule["verbs"]) for name in bound for rule in rules[name] for kind in rule["resources"]}

    follows = {"configmaps": {"get", "list", "watch"}, "leases": {"get", "list", "watch", "delete"}}
    assert may(objects(rendered(*FULL))) == follows
    assert may(objects(rendered(*FULL, "tracker.adopt=true"))) == {**follows, "secrets": {"get"}}


def test_no_container_of_it_has_more_rights_than_it_needs() -> None:
    pods = [one["spec"]["template"]["spec"] for one in objects(rendered(*FULL)) if "template" in one.get("spec", {})]
    assert len(pods) == 3
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_tracker_without_a_token_is_refused() -> None:
    said = rendered(check=False)
    assert "tracker.tokenSecret names a Secret with the key `token`" in said
    assert "from-literal" not in said, "a command line is readable by all of a machine"


def test_a_tracker_that_may_act_and_has_no_secrets_to_do_it_is_refused() -> None:
    assert "tracker.actions needs tracker.adopt=true" in rendered(*FULL, "tracker.actions=true", check=False)
    assert "tracker.actions: true" in rendered(*FULL, "tracker.actions=true", "tracker.adopt=true")


@pytest.mark.parametrize(
    ("setting", "rolls_out"), [('root="/other"', True), ('image="heron:2"', True), ("lostPods.enabled=false", False)]
)
def test_the_tracker_is_started_again_when_its_configuration_changes(setting: str, rolls_out: bool) -> None:
    def template(*settings: str) -> Any:
        found = objects(rendered(*FULL, *settings))
        deployed = {o["metadata"]["name"]: o["spec"]["template"] for o in found if o["kind"] == "Deployment"}
        return deployed["one-tracker"]

    assert (template(setting)["metadata"] != template()["metadata"]) is rolls_out


def test_the_documented_command_makes_the_tokens_secret_without_a_command_line_that_has_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    command = ("create", "secret", "generic", "heron-token", "-n", namespace, "--from-file=token=/dev/stdin")
    control_plane.kubectl(*command, stdin="5ec2e7\n")
    shown = control_plane.kubectl("get", "secret", "heron-token", "-n", namespace, "-o", "jsonpath={.data.token}")
    assert base64.b64decode(shown) == b"5ec2e7\n"


@pytest.mark.parametrize("adopt", [False, True])
def test_the_trackers_configuration_is_one(tmp_path: Path, adopt: bool) -> None:
    found = objects(rendered(*FULL, f"tracker.adopt={str(adopt).lower()}"))
    (config,) = (one for one in found if one["metadata"]["name"] == "one-tracker" and "data" in one)
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    text = config["data"]["heron_tracker.yaml"].replace("/run/heron/work/home/token", str(token))
    (tmp_path / "kubernetes").mkdir()
    (tmp_path / "kubernetes/cluster.yaml").write_text(config["data"]["cluster.yaml"])
    (tmp_path / "tracker.yaml").write_text(text.replace("/run/heron/conf", str(tmp_path)))
    tracker = load_config(tmp_path / "tracker.yaml", home=tmp_path)
    assert tracker.statemgrs[0].spec.type == "kubernetes"
    assert [cluster.name for cluster in tracker.adopt] == (["kubernetes"] if adopt else [])
    for cluster in tracker.adopt:
        assert cluster.statemgr == tracker.statemgrs[0].spec
        assert cluster.scheduler_config["heron.kubernetes.scheduler.namespace"] == "streams"
