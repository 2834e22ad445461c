"""What engine metrics are called in Prometheus: base units in their names, and what each of them is.

Heron's names state nanoseconds, milliseconds, seconds or nothing; Prometheus wants seconds and bytes. Metrics of the
topology itself keep their names and values: their units are unknown.
"""

from __future__ import annotations

import re

_UNITS: tuple[tuple[re.Pattern[str], str, float], ...] = tuple(
    (re.compile(pattern), replacement, factor)
    for pattern, replacement, factor in (
        (r"_latency$", "_latency_seconds", 1e-9),
        (r"_time_ns$", "_time_seconds", 1e-9),
        (r"_time_ms$", "_time_seconds", 1e-3),
        (r"_secs?$", "_seconds", 1.0),
        (r"_usec$", "_seconds", 1e-6),
        (r"^(heron(?:_server)?_time_spent_back_pressure_\w+)$", r"\1_seconds", 1e-3),
        (r"^(heron_checkpoint_\w+)_ms$", r"\1_seconds", 1e-3),
        (r"^(heron_pipeline_\w+)_ms$", r"\1_seconds", 1e-3),
        (r"_memory_byte$", "_memory_bytes", 1.0),
    )
)


def base_unit(family: str) -> tuple[str, float]:
    """The family of an engine metric with its unit in its name, and what its values are multiplied by."""
    for pattern, replacement, factor in _UNITS:
        name, found = pattern.subn(replacement, family)
        if found:
            return name, factor
    return family, 1.0


