"""When reports are sent."""

from __future__ import annotations

from itertools import islice

from heronpy.metricsmgr.parts import report_pauses


def test_reports_are_frequent_at_first_and_then_keep_to_the_interval() -> None:
    assert list(islice(report_pauses(5.0), 7)) == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_a_short_interval_is_kept_from_the_start() -> None:
    assert list(islice(report_pauses(0.05), 3)) == [0.05, 0.05, 0.05]
