"""What the Slurm scheduler makes of what squeue prints; a program in its place does so here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from heron_scheduler import ContainerPhase
from heron_scheduler.slurm import SlurmScheduler

from heronpy.runtime import Launch, StatemgrSpec

SQUEUE = """\
#!/usr/bin/env python3
import sys
job = {"%i": "17", "%T": "RUNNING", "%N": "n1", "%r": "None", "%j": "heron.words-7.1", "%k": "team a|production"}
text = next(arg.removeprefix("--format=") for arg in sys.argv if arg.startswith("--format="))
for field, value in job.items():
    text = text.replace(field, value)
print(text)
"""


def test_a_job_with_a_comment_of_any_kind_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "squeue").write_text(SQUEUE)
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    launch = Launch(
        topology="words",
        topology_id="words-7",
        cluster="c",
        role="r",
        environ="e",
        statemgr=StatemgrSpec(),
        dir=tmp_path,
        scheduler="slurm",
    )
    [found] = SlurmScheduler(launch).containers()
    assert (found.container, found.phase, found.host, found.job) == (1, ContainerPhase.RUNNING, "n1", "17")
