"""The benchmark over hosts, with tiny inputs: it runs, loses nothing, and prints all it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.testing.hosts import hosts_missing
from heronpy.testing.servers import zookeeper_missing


@pytest.mark.timeout(2400)
def test_one_host_and_two_are_measured_with_and_without_a_rate():
    if why := hosts_missing() or zookeeper_missing():
        pytest.skip(why)
    bench = Path(__file__).with_name("bench_hosts.py")
    options = ("--workload", "RTAC", "--hosts", "2", "--seconds", "1", "--warm-up", "0.5", "--rate", "200")
    done = subprocess.run([sys.executable, str(bench), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(", 0 lost") == 4, done.stderr
    header, _, row, machine = done.stdout.splitlines()
    assert "CPython" in machine
    cells = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    assert cells["| workload"] == "| RTAC"
    for figure in ("one host µs", "hosts µs", "stmgrs of one", "stmgrs of hosts", "hosts / one"):
        assert float(cells[figure]) > 0, figure
