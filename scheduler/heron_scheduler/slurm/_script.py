"""The job script of a container. Pure.

The script has the container's bootstrap file in it, in a here-document: Slurm keeps job scripts where only their owner
and its administrators can read them, on the controller and on the node, and hands them back to them alone
(`scontrol write batch_script`). So nothing secret passes an environment, a command line, or a shared file.

The shell that runs the script supervises the container. These signals reach it alone (`scancel --batch`), because one
that reached all processes of the job at once would end Stream Managers before their instances:

    TERM  end gracefully, and with it the job
    USR1  the time of the job is nearly over (`--signal`): end gracefully, and go back into the queue
    USR2  end gracefully, and start again
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from heron_scheduler.slurm._config import PREFIX, SlurmConfig
from heronpy.plan import Resources

_MIB = 1024 * 1024
_DELIMITER = "HERON_BOOTSTRAP_FILE"

# Exit codes of `python -m heronpy.container`: 0 is an end on purpose, 75 (EX_TEMPFAIL) asks to be started again, as
# does a death by a signal. Others are failures, which are tried five times in quick succession, or once if more is of
# no use (`heronpy.container.is_unusable`); then the job fails, with the container's last words as its comment, where
# `squeue` and `heron status` find them.
FAILURE_MARK = "heron: "
"""What the comment of such a job begins with: others are the user's (`--comment`)."""
RETRY_MARK = "heron, retried: "
"""What the comment of a job begins with whose container is started again: what follows is how it has ended."""
SAY_S = 20
"""How long the controller may take to write that down. It says why, and holds up nothing."""
_SUPERVISE = """\
umask 077
dirs="{directory}/heron-$(id -u)-{topology_id}-"
dir="$dirs$SLURM_JOB_ID"
if active=$(squeue --noheader --me --format=%i); then
  for old in "$dirs"*; do  # of jobs that were killed as a whole: nothing else would remove them
    [ -d "$old" ] && [ -O "$old" ] && [ ! -L "$old" ] || continue
    printf '%s\n' "$active" | grep -qx "${{old##*-}}" || rm -rf "$old"
  done
fi
words() {{ printf %s "$(hostname): $1" | tr -cd '[:print:]' | cut -c -300; }}
say() {{ scontrol update JobId="$SLURM_JOB_ID" Comment="{mark}$(words "$1")"; }}
if ! mkdir -p "$dir" || [ ! -O "$dir" ] || [ -L "$dir" ] || ! chmod 700 "$dir"; then
  say "$dir cannot be made, or is not yours alone: set {directory_key}"
  exit 73
fi
cat > "$dir/bootstrap.json" <<'{delimiter}'
{bootstrap}
{delimiter}
if [ -z "${{HERON_ADVERTISE_ADDRESS:-}}" ]; then
  address=$(scontrol show node --oneliner "$SLURMD_NODENAME" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')
{loopback}  [ -n "$address" ] && export HERON_ADVERTISE_ADDRESS="$address"
fi
cd "$dir" || exit 73
{watch}watcher=
[ -n "{watched}" ] && {{ watch & watcher=$!; }}
child= ending= again= restart= failures=0 pause=0 told=
trap 'ending=1; kill -TERM "$child" $watcher 2> /dev/null' TERM INT
trap 'ending=1; again=1; kill -TERM "$child" $watcher 2> /dev/null' USR1
trap 'restart=1; kill -TERM "$child" 2> /dev/null' USR2
while [ -z "$ending" ]; do
  restart= began=$SECONDS
  {python} -m heronpy.container "$dir/bootstrap.json" --dir "$dir" > "$dir/container.out" 2>&1 < /dev/null &
  child=$!
  [ -n "$ending" ] && kill -TERM $child
  while :; do wait $child; code=$?; kill -0 $child 2> /dev/null || break; done
  child=
  [ -n "$ending" ] && break
  [ -n "$restart" ] && continue
  [ $code = 0 ] && break
  [ $((SECONDS - began)) -ge 60 ] && failures=0 pause=0
  said=$(tail -n 1 "$dir/container.out" | sed 's/^.*: line [0-9]*: //')
  [ $code -ge 129 ] && said="ended by signal $((code - 128))"
  if [ $code != 75 ] && [ $code -lt 129 ]; then
    failures=$((failures + 1))
    case "$code $said" in "2 "* | "126 "* | "127 "* | "1 "*"No module named"*) failures=5 ;; esac
    if [ $failures -ge 5 ]; then
      say "$said"
      cat "$dir/container.out"
      rm -rf "$dir"
      exit $code
    fi
  fi
  said=$(words "${{said:-exit code $code}}")
  if [ "$said" != "$told" ]; then
    told=$said
    timeout {say_s} scontrol update JobId="$SLURM_JOB_ID" Comment="{retry_mark}$said" > /dev/null 2>&1
  fi
  [ -n "$ending" ] && break
  sleep $pause & child=$!; wait $child
  pause=$((pause < 8 ? pause * 2 + 1 : 15))
done
[ -n "$watcher" ] && kill $watcher 2> /dev/null
cd / && rm -rf "$dir"
[ -n "$again" ] && exec scontrol requeue "$SLURM_JOB_ID"
exit 0
"""

