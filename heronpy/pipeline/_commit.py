"""Making a Spark job's files count: renamed, then named by the manifest; then what they replace is removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from heronpy.archive import DEAD_LETTERS
from heronpy.files import sync
from heronpy.filesystem import Location, files_of
from heronpy.pipeline.exchange import output_name
from heronpy.pipeline.job import Job
from heronpy.pipeline.letters import find_letters, is_of_others, letters_of, publish_letters, stale_letters
from heronpy.pipeline.manifest import Batch, Manifest, Parts
from heronpy.pipeline.parts import part_name
from heronpy.pipeline.plan import BatchPlan
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
    listed: Mapping[int, Mapping[str, list[str]]],
    damaged: Mapping[int, str],
    direct: Mapping[int, str],
    carried: Collection[int],
    unchanged: Mapping[int, str],
    passed_on: Mapping[int, str],
    followers: Collection[int],
    committed_watermark: Callable[[], int | None],
    all_anew: bool = False,
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
        listed: see `Batch.files`.
        damaged: what could not be read of the input of batches.
        direct: see `Batch.direct`.
        carried: batches of which only what is behind reductions was computed.
        unchanged: fingerprints of batches whose results are as they were, although they follow from these.
        passed_on: see `Batch.passed_on`.
        followers: batches with other results, that are not computed yet: they are not done from now on.
        committed_watermark: called when the batches are in the manifest.
        all_anew: no batch stays as it was.
    """
    replaced: set[str] = set()
    """Versions of batches."""
    folders: list[str] = []
    for batch in fingerprints:
        if (old := manifest.batches.get(batch)) is not None and batch not in carried:
            replaced.add(old.version)
            folders += old.folders(batch)
    parts: dict[tuple[str, int], list[Part]] = {}
    for part in report.parts:
        parts.setdefault((part.stage, part.batch), []).append(part)
    for group in parts.values():
        _rename(group)
    now_s = time.time()
    windows = {output: made_in for output, made_in in output_windows(plan).items() if made_in}
    names = {node.stage: node.archive_name for node in plan.archives()}
    for batch, fingerprint in fingerprints.items():
        if batch in carried:
            done = _carried(plan, manifest.batches[batch], batch, parts, report, version)
            done = replace(_following(done, fingerprint), finished_at_s=now_s, damaged=damaged.get(batch, ""))
            folders += _replaced(manifest, batch, done)
            continue
        done = Batch(version, fingerprint, finished_at_s=now_s, inputs=dict(inputs.get(batch, {})))
        done.archives = {stage: names[stage] for stage in done.inputs if stage in names}
        done.direct = direct.get(batch, "")
        done.files = dict(listed.get(batch, {}))
        done.took_s = report.took_s
        done.elements = report.elements[batch]
        done.duplicates = report.duplicates[batch]
        done.dead_letters = report.failed[batch]
        done.refused = report.refused[batch]
        done.damaged = damaged.get(batch, "")
        done.windows = windows
        for name in plan.outputs:
            node = plan.nodes[name]
            outputs = done.views if isinstance(node, StoreNode) else done.sinks
            outputs[output_name(node)] = _parts(node, parts.get((name, batch), []), report.divided.get(batch, 1))
            if isinstance(node, StoreNode):
                done.monoids[output_name(node)] = node.monoid.signature
        manifest.batches[batch] = done
    for batch, fingerprint in unchanged.items():
        folders += _replaced(manifest, batch, _following(_current(plan, manifest.batches[batch]), fingerprint))
    for batch in followers:
        done = manifest.batches[batch]
        passed = done.passed_on or done.fingerprint
        manifest.batches.amend(batch, replace(done, fingerprint="", passed_on=passed))
    for batch, fingerprint in passed_on.items():
        manifest.batches.amend(batch, replace(manifest.batches[batch], passed_on=fingerprint))
    manifest.committed_watermark = committed_watermark()
    if any(is_of_others(path, fingerprints) for path in report.letters):
        manifest.lettered[version] = [batch for batch in fingerprints if batch not in carried]
    for of, batches in list(manifest.lettered.items()):
        is_concerned = all_anew or of in replaced
        if is_concerned and all((now := manifest.batches.get(n)) is None or now.version != of for n in batches):
            del manifest.lettered[of]
    manifest.letters = [f"{path.parent.name}/{path.name}" for path in report.letters]
    # Found before the manifest is saved: a run that takes over afterwards has others.
    letters: list[Location] = []
    if replaced or all_anew:
        found = find_letters(job.directory)
        letters = stale_letters(found if all_anew else letters_of(found, replaced), manifest, version)
    manifest.garbage += [*folders, *(f"{DEAD_LETTERS}/{path.parent.name}/{path.name}" for path in letters)]
    manifest.save(job.directory)
    publish_letters(job.directory, manifest)
    for folder in folders:
        files_of(job.directory).delete_folder(job.directory / folder)  # again by the next run, if this one dies
    files_of(job.directory).delete(letters)