HELP: dict[str, str] = {
    "heron_ack_count": "Tuples acked: tuple trees of a spout by stream, tuples of a bolt by source and stream.",
    "heron_av_tuple_deserialization_time_seconds": "Mean time to deserialize a tuple, since the last report.",
    "heron_av_tuple_serialization_time_seconds": "Mean time to serialize a tuple, since the last report.",
    "heron_average_tuple_size_added_queue": "Mean bytes of a serialized tuple, since the last report.",
    "heron_checkpoint_added_bytes": "Bytes that the last committed checkpoint has more than the one before.",
    "heron_checkpoint_age_seconds": "Time since the last checkpoint was committed, or since all tasks began to run.",
    "heron_checkpoint_count": "Checkpoints that were committed.",
    "heron_checkpoint_damaged_count": "Checkpoints that could not be restored.",
    "heron_checkpoint_duration_seconds": "Time from the beginning to the commit of the last checkpoint.",
    "heron_checkpoint_failure_count": "Checkpoints that failed.",
    "heron_checkpoint_interval_seconds": "Time from one checkpoint to the next, as it is wanted.",
    "heron_checkpoint_logged_bytes": "Bytes of the last checkpoint that tasks had yet to execute.",
    "heron_checkpoint_size_bytes": "Bytes of the last committed checkpoint, with all that it shares with others.",
    "heron_client_ack_tuples_to_stmgrs": "Acks sent to another Stream Manager.",
    "heron_client_bytes_to_stmgrs": "Bytes sent to another Stream Manager.",
    "heron_client_fail_tuples_to_stmgrs": "Fails sent to another Stream Manager.",
    "heron_client_hello_messages_to_stmgrs": "Connections that were opened to another Stream Manager.",
    "heron_client_tuples_to_stmgrs": "Tuples sent to another Stream Manager.",
    "heron_clientmgr_stmgr_new_connections": "New connections with other Stream Managers.",
    "heron_complete_latency_seconds": "From the emission of a tuple by a spout to the ack of its whole tree.",
    "heron_connection_buffer_by_instanceid_bytes": "Bytes that wait in a Stream Manager for one receiver.",
    "heron_connection_buffer_length_by_instanceid_packets": "Batches that wait in a Stream Manager for one receiver.",
    "heron_continue_work_count": "Rounds of a task's loop after which there was more to do at once.",
    "heron_data_tuple_added_to_outgoing_queue": "Tuples serialized to be sent, one for each destination.",
    "heron_emit_count": "Tuples emitted by a component, by stream.",
    "heron_exception_count": "Exceptions raised by user code.",
    "heron_execute_count": "Tuples executed by a bolt, by source and stream.",
    "heron_execute_latency_seconds": "Time in process() for a tuple of a bolt: the mean of each batch.",
    "heron_execute_time_seconds": "Time spent in process(), by source and stream.",
    "heron_execution_count": "Rounds of a task's loop that ran user code.",
    "heron_fail_count": "Tuples failed: tuple trees of a spout by stream, tuples of a bolt by source and stream.",
    "heron_fail_latency_seconds": "Mean time from emission to failure, since the last report.",
    "heron_gateway_in_queue_full_count": "How often the queue into a task was found full.",
    "heron_gateway_in_stream_queue_expected_capacity": "Bytes that the queue into a task may hold now.",
    "heron_gateway_in_stream_queue_size": "Bytes in the queue into a task.",
    "heron_gateway_out_stream_queue_expected_capacity": "Bytes that the queue out of a task may hold.",
    "heron_gateway_out_stream_queue_size": "Bytes in the queue out of a task.",
    "heron_gateway_received_packets_count": "Frames that an instance received from its Stream Manager.",
    "heron_gateway_received_packets_size": "Bytes that an instance received from its Stream Manager.",
    "heron_gateway_sent_exceptions_count": "Exceptions that a process reported.",
    "heron_gateway_sent_metrics_count": "Metrics that a process reported.",
    "heron_gateway_sent_metrics_packets_count": "Reports of metrics that a process sent.",
    "heron_gateway_sent_metrics_size": "Bytes of the reports that a process sent.",
    "heron_gateway_sent_packets_count": "Frames that an instance sent to its Stream Manager.",
    "heron_gateway_sent_packets_size": "Bytes that an instance sent to its Stream Manager.",
    "heron_health": "Health of the topology: 0 healthy, 1 starting, 2 degraded, 3 unhealthy.",
    "heron_health_reason": "How bad each kind of reason is, on the scale of heron_health.",
    "heron_held_back_time_seconds": "Time for which a spout's pending limit kept back what bolt `stream` waits for.",
    "heron_metrics_dropped_count": "Metrics of a process that were not reported: too many names.",
    "heron_metrics_history_dropped": "Values that the Topology Master did not keep: too many series.",
    "heron_next_tuple_count": "Calls of next_tuple() of a spout.",
    "heron_next_tuple_latency_seconds": "Mean time of a call of next_tuple(), since the last report.",
    "heron_out_queue_full_count": "How often the queue out of a task was found full.",
    "heron_pending_acked_count": "Tuple trees of a spout that are not complete yet.",
    "heron_pipeline_archive_complete_before_seconds": "Unix time before which all that came to a task is archived.",
    "heron_plan_version": "Version of the physical plan in force.",
    "heron_process_cpu_system_seconds": "CPU time in the kernel, by Heron's name for engine processes.",
    "heron_process_cpu_user_seconds": "CPU time in user code, by Heron's name for engine processes.",
    "heron_process_latency_seconds": "From the arrival of a tuple at a bolt to its ack: by batches.",
    "heron_process_mem_used_bytes": "Resident memory, by Heron's name for engine processes.",
    "heron_process_uptime_seconds": "Uptime, by Heron's name for engine processes.",
    "heron_produce_tuple_count": "Rounds in which a spout was asked for tuples.",
    "heron_py_fd_count": "Open file descriptors.",
    "heron_py_fd_limit": "Most file descriptors that the process may open.",
    "heron_py_gc_collection_count": "Garbage collections.",
    "heron_py_gc_collection_time_seconds": "Time spent in garbage collections.",
    "heron_py_physical_memory_bytes": "Resident memory.",
    "heron_py_sys_cpu_time_seconds": "CPU time in the kernel.",
    "heron_py_thread_count": "Threads.",
    "heron_py_user_cpu_time_seconds": "CPU time in user mode.",
    "heron_recent_restarts": "Restarts of a process in the last 10 minutes; `key` is the process.",
    "heron_registered_stmgr_count": "Stream Managers that are registered at the Topology Master.",
    "heron_reports_dropped": "Reports that a Metrics Manager could not keep for the Topology Master.",
    "heron_restore_count": "Rollbacks of all tasks to a checkpoint.",
    "heron_restarts": "Restarts of a process since it was started on purpose; `key` is the process.",
    "heron_server_time_spent_back_pressure_aggr_seconds": "Time for which the spouts were throttled.",
    "heron_server_time_spent_back_pressure_initiated_seconds": "Time for which it throttled the spouts.",
    "heron_task_run_count": "Rounds of a task's loop.",
    "heron_time_spent_back_pressure_by_compid_seconds": "Time for which `key` throttled the spouts.",
    "heron_timeout_count": "Tuple trees that failed because of their timeout, by stream.",
    "heron_tuple_deserialization_time_seconds": "Time spent deserializing tuples.",
    "heron_tuple_serialization_time_seconds": "Time spent serializing tuples.",
    "heron_uptime_seconds": "How long the process runs.",
}
_WAYS = re.compile(r"^heron_(server|client)_(bytes|tuples|ack_tuples|fail_tuples|reset_tuples)_(\w+)$")
_WHAT = {"bytes": "Bytes", "tuples": "Tuples", "ack_tuples": "Acks", "fail_tuples": "Fails", "reset_tuples": "Resets"}


def help_of(family: str, metric: str) -> str:
    """What a family is.

    Args:
        family: with its unit.
        metric: Heron's name of one of its series.
    """
    if family in HELP:
        return HELP[family]
    if found := _WAYS.match(family):
        return f"{_WHAT[found[2]]} {found[3].replace('_', ' ')}, of a Stream Manager."
    base = metric.partition("/")[0]
    if metric.startswith("__"):
        return f"The engine's metric {base}."
    return f"The topology's own metric {base}."
