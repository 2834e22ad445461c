"""Starting a topology warm: what batches have computed becomes its live views and the state of its reductions.

Live rows are replaced batch by batch: those of closed batches are not read anyway, batch views are. States and the cut
belong together, so they are written into a directory of their own, and the link `bootstrap` (in a store an object,
`bootstrap.json`) is turned to it in the end: interrupted before, a topology begins with what it would have begun with.
The same bootstrap can be run again.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from heronpy.archive.files import locked
from heronpy.errors import AlreadyExistsError, HeronError, StateError
from heronpy.filesystem import Location, UrlPath, files_of
from heronpy.pipeline import _manifest_log as log
from heronpy.pipeline._states import states
from heronpy.pipeline.batch_times import batch_name, time_name
from heronpy.pipeline.job import Job
from heronpy.pipeline.manifest import Manifest
from heronpy.pipeline.plan import live_only
from heronpy.pipeline.reconcile import live_reader
from heronpy.streamlet.bootstrap import name_bootstrap, write_cut, write_states
from heronpy.streamlet.graph import ReduceByKeyNode

_FOLDER = "bootstraps"
"""In the job's directory: what `bootstrap`, a link, points into."""


@dataclass
class Bootstrapped:
    """What a topology of this job will begin with."""

    committed_watermark: int
    """Elements up to the end of this batch are in it."""
    before_ms: int
    """That end, in ms since the epoch."""
    live_rows: dict[str, int] = field(default_factory=dict)
    """By view."""
    states: dict[str, int] = field(default_factory=dict)
    """Keys by stage."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `json.dumps`."""
        return asdict(self)

    def __str__(self) -> str:
        live = ", ".join(f"{view} {rows:,} rows" for view, rows in self.live_rows.items()) or "none"
        state = ", ".join(f"{stage} {keys:,} keys" for stage, keys in self.states.items()) or "none"
        before = time_name(self.before_ms, 1000)
        where = f"at {before} UTC" if before else f"after batch {self.committed_watermark}"
        return f"a topology begins {where}: live views: {live}; state: {state}; {self.seconds:.1f} s"


def refuse_if_running(home: Path, name: str) -> None:
    """Raise AlreadyExistsError if a topology of this name was submitted from here and not killed."""
    from heronpy.submit import running

    for launch in running(home):
        if launch.topology == name:
            where = f"{launch.cluster}/{launch.role}/{launch.environ}"
            raise AlreadyExistsError(
                f"topology {name} runs as {where}, and would go on from what it has: `heron kill {name}` first, "
                "or --force if its live views may be replaced under it"
            )


def load_live_views(
    job: Job, manifest: Manifest, *, progress: Callable[[str], None] = lambda _step: None
) -> dict[str, int]:
    """Make the batch views of all closed batches that live stores keep the rows of these batches; rows by view.

    Raises:
        HeronError: a view cannot be read, or a store not be written.
    """
    from heronpy.pipeline.views import ViewReader

    loaded = {}
    upto, first = manifest.committed_watermark, manifest.live_from(job.config.keep_live_batches)
    alone = live_only(job)
    for view, node in job.stores().items():
        if view in alone:
            continue
        with (
            live_reader(job, node) as live,
            contextlib.closing(ViewReader(job.directory, view, node.monoid, manifest)) as batch_view,
        ):
            rows = 0
            for batch in sorted({*batch_view.batches(), *live.batches()}):
                if upto is not None and batch <= upto and (first is None or batch >= first):
                    progress(f"{view}: batch {batch_name(batch, manifest.batch_length_ms)}")
                    items = Counted(batch_view.items(batch))
                    live.replace(batch, items)
                    rows += items.count
            loaded[view] = rows
    return loaded


