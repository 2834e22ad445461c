"""What holds for every test: at the end of the run none of its processes is left, however it ends."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import reaper

from heronpy.host import TOPOLOGY_ENV, find_by_environment
from heronpy.testing import eventually_sync
from heronpy.testing.etcd import etcd_missing
from heronpy.testing.servers import prometheus_missing, redis_missing, spark_missing, zookeeper_missing

# A deadline for an example measures what else runs on the machine. The suite tries the same examples every time, so
# that a failure is of the change at hand; `make nightly` tries others.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.register_profile("nightly", deadline=None)
hypothesis.settings.load_profile("nightly" if os.environ.get("HERON_NIGHTLY") else "suite")


ORDER = ("clusters", "hosts", "spark", "browser", "kafka", "integration", "chaos", "bench", "fuzz", "unit")
TOGETHER = ("tests/browser/", "tests/spark/", "tests/kafka/")
"""Directories whose tests share what takes long to start, and so go to one worker."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script. Children would inherit it, and the tests of Ctrl-C would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """What is started from here on ends with this process, also if it is interrupted or killed."""
    if os.environ.get("HERON_REQUIRE_SERVERS"):
        found = (zookeeper_missing(), etcd_missing(), redis_missing(), prometheus_missing(), spark_missing())
        found += (_chromium_missing(),)  # not Kafka: its jars come from a registry that is not reachable everywhere
        if missing := [reason for reason in found if reason is not None]:
            raise pytest.UsageError(f"HERON_REQUIRE_SERVERS is set: {'; '.join(missing)}")
    reaper.start()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What a worker is given at once: a file, or a directory."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            together = next((directory for directory in TOGETHER if nodeid.startswith(directory)), "")
            return together or nodeid.split("::", 1)[0]

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Each worker imports its share of the test files first, and then finds what the others have compiled.

    pytest's compilation with assertions takes three times the CPU of the imports. Workers that all begin with the same
    file would each do all of it in a fresh clone.
    """
    gc.disable()  # modules and items stay, so it would find nothing, however often it looked
    try:
        _import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_share(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    for path in _test_files(config)[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        if sys.path[0] != str(path.parent):
            sys.path.insert(0, str(path.parent))
        # What fails, or skips itself, does so again when it is collected, and is reported then.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(path.stem)


def _test_files(config: pytest.Config) -> list[Path]:
    """Test files below the directories that are collected."""
    left_out = config.getini("norecursedirs")
    found = [
        path for arg in config.args if Path(arg).is_dir() for path in sorted(Path(arg).absolute().rglob("test_*.py"))
    ]
    given = {Path(arg).absolute() for arg in config.args}
    return [path for path in found if path.parent in given or path.parent.name not in left_out]


class Together(pytest.Package):
    """A directory whose tests share fixtures of the scope `package`, though it has no `__init__.py`."""

    def setup(self) -> None:
        """There is nothing to import."""


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    shares = f"{path.parent.name}/{path.name}/" in TOGETHER
    return Together.from_parent(parent, path=path) if shares else None


def _chromium_missing() -> str | None:
    return None if shutil.which("chromium") else "no Chromium: install Debian's package chromium"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `spark` are skipped where none can be started, and `long` ones unless asked for; with the reason.

    What starts processes comes first: beside the last file of a run the other workers have nothing to do.
    """
    order = {directory: place for place, directory in enumerate(ORDER)}
    items.sort(key=lambda item: order.get(item.path.parent.name, 0))
    if not os.environ.get("HERON_LONG"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes long: make test-long"))
    marked = [item for item in items if item.get_closest_marker("spark")]
    if marked and (reason := spark_missing()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_itemcollected(item: pytest.Item) -> None:
    """What a class says of the tests of its kit: those in `long` take long."""
    if isinstance(item, pytest.Function) and item.originalname in getattr(item.cls, "long", ()):
        item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Every process of a topology that this run started, however deep, carries the run's id in its environment."""
    yield
    run = os.environ.pop(reaper.RUN_ENV)

    def gone() -> None:
        left = [
            f"pid {process.pid} {env.get('HERON_PROCESS')} of {env[TOPOLOGY_ENV]}"
            for process, env in find_by_environment({reaper.RUN_ENV: run})
            if TOPOLOGY_ENV in env
        ]
        assert not left, f"processes left by this test run: {left}"

    eventually_sync(gone)
