"""Making a Spark job's files count: renamed, then named by the manifest; then what they replace is removed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from heronpy.archive import publish_letters
from heronpy.files import sync
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.exchange import output_directory, output_name
from heronpy.pipeline.job import Job
from heronpy.pipeline.letters import find_letters, remove_letters, stale_letters
from heronpy.pipeline.manifest import Batch, Manifest, Parts
from heronpy.pipeline.parts import part_name
from heronpy.pipeline.plan import BatchPlan
from heronpy.pipeline.reductions import STATES
from heronpy.pipeline.task import Part, Report
from heronpy.streamlet.graph import Node, SinkNode, StoreNode


def commit(
    job: Job,
    plan: BatchPlan,
    manifest: Manifest,
    report: Report,
    version: str,
    fingerprints: Mapping[int, str],
    inputs: Mapping[int, Mapping[str, str]],
    *,
    damaged: Mapping[int, str],
    committed_watermark: Callable[[], int | None],
) -> None:
    """Replace batches by what a Spark job has computed.

    Args:
        job: whose batches.
        plan: what was computed.
        manifest: changed, and saved.
        report: of the Spark job.
        version: of its files.
        fingerprints: of the batches that it computed.
        inputs: of each batch, by archive.
        damaged: what could not be read of the input of batches.
        committed_watermark: called when the batches are in the manifest.
    """
    replaced = [
        directory
        for batch in fingerprints
        if (old := manifest.batches.get(batch)) is not None
        for directory in _directories(job, plan, batch, old)
    ]
    parts: dict[tuple[str, int], list[Part]] = {}
    for part in report.parts:
        parts.setdefault((part.stage, part.batch), []).append(part)
    for group in parts.values():
        _rename(group)
    publish_letters(report.letters)
    now_s = time.time()
    for batch, fingerprint in fingerprints.items():
        done = Batch(version, fingerprint, finished_at_s=now_s, inputs=dict(inputs.get(batch, {})))
        done.took_s = report.took_s
        done.elements = report.elements[batch]
        done.duplicates = report.duplicates[batch]
        done.dead_letters = report.failed[batch]
        done.damaged = damaged.get(batch, "")
        for name in plan.outputs:
            node = plan.nodes[name]
            outputs = done.views if isinstance(node, StoreNode) else done.sinks
            outputs[output_name(node)] = _parts(node, parts.get((name, batch), []))
            if isinstance(node, StoreNode):
                done.monoids[output_name(node)] = node.monoid.signature
        manifest.batches[batch] = done
    manifest.committed_watermark = committed_watermark()
    letters = find_letters(job.directory)  # before: a run that takes over afterwards has others
    manifest.save(job.directory)
    for directory in replaced:
        files_of(directory).delete_folder(directory)  # what stays is removed as a leftover by the next run
    remove_letters(letters, manifest, version)


def _rename(parts: list[Part]) -> None:
    folder = parts[0].written.parent
    if not isinstance(folder, Path):
        return  # they have their names: nothing is renamed in a store
    for part in parts:
        assert isinstance(part.written, Path)
        part.written.replace(folder / part.final)
    for path in (folder, folder.parent, folder.parent.parent):
        sync(path)


def _parts(node: Node, parts: list[Part]) -> Parts:
    rows = [0] * (max((part.number for part in parts), default=-1) + 1)
    for part in parts:
        rows[part.number] = part.rows
    if isinstance(node, SinkNode):
        return Parts(sum(rows), rows, sorted(part.final for part in parts))
    files = [""] * len(rows)
    for part in parts:
        files[part.number] = part.final
    named = any(part.final != part_name(part.number) for part in parts)
    return Parts(sum(rows), rows, files if named else [])


def _directories(job: Job, plan: BatchPlan, batch: int, old: Batch) -> Iterator[Location]:
    for name in plan.outputs:
        yield output_directory(job.directory, plan.nodes[name], batch, old.version)


def find_leftovers(job: Job, manifest: Manifest) -> list[Location]:
    """What the manifest does not name: of runs that died, of programs that had other views.

    In a store it is looked for before the manifest is claimed, and removed afterwards: so nothing of it is of a run
    that has taken over meanwhile.
    """
    found = stale_letters(find_letters(job.directory), manifest)
    kept = {f"batch={n}/{batch.version}" for n, batch in manifest.batches.items()}

    def counts(output: str, name: str) -> bool:
        base = manifest.bases.get(output)
        return name in kept or (base is not None and name == f"base/{base.version}")

    if not isinstance(job.directory, Path):
        return found + _stored_leftovers(job.directory, counts)
    found += [folder for folder in _folders(job.directory) if folder.name.startswith(STATES)]
    for kind in ("views", "sinks"):
        for output in _folders(job.directory / kind):
            for batch in _folders(output):
                versions = _folders(batch)
                found += [version for version in versions if not counts(output.name, f"{batch.name}/{version.name}")]
    return found


def _stored_leftovers(directory: Location, counts: Callable[[str, str], bool]) -> list[Location]:
    found = []
    for kind in ("views", "sinks"):
        folder = directory / kind
        for path in files_of(folder).below(folder):
            where = path.parts[len(folder.parts) : -1]  # output, batch, version; what else is there is not of a run
            if len(where) == 3 and path.name and not counts(where[0], f"{where[1]}/{where[2]}"):
                found.append(path)
    return found


def remove_leftovers(found: Sequence[Location]) -> None:
    """Remove what `find_leftovers` has found.

    Raises:
        OSError, HeronError: a file cannot be removed.
    """
    files = []
    for path in found:
        if isinstance(path, Path) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            files.append(path)
    if files:
        files_of(files[0]).delete(files)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
