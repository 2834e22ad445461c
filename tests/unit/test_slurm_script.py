"""The job script of a container on Slurm, and the keys that shape it. Pure."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from heron_scheduler.slurm import SlurmConfig, bootstrap_in, job_script

from heronpy.errors import ConfigError
from heronpy.plan import Resources

SIZE = Resources(cpu=1.5, ram_bytes=1_500_000_000, disk_bytes=0)
KEY = "heron.scheduler.slurm."


def options(config: SlurmConfig, size: Resources = SIZE) -> list[str]:
    script = job_script(config, "words-7", 3, size, bootstrap=b"{}\n")
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_a_job_asks_for_whole_cores_and_whole_megabytes() -> None:
    assert {"--job-name=heron.words-7.3", "--cpus-per-task=2", "--mem=1431M", "--requeue"} <= {*options(SlurmConfig())}
    assert not [one for one in options(SlurmConfig(), Resources(0, 0, 0)) if one.startswith(("--mem", "--cpus"))]


def test_the_overlay_reaches_sbatch_as_it_is_and_wins() -> None:
    config = SlurmConfig.of({f"{KEY}sbatch": "#SBATCH --gres=gpu:1\n--mem=9G\n", f"{KEY}partition": "fast"})
    found = options(config)
    assert "--partition=fast" in found
    assert found.index("--mem=9G") > found.index("--mem=1431M")
    assert "--gres=gpu:1" in found


def test_the_bootstrap_file_is_read_back_from_the_script() -> None:
    document = b'{\n "files": {"token": "a $HOME `id` \\\\ \' \\""}\n}\n'
    script = job_script(SlurmConfig(), "words-7", 0, SIZE, bootstrap=document)
    assert bootstrap_in(script) == document.rstrip()
    assert bootstrap_in("#!/bin/bash\n") == b""


def test_a_bootstrap_file_cannot_end_its_here_document() -> None:
    with pytest.raises(ValueError, match="here-document"):
        job_script(SlurmConfig(), "words-7", 0, SIZE, bootstrap=b"{\nHERON_BOOTSTRAP_FILE\nid\n}")


def test_the_script_is_bash() -> None:
    config = SlurmConfig.of({f"{KEY}setup": "module load python", f"{KEY}directory": "/local/$SLURM_JOB_ID"})
    script = job_script(config, "words-7", 0, SIZE, bootstrap=b"{}", python=["python3", "-c", "print('a b')"])
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nmodule load python\n" in script
    assert """python3 -c 'print('"'"'a b'"'"')' -m heronpy.container""" in script


def test_what_has_failed_is_submitted_again_whatever_its_users_comment_is(tmp_path: Path) -> None:
    script = job_script(SlurmConfig(), "words-7", 0, SIZE, bootstrap=b"{}")
    begin = script.index("watch() {")
    watch = script[begin : script.index("\n}\n", begin) + 3]
    listed = ["17 FAILED heron.words-7.1 team a", "18 FAILED heron.words-7.2 heron: n1: no heronpy"]
    listed += ["22 FAILED heron.words-7.5 heron, retried: n1: ended by signal 9"]
    listed += ["19 NODE_FAIL heron.words-7.3 (null)", "20 RUNNING heron.words-7.4 (null)", "21 FAILED other (null)"]
    (tmp_path / "listed").write_text("".join(f"{line}\n" for line in listed))
    for name, body in (
        ("squeue", f"cat {tmp_path}/listed"),
        ("scontrol", 'echo "$3"'),
        ("sbatch", f"cat >> {tmp_path}/submitted"),
    ):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    program = f"PATH={tmp_path}:$PATH\nn=0\nsleep() {{ n=$((n + 1)); [ $n = 1 ]; }}\n{watch}\nwatch\n"
    subprocess.run(["bash"], input=program, text=True, check=True)
    assert sorted((tmp_path / "submitted").read_text().split()) == ["17", "19", "22"]


@pytest.mark.parametrize(
    ("code", "said", "attempts"),
    [
        (2, "heron: this host has Python 3.2", 1),
        (127, "bash: /nowhere/bin/python: No such file or directory", 1),
        (1, "/usr/bin/python3: No module named heronpy", 1),
        (3, "heron: there is no such bootstrap file", 5),
    ],
)
def test_a_container_is_tried_again_on_its_node_unless_that_is_of_no_use(
    tmp_path: Path, code: int, said: str, attempts: int
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    python = f'echo >> {tmp_path}/attempts\necho "{said}" >&2\nexit {code}'
    control = f'[ "$1" = update ] && echo "$3" > {tmp_path}/comment; true'
    for name, body in (("python", python), ("scontrol", control), ("squeue", "echo 7"), ("sleep", "exit 0")):
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    config = SlurmConfig.of({f"{KEY}directory": str(tmp_path)})
    script = job_script(config, "words-7", 3, SIZE, bootstrap=b"{}", python=[str(programs / "python")])
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(["bash"], input=script, text=True, capture_output=True, env=environment, timeout=60)
    assert done.returncode == code
    assert (tmp_path / "attempts").read_text().count("\n") == attempts
    assert (tmp_path / "comment").read_text().startswith("Comment=heron: ")
    assert said.replace("'", "") in (tmp_path / "comment").read_text()


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("echo heron: the clock is wrong >&2; exit 75", "heron: the clock is wrong"),
        ("exit 75", "exit code 75"),
        ("kill -9 $$", "ended by signal 9"),
        ("echo heron: no store >&2; exit 3", "heron: no store"),
    ],
)
def test_a_container_that_is_started_again_says_once_how_it_has_ended(tmp_path: Path, end: str, told: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    python = f"echo >> {tmp_path}/attempts\n[ $(wc -l < {tmp_path}/attempts) -lt 4 ] || exit 0\n{end}"
    control = f'[ "$1" = update ] && echo "$3" >> {tmp_path}/comments; true'
    for name, body in (("python", python), ("scontrol", control), ("squeue", "echo 7"), ("sleep", "exit 0")):
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    config = SlurmConfig.of({f"{KEY}directory": str(tmp_path)})
    script = job_script(config, "words-7", 3, SIZE, bootstrap=b"{}", python=[str(programs / "python")])
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    subprocess.run(["bash"], input=script, text=True, capture_output=True, env=environment, timeout=60, check=True)
    (comment,) = (tmp_path / "comments").read_text().splitlines()
    assert comment == f"Comment=heron, retried: {socket.gethostname()}: {told}"


@pytest.mark.parametrize(
    ("node_address", "routed", "advertised"),
    [
        ("10.0.0.7", True, "10.0.0.7"),
        ("n1", True, "n1"),
        ("127.0.0.1", True, ""),
        ("127.0.1.1", True, ""),
        ("::1", True, ""),
        ("localhost", True, ""),
        ("localhost", False, "localhost"),  # state in files on this one machine: nothing else says an address
    ],
)
def test_a_container_advertises_no_address_that_only_its_node_reaches(
    tmp_path: Path, node_address: str, routed: bool, advertised: str
) -> None:
    script = job_script(SlurmConfig(), "words-7", 1, SIZE, bootstrap=b"{}", routed=routed)
    begin = script.index('if [ -z "${HERON_ADVERTISE_ADDRESS')
    chosen = script[begin : script.index("\nfi\n", begin) + 4]
    (tmp_path / "scontrol").write_text(f"#!/bin/bash\necho NodeName=n1 NodeAddr={node_address} Port=1\n")
    (tmp_path / "scontrol").chmod(0o755)
    program = f'PATH={tmp_path}:$PATH\nunset HERON_ADVERTISE_ADDRESS\n{chosen}echo "$HERON_ADVERTISE_ADDRESS"\n'
    done = subprocess.run(["bash"], input=program, text=True, check=True, capture_output=True)
    assert done.stdout.strip() == advertised


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"partitoin": "p"}, r"did you mean 'heron\.scheduler\.slurm\.partition'"),
        ({"partition": "p q"}, "one word"),
        ({"sbatch": ["gpu"]}, "not an option"),
        ({"sbatch": ["--job-name=x"]}, "what the scheduler decides"),
        ({"sbatch": [3]}, "list of options"),
        ({"walltime.grace.secs": "soon"}, "whole number of seconds"),
        ({"walltime.grace.secs": 0}, "1 to 65535"),
        ({"setup": ["a"]}, "must be text"),
    ],
)
def test_keys_that_cannot_be_meant_are_refused(values: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SlurmConfig.of({KEY + key: value for key, value in values.items()})
