"""Executors on other machines: sent what they need, and asked whether they can work, before anything is computed.

Spark waits for resources for ever, and reports a Python without packages by failing tasks with tracebacks. Here a job
of a few empty tasks says all that in one line.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import secrets
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.errors import UnavailableError
from heronpy.filesystem import Location, UrlPath
from heronpy.pipeline import probe
from heronpy.pipeline.execute import translated
from heronpy.pipeline.masters import SHIP_PACKAGES_KEY, is_local, is_set, start_timeout_s
from heronpy.pipeline.pods import is_kubernetes, waiting
from heronpy.pipeline.progress import job_group
from heronpy.pipeline.shipping import needed_packages, ship

if TYPE_CHECKING:
    from pyspark import SparkContext

_TASKS = "heronpy.pipeline.execute"
"""What imports everything that tasks do."""
_SAME_MAJOR = ("numpy", "cloudpickle")
"""Packages whose pickles another major version does not read."""
_ROUNDS_MAX = 3
"""Executors that come while others are asked are asked, too, so often."""
_PYTHON_HINT = "name one with --conf spark.pyspark.python=PATH"
_WHERE = re.compile(r"\(TID \d+\) \((\S+) executor")
_VERSION = re.compile(r"different version: (\S+) than")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]*)"')


def equip(sc: SparkContext, conf: Mapping[str, str]) -> None:
    """Send executors on other machines what tasks need, and see that they can work. Nothing for those on this one.

    Raises:
        UnavailableError: no executor comes, or one cannot work; says where, and what is missing.
        HeronError: something cannot be sent.
    """
    if is_local(str(sc.master)):
        return
    ship(sc, packages=is_set(conf, SHIP_PACKAGES_KEY))
    look = partial(probe.look, needed_packages(), _TASKS)
    asked: set[tuple[str, str]] = set()
    for _ in range(_ROUNDS_MAX):
        for answer in _asked(sc, look, start_timeout_s(conf)):
            seen = probe.Seen(*answer)
            _check(seen)
            asked.add((seen.host, seen.directory))
        if len(asked) >= _executors(sc):
            return


def check_places(sc: SparkContext, conf: Mapping[str, str], places: Collection[Location]) -> None:
    """See that executors on other machines reach the stores and directories that they are to read and write.

    Raises:
        UnavailableError: one does not; says where, and why.
    """
    if is_local(str(sc.master)):
        return
    urls = sorted({place.root for place in places if isinstance(place, UrlPath)})
    directories = sorted(str(place) for place in places if isinstance(place, Path) and place.is_dir())
    for host, failed in _asked(sc, partial(probe.reach, urls, directories), start_timeout_s(conf)):
        if failed:
            raise UnavailableError(f"the executor on {host} cannot use {failed}")


def _check(seen: probe.Seen) -> None:
    where = f"the executor on {seen.host}"
    if seen.missing:
        raise UnavailableError(
            f"{where} has no {', '.join(seen.missing)} in {seen.python}: install what is missing, {_PYTHON_HINT}, or "
            "send it along: --ship-packages"
        )
    for name in _SAME_MAJOR:
        ours = str(importlib.import_module(name).__version__)
        theirs = seen.versions[name]
        if ours.partition(".")[0] != theirs.partition(".")[0]:
            raise UnavailableError(
                f"{where} has {name} {theirs} in {seen.python}, and this Python {ours}, which do not understand each "
                f"other: {_PYTHON_HINT}, or send packages along: --ship-packages"
            )


def _executors(sc: Any) -> int:
    return int(sc._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is among them


def _asked(sc: Any, look: Callable[[Any], Iterator[Any]], timeout_s: float) -> list[Any]:
    """What executors answer, one task for each core.

    Raises:
        UnavailableError: they do not, or not in time.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    group = f"heronpy-probe-{secrets.token_hex(4)}"
    late = threading.Event()

    def give_up() -> None:
        late.set()
        with contextlib.suppress(Exception):  # Spark may be gone: then the job ends by itself
            sc.cancelJobGroup(group)

    timer = threading.Timer(timeout_s, give_up)
    timer.daemon = True
    count = sc.defaultParallelism
    timer.start()
    try:
        with _pickled_by_value(probe), job_group(sc, group, "asking executors"):
            return list(sc.parallelize(range(count), count).mapPartitions(look).collect())
    except (Py4JError, PySparkException) as e:
        raise UnavailableError(_silent(sc, timeout_s) if late.is_set() else _reason(sc, str(e))) from e
    finally:
        timer.cancel()


@contextlib.contextmanager
def _pickled_by_value(module: Any) -> Iterator[None]:
    theirs: Any = importlib.import_module("pyspark.cloudpickle")
    theirs.register_pickle_by_value(module)
    try:
        yield
    finally:
        theirs.unregister_pickle_by_value(module)


def _silent(sc: Any, timeout_s: float) -> str:
    if is_kubernetes(str(sc.master)) and (why := waiting(sc)):
        return f"no executor of {sc.master} has answered within {timeout_s:g} s: {why}"
    conf = sc.getConf()
    driver = f"{conf.get('spark.driver.host', '?')}:{conf.get('spark.driver.port', '?')}"
    asked_for = f"{conf.get('spark.executor.memory', '1g')} of memory each"
    if cores := conf.get("spark.executor.cores", None):
        asked_for += f", {cores} cores"
    return (
        f"no executor of {sc.master} has answered within {timeout_s:g} s: the cluster has no free ones (asked for: "
        f"{asked_for}), or they do not reach this driver at {driver} (spark.driver.host)"
    )


def _reason(sc: Any, text: str) -> str:
    """Why the job of empty tasks failed, in one line."""
    found = _WHERE.search(text)
    where = f"the executor on {found[1]}" if found else f"an executor of {sc.master}"
    if version := _VERSION.search(text):
        own = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return f"{where} runs Python {version[1]}, and this is Python {own}: {_PYTHON_HINT}"
    if program := _NO_PROGRAM.search(text):
        return f"{where} has no Python {program[1]!r}: {_PYTHON_HINT}"
    if "SparkContext was shut down" in text or "stopped SparkContext" in text:
        return (
            f"{sc.master} has ended the application: its executors fail when they start, perhaps because they do not "
            "reach this driver (spark.driver.host); their logs say why"
        )
    return f"{where} cannot work: {' '.join(str(translated(text)).split())[:300]}"
