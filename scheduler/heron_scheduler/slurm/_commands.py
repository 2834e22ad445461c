"""Slurm's own commands: run for a bounded time, and their refusals in our words."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from heron_scheduler.slurm._remedies import remedy
from heronpy.child import run
from heronpy.errors import ConfigError, UnavailableError

_TIMEOUT_S = 60.0
_ENVIRONMENT = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TZ", "USER")
"""What commands, and so jobs, are given of this process's environment, beside what is Slurm's own."""
_UNUSABLE = re.compile(
    "invalid partition|invalid account|invalid qos|invalid feature|node configuration is not available|"
    "unrecognized option|invalid option|can not be satisfied|invalid time|time limit|partition specification",
    re.IGNORECASE,
)
"""What no repetition of the same request can mend."""
_UNREACHED = re.compile(
    "resolve_ctls|configuration source|unable to contact slurm controller|slurm.conf.*no such file|unable to process "
    "configuration file|connection refused",
    re.IGNORECASE,
)
"""What commands say that have not found the cluster."""
_UNANSWERED = re.compile("socket timed out|zero bytes were transmitted", re.IGNORECASE)
"""What they say of a controller that hangs. It may still do what it was asked."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job, as `squeue` prints it."""

    id: str
    name: str
    state: str
    """For example RUNNING."""
    node: str
    reason: str
    comment: str


_FORMAT = "%i|%T|%N|%j|%r|%k"
"""The comment is last: it is any text, the user's or a container's last words."""
ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
"""States of jobs that are over: Slurm knows of them for some minutes."""


def jobs(prefix: str) -> list[Job]:
    """The jobs of this user whose names begin so, those included that are over; in the order of their ids.

    Raises:
        UnavailableError: Slurm does not answer.
    """
    found = []
    for line in _run("squeue", "--noheader", "--me", "--states=all", f"--format={_FORMAT}").splitlines():
        parts = line.split("|", 5)
        if len(parts) == 6 and parts[3].startswith(prefix):
            id, state, node, name, reason, comment = parts
            comment = "" if comment == "(null)" else comment
            found.append(Job(id, name, state, node, "" if reason == "None" else reason, comment))
    return sorted(found, key=lambda job: int(re.sub(r"\D.*", "", job.id) or 0))


def others(name: str) -> list[str]:
    """The other users who have jobs of this name that are not over, as far as Slurm shows them.

    Raises:
        UnavailableError: Slurm does not answer.
    """
    jobs = (line.split() for line in _run("squeue", "--noheader", f"--name={name}", "--format=%U %u").splitlines())
    return sorted({job[1] for job in jobs if len(job) == 2 and job[0] != str(os.getuid())})


def submit(script: str) -> str:
    """Submit a job script, and return the job's id.

    Raises:
        ConfigError: the cluster has no such partition, account or nodes.
        UnavailableError: Slurm refuses it for now, or does not answer.
    """
    return _run("sbatch", "--parsable", script=script).strip().partition(";")[0]


def signal(name: str, ids: Sequence[str]) -> None:
    """Send a signal to the scripts of jobs, and to nothing else of them. Jobs that are over are passed over."""
    if ids:
        _run("scancel", "--quiet", "--batch", f"--signal={name}", *ids, check=False)


def cancel(ids: Sequence[str]) -> None:
    """Cancel jobs, whatever state they are in. Jobs that are over are passed over."""
    if ids:
        _run("scancel", "--quiet", *ids, check=False)


def script_of(job: str) -> str:
    """The script that a job was submitted with. Slurm gives it to the job's owner and to its administrators.

    Raises:
        UnavailableError: it does not give it, or does not answer.
    """
    return _run("scontrol", "write", "batch_script", job, "-", answers=True)


def _run(program: str, *args: str, script: str | None = None, check: bool = True, answers: bool = False) -> str:
    """What a command of Slurm's prints.

    Args:
        program: The command.
        args: Its arguments.
        script: Its input.
        check: Raise an error if it fails.
        answers: It has failed if it prints nothing: scontrol's exit code is 0 then, too.

    Raises:
        ConfigError: no repetition of the same request can mend it.
        UnavailableError: Slurm refuses it for now, or does not answer.
    """
    names = {name for name in os.environ if name in _ENVIRONMENT or name == "SLURM_CONF"}
    environment = {name: os.environ[name] for name in names}
    try:
        done = run([program, *args], timeout_s=_TIMEOUT_S, stdin=script or "", env=environment)
    except FileNotFoundError:
        raise UnavailableError(
            f"{program} is not installed on this machine: run heron where Slurm's commands are"
        ) from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"Slurm does not answer: {program} took longer than {_TIMEOUT_S:g} s") from None
    if (done.returncode == 0 and (done.stdout or not answers)) or not check:
        return done.stdout
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
    said = lines[0].removeprefix(f"{program}: ").removeprefix("error: ")
    if any(map(_UNREACHED.search, lines)):
        raise UnavailableError(
            f"Slurm's controller does not answer {program}: {said}; run heron where the cluster's slurm.conf is, or "
            "name it by SLURM_CONF"
        )
    if any(map(_UNANSWERED.search, lines)):
        raise UnavailableError(f"Slurm's controller does not answer {program}: {said}; see `scontrol ping`")
    if program == "sbatch" and any(map(_UNUSABLE.search, lines)):
        raise ConfigError(f"Slurm refuses: {said} ({program}){remedy(' '.join(lines))}")
    raise UnavailableError(f"Slurm refuses: {said} ({program})")
