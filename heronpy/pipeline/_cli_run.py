"""`heron pipeline run`, `backfill`, `bootstrap` and `compact`: what runs on Spark."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from heronpy.cli.commands import Verbose, home
from heronpy.cli.commands import verbose as verbose_is_on
from heronpy.errors import DamagedInputError, HeronError, UsageError
from heronpy.pipeline.batch_times import batch_name
from heronpy.pipeline.cli_job import (
    ArgsArgument,
    JobArgument,
    JobCommand,
    JsonOption,
    LiveOption,
    NameOption,
    load,
    parse_batch,
    parse_time_ms,
)
from heronpy.pipeline.cli_progress import shown, steps
from heronpy.pipeline.load import Loaded, enter, pickle_by_value_in_spark
from heronpy.pipeline.masters import SHARED_DISK_KEY, SHIP_PACKAGES_KEY
from heronpy.pipeline.reconcile import drop_live_rows
from heronpy.pipeline.running import RunReport
from heronpy.pipeline.running import run as batch_run
from heronpy.pipeline.session import check_packages, start_named

SETTINGS = {name: {"cls": JobCommand} for name in ("run", "backfill", "bootstrap", "compact", "vacuum")}

LOCAL = "local[*]"
_BATCHES_MAX = 1_000_000

Master = Annotated[
    str | None, typer.Option(metavar="URL", help=f"Spark's master. Default: spark-submit's, or {LOCAL}.")
]
AcceptDamage = Annotated[
    bool,
    typer.Option("--accept-damage", help="Compute batches without what is damaged of their input.", show_default=False),
]
Conf = Annotated[list[str] | None, typer.Option(metavar="K=V", help="A setting of Spark; may be repeated.")]
SharedDisk = Annotated[
    bool, typer.Option("--shared-disk", help="Executors have the directories of this machine.", show_default=False)
]
ShipPackages = Annotated[
    bool, typer.Option("--ship-packages", help="Send installed packages to executors.", show_default=False)
]


def run(
    job: JobArgument,
    args: ArgsArgument = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="Batches that end by then, and no others, whether the archive is complete up to them or not; what "
            "comes to them later is for the next run. ISO time (UTC), seconds, or now.",
        ),
    ] = None,
    accept_damage: AcceptDamage = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--everything", help="Look at all files of the archive, for what was changed by hand.", show_default=False
        ),
    ] = False,
    master: Master = None,
    conf: Conf = None,
    shared_disk: SharedDisk = False,
    ship_packages: ShipPackages = False,
    name: NameOption = None,
    live: LiveOption = None,
    as_json: JsonOption = False,
    verbose: Verbose = False,
) -> None:
    """Compute all batches that are complete and not done, or whose input has changed."""
    until_ms = None if until is None else parse_time_ms("--until", until)
    settings = spark_settings(conf, shared_disk, ship_packages)
    loaded = load(job, args, name, live)
    with _published(loaded) as add_report:
        with _reported(loaded, as_json):
            which = {"until_ms": until_ms, "accept_damage": accept_damage, "everything": everything}
            report = _run(loaded, master, settings, quiet=as_json, **which)
        add_report(report)
        _print_report(loaded, report, as_json)
        drop_live_rows(loaded.job)


def backfill(
    job: JobArgument,
    args: ArgsArgument = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="T", help="ISO time (UTC), or seconds since the epoch.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="T", help="The same; batches that begin before it.")] = None,
    batch: Annotated[
        list[str] | None, typer.Option(metavar="B", help="A batch: a time in it, or its id; may be repeated.")
    ] = None,
    accept_damage: AcceptDamage = False,
    master: Master = None,
    conf: Conf = None,
    shared_disk: SharedDisk = False,
    ship_packages: ShipPackages = False,
    name: NameOption = None,
    live: LiveOption = None,
    as_json: JsonOption = False,
    verbose: Verbose = False,
) -> None:
    """Compute batches again, by time or by id, whether or not they are done."""
    times = None if begin is None or to is None else (parse_time_ms("--from", begin), parse_time_ms("--to", to))
    if bool(batch) == bool(times) or (begin is None) != (to is None):
        raise UsageError("say which batches: --from T --to T, or --batch B")
    if times is not None and times[0] >= times[1]:
        raise UsageError(f"--to must be later than --from: {to} is not after {begin}")
    settings = spark_settings(conf, shared_disk, ship_packages)
    loaded = load(job, args, name, live)
    length_ms = loaded.job.batch_length_ms
    wanted = (
        sorted({parse_batch(one, length_ms) for one in batch})
        if batch
        else batches_between(*(times or (0, 0)), length_ms)
    )
    batches = closed_ones(loaded, wanted, by_id=bool(batch))
    until_ms = (batches[-1] + 1) * length_ms
    which = {"batches": batches, "until_ms": until_ms, "accept_damage": accept_damage}
    with _published(loaded) as add_report:
        with _reported(loaded, as_json):
            report = _run(loaded, master, settings, quiet=as_json, **which)
        add_report(report)
        _print_report(loaded, report, as_json)


def bootstrap(
    job: JobArgument,
    args: ArgsArgument = None,
    force: Annotated[bool, typer.Option("--force", help="Also while the topology runs.", show_default=False)] = False,
    master: Master = None,
    conf: Conf = None,
    shared_disk: SharedDisk = False,
    ship_packages: ShipPackages = False,
    name: NameOption = None,
    live: LiveOption = None,
    as_json: JsonOption = False,
    verbose: Verbose = False,
) -> None:
    """Compute pending batches, and let the topology begin with their results: live views, and state of reductions."""
    from heronpy.pipeline import _bootstrap_job

    settings = spark_settings(conf, shared_disk, ship_packages)
    loaded = load(job, args, name, live, makes_live=True)
    if not force:
        _bootstrap_job.refuse_if_running(home(), loaded.job.name)
    with _published(loaded) as add_report, _session(loaded, master, settings) as where:
        report = _run_in(loaded, where, quiet=as_json)
        add_report(report)
        with steps("bootstrap", quiet=as_json) as step:
            done = _bootstrap_job.bootstrap(loaded.job, progress=step, **where)
    if as_json:
        print(json.dumps({"run": report_json(report), **done.to_json()}, indent=2))
    else:
        print(done)


def compact(
    job: JobArgument,
    args: ArgsArgument = None,
    master: Master = None,
    conf: Conf = None,
    shared_disk: SharedDisk = False,
    ship_packages: ShipPackages = False,
    name: NameOption = None,
    verbose: Verbose = False,
) -> None:
    """Merge the small files of complete batches in the archives."""
    from heronpy.pipeline import compaction as _compact

    settings = spark_settings(conf, shared_disk, ship_packages)
    loaded = load(job, args, name)
    with _session(loaded, master, settings) as where, steps("compact") as step:
        report = _compact.compact(loaded.job, progress=step, **where)
    print(report)


def spark_settings(conf: Sequence[str] | None, shared_disk: bool, ship_packages: bool) -> dict[str, str]:
    """Spark's settings, and what of a command says how executors are.

    Raises:
        UsageError: see `parse_conf`.
    """
    said = {SHARED_DISK_KEY: shared_disk, SHIP_PACKAGES_KEY: ship_packages}
    return {**parse_conf(conf), **{key: "true" for key, is_said in said.items() if is_said}}


def vacuum(
    job: JobArgument,
    args: ArgsArgument = None,
    letters_days: Annotated[
        float | None,
        typer.Option("--dead-letters-older-than", metavar="DAYS", min=0, help="Batch runs' dead letters go, too."),
    ] = None,
    gone_views: Annotated[
        bool,
        typer.Option("--gone-views", help="Batch views that the program lacks go, too.", show_default=False),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print it, remove nothing.", show_default=False)] = False,
    name: NameOption = None,
    verbose: Verbose = False,
) -> None:
    """Remove files that no batch run counts, however long ago they were left."""
    from heronpy.pipeline import vacuum as _vacuum

    if letters_days is not None and not math.isfinite(letters_days):
        raise UsageError(f"--dead-letters-older-than {letters_days} is no number of days")
    loaded = load(job, args, name)
    older_s = None if letters_days is None else letters_days * 86_400
    found = _vacuum.vacuum(loaded.job, letters_older_than_s=older_s, gone_views=gone_views, dry_run=dry_run)
    for view, batches in ({} if gone_views else found.gone_views).items():
        print(f"note: {batches:,} batches have {view}, which the program no longer has: --gone-views removes it")
    if dry_run:
        for path in (*found.leftovers, *found.letters):
            print(path)
    print(f"{'would remove' if dry_run else 'removed'} {found}")


def parse_conf(given: Sequence[str] | None) -> dict[str, str]:
    """`K=V` strings as Spark's settings.

    Raises:
        UsageError: one has no `=`, or is not a setting of Spark.
    """
    settings = {}
    for pair in given or ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--conf {pair!r} must have the form KEY=VALUE")
        if not key.startswith("spark."):
            raise UsageError(f"--conf {pair!r}: Spark's settings begin with spark.")
        settings[key] = value
    return settings


def batches_between(begin_ms: int, end_ms: int, length_ms: int) -> range:
    """The batches that begin before `end_ms` and end after `begin_ms`.

    Raises:
        UsageError: there are too many.
    """
    found = range(begin_ms // length_ms, -(-end_ms // length_ms))
    if len(found) > _BATCHES_MAX:
        raise UsageError(f"that is {len(found):,} batches: at most {_BATCHES_MAX:,} at a time")
    return found


def closed_ones(loaded: Loaded, wanted: Sequence[int], *, by_id: bool) -> list[int]:
    """Those of the batches that can be computed again.

    Raises:
        UsageError: there are none, or one that was asked for by its id is not closed: `run` computes it in its time.
    """
    from heronpy.archive import Archive
    from heronpy.pipeline.manifest import Manifest

    job = loaded.job
    manifest = Manifest.load(job.directory, job.batch_length_ms)
    closed = manifest.committed_watermark
    known = set(manifest.batches).union(*(Archive(job.archive_path(n)).batches() for n in job.archives().values()))

    def name(batch: int) -> str:
        return batch_name(batch, job.batch_length_ms)

    upto = "no batch is done" if closed is None else f"batches are done up to {name(closed)}"
    if by_id:
        if closed is None or wanted[-1] > closed:
            raise UsageError(f"batch {name(wanted[-1])} is not done yet, {upto}: `heron pipeline run` computes it")
        if unknown := [batch for batch in wanted if batch not in known]:
            raise UsageError(f"there is no batch {name(unknown[0])}: nothing has been archived in that time")
        return list(wanted)
    found = sorted(batch for batch in known if batch in wanted and closed is not None and batch <= closed)
    if not found:
        raise UsageError(f"there is no batch to compute again in that time: {upto}")
    return found


def _run(loaded: Loaded, master: str | None, settings: dict[str, str], *, quiet: bool, **which: Any) -> RunReport:
    with _session(loaded, master, settings) as where:
        return _run_in(loaded, where, quiet=quiet, **which)


def _run_in(loaded: Loaded, where: dict[str, Any], *, quiet: bool, **which: Any) -> RunReport:
    with shown(loaded.job.batch_length_ms, quiet=quiet) as progress:
        return batch_run(loaded.job, progress=progress, **where, **which)


@contextlib.contextmanager
def _published(loaded: Loaded) -> Iterator[Callable[[RunReport], None]]:
    """In the end the topology's state manager has what was done, for the Tracker; or why it failed.

    What fails after the run, as dropping live rows, is an error of the command and none of the run.
    """
    from heronpy.pipeline.publish import failed, try_publish
    from heronpy.pipeline.record import Run

    began_s = time.time()
    reports: list[RunReport] = []
    try:
        yield reports.append
    except HeronError as e:
        if not reports:
            try_publish(home(), loaded.job, run=failed(began_s, e))
        raise
    finally:
        for report in reports:
            done = Run(began_at_s=began_s, seconds=round(report.seconds, 3), batches=len(report.batches))
            try_publish(home(), loaded.job, run=done)


@contextlib.contextmanager
def _reported(loaded: Loaded, as_json: bool) -> Iterator[None]:
    """What was done beside damaged input is printed before the error."""
    try:
        yield
    except DamagedInputError as e:
        _print_report(loaded, e.report, as_json)
        raise


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs a traceback for a call that Ctrl-C has ended, with the root logger; users get their one line."""
    return verbose_is_on() or "py4j" not in Path(record.pathname).parts


