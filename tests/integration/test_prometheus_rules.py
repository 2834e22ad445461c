"""The files in deploy/prometheus, read by Prometheus' own tool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.security import authority
from heronpy.testing.servers import prometheus_missing
from heronpy.viz import limits

pytestmark = pytest.mark.skipif(prometheus_missing() is not None, reason=str(prometheus_missing()))

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
TESTS = sorted((DEPLOY / "tests").glob("*.yml"))


def promtool(*args: str | Path) -> str:
    done = subprocess.run(["promtool", *map(str, args)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_prometheus_reads_the_scrape_configuration_with_rules_and_limits(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path, dirs_exist_ok=True)
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "heron.json").write_text("[]")
    certificate = authority.scraper_certificate(tmp_path / "tls")
    (tmp_path / "targets" / "heron.ca.pem").write_bytes(certificate)
    (tmp_path / "limits").mkdir()
    launch = Launch(
        topology="t", topology_id="t-1", cluster="c", role="r", environ="e", statemgr=StatemgrSpec(), dir=tmp_path
    )
    share = Resources(1, 1 << 30, 0)
    packing = PackingPlan("p", (ContainerPacking(1, (InstancePacking("count", 1, 0, share),), share),))
    (tmp_path / "limits" / "heron.yml").write_text(limits([(launch, packing)]))
    output = promtool("check", "config", tmp_path / "prometheus.yml")
    assert "2 rule files found" in output
    assert "WARNING" not in output


@pytest.mark.parametrize("file", TESTS, ids=lambda path: path.name)
def test_the_alerts_do_what_their_own_tests_say(file: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", file)


def test_every_alert_is_tested_to_fire() -> None:
    rules = [r for group in yaml.safe_load((DEPLOY / "heron.rules.yml").read_text())["groups"] for r in group["rules"]]
    fires = {
        case["alertname"]
        for file in TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    alerts = {rule["alert"] for rule in rules if "alert" in rule}
    assert alerts == fires
    assert alerts