def bootstrap(
    job: Job,
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] = {},
    progress: Callable[[str], None] = lambda _step: None,
) -> Bootstrapped:
    """Give the job's topology, which must not run, the results of all closed batches to begin with.

    Args:
        job: whose batches are done up to some point: see `heronpy.pipeline.run`.
        master: Spark's, for the state of reductions; a job that has none needs no Spark.
        conf: of Spark.
        progress: called with what happens.

    Raises:
        StateError: no batch is closed.
        HeronError: Spark, a view or a store fails; what there was before still counts.
    """
    began_s = time.monotonic()
    manifest = Manifest.load(job.directory, job.batch_length_ms)
    if manifest.committed_watermark is None:
        raise StateError(f"{job.name} has no closed batch to begin with: there is nothing to bootstrap from")
    done = Bootstrapped(manifest.committed_watermark, (manifest.committed_watermark + 1) * job.batch_length_ms)
    with _alone(job.directory, f"another bootstrap of {job.name} runs"):
        done.live_rows = load_live_views(job, manifest, progress=progress)
        done.states = _write_initial(job, job.directory, done, master, conf, progress)
    done.seconds = time.monotonic() - began_s
    return done


def _alone(directory: Location, what: str) -> contextlib.AbstractContextManager[object]:
    if isinstance(directory, Path):
        return locked(directory / f"{_FOLDER}.lock", what, wait_s=0)
    return log.lease(directory / f"{_FOLDER}-lock", what)


def _write_initial(
    job: Job,
    directory: Location,
    done: Bootstrapped,
    master: str,
    conf: Mapping[str, str],
    progress: Callable[[str], None],
) -> dict[str, int]:
    """Compute states, write them and the cut, and have topologies begin with them: all of it, or nothing."""
    counted = {}
    target = directory / _FOLDER / f"{done.committed_watermark}-{secrets.token_hex(4)}"
    try:
        if isinstance(target, Path):
            target.mkdir(parents=True)
        with states(job, master=master, conf=conf) as found:
            for stage, items in found.items():
                progress(f"state of {stage}")
                counter = Counted(items)
                write_states(target, stage, counter)
                counted[stage] = counter.count
        if Manifest.load(job.directory, job.batch_length_ms).committed_watermark != done.committed_watermark:
            raise StateError(f"a batch run of {job.name} closed further batches meanwhile: run the bootstrap again")
        places = {node.stage: node.place for node in job.graph.nodes() if isinstance(node, ReduceByKeyNode)}
        if isinstance(directory, UrlPath):
            name_bootstrap(directory, f"{_FOLDER}/{target.name}", places, done.before_ms)
        elif isinstance(target, Path):
            write_cut(target, done.before_ms, places)
            _switch(directory, target)
    except BaseException as e:
        with contextlib.suppress(HeronError):  # the next one removes it
            files_of(target).delete_folder(target)
        if isinstance(e, OSError):
            raise StateError(f"{target} cannot be written: {e.strerror or e}") from e
        raise
    if isinstance(target, Path):
        _remove_old(target)
    else:
        folder = directory / _FOLDER
        files_of(folder).delete(path for path in files_of(folder).below(folder) if target.name not in path.parts)
    return counted


def _switch(directory: Path, target: Path) -> None:
    """Make `bootstrap` in the job's directory mean that of `target`, in one step."""
    link = directory / "bootstrap"
    if link.is_dir() and not link.is_symlink():
        link.rename(target / "before")
    new = directory / f".bootstrap-{secrets.token_hex(4)}"
    new.symlink_to(Path(target.parent.name) / target.name / "bootstrap")
    new.replace(link)


def _remove_old(target: Path) -> None:
    """Remove what an earlier bootstrap has left, or one that was killed."""
    shutil.rmtree(target / "before", ignore_errors=True)
    for other in target.parent.iterdir():
        if other != target:
            shutil.rmtree(other, ignore_errors=True)


class Counted:
    """An iterable that says how much has been taken from it."""

    def __init__(self, items: Iterable[tuple[Any, Any]]) -> None:
        self._items = items
        self.count = 0

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for item in self._items:
            self.count += 1
            yield item
