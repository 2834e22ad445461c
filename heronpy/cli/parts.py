"""What the commands of `heron` compute and show, without a terminal and a topology: for the tests of each."""

from heronpy.cli._containers import remote_containers
from heronpy.cli._dry_run import Format as DryRunFormat
from heronpy.cli._dry_run import code_values, plan_values
from heronpy.cli._dry_run import show as show_plan
from heronpy.cli._durations import seconds as seconds_of
from heronpy.cli._follow import Follower
from heronpy.cli._inside import files, memory, stacks
from heronpy.cli._log_filter import LineFilter, line_time, since_of
from heronpy.cli._log_level import split as split_level
from heronpy.cli._log_lines import readable as readable_line
from heronpy.cli._logs import logs
from heronpy.cli._metrics import asked as asked_metrics
from heronpy.cli._metrics import matches as metric_matches
from heronpy.cli._metrics import number as shown_number
from heronpy.cli._metrics import window_of
from heronpy.cli._options import read_properties
from heronpy.cli._plan_shapes import logical_shape
from heronpy.cli._plan_shapes import stages as plan_stages
from heronpy.cli._plans import ComponentType, by_stage
from heronpy.cli._plans import _ranges as task_ranges
from heronpy.cli._plans import drawn as drawn_plan
from heronpy.cli._plans import wanted as wanted_components
from heronpy.cli._service import Service, pack_program
from heronpy.cli._shell_follow import ShellFollower
from heronpy.cli._show import checkpoints_line, scheduler_lines
from heronpy.cli._show import duration as shown_duration
from heronpy.cli._status import _component as component_status
from heronpy.cli._status import checkpoints_of
from heronpy.cli._status import collect as collect_status
from heronpy.cli._submit import end_options
from heronpy.cli._target import Place, revive
from heronpy.cli._target import resolve as resolve_target
from heronpy.cli._top_rows import COLUMNS, CPU, SPENT, UPTIME, Row, Snapshot, check_column, held_shares, snapshot
from heronpy.cli._top_rows import cpu as cpu_of
from heronpy.cli._top_rows import ordered as ordered_rows
from heronpy.cli._top_view import columns_for
from heronpy.cli._top_view import count as shown_count
from heronpy.cli._top_view import megabytes as shown_megabytes
from heronpy.cli._top_view import milliseconds as shown_milliseconds
from heronpy.cli._top_view import screen as top_screen
from heronpy.cli._update import parallelism_of
from heronpy.cli._wait import counted as counted_progress
from heronpy.cli._wait import progress as start_progress

__all__ = [
    "COLUMNS",
    "CPU",
    "SPENT",
    "UPTIME",
    "ComponentType",
    "DryRunFormat",
    "Follower",
    "LineFilter",
    "Place",
    "Row",
    "Service",
    "ShellFollower",
    "Snapshot",
    "asked_metrics",
    "by_stage",
    "check_column",
    "checkpoints_line",
    "checkpoints_of",
    "code_values",
    "collect_status",
    "columns_for",
    "component_status",
    "counted_progress",
    "cpu_of",
    "drawn_plan",
    "end_options",
    "files",
    "held_shares",
    "line_time",
    "logical_shape",
    "logs",
    "memory",
    "metric_matches",
    "ordered_rows",
    "pack_program",
    "parallelism_of",
    "plan_stages",
    "plan_values",
    "read_properties",
    "readable_line",
    "remote_containers",
    "resolve_target",
    "revive",
    "scheduler_lines",
    "seconds_of",
    "show_plan",
    "shown_count",
    "shown_duration",
    "shown_megabytes",
    "shown_milliseconds",
    "shown_number",
    "since_of",
    "snapshot",
    "split_level",
    "stacks",
    "start_progress",
    "task_ranges",
    "top_screen",
    "wanted_components",
    "window_of",
]