def _rename(parts: list[Part]) -> None:
    folder = parts[0].written.parent
    if not isinstance(folder, Path):
        return  # they have their names: nothing is renamed in a store
    for part in parts:
        assert isinstance(part.written, Path)
        part.written.replace(folder / part.final)
    for path in (folder, folder.parent, folder.parent.parent):
        sync(path)


def _parts(node: Node, parts: list[Part], divided: int) -> Parts:
    rows = [0] * (max((part.number for part in parts), default=-1) + 1)
    for part in parts:
        rows[part.number] = part.rows
    if isinstance(node, SinkNode):
        return Parts(sum(rows), rows, sorted(part.final for part in parts))
    files = [""] * len(rows)
    for part in parts:
        files[part.number] = part.final
    named = any(part.final != part_name(part.number) for part in parts)
    return Parts(sum(rows), rows, files if named else [], divided)


def _carried(
    plan: BatchPlan, done: Batch, batch: int, parts: Mapping[tuple[str, int], list[Part]], report: Report, version: str
) -> Batch:
    """A batch with other results of what is behind reductions, and all else of the program as it was."""
    done = _current(plan, done)
    views, sinks = done.views, done.sinks
    for name in plan.running.intersection(plan.outputs):
        node = plan.nodes[name]
        outputs = views if isinstance(node, StoreNode) else sinks
        made = _parts(node, parts.get((name, batch), []), report.divided.get(batch, 1))
        outputs[output_name(node)] = replace(made, version=version)
    return replace(done, views=views, sinks=sinks)


def _current(plan: BatchPlan, done: Batch) -> Batch:
    """A batch without what the program has no more: if that comes back, it has to be of the input of that time."""
    nodes = [plan.nodes[name] for name in plan.outputs]
    names = {output_name(node) for node in nodes if isinstance(node, StoreNode)}
    stages = {output_name(node) for node in nodes if isinstance(node, SinkNode)}
    return replace(
        done,
        views={view: parts for view, parts in done.views.items() if view in names},
        monoids={view: monoid for view, monoid in done.monoids.items() if view in names},
        sinks={sink: parts for sink, parts in done.sinks.items() if sink in stages},
    )


def _following(done: Batch, fingerprint: str) -> Batch:
    """A batch that follows from what it has now; so do those after it, from now on."""
    return done if done.fingerprint == fingerprint else replace(done, fingerprint=fingerprint, passed_on="")


def _replaced(manifest: Manifest, batch: int, done: Batch) -> list[str]:
    """Replace a batch; folders of what it has no more, below the job's."""
    before = manifest.batches[batch]
    manifest.batches[batch] = done
    return sorted({*before.folders(batch)} - {*done.folders(batch)})


def output_folders(plan: BatchPlan) -> list[str]:
    """Of views and sinks, below the job's."""
    nodes = [plan.nodes[name] for name in plan.outputs]
    return [f"{'sinks' if isinstance(node, SinkNode) else 'views'}/{output_name(node)}" for node in nodes]


def output_windows(plan: BatchPlan) -> dict[str, str]:
    """In what windows the results of each output are made, by its folder."""
    made_in = plan.windows()
    return dict(zip(output_folders(plan), (made_in[name] for name in plan.outputs), strict=True))
