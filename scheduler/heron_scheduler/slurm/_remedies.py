"""What to change about what Slurm refuses: the key by which it was asked for. Pure."""

from __future__ import annotations

import re

from heron_scheduler.slurm._config import PREFIX

_ASKED = "see topology.stmgrs, topology.container.ram, .cpu"
"""How much the jobs of a topology ask for together."""
_REMEDIES = (
    (r"\bqos(grp|max|min|usage)", f"{_ASKED} and `sacctmgr show qos`, or set {PREFIX}qos"),
    (r"\bassoc(grp|max|iationjoblimit)", f"{_ASKED} and `sacctmgr show assoc`, or set {PREFIX}account"),
    (r"partitionconfig", f"set {PREFIX}partition, or {PREFIX}time to what it allows"),
    (r"account", f"set {PREFIX}account, or {PREFIX}partition to one that takes it"),
    (r"qos", f"set {PREFIX}qos"),
    (r"time ?limit|invalid time", f"set {PREFIX}time to what the partition allows"),
    (r"memory|node configuration|badconstraints|feature", f"see topology.container.ram, .cpu and {PREFIX}sbatch"),
    (r"option", f"see {PREFIX}sbatch"),
    (r"partition|not allowed|not permitted", f"set {PREFIX}partition to one of `sinfo`"),
    (r"limit|usage", f"{_ASKED} and `sacctmgr show assoc`, or set {PREFIX}account"),
)
"""In this order: some reasons name an account, a QOS or a partition only as the place where something is limited."""


def remedy(said: str) -> str:
    """`; …` with what to do about a refusal of Slurm's, or nothing."""
    return next((f"; {what}" for words, what in _REMEDIES if re.search(words, said, re.IGNORECASE)), "")
