"""What every process shares: how it starts and ends, and where its files are. How it talks is in `heronpy.rpc`."""

from heronpy.files import replace_file
from heronpy.parent import PARENT_ENV, die_with_parent
from heronpy.runtime._clock import sleep_until
from heronpy.runtime._diagnosis import memory_path, stack_path
from heronpy.runtime._heartbeat import HEARTBEAT_ENV, Beat, HasTask, Heartbeat, TaskProgress, keep_beating, read_beat
from heronpy.runtime._huge_pages import HugePages, use_huge_pages
from heronpy.runtime._launch import (
    CONTAINER_LOCK_FILE,
    INCARNATION_ENV,
    LAUNCH_FILE,
    TOKEN_FILE,
    USER_SECRETS_DIR,
    Launch,
    own_incarnation,
)
from heronpy.runtime._log_levels import ENGINE, LEVELS, LevelSwitch, level_for
from heronpy.runtime._logging import log_to, rotate, rotate_output
from heronpy.runtime._process import Service, essential, keep_freed_memory, main, running
from heronpy.runtime._profile import START_SIGNAL, STOP_SIGNAL, Profiler, profile_path
from heronpy.runtime._scheduling import take_long_turns
from heronpy.runtime._statemgr_spec import SECRETS_DIR, StatemgrSpec
from heronpy.runtime._tasks import StreamLost, until_one_ends

__all__ = [
    "CONTAINER_LOCK_FILE",
    "ENGINE",
    "HEARTBEAT_ENV",
    "INCARNATION_ENV",
    "LAUNCH_FILE",
    "LEVELS",
    "PARENT_ENV",
    "SECRETS_DIR",
    "START_SIGNAL",
    "STOP_SIGNAL",
    "TOKEN_FILE",
    "USER_SECRETS_DIR",
    "Beat",
    "HasTask",
    "Heartbeat",
    "HugePages",
    "Launch",
    "LevelSwitch",
    "Profiler",
    "Service",
    "StatemgrSpec",
    "StreamLost",
    "TaskProgress",
    "die_with_parent",
    "essential",
    "keep_beating",
    "keep_freed_memory",
    "level_for",
    "log_to",
    "main",
    "memory_path",
    "own_incarnation",
    "profile_path",
    "read_beat",
    "replace_file",
    "rotate",
    "rotate_output",
    "running",
    "sleep_until",
    "stack_path",
    "take_long_turns",
    "until_one_ends",
    "use_huge_pages",
]