_NO_LOOPBACK = """\
  case "$address" in 127.* | ::1 | localhost) address= ;; esac  # of use to this node alone
"""

# Slurm requeues what was lost with its node, and nothing else: a job whose script was killed has failed. So the script
# of container 0 looks after all others, and that of container 1 after that of container 0. What it submits again is the
# same script, in a clean environment. A job that has failed on purpose says so in its comment, and is left alone.
_WATCH = """\
watch() {{
  while sleep {seconds}; do
    squeue --noheader --me --states=all --format='%i %T %j %k' | sort -n |
      awk '{{ newest[$3] = $0 }} END {{ for (name in newest) print newest[name] }}' |
      while read -r id state name comment; do
        case "$name" in {watched}) ;; *) continue ;; esac
        case "$state" in BOOT_FAIL | FAILED | NODE_FAIL | OUT_OF_MEMORY | TIMEOUT) ;; *) continue ;; esac
        case "$comment" in "{mark}"*) continue ;; esac
        scontrol write batch_script "$id" - |
          env -i PATH="$PATH" HOME="$HOME" ${{SLURM_CONF:+SLURM_CONF="$SLURM_CONF"}} sbatch --parsable > /dev/null
      done
  done
}}
"""
WATCH_S = 5
"""How soon the loss of a job is noticed by another."""


def job_name(topology_id: str, container: int) -> str:
    """The name by which a container's job is found."""
    return f"{job_prefix(topology_id)}{container}"


def job_prefix(topology_id: str) -> str:
    """What the names of all jobs of a topology begin with."""
    return f"heron.{topology_id}."


def job_script(
    config: SlurmConfig,
    topology_id: str,
    container: int,
    resources: Resources,
    *,
    bootstrap: bytes,
    python: Sequence[str] = ("python3",),
    routed: bool = True,
) -> str:
    """The script of a container's job.

    Args:
        config: The scheduler's keys.
        topology_id: Whose.
        container: Its number.
        resources: What it asks for; nothing is asked for where it is 0.
        bootstrap: The content of its bootstrap file.
        python: The beginning of the command that runs it.
        routed: The state manager is a server: a node whose `NodeAddr` is loopback advertises the address of the route.
    """
    options = [f"--job-name={job_name(topology_id, container)}", "--nodes=1", "--ntasks=1"]
    if resources.cpu > 0:
        options.append(f"--cpus-per-task={max(1, math.ceil(resources.cpu))}")
    if resources.ram_bytes > 0:
        options.append(f"--mem={math.ceil(resources.ram_bytes / _MIB)}M")
    given = (("partition", config.partition), ("account", config.account), ("qos", config.qos), ("time", config.time))
    options += [f"--{name}={value}" for name, value in given if value]
    options += ["--requeue", "--chdir=/", "--open-mode=append", f"--output={config.output}"]
    options += config.sbatch  # later ones win
    options.append(f"--signal=B:USR1@{config.walltime_grace_secs}")
    text = bootstrap.decode().strip("\n")
    if any(line == _DELIMITER for line in text.splitlines()):
        raise ValueError("the bootstrap file has the line that ends its here-document")
    prefix = shlex.quote(job_prefix(topology_id))
    watched = {0: f"{prefix}*", 1: f"{prefix}0"}.get(container, "")
    body = _SUPERVISE.format(
        directory=config.directory,
        directory_key=f"{PREFIX}directory",
        topology_id=topology_id,
        delimiter=_DELIMITER,
        bootstrap=text,
        python=shlex.join(python),
        loopback=_NO_LOOPBACK if routed else "",
        watch=_WATCH.format(seconds=WATCH_S, watched=watched, mark=FAILURE_MARK) if watched else "",
        watched=watched,
        mark=FAILURE_MARK,
        retry_mark=RETRY_MARK,
        say_s=SAY_S,
    )
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in options), config.setup, body])


def bootstrap_in(script: str) -> bytes:
    """The bootstrap file in a job script; empty if there is none."""
    _, found, rest = script.partition(f"<<'{_DELIMITER}'\n")
    text, end, _ = rest.partition(f"\n{_DELIMITER}\n")
    return text.encode() if found and end else b""
