"""`heron pipeline status`, `query`, `export`, `reconcile` and `script`: what reads, and needs no Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from heronpy.cli.commands import Verbose, home
from heronpy.errors import HeronError, NotFoundError, UsageError
from heronpy.files import replace_file
from heronpy.pipeline.cli_job import (
    ArgsArgument,
    JobArgument,
    JobCommand,
    JsonOption,
    KeyCommand,
    LiveOption,
    NameOption,
    load,
    parse_key,
)

DRIFTED = 8
"""Exit code of `reconcile --fail-on-drift`."""

SETTINGS = {
    "status": {"cls": JobCommand},
    "query": {"cls": KeyCommand},
    "export": {"cls": JobCommand},
    "reconcile": {"cls": JobCommand},
}

ExactOnly = Annotated[
    bool,
    typer.Option(
        "--exact-only",
        help="Leave out the live view, which may count events again until their batch is done.",
        show_default=False,
    ),
]
ViewOption = Annotated[str | None, typer.Option(metavar="VIEW", help="Which view; needed if there are several.")]


def status(
    job: JobArgument,
    args: ArgsArgument = None,
    name: NameOption = None,
    live: LiveOption = None,
    as_json: JsonOption = False,
    verbose: Verbose = False,
) -> None:
    """Show how far batches are, what the archive and the live stores hold, and what was set aside."""
    from heronpy.pipeline.status import collect, show

    found = collect(load(job, args, name, live).job)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show(found)


def query(
    job: JobArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="JSON, with arrays for tuples; or any other text.")],
    args: ArgsArgument = None,
    name: NameOption = None,
    live: LiveOption = None,
    view: ViewOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the parts that the answer is made of.", show_default=False)
    ] = False,
    exact_only: ExactOnly = False,
    as_json: JsonOption = False,
    verbose: Verbose = False,
) -> None:
    """Print what batch and live view together say about a key. Exit code 3 if they know nothing of it."""
    from heronpy.pipeline._query import answer

    parsed = parse_key(key)
    found = answer(load(job, args, name, live).job, parsed, view, exact_only=exact_only)
    if found is None:
        raise NotFoundError(
            f"no key {parsed!r} in the views of {job}" if view is None else f"no key {parsed!r} in {view}"
        )
    if as_json:
        print(json.dumps(found.to_json(explain=explain), indent=2 if explain else None))
    else:
        print("\n".join(found.lines(explain=explain)))


def export(
    job: JobArgument,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Its suffix says the format: .parquet, .csv, .jsonl.")
    ],
    args: ArgsArgument = None,
    name: NameOption = None,
    live: LiveOption = None,
    view: ViewOption = None,
    exact_only: ExactOnly = False,
    verbose: Verbose = False,
) -> None:
    """Write a view, batch and live view together, as a table that other programs read."""
    target = out.absolute()  # before a job's working directory can matter
    from heronpy.pipeline._query import view_of
    from heronpy.pipeline.export import check_path
    from heronpy.pipeline.export import export as write
    from heronpy.pipeline.merged import MergedStore

    check_path(target)
    loaded = load(job, args, name, live)
    chosen = view_of(loaded.job, view)
    with MergedStore(loaded.job, chosen, exact_only=exact_only) as store:
        rows = write(store.items(), target)
    print(f"{chosen}: {rows:,} rows in {out}")


def reconcile(
    job: JobArgument,
    args: ArgsArgument = None,
    name: NameOption = None,
    live: LiveOption = None,
    view: Annotated[str | None, typer.Option(metavar="VIEW", help="Only this view.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="Keys of each view to show.")] = 20,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report with charts.")] = None,
    as_json: JsonOption = False,
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help=f"Exit code {DRIFTED} if a key has drifted.", show_default=False)
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Compare live and batch views over the closed batches that the live stores still have."""
    target = None if html is None else html.absolute()  # before a job's working directory can matter
    if target is not None and not target.parent.is_dir():
        raise UsageError(f"--html {html}: there is no directory {target.parent}")
    from heronpy.pipeline import reconcile as _reconcile

    compared = load(job, args, name, live).job
    found = _reconcile.reconcile(compared, view=view, limit=limit)
    if view is None:  # else it is not all of the drift
        from heronpy.pipeline.look import drift_of
        from heronpy.pipeline.publish import try_publish

        try_publish(home(), compared, reconciled=drift_of(found))
    if target is not None:
        from heronpy.pipeline.drift_report import html as page

        _write(target, page(found))
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        _print(found)
    if fail_on_drift and found.drifted:
        sys.stdout.flush()
        print(f"heron: {found.drifted:,} keys have drifted", file=sys.stderr)
        raise typer.Exit(DRIFTED)


def script() -> None:
    """Print the path of the script for spark-submit, which takes the same arguments as `heron pipeline`."""
    print(Path(__file__).with_name("__main__.py"))


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, text, durable=False)
    except OSError as e:
        raise HeronError(f"{path} cannot be written: {e.strerror or e}") from e


def _print(found: Any) -> None:
    from rich.console import Console

    from heronpy.cli.tables import WIDTH, empty_table
    from heronpy.pipeline.batch_times import batch_names
    from heronpy.pipeline.charts import number
    from heronpy.pipeline.drift_report import percent, signed, worst_rows

    console = Console(highlight=False, width=WIDTH, markup=False)
    for view in found.views:
        total = view.total
        if not total.keys:
            console.print(f"{view.view}: nothing to compare: no closed batch has rows in the live store")
            continue
        sums = f", live {number(total.live)}, batch {number(total.batch)}"
        sums += f", drift {signed(total.drift)} ({percent(total.percent)})"
        console.print(
            f"{view.view}: {total.keys:,} keys in {batch_names(sorted(view.batches), found.batch_length_ms)}, "
            f"{total.drifted:,} drifted" + (sums if total.drift is not None else "")
        )
        if view.worst:
            rows = empty_table("key", right=("live", "batch", "drift", "share", ""))
            for _, cells in worst_rows(view):
                rows.add_row(*cells)
            console.print(rows)
