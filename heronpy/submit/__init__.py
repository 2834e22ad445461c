"""Submitting a topology, finding it again, and talking to it.

`submit` does everything or nothing; `find` and `running` look topologies up; the rest acts on what they return. All of
it blocks: from a coroutine call it through `asyncio.to_thread`.
"""

from heronpy.submit._checkpoints import StoredCheckpoint, checkpoints, remove_checkpoints
from heronpy.submit._code import CodeUpdate, plan_code_update, version_of, with_running_code
from heronpy.submit._control import (
    CHECKPOINT_TIMEOUT_S,
    activate,
    awaited_s,
    deactivate,
    end_trial,
    kill,
    log_levels,
    metrics,
    physical_plan,
    plans,
    restart,
    set_log_level,
    status,
    status_and_metrics,
    take_checkpoint,
)
from heronpy.submit._effective import Setting, effective_config
from heronpy.submit._find import find, find_by_name, running
from heronpy.submit._listed import Listed, listed
from heronpy.submit._plan import Submission, default_role, packing_of, prepare
from heronpy.submit._savepoints import save_checkpoint, starting_checkpoint, storage_url
from heronpy.submit._stored_state import StateName, StoredState, stored_state, stored_states
from heronpy.submit._submit import submit, uninterrupted
from heronpy.submit._update import Update, plan_update, update
from heronpy.submit._update_code import update_code

__all__ = [
    "CHECKPOINT_TIMEOUT_S",
    "CodeUpdate",
    "Listed",
    "Setting",
    "StateName",
    "StoredCheckpoint",
    "StoredState",
    "Submission",
    "Update",
    "activate",
    "awaited_s",
    "checkpoints",
    "deactivate",
    "default_role",
    "effective_config",
    "end_trial",
    "find",
    "find_by_name",
    "kill",
    "listed",
    "log_levels",
    "metrics",
    "packing_of",
    "physical_plan",
    "plan_code_update",
    "plan_update",
    "plans",
    "prepare",
    "remove_checkpoints",
    "restart",
    "running",
    "save_checkpoint",
    "set_log_level",
    "starting_checkpoint",
    "status",
    "status_and_metrics",
    "storage_url",
    "stored_state",
    "stored_states",
    "submit",
    "take_checkpoint",
    "uninterrupted",
    "update",
    "update_code",
    "version_of",
    "with_running_code",
]
