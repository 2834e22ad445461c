"""Executors that are pods: what is said of those that do not come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.errors import UsageError
from heronpy.pipeline.pods import api_words, check_image, is_kubernetes, log_config, read_log, why_ended, why_waiting

QUOTA = 'pods "heron-exec-2" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'
REFUSED = f"""\
Failed to create executor pod 2. Total failures: 1: Failure executing: POST at: https://10.0.0.1:6443/api/v1/namespaces/\
jobs/pods. Message: {QUOTA}. Received status: Status(apiVersion=v1, code=403, details=StatusDetails(causes=[])).
"""
ENDED = "Max number of executor failures (4) reached: \n"
LOST = """\
Lost executor 3 on 10.1.0.9:
The executor with id 3 exited with exit code 137(SIGKILL, possible container OOM).

The API gave the following container statuses: …
"""


def pod(phase: str, *, waiting: Any = None, conditions: Any = ()) -> dict[str, Any]:
    state = {"waiting": waiting} if waiting else {"running": {}}
    statuses = [{"state": state}] if waiting or phase == "Running" else []
    return {"status": {"phase": phase, "containerStatuses": statuses, "conditions": list(conditions)}}


W = "executor pods are waiting: "
PULLING = pod("Pending", waiting={"reason": "ImagePullBackOff", "message": "Back-off pulling\n image"})
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}


def test_executors_need_an_image() -> None:
    with pytest.raises(UsageError, match=r"--conf spark\.kubernetes\.container\.image=IMAGE"):
        check_image({"spark.kubernetes.container.image": ""})
    check_image({"spark.kubernetes.container.image": "spark:4"})
    check_image({"spark.kubernetes.executor.container.image": "spark:4"})


def test_masters_with_pods() -> None:
    assert is_kubernetes("k8s://https://10.0.0.1:6443")
    assert not is_kubernetes("yarn")


def test_of_an_error_of_the_client_the_words_of_the_api_server_are_said() -> None:
    assert api_words(REFUSED) == QUOTA
    assert api_words("java.lang.Exception:\n no  route") == "java.lang.Exception: no route"
    assert len(api_words("x" * 1000)) == 300


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        (REFUSED, ""),  # it tries again
        (REFUSED + ENDED, f"its executors are refused: {QUOTA}"),
        (LOST + LOST.replace("137(SIGKILL, possible container OOM)", "1") + ENDED, "the last with exit code 1: keep"),
        (
            LOST + ENDED,
            "more than 4 executors have failed, the last with exit code 137(SIGKILL, possible",
        ),
        (
            ENDED,
            "its executors fail when they start, perhaps because they do not reach this driver (",
        ),
    ],
)
def test_why_spark_has_ended_an_application(log: str, words: str) -> None:
    found = why_ended(log)
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([], ""),
        ([pod("Running")], ""),
        ([pod("Succeeded")], ""),
        (
            [PULLING, pod("Running"), PULLING],
            f"2 of 3 {W}ImagePullBackOff: Back-off pulling image",
        ),
        ([pod("Pending", conditions=[UNSCHEDULABLE])], f"1 of 1 {W}Unschedulable: 0/2 nodes"),
        (
            [pod("Pending", waiting={"reason": "ContainerCreating"})],
            f"1 of 1 {W}ContainerCreating",
        ),
        (
            [pod("Pending", conditions=[{"type": "Ready", "status": "False"}])],
            f"1 of 1 {W}Pending",
        ),
    ],
)
def test_what_pods_wait_for(pods: list[dict[str, Any]], words: str) -> None:
    assert why_waiting(pods) == words


def test_what_spark_says_of_its_pods_goes_into_a_file(tmp_path: Path) -> None:
    log = tmp_path / "pods.log"
    assert f"appender.pods.fileName = {log}\n" in log_config(log)
    assert read_log(log) == ""
    log.write_text(ENDED)
    assert read_log(log) == ENDED