@contextlib.contextmanager
def _session(loaded: Loaded, master: str | None, settings: dict[str, str]) -> Iterator[dict[str, Any]]:
    """`master` and `conf` for what runs on Spark. Under spark-submit the session is made here, with these settings."""
    check_packages()
    logging.getLogger().addFilter(_not_of_py4j)
    pickle_by_value_in_spark()
    enter(loaded.cwd)
    conf = {**loaded.spark_conf(), **settings}
    where = {"master": LOCAL if master is None else master, "conf": conf}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        yield where
        return
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"heronpy {loaded.job.name}").config(map={**conf})
    with start_named(master or "spark-submit's master", conf):
        session = (builder.master(master) if master else builder).getOrCreate()
    try:
        yield where
    finally:
        session.stop()


def _print_report(loaded: Loaded, report: RunReport, as_json: bool) -> None:
    size_bytes = report.input_bytes
    if as_json:
        print(json.dumps(report_json(report), indent=2))
        return
    from rich.console import Console

    from heronpy.cli.tables import WIDTH, empty_table

    console = Console(highlight=False, width=WIDTH, markup=False)
    for note in report.notes:
        console.print(f"note: {note}")
    if not report.batches:
        console.print(f"nothing to compute: {_closed(report)}")
        return
    table = empty_table(right=("batches", "elements", "duplicates dropped", "dead letters", "seconds", "MB/s"))
    table.add_row(
        f"{len(report.batches):,}",
        f"{report.elements:,}",
        f"{report.duplicates:,}",
        f"{report.dead_letters:,}",
        f"{report.seconds:.1f}",
        f"{size_bytes / 1e6 / report.seconds:.1f}" if size_bytes and report.seconds else "-",
    )
    console.print(table)
    if report.carried:
        console.print(f"{len(report.carried):,} of them: only what is behind reductions (their input is as it was)")
    for name, rows in report.rows.items():
        console.print(f"{name}: {rows:,} rows")
    console.print(_closed(report))


def _closed(report: RunReport) -> str:
    return (
        "no batch is complete yet"
        if report.committed_watermark is None
        else f"all batches up to {batch_name(report.committed_watermark, report.batch_length_ms)} are done"
    )


def report_json(report: RunReport) -> dict[str, Any]:
    """A report as plain values."""
    return asdict(report)
