"""PromQL, in the shapes that the dashboards need."""

from __future__ import annotations

UPTIME = "heron_uptime_seconds"
"""What every process of a topology exports: it shows which there are, whether they report, and when they started."""
CPU = ("heron_py_user_cpu_time_seconds", "heron_py_sys_cpu_time_seconds")
RECENT = "[$__rate_interval]"
SHOWN = "[$__range]"


def selector(**labels: str) -> str:
    """Label matchers, e.g. `component="word"`; a value that begins with `~` is a regular expression."""
    return ",".join(_matcher(name, value) for name, value in labels.items())


def both(*selectors: str) -> str:
    """Matchers that must all hold."""
    return ",".join(s for s in selectors if s)


def rate(metric: str, where: str, by: str = "") -> str:
    """Per second, summed over what `by` does not name."""
    return f"sum{_by(by)} (rate({metric}{{{where}}}{RECENT}))"


def increase(metric: str, where: str, by: str = "") -> str:
    """How much a counter grew in the time shown; 0 if it does not exist. Counters appear with their first event, so
    one that was not there when the time began counts from 0."""
    born = f"{metric}{{{where}}} unless {metric}{{{where}}} offset $__range"
    grown = f"sum{_by(by)} (({born}) or increase({metric}{{{where}}}{SHOWN}))"
    return grown if by else f"{grown} or vector(0)"


def restarts(where: str, by: str = "") -> str:
    """How often processes began anew in the time shown."""
    return f"sum{_by(by)} (resets({UPTIME}{{{where}}}{SHOWN}))"


def silent(where: str) -> str:
    """How many processes have not reported for a minute and more, though their Metrics Manager has."""
    return f"count(changes({UPTIME}{{{where}}}[2m]) == 0 and {UPTIME}{{{where}}} offset 2m) or vector(0)"


def gauge(metric: str, where: str, by: str = "", how: str = "sum") -> str:
    """A value as it is, summed (or `max`, `avg`) over what `by` does not name."""
    return f"{how}{_by(by)} ({metric}{{{where}}})"


def cpu(where: str, by: str = "") -> str:
    """Cores in use."""
    user, system = (f"rate({metric}{{{where}}}{RECENT})" for metric in CPU)
    return f"sum{_by(by)} ({user} + {system})"


def share_of_time(metric: str, where: str, by: str = "") -> str:
    """The part of the time that a counter of seconds grew: of the instance where that is most."""
    return f"max{_by(by)} (rate({metric}{{{where}}}{RECENT}))"


def capacity(where: str, by: str) -> str:
    """The part of the time that the busiest instance spends executing tuples."""
    by_instance = rate(
        "heron_execute_time_seconds_total", where, "cluster, role, environ, topology, component, instance"
    )
    return f"max{_by(by)} ({by_instance})"


def quantile(q: float, histogram: str, where: str, by: str) -> str:
    """A quantile of a histogram, in its unit."""
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', where, f'{by}, le')})"


def execute_latency(where: str, by: str) -> str:
    """Mean time for a tuple, over all that were executed."""
    spent = rate("heron_execute_time_seconds_total", where, by)
    return f"{spent} / ({rate('heron_execute_count_total', where, by)} > 0)"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


def _matcher(name: str, value: str) -> str:
    operator = "=~" if value.startswith("~") else "="
    escaped = value.removeprefix("~").replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{operator}"{escaped}"'
