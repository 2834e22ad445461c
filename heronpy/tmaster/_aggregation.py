"""How numbers of several instances become one number of their component.

Counters are summed and means averaged by their weights, whatever their names. Gauges have no such rule in their kind,
so it goes by name, and one engine metric that is not listed here is an amount, which is summed:

    limits, thresholds, uptimes, versions, maxima and high percentiles    the largest
    minima                                                                the smallest
    the user's own gauges, medians and means                              the average of the instances
"""

from __future__ import annotations

import enum
import re

import numpy as np

from heronpy.tmaster._series import Floats, Ints


class Rule(enum.Enum):
    """What is made of gauges of the same name."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    AVERAGE = "average"


_MAX = re.compile(r"(-limit|-threshold|uptime-secs|uptime_sec|-version|-max|expected-capacity|/max|/p9[0-9]+)$")
_MIN = re.compile(r"(-min|/min)$")
_AVERAGE = re.compile(r"(-latency(/.*)?|-load|/mean|/p[0-8][0-9]?)$")


def rule_of(name: str) -> Rule:
    """The rule for a gauge's name."""
    if _MAX.search(name):
        return Rule.MAX
    if _MIN.search(name):
        return Rule.MIN
    if _AVERAGE.search(name) or not name.startswith("__"):
        return Rule.AVERAGE
    return Rule.SUM


def grouped_gauges(numbers: Floats, groups: Ints, rules: list[Rule]) -> Floats:
    """One number per group, by the group's rule; NaN for groups whose numbers all are NaN.

    Args:
        numbers: one per instance and metric.
        groups: the group of each number, 0 to len(rules) - 1.
        rules: of each group.
    """
    size = len(rules)
    there = ~np.isnan(numbers)
    numbers, groups = numbers[there], groups[there]
    counts = np.bincount(groups, minlength=size)
    sums = np.bincount(groups, weights=numbers, minlength=size)
    largest, smallest = np.full(size, -np.inf), np.full(size, np.inf)
    np.maximum.at(largest, groups, numbers)
    np.minimum.at(smallest, groups, numbers)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_rule = {Rule.SUM: sums, Rule.MAX: largest, Rule.MIN: smallest, Rule.AVERAGE: sums / counts}
    result = np.array([by_rule[rule][n] for n, rule in enumerate(rules)], dtype=np.float64)
    result[counts == 0] = np.nan
    return result
