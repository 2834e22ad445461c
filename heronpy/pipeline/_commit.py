"""Making a Spark job's files count: renamed, then named by the manifest; then what they replace is removed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from heronpy.archive import publish_letters
from heronpy.files import sync
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.exchange import output_directory, output_name
from heronpy.pipeline.job import Job
from heronpy.pipeline.letters import remove_letters
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
    manifest.save(job.directory)
    for directory in replaced:
        files_of(directory).delete_folder(directory)  # what stays is removed as a leftover by the next run
    remove_letters(job.directory, manifest, version)


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


def remove_leftovers(job: Job, manifest: Manifest) -> None:
    """Remove versions that the manifest does not name: of runs that died, of programs that had other views."""
    remove_letters(job.directory, manifest)
    kept = {f"batch={n}/{batch.version}" for n, batch in manifest.batches.items()}
    if not isinstance(job.directory, Path):
        _remove_stored(job.directory, kept, manifest)
        return
    for folder in _folders(job.directory):
        if folder.name.startswith(STATES):
            shutil.rmtree(folder, ignore_errors=True)
    for kind in ("views", "sinks"):
        for output in _folders(job.directory / kind):
            base = manifest.bases.get(output.name)
            for batch in _folders(output):
                for version in _folders(batch):
                    name = f"{batch.name}/{version.name}"
                    if name not in kept and (base is None or name != f"base/{base.version}"):
                        shutil.rmtree(version, ignore_errors=True)


def _remove_stored(directory: Location, kept: set[str], manifest: Manifest) -> None:
    files = files_of(directory)
    for kind in ("views", "sinks"):
        stale = []
        for path in files.below(directory / kind):
            *_, output, batch, version, _ = path.parts
            base = manifest.bases.get(output)
            name = f"{batch}/{version}"
            if name not in kept and (base is None or name != f"base/{base.version}"):
                stale.append(path)
        files.delete(stale)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
