"""The measurements."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heronpy.bench import BenchConfig, run
from heronpy.bench.others.running import words_per_core_s
from heronpy.bench.rows._cluster import Counting, running
from heronpy.bench.rows.pauses import POLL_S, update_pause_s
from heronpy.bench.rows.sessions import GROWTH_MAX, measure
from heronpy.bench.rows.sinks import changed_outputs
from heronpy.config import MIB
from heronpy.errors import UnavailableError

Step = Callable[[str], None]
GB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """A figure next to its target."""

    what: str
    figure: str
    target: str
    met: bool


def latency(*, rate: float, keys: int, seconds: float, interval_s: float, rounds: int, on_step: Step) -> list[Row]:
    """p99 at a given rate, effectively once, and at most once just before and after, once per round."""
    growths, plain_ms, stateful_ms = [], [], []

    def p99_ms(reliability: str, warm_up_s: float) -> float:
        on_step(reliability)
        report = run(
            BenchConfig(
                keys=keys,
                seconds=seconds,
                warm_up_s=warm_up_s,
                rate=rate,
                reliability=reliability,
                checkpoint_interval_s=interval_s,
                floor=False,
            )
        )
        p99 = report.latency_ms["p99"]
        if p99 is None:
            raise UnavailableError("no tuple carried the time: measure longer")
        return p99

    before = p99_ms("at-most-once", 2.0)
    for _ in range(rounds):
        between = p99_ms("effectively-once", interval_s + 2.0)
        after = p99_ms("at-most-once", 2.0)
        growths.append(between - (before + after) / 2)
        plain_ms += [before, after]
        stateful_ms.append(between)
        before = after
    growth = statistics.median(growths)
    return [
        Row("p99 without checkpoints, ms", f"{statistics.median(plain_ms):.1f}", "", True),
        Row("p99 with checkpoints, ms", f"{statistics.median(stateful_ms):.1f}", "", True),
        Row("it grows by, ms", f"{growth:.1f} ({min(growths):.1f}–{max(growths):.1f})", "≤ 3", growth <= 3),
    ]


def recovery(*, keys: int, kills: int, interval_s: float, rate: float, on_step: Step) -> list[Row]:
    """SIGKILL of one of two tasks, until both count again what comes after the checkpoint."""
    found = []
    with running(keys=2 * keys, tasks=2, interval_s=interval_s, rate=rate) as counting:
        on_step("filling the state")
        counting.wait_filled()
        counting.wait_checkpoint()
        for number in range(kills):
            on_step(f"kill {number + 1} of {kills}")
            counting.wait_checkpoint()
            found.append(_killed(counting, number % 2))
        on_step("comparing the counts")
        wrong = counting.end()
    p50, p99 = np.percentile(found, [50, 99])
    return [
        Row(f"kill -9 to first output, p50 of {kills}, s", f"{p50:.2f}", "≤ 3", bool(p50 <= 3)),
        Row(f"the same, p99 (longest {max(found):.2f}), s", f"{p99:.2f}", "≤ 8", bool(p99 <= 8)),
        _exact(wrong),
    ]


def _killed(counting: Counting, index: int) -> float:
    """Seconds from the death of a task until all have output again."""
    epoch = max(answer["epoch"] for answer in counting.answers())
    processes = counting.topology.processes()
    victims = sorted(name for name in processes if "_count_" in name)
    began_s = time.monotonic()
    os.kill(processes[victims[index]], signal.SIGKILL)

    def recovered() -> bool:
        answers = counting.answers()
        return len(answers) == counting.tasks and all(a["epoch"] > epoch and a["count"] for a in answers)

    counting.wait("a task counts nothing after the kill of one", recovered, 180.0)
    return time.monotonic() - began_s


def slow(*, checkpoints: int, rate: float, payload_bytes: int, interval_s: float, on_step: Step) -> list[Row]:
    """A bolt that takes a tenth of what comes: checkpoints must not wait for it for long."""
    took_s: dict[int, float] = {}
    failed: dict[int, str] = {}
    options = {"rate": rate, "work_s": 10 / rate, "payload_bytes": payload_bytes}
    with running(keys=1000, tasks=1, interval_s=interval_s, **options) as counting:
        counting.wait_filled()
        counting.wait_checkpoint()
        first = counting.newest()

        def enough() -> bool:
            for ended in counting.topology.status().checkpoints.ended:
                if ended.checkpoint > first and not ended.failure:
                    took_s[ended.checkpoint] = ended.took_ms / 1000
                elif ended.checkpoint > first:
                    failed[ended.checkpoint] = ended.failure
            on_step(f"checkpoint {len(took_s) + len(failed)} of {checkpoints}")
            time.sleep(0.5)
            return len(took_s) + len(failed) >= checkpoints

        counting.wait("there are too few checkpoints", enough, 30.0 * checkpoints)
    p50, p99 = np.percentile(list(took_s.values()) or [0.0], [50, 99])
    all_ = len(took_s) + len(failed)
    why = f": {next(iter(failed.values()))}" if failed else ""
    return [
        Row("checkpoints that complete", f"{len(took_s)} of {all_}{why}", "all", not failed),
        Row(f"their duration, p99 (p50 {p50:.1f}), s", f"{p99:.1f}", "≤ 10", bool(p99 <= 10)),
    ]


def rescale(*, gb: float, numbers: list[int], rate: float, interval_s: float, on_step: Step) -> list[Row]:
    """Other numbers of tasks under load: exact, and how long nothing is counted."""
    value_bytes = 1000
    keys = max(1, round(gb * GB / value_bytes))
    rows = []
    with running(keys=keys, tasks=numbers[0], interval_s=interval_s, rate=rate, value_bytes=value_bytes) as counting:
        on_step(f"filling {gb:g} GB of state")
        counting.wait_filled(3600.0)
        counting.wait_checkpoint(within_s=600.0)
        for before, after in itertools.pairwise(numbers):
            on_step(f"{before} → {after} tasks")
            pause_s = update_pause_s(counting, after)
            figure = f"{pause_s:.1f} ({pause_s / gb:.1f} per GB)"
            rows.append(Row(f"{before} → {after} tasks, pause, s", figure, "≤ 5 per GB", pause_s / gb <= 5))
            counting.wait_checkpoint(within_s=600.0)
        on_step("comparing the counts")
        wrong = counting.end()
    return [*rows, _exact(wrong)]


def memory(
    *, mb: int, times: float, value_bytes: int, seconds: float, interval_s: float, rate: float, on_step: Step
) -> list[Row]:
    """RSS of a task with a budget of memory, at a state of many times that, beyond RSS of one with hardly any keys."""
    keys = int(times * mb * MIB / value_bytes)
    empty_mb = rss_mb = 0.0
    wrong = ""
    for number in (100, keys):
        on_step(f"{number:,} keys")
        with running(
            keys=number,
            tasks=1,
            interval_s=interval_s,
            rate=rate,
            value_bytes=value_bytes,
            paced=True,
            memory_mb=mb,
        ) as counting:
            counting.wait_filled(60 + 3 * number / rate)
            counting.wait_checkpoint(2)
            empty_mb, rss_mb = rss_mb, _largest_rss_mb(counting, seconds)
            wrong = wrong or counting.end()
    by_budget = (rss_mb - empty_mb) / mb
    return [
        Row("state, by the budget", f"{times:g} × {mb} MiB", "", True),
        Row("RSS of the task with hardly any, MiB", f"{empty_mb:.0f}", "", True),
        Row("RSS beyond that, by the budget", f"{by_budget:.2f}", "≤ 1.2", by_budget <= 1.2),
        _exact(wrong),
    ]


def _largest_rss_mb(counting: Counting, seconds: float) -> float:
    """The largest RSS of the task that counts, in MiB, while it goes on."""
    (pid,) = (pid for name, pid in counting.topology.processes().items() if "_count_" in name)
    pages: list[int] = []
    give_up_s = time.monotonic() + seconds
    while not pages or time.monotonic() < give_up_s:
        pages.append(int(Path(f"/proc/{pid}/statm").read_text().split()[1]))
        time.sleep(POLL_S)
    return max(pages) * os.sysconf("SC_PAGESIZE") / MIB


def others(
    *,
    engines: dict[str, Path],
    keys: int,
    seconds: float,
    warm_up_s: float,
    interval_s: float,
    rounds: int,
    on_step: Step,
) -> list[Row]:
    """The keyed count per core-second, by that of other engines with recovery, which run in between."""
    ratios: dict[str, list[float]] = {engine: [] for engine in engines}
    rates: dict[str, list[float]] = {engine: [] for engine in engines}

    def ours() -> float:
        on_step("ours")
        config = BenchConfig(
            keys=keys,
            seconds=seconds,
            warm_up_s=warm_up_s,
            reliability="effectively-once",
            checkpoint_interval_s=interval_s,
            floor=False,
        )
        return run(config).tuples_per_core_s

    before = ours()
    for _ in range(rounds):
        theirs = {}
        for engine, python in engines.items():
            on_step(engine)
            theirs[engine] = words_per_core_s(
                engine, python, keys=keys, interval_s=interval_s, warm_up_s=warm_up_s, seconds=seconds
            )
        after = ours()
        for engine, found in theirs.items():
            ratios[engine].append((before + after) / 2 / found)
            rates[engine].append(found)
        before = after
    return [
        Row(
            f"tuples per core-second, by the {statistics.median(rates[engine]):,.0f} of {engine}",
            f"{statistics.median(found):.1f} ({min(found):.1f}–{max(found):.1f})",
            "≥ 2",
            statistics.median(found) >= 2,
        )
        for engine, found in ratios.items()
    ]


def sinks(*, on_step: Step) -> list[Row]:
    """What is prepared by a writer that dies, and committed by another an hour later."""
    rows = []
    for name, changed in changed_outputs():
        on_step(name)
        if isinstance(changed, str):
            rows.append(Row(name, f"not measured: {changed}", "", True))
            continue
        figure = "differs" if changed else "byte-equal"
        rows.append(Row(f"{name}: an hour before the commit", figure, "byte-equal", not changed))
    return rows


def sessions(
    *, keys: int, rate: float, gap_ms: int, interval_s: float, seconds: float, kills: int, on_step: Step
) -> list[Row]:
    """Sessions of keys that come once: what a tenth of them leaves behind, and all of them."""
    found = measure(
        keys=keys, rate=rate, gap_ms=gap_ms, interval_s=interval_s, seconds=seconds, kills=kills, on_step=on_step
    )
    early, late = found.early, found.late
    rows = [Row("sessions that were closed", f"{early.keys:,}, {late.keys:,}", "", True)]
    for what, before, after in (
        ("RSS of the task, MiB", early.rss_mb, late.rss_mb),
        ("checkpoints, MiB", early.files_mb, late.files_mb),
        ("kill -9 to first output, s", early.restart_s, late.restart_s),
    ):
        growth = after / before
        rows.append(Row(what, f"{before:.2f}, {after:.2f} ({growth:.2f})", f"≤ {GROWTH_MAX}", growth <= GROWTH_MAX))
    return [*rows, _exact(found.wrong)]


def _exact(wrong: str) -> Row:
    return Row("counts of all keys", wrong or "exact", "exact", not wrong)
