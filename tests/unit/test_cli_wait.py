"""What `submit --wait` waits for."""

from __future__ import annotations

from heronpy.cli.parts import counted_progress, start_progress
from heronpy.proto import tmaster_pb2


def reply(state: str = "RUNNING", *, ready: bool = True, **totals: dict[str, float]) -> tmaster_pb2.StatusReply:
    return tmaster_pb2.StatusReply(
        state=state,
        ready=ready,
        stmgrs=[tmaster_pb2.StmgrStatus(registered=True), tmaster_pb2.StmgrStatus(registered=ready)],
        instances=[tmaster_pb2.InstanceStatus(id=id, attached=ready, totals=t) for id, t in totals.items()],
    )


def test_tuples_flow_when_they_were_emitted_and_executed() -> None:
    spout, bolt = {"__emit-count/default": 5.0}, {"__execute-count/words/default": 3.0}
    assert not start_progress(reply(spout={}, bolt={})).done
    assert not start_progress(reply(spout=spout, bolt={})).done
    assert start_progress(reply(spout=spout, bolt=bolt)).done
    assert start_progress(reply(spout=spout), has_bolts=False).done
    assert not start_progress(reply(ready=False, spout=spout, bolt=bolt)).done


def test_a_paused_topology_has_come_as_far_as_it_will_when_it_is_ready() -> None:
    assert start_progress(reply("PAUSED", spout={})).done
    assert not start_progress(reply("PAUSED", ready=False, spout={})).done


def test_progress_reads_as_a_line() -> None:
    assert str(start_progress(reply(ready=False, a={}, b={}))) == "containers 1/2, instances 0/2, no tuples yet"
    emitted = start_progress(reply(a={"__emit-count/default": 1.0}))
    assert str(emitted) == "containers 2/2, instances 1/1, first tuples emitted"


def test_the_newest_exception_is_told_by_its_last_line() -> None:
    status = reply(a={})
    for when, error in ((2, "new"), (1, "old")):
        named = status.exceptions.add(source="container_1_a_1")
        named.report.stacktrace = f"Traceback:\n  File\nValueError: {error}\n"
        named.report.last_time_ms = when
    assert start_progress(status).failure == "container_1_a_1: ValueError: new"


def test_a_counter_is_summed_over_its_streams_and_over_no_other_counter() -> None:
    instance = tmaster_pb2.InstanceStatus(
        totals={"__emit-count/a": 1, "__emit-count/b": 2, "__emit-count-x/a": 4, "__ack-count/a": 8},
        rates={"__emit-count/a": 16},
    )
    assert counted_progress(instance, "__emit-count") == 3
    assert counted_progress(instance, "__emit-count", rate=True) == 16
