"""`make demo-pipeline`, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.testing.postgres import PostgresServer, postgres_missing
from heronpy.testing.servers import RedisServer, S3Server, redis_missing, s3_missing

pytestmark = [pytest.mark.long, pytest.mark.spark]


def test_the_demo_counts_live_and_in_batch_and_shows_the_drift(tmp_path: Path) -> None:
    check_demo(tmp_path)


@pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")
def test_the_demo_is_exact_with_its_files_in_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with S3Server(tmp_path / "s3") as server:
        check_demo(tmp_path, "--url", server.url("demo"))
        assert any((tmp_path / "s3" / "buckets" / "demo" / "heron-demo-pipeline" / "views" / "counts").iterdir())
    assert not (tmp_path / "build" / "job").exists()


@pytest.mark.skipif(bool(s3_missing() or redis_missing()), reason=s3_missing() or redis_missing() or "")
def test_the_demo_is_exact_with_its_files_in_s3_and_its_live_view_in_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    with S3Server(tmp_path / "s3") as server, RedisServer(tmp_path / "redis") as redis:
        check_demo(tmp_path, "--url", server.url("demo"), "--live", redis.url)
    assert not list((tmp_path / "build").rglob("*.sqlite*"))


@pytest.mark.skipif(bool(s3_missing() or postgres_missing()), reason=s3_missing() or postgres_missing() or "")
def test_the_demo_is_exact_with_its_files_in_s3_and_its_live_view_in_postgresql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in S3Server.credentials.items():
        monkeypatch.setenv(name, value)
    with S3Server(tmp_path / "s3") as server, PostgresServer(tmp_path / "postgres") as postgres:
        check_demo(tmp_path, "--url", server.url("demo"), "--live", postgres.url.replace("+psycopg", ""))


def check_demo(directory: Path, *options: str) -> None:
    command = [sys.executable, "-m", "heronpy.examples.demo_pipeline", "--build", str(directory / "build"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"kill -9 of the process container_1_", done.stdout)) == 2
    exact = re.search(r"submitting Words: ([\d,]+) words", done.stdout)
    correct = re.search(r"correct: ([\d,]+) words", done.stdout)
    live = re.search(r"live counts: ([\d,]+) words, ([\d,]+) of them counted twice", done.stdout)
    assert exact, done.stdout
    assert correct, done.stdout
    assert live, done.stdout
    assert correct[1] == exact[1]
    assert _number(live[1]) == _number(exact[1]) + _number(live[2])
    drift = re.search(r"counts: .* batch ([\d,]+), drift \+?([\d,]+)", done.stdout)
    assert drift, done.stdout
    assert drift[1] == exact[1]
    assert _number(drift[2]) == _number(live[2])


def _number(text: str) -> int:
    return int(text.replace(",", ""))
