"""What holds for every test: at the end of the run none of its processes is left."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator

import hypothesis
import pytest

from heronpy.executor import TOPOLOGY_ENV, find_by_environment
from heronpy.testing import eventually_sync
from heronpy.testing.servers import spark_missing

RUN_ENV = "HERON_TEST_RUN"

# A deadline for an example measures what else runs on the machine.
hypothesis.settings.register_profile("engine", deadline=None)
hypothesis.settings.load_profile("engine")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script. Children would inherit it, and the tests of Ctrl-C would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `spark` are skipped where none can be started, and `long` ones unless asked for; with the reason."""
    if not os.environ.get("HERON_LONG"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes long: make test-long"))
    marked = [item for item in items if item.get_closest_marker("spark")]
    if marked and (reason := spark_missing()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Every process of a topology that this run started, however deep, carries the run's id in its environment."""
    run = uuid.uuid4().hex
    os.environ[RUN_ENV] = run
    yield
    del os.environ[RUN_ENV]

    def gone() -> None:
        left = [
            f"pid {process.pid} {env.get('HERON_PROCESS')} of {env[TOPOLOGY_ENV]}"
            for process, env in find_by_environment({RUN_ENV: run})
            if TOPOLOGY_ENV in env
        ]
        assert not left, f"processes left by this test run: {left}"

    eventually_sync(gone, within_s=10)
