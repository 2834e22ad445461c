"""What the Topology Master observes of its topology's health; `heronpy.health` judges it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from heronpy.health import WINDOW_S, CheckpointProgress, Health, HealthState, Kind, Observed, Outcomes, Silence, assess
from heronpy.limits import Overrun
from heronpy.plan import PackingPlan
from heronpy.proto import tmaster_pb2
from heronpy.tmaster._state import State
from heronpy.tmaster._status import Metrics

SILENT_INTERVALS = 3
"""A process that misses so many reports in a row is silent ..."""
SILENT_MIN_S = 30.0
"""... but not sooner than this: a busy machine delays reports."""
AGE_S = 1.0
"""An assessment that is not older is given again."""
_MINUTE_S = 60
_SPENT = "__time_spent_back_pressure_by_compid/"
_DEAD_LETTERS = ("__dead-letter-count/*", "dead-letter-count*")
"""What was set aside: tuples on which user code fails again and again, and what sources and streamlets cannot read."""
_HELD_BACK = "__held-back-time-ns/"


class HealthMonitor:
    """Assesses one topology, at most once in AGE_S.

    Args:
        interval_s: how often processes report.
        started_s: when the Topology Master started, on the monotonic clock.
    """

    def __init__(self, interval_s: float, started_s: float) -> None:
        self._silent_s = max(SILENT_INTERVALS * interval_s, SILENT_MIN_S)
        self._started_s = started_s
        self._not_ready_since_s: float | None = started_s
        self._was_ready = False
        self._health = Health.of([])
        self._assessed_s = float("-inf")

    def health(
        self,
        state: State,
        metrics: Metrics,
        now_s: float,
        now_ms: int,
        *,
        stop_reason: str = "",
        state_problem: str = "",
        state_fallback: str = "",
        checkpoints: CheckpointProgress | None = None,
    ) -> Health:
        """How the topology is, at a time on the monotonic and on the wall clock.

        Args:
            state: who is registered, and what is wanted.
            metrics: what was reported.
            now_s: on the monotonic clock.
            now_ms: on the wall clock.
            stop_reason: why the engine itself has paused the topology, if it has.
            state_problem: why its state cannot be restored, if it cannot.
            state_fallback: which older checkpoint was restored lately, if one was.
            checkpoints: how they get on; None: it takes none.
        """
        ready = state.ready
        if ready:
            self._was_ready, self._not_ready_since_s = True, None
        elif self._not_ready_since_s is None:
            self._not_ready_since_s = now_s
        if now_s - self._assessed_s > AGE_S:
            self._assessed_s = now_s
            observed = self._observed(state, metrics, now_s, now_ms, ready=ready)
            self._health = assess(
                replace(
                    observed,
                    stop_reason=stop_reason,
                    state_problem=state_problem,
                    state_fallback=state_fallback,
                    checkpoints=checkpoints,
                )
            )
        return self._health

    def _observed(self, state: State, metrics: Metrics, now_s: float, now_ms: int, *, ready: bool) -> Observed:
        packing = state.packing
        detached = [
            i.instance_id(c.id)
            for c in packing.containers
            if (stmgr := state.stmgrs.get(c.stmgr_id)) is not None
            for i in c.instances
            if i.instance_id(c.id) not in stmgr.attached
        ]
        away = {*state.missing, *detached}
        executors = (f"executor-{n}" for n in (0, *(c.id for c in packing.containers)))
        metrics.restarts.keep({*_reporting(packing), *executors, "tmaster"})
        return Observed(
            unregistered=state.missing,
            detached=detached,
            ready=ready,
            not_ready_s=now_s - self._not_ready_since_s if self._not_ready_since_s is not None else 0.0,
            was_ready=self._was_ready,
            restarts=metrics.restarts.recent(now_s),
            over_ram=_over_ram(packing, metrics.restarts.over_ram(now_s)),
            outcomes=_outcomes(state, metrics, now_ms) if metrics.reported else {},
            silent=[found for found in self._silent(packing, metrics, now_s) if found.process not in away],
            throttled=_throttled(metrics, now_ms) if metrics.reported else {},
            dead_letters=_dead_letters(metrics, now_ms) if metrics.reported else {},
            held_back=_held_back(metrics, now_ms) if metrics.reported else {},
        )

    def _silent(self, packing: PackingPlan, metrics: Metrics, now_s: float) -> list[Silence]:
        silent = []
        for process in _reporting(packing):
            source = metrics.ledger.get(process)
            silent_s = now_s - (source.received_s if source is not None else self._started_s)
            if silent_s > self._silent_s:
                silent.append(Silence(process, silent_s))
        return silent


def _over_ram(packing: PackingPlan, used: Mapping[str, int]) -> dict[str, str]:
    limits = {i.instance_id(c.id): i.resources.ram_bytes for c in packing.containers for i in c.instances}
    return {id: str(Overrun(bytes_, limits[id])) for id, bytes_ in used.items() if id in limits}


def _reporting(packing: PackingPlan) -> list[str]:
    """The processes that report for as long as their containers live."""
    expected = [f"metricsmgr-{n}" for n in (0, *(c.id for c in packing.containers))]
    for container in packing.containers:
        expected += [container.stmgr_id, *(i.instance_id(container.id) for i in container.instances)]
    return expected


def _outcomes(state: State, metrics: Metrics, now_ms: int) -> dict[str, Outcomes]:
    request = tmaster_pb2.MetricsRequest(
        metrics=["__execute-count/*", "__ack-count/*", "__fail-count/*"], interval_s=WINDOW_S, by_component=True
    )
    counts: dict[str, dict[str, float]] = {}
    for series in metrics.answer(request, now_ms).series:
        found = counts.setdefault(series.component, {})
        name = series.name.partition("/")[0]
        found[name] = found.get(name, 0.0) + series.value
    outcomes = {}
    for component in state.logical.components:
        executed, acked, failed = (
            counts.get(component, {}).get(f"__{kind}-count", 0.0) for kind in ("execute", "ack", "fail")
        )
        outcomes[component] = Outcomes(max(executed, acked + failed), failed)
    return outcomes


def _throttled(metrics: Metrics, now_ms: int) -> dict[str, float]:
    """Shares as the Stream Manager saw them that saw the most."""
    request = tmaster_pb2.MetricsRequest(component="__stmgr__", metrics=[f"{_SPENT}*"], interval_s=WINDOW_S)
    reply = metrics.answer(request, now_ms)
    shares: dict[str, float] = {}
    for series in reply.series:
        culprit = series.name.removeprefix(_SPENT)
        share = min(1.0, series.value / 1000 / max(reply.interval_s, _MINUTE_S))
        shares[culprit] = max(share, shares.get(culprit, 0.0))
    return shares


def _dead_letters(metrics: Metrics, now_ms: int) -> dict[str, float]:
    request = tmaster_pb2.MetricsRequest(metrics=_DEAD_LETTERS, interval_s=WINDOW_S, by_component=True)
    counts: dict[str, float] = {}
    for series in metrics.answer(request, now_ms).series:
        counts[series.component] = counts.get(series.component, 0.0) + series.value
    return counts


def _held_back(metrics: Metrics, now_ms: int) -> dict[tuple[str, str], float]:
    """Shares of the tasks of each spout that were kept back the most."""
    request = tmaster_pb2.MetricsRequest(metrics=[f"{_HELD_BACK}*"], interval_s=WINDOW_S)
    reply = metrics.answer(request, now_ms)
    shares: dict[tuple[str, str], float] = {}
    for series in reply.series:
        between = series.component, series.name.removeprefix(_HELD_BACK)
        share = min(1.0, series.value / 1e9 / max(reply.interval_s, _MINUTE_S))
        shares[between] = max(share, shares.get(between, 0.0))
    return shares


def health_metrics(health: Health) -> dict[str, float]:
    """Gauges: `__health`, the state as a number, and `__health_reason/<kind>`, how bad the reasons of each kind are."""
    worst = dict.fromkeys(Kind, HealthState.HEALTHY)
    for reason in health.reasons:
        worst[reason.kind] = max(worst[reason.kind], reason.state)
    return {"__health": health.state, **{f"__health_reason/{kind}": state for kind, state in worst.items()}}
