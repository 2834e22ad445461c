"""Topologies on Slurm: every container is a job of its own, so that the loss of a node requeues only what ran there.

Commands are those that each login node has (`sbatch`, `squeue`, `scancel`, `scontrol`); no process of the scheduler
stays. What is submitted is made by `job_script`, a pure function. See docs/slurm.md.
"""

from heron_scheduler.slurm._config import SlurmConfig
from heron_scheduler.slurm._remedies import remedy
from heron_scheduler.slurm._scheduler import SlurmScheduler
from heron_scheduler.slurm._script import bootstrap_in, job_script

__all__ = ["SlurmConfig", "SlurmScheduler", "bootstrap_in", "job_script", "remedy"]
