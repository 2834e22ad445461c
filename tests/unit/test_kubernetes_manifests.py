"""The Kubernetes objects of a topology, as a function of its plan, launch values and keys."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from heron_scheduler.kubernetes import Settings, container_objects, service_object

from heronpy.errors import ConfigError
from heronpy.executor import stop_limit_s
from heronpy.plan import Resources
from heronpy.runtime import Launch, StatemgrSpec

IMAGE = {"heron.executor.docker.image": "registry.test/heron:1"}
GIB = 1024**3


def launch(name: str = "word count", statemgr: str = "kubernetes") -> Launch:
    return Launch(
        topology=name,
        topology_id=f"{name}-1",
        cluster="kubernetes",
        role="ada",
        environ="default",
        statemgr=StatemgrSpec(type=statemgr, root="/heron"),
        dir=Path("/nowhere"),
    )


def made(
    container: int = 1, template: dict[str, Any] | None = None, of: Launch | None = None, **keys: Any
) -> list[dict[str, Any]]:
    values = {**IMAGE, **{key.replace("_", "."): value for key, value in keys.items()}}
    return container_objects(
        container,
        Resources(1.5, 3 * GIB, 0),
        of or launch(),
        Settings.of(values),
        bootstrap=b'{"token": "secret"}',
        python=["python3"],
        template=template,
    )


def pod(*args: Any, **keys: Any) -> dict[str, Any]:
    spec: dict[str, Any] = made(*args, **keys)[1]["spec"]["template"]
    return spec


def engine(*args: Any, **keys: Any) -> dict[str, Any]:
    return next(c for c in pod(*args, **keys)["spec"]["containers"] if c["name"] in ("executor", "manager"))


def test_a_container_is_a_stateful_set_with_one_replica_and_a_secret() -> None:
    secret, stateful_set = made(2)
    assert (secret["kind"], stateful_set["kind"]) == ("Secret", "StatefulSet")
    assert secret["metadata"]["name"] == stateful_set["metadata"]["name"]
    assert stateful_set["metadata"]["name"].startswith("heron-word-count-")
    assert stateful_set["metadata"]["name"].endswith("-2")
    assert stateful_set["spec"]["replicas"] == 1
    assert base64.b64decode(secret["data"]["bootstrap.json"]) == b'{"token": "secret"}'
    selector = stateful_set["spec"]["selector"]["matchLabels"]
    assert selector.items() <= stateful_set["spec"]["template"]["metadata"]["labels"].items()


def test_nothing_secret_is_in_a_stateful_set() -> None:
    containers = json.dumps(made(0)[1]["spec"]["template"]["spec"]["containers"])
    assert "secret" not in containers.replace("/run/heron/secret", "")
    assert service_object(launch(), Settings.of(IMAGE))["spec"]["clusterIP"] == "None"


def test_secrets_of_kubernetes_are_files_for_user_code_alone() -> None:
    secrets = {"db": "kubernetes:words-db/password", "key": "kubernetes:keys/api", "own": "file:/home/ada/own"}
    of = dataclasses.replace(launch(), secrets=secrets)
    (volume,) = [v for v in pod(of=of)["spec"]["volumes"] if v["name"] == "heron-user-secrets"]
    assert volume["projected"]["sources"] == [
        {"secret": {"name": "words-db", "items": [{"key": "password", "path": "db"}]}},
        {"secret": {"name": "keys", "items": [{"key": "api", "path": "key"}]}},
    ]
    (mount,) = [m for m in engine(of=of)["volumeMounts"] if m["name"] == "heron-user-secrets"]
    assert {"name": "HERON_USER_SECRETS", "value": mount["mountPath"]} in engine(of=of)["env"]
    assert "heron-user-secrets" not in json.dumps(pod(0, of=of)), "container 0 runs no user code"
    assert "heron-user-secrets" not in json.dumps(pod())


def test_memory_is_set_aside_and_cpu_may_be_borrowed() -> None:
    assert engine(1)["resources"] == {
        "limits": {"memory": str(3 * GIB)},
        "requests": {"cpu": "1500m", "memory": str(3 * GIB)},
    }
    strict = engine(1, heron_kubernetes_resource_request_mode="EQUAL_TO_LIMIT")["resources"]
    assert strict["limits"]["cpu"] == strict["requests"]["cpu"] == "1500m"
    own = engine(0, heron_kubernetes_manager_limits_memory="2Gi", heron_kubernetes_manager_limits_cpu="2")["resources"]
    assert own["limits"] == own["requests"] == {"memory": "2Gi", "cpu": "2"}


def test_a_pod_has_no_rights_that_it_does_not_need() -> None:
    spec = pod(1)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    context = spec["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert spec["automountServiceAccountToken"] is True, "its state is in Kubernetes"
    assert pod(1, of=launch(statemgr="zookeeper"))["spec"]["automountServiceAccountToken"] is False


def test_the_address_is_the_pods_and_the_end_is_orderly() -> None:
    env = {one["name"]: one for one in engine(1)["env"]}
    assert env["HERON_ADVERTISE_ADDRESS"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert engine(1)["command"][2].endswith('exec "$@"'), "the engine is the first process, and gets SIGTERM"
    assert pod(1)["spec"]["terminationGracePeriodSeconds"] >= stop_limit_s(launch())


def test_labels_annotations_and_secrets_are_herons_keys() -> None:
    keys = {
        "heron.kubernetes.pod.label.team": "red",
        "heron.kubernetes.pod.annotation.note": "a b",
        "heron.kubernetes.pod.secret.kafka": "/etc/kafka",
        "heron.kubernetes.pod.secretKeyRef.PASSWORD": "db:password",
    }
    template = pod(1, **keys)
    assert template["metadata"]["labels"]["team"] == "red"
    assert template["metadata"]["annotations"]["note"] == "a b"
    container = template["spec"]["containers"][0]
    assert any(m["mountPath"] == "/etc/kafka" for m in container["volumeMounts"])
    reference = next(e for e in container["env"] if e["name"] == "PASSWORD")["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "db", "key": "password"}


def test_a_users_template_goes_through_untouched() -> None:
    theirs = {
        "metadata": {"labels": {"team": "red"}},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [{"key": "reserved", "operator": "Exists"}],
            "priorityClassName": "high",
            "initContainers": [{"name": "fetch", "image": "fetcher"}],
            "containers": [
                {
                    "name": "executor",
                    "image": "mine:2",
                    "env": [{"name": "MINE", "value": "1"}],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                },
                {"name": "sidecar", "image": "side:1"},
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    result = pod(1, theirs)
    spec = result["spec"]
    assert result["metadata"]["labels"].items() >= {"team": "red", "app": "heron"}.items()
    assert spec["nodeSelector"] == {"gpu": "yes"}
    assert spec["priorityClassName"] == "high"
    assert spec["initContainers"] == theirs["spec"]["initContainers"]
    assert theirs["spec"]["tolerations"][0] in spec["tolerations"]
    assert len(spec["tolerations"]) == 3
    container, sidecar = spec["containers"]
    assert sidecar == {"name": "sidecar", "image": "side:1"}
    assert container["image"] == "mine:2"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1", "memory": str(3 * GIB)}
    assert {"MINE", "HERON_ADVERTISE_ADDRESS"} <= {e["name"] for e in container["env"]}
    assert {"/data", "/tmp"} <= {m["mountPath"] for m in container["volumeMounts"]}
    assert {"data", "heron-work"} <= {v["name"] for v in spec["volumes"]}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"template": {}}, "is not a pod template"),
        ({"spec": {"restartPolicy": "Never"}}, "sets restartPolicy"),
        ({"spec": {"containers": [{"name": "executor", "command": ["sh"]}]}}, "sets command of container executor"),
        ({"spec": {"volumes": [{"name": "heron-work", "emptyDir": {}}]}}, "has name heron-work, which is the engine's"),
        (
            {"spec": {"containers": [{"name": "executor", "env": [{"name": "HOME", "value": "/"}]}]}},
            "has name HOME, which is the engine's",
        ),
    ],
)
def test_what_a_template_may_not_say_is_named(template: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(1, template)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "heron.executor.docker.image is not set"),
        ({**IMAGE, "heron.kubernetes.scheduler.namspace": "x"}, "did you mean 'heron.kubernetes.scheduler.namespace'"),
        ({**IMAGE, "heron.kubernetes.scheduler.imagePullPolicy": "Allways"}, "did you mean 'Always'"),
        ({**IMAGE, "heron.kubernetes.executor.pod.template": "one"}, "must be CONFIGMAP.KEY, not 'one'"),
        ({**IMAGE, "heron.kubernetes.executor.limits.memory": "much"}, "is not a quantity like 500m or 2Gi: much"),
        ({**IMAGE, "heron.kubernetes.pod.secret.a": "b"}, "must be an absolute path"),
        ({**IMAGE, "heron.kubernetes.pod.secretKeyRef.A": "b"}, "must be SECRET:KEY"),
        ({**IMAGE, "heron.kubernetes.executor.volumes.nfs.a.path": "/x"}, "described in a pod template"),
        (
            {**IMAGE, "heron.kubernetes.pod.template.disabled": True, "heron.kubernetes.manager.pod.template": "a.b"},
            "pod templates are disabled",
        ),
    ],
)
def test_keys_that_cannot_be_meant_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings.of(keys)


@pytest.mark.parametrize("name", ["words", "größe", "x" * 180, "9 Lives_", "___", "a.b"])
def test_every_topology_name_makes_valid_names_and_labels(name: str) -> None:
    import re

    for one in (*made(1000, of=launch(name)), service_object(launch(name), Settings.of(IMAGE))):
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", one["metadata"]["name"])
        assert len(one["metadata"]["name"]) <= 52, "a StatefulSet's revisions are labels of its pods"
        for value in one["metadata"]["labels"].values():
            assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", value)
            assert len(value) <= 63
