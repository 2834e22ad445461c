"""What the Slurm scheduler makes of what squeue prints; a program in its place does so here."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from heron_scheduler import ContainerPhase
from heron_scheduler.slurm import SlurmScheduler, remedy

from heronpy.errors import UnavailableError
from heronpy.runtime import Launch, StatemgrSpec

SQUEUE = """\
#!/usr/bin/env python3
import os, sys
job = {"%i": "17", "%T": "RUNNING", "%N": "n1", "%r": "None", "%j": "heron.words-7.1", "%k": "team a|production"}
job["%U"], job["%u"] = "OWNER".split()
text = next(arg.removeprefix("--format=") for arg in sys.argv if arg.startswith("--format="))
for field, value in job.items():
    text = text.replace(field, value)
if int(job["%U"]) == os.getuid() or "--me" not in sys.argv:
    print(text)
"""


@pytest.fixture
def owner() -> str:
    """Of the job: its number and name."""
    return f"{os.getuid()} alice"


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str) -> Launch:
    (tmp_path / "squeue").write_text(SQUEUE.replace("OWNER", owner))
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Launch(
        topology="words",
        topology_id="words-7",
        cluster="c",
        role="r",
        environ="e",
        statemgr=StatemgrSpec(),
        dir=tmp_path,
        scheduler="slurm",
    )


def test_a_job_with_a_comment_of_any_kind_is_seen(launch: Launch) -> None:
    [found] = SlurmScheduler(launch).containers()
    assert (found.container, found.phase, found.host, found.job) == (1, ContainerPhase.RUNNING, "n1", "17")


@pytest.mark.parametrize(
    ("comment", "reason"), [("heron: n1: no module heronpy", "n1: no module heronpy"), ("team a|production", "FAILED")]
)
def test_why_a_job_has_failed_is_not_its_users_comment(
    launch: Launch, tmp_path: Path, comment: str, reason: str
) -> None:
    program = (tmp_path / "squeue").read_text().replace("RUNNING", "FAILED").replace("team a|production", comment)
    (tmp_path / "squeue").write_text(program)
    [found] = SlurmScheduler(launch).containers()
    assert (found.phase, found.reason) == (ContainerPhase.FAILED, reason)


def test_a_container_that_was_ended_after_it_had_failed_is_not_there(launch: Launch, tmp_path: Path) -> None:
    listed = "17|FAILED|n1|heron.words-7.1|None|heron: n1: no store\n18|COMPLETED|n1|heron.words-7.1|None|(null)\n"
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ncat <<'END'\n{listed}END\n")
    assert SlurmScheduler(launch).containers() == []


@pytest.mark.parametrize(
    ("jobs", "phase", "reason"),
    [
        ("17 RUNNING None heron, retried: n1: no clock", ContainerPhase.RUNNING, "n1: no clock"),
        ("17 RUNNING None team a", ContainerPhase.RUNNING, ""),
        ("17 PENDING Priority (null)", ContainerPhase.PENDING, "Priority"),
        # That failed, and a command has submitted it again.
        (
            "17 FAILED None heron: n1: no store\n18 PENDING Priority (null)",
            ContainerPhase.PENDING,
            "Priority; it last ended with: n1: no store",
        ),
        ("17 FAILED None heron: n1: no store\n18 RUNNING None (null)", ContainerPhase.RUNNING, "n1: no store"),
        ("17 FAILED None heron: x\n18 RUNNING None heron, retried: y", ContainerPhase.RUNNING, "y"),
    ],
)
def test_how_a_container_has_ended_is_known_while_it_is_started_again(
    launch: Launch, tmp_path: Path, jobs: str, phase: ContainerPhase, reason: str
) -> None:
    lines = [line.split(" ", 3) for line in jobs.splitlines()]
    listed = "".join(f"{id}|{state}|n1|heron.words-7.1|{why}|{comment}\n" for id, state, why, comment in lines)
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ncat <<'END'\n{listed}END\n")
    [found] = SlurmScheduler(launch).containers()
    assert (found.phase, found.reason) == (phase, reason)


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("invalid partition specified: nowhere Batch job submission failed: Invalid partition name", "partition"),
        ("Batch job submission failed: Invalid account or account/partition combination specified", "account"),
        ("Batch job submission failed: Invalid qos specification", "qos"),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "time"),
        ("Memory specification can not be satisfied", "sbatch"),
        ("unrecognized option '--bogus'", "sbatch"),
    ],
)
def test_a_refusal_names_the_key_to_change(said: str, key: str) -> None:
    assert re.search(rf"^; s.*\bheron\.scheduler\.slurm\.{key}\b", remedy(said))


def test_of_an_unknown_refusal_nothing_is_advised() -> None:
    assert remedy("Socket timed out on send/recv operation") == ""


@pytest.mark.parametrize("owner", ["4711 bob"])
def test_a_topology_whose_jobs_are_somebody_elses_is_not_taken_for_ended(launch: Launch) -> None:
    with pytest.raises(UnavailableError, match="belong to bob"):
        SlurmScheduler(launch).on_kill()
