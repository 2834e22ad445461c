"""What starts a container in one of YARN: with which exit code it ends."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from heron_scheduler.driven import Order, Orders
from heron_scheduler.yarn import BOOTSTRAP, Credentials
from msgspec import structs

from heronpy.container import TRY_AGAIN, bootstrap_document
from heronpy.runtime import PARENT_ENV, TOKEN_FILE, Launch, StatemgrSpec
from heronpy.security import write_secret
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually_sync


def orders(*, stop: bool) -> bytes:
    return Orders(topology_id="words-1", stop=stop, containers={1: Order(1, 1, 64)}).encode()


@pytest.mark.parametrize(("ordered", "code"), [(True, 0), (False, TRY_AGAIN)], ids=["ordered", "by-yarn"])
def test_a_container_that_nobody_ordered_to_end_asks_to_be_started_again(
    tmp_path: Path, *, ordered: bool, code: int
) -> None:
    launch = Launch(
        topology="words",
        topology_id="words-1",
        cluster="yarn",
        role="me",
        environ="default",
        statemgr=StatemgrSpec(type="file", root=str(tmp_path / "state")),
        dir=tmp_path / "words",
    )
    security = structs.replace(launch.config.security, tls=False)
    package = structs.replace(launch.config.package, python=f"venv:{sys.prefix}")
    launch = dataclasses.replace(launch, config=structs.replace(launch.config, security=security, package=package))
    launch.save()
    write_secret(launch.dir / TOKEN_FILE, b"0" * 64)
    credentials = tmp_path / "credentials"
    write_secret(credentials, Credentials(secrets={BOOTSTRAP: bootstrap_document(launch, 1)}).encode())
    host = tmp_path / "host"
    host.mkdir()
    with open_statemgr(launch.statemgr) as state:
        state.set(Kind.DRIVERORDERS, "words", orders(stop=False))
        starter = subprocess.Popen(
            [sys.executable, "-m", "heron_scheduler.yarn.starter", "--generation", "1"],
            cwd=host,
            env={**os.environ, "HADOOP_TOKEN_FILE_LOCATION": str(credentials), PARENT_ENV: ""},
        )
        try:

            def started() -> None:
                assert starter.poll() is None
                assert list((host / "heron/work").glob("*")), "the container waits for its topology, which is not there"

            eventually_sync(started, within_s=120)
            if ordered:
                state.set(Kind.DRIVERORDERS, "words", orders(stop=True))
            else:
                starter.send_signal(signal.SIGTERM)
            assert starter.wait(120) == code
        finally:
            starter.kill()
            starter.wait()
