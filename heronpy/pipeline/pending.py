"""Which batches a run computes, and in what groups. Pure."""

from __future__ import annotations

import bisect
import functools
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heronpy.pipeline.batch import Batch, damage_of
from heronpy.pipeline.manifest import Manifest

Chain = Callable[[Sequence[int], Mapping[int, Mapping[str, str]]], dict[int, str]]
"""Makes fingerprints of batches from their inputs."""


@dataclass
class Work:
    """What a run has to do."""

    closable: int
    """The last batch that can be computed now."""
    chain: Chain
    """How fingerprints follow from one another, where every batch is computed from all before it."""
    fingerprints: dict[int, str] = field(default_factory=dict)
    """Of every batch that has any output, up to `closable`."""
    unhurt: dict[int, str] = field(default_factory=dict)
    """The same as if nothing had been damaged since it was read: who has been computed so is done, too."""
    direct: dict[int, str] = field(default_factory=dict)
    """`Batch.direct` of them; empty, where everything follows from all batches before, or nothing does."""
    pending: list[int] = field(default_factory=list)
    """Those to compute, ascending."""
    carries: bool = False
    """Whether what reductions have kept of batches stands for their input, where that is as it was."""
    carried: set[int] = field(default_factory=set)
    """Those of `pending` whose own input is as it was: only what is behind reductions is computed of them."""
    settled: set[int] = field(default_factory=set)
    """Those of `carried` whose results follow from what reductions have kept before this run."""
    groups: list[list[int]] = field(default_factory=list)
    """`pending`, divided among Spark jobs: see `grouped`."""
    inputs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Of every batch that has any, by archive; of those that archives have lost, what they were."""
    lost: list[int] = field(default_factory=list)
    """Batches of whose input archives have less than when they were computed."""
    kept: list[int] = field(default_factory=list)
    """To compute as well, if archives had not lost what they were made of: they stay as they are."""
    orphaned: list[int] = field(default_factory=list)
    """Of `pending`, those with results of archives that the program has no more, and without any other input."""
    bare: list[int] = field(default_factory=list)
    """Done without any input that there is now, and without views that came later."""
    less: list[int] = field(default_factory=list)
    """Of `pending`, those whose look-back reaches into what archives have lost."""
    hurt: list[int] = field(default_factory=list)
    """Batches whose input was damaged after it was read, and nothing else has become of it."""
    blocked: list[int] = field(default_factory=list)
    """To compute as well, if their input were not damaged."""
    windows: Mapping[str, str] = field(default_factory=dict)
    """In what windows the results of each output are to be made, by its folder."""
    few: bool = False
    """Whether others than those that were looked at may have to be computed: see `decide`."""
    passed_on: dict[int, str] = field(default_factory=dict)
    """`Batch.passed_on` of batches, once all that are not carried are done."""
    reopened: set[int] = field(default_factory=set)
    """Batches that are not done any more, as other sessions are open before them."""

    def block(self, damaged: Collection[int], lookback: int | None) -> None:
        """Leave out what is computed from batches with damaged input."""
        bad = sorted(damaged)
        touched = {batch for batch in self.pending if _reads(batch, bad, lookback)}
        self.blocked = sorted({*self.blocked, *touched})
        self.pending = [batch for batch in self.pending if batch not in touched]
        kept = [[batch for batch in group if batch not in touched] for group in self.groups]
        self.groups = [group for group in kept if group]

    def follow(self, followers: Mapping[int, Batch]) -> None:
        """Take batches that were done to what is to be carried: they follow from what has changed."""
        self.pending = sorted({*self.pending, *followers})
        self.carried.update(followers)
        self.fingerprints |= {batch: done.fingerprint for batch, done in followers.items()}
        self.direct |= {batch: done.direct for batch, done in followers.items()}
        self.passed_on |= {batch: done.passed_on for batch, done in followers.items() if done.passed_on}

    def leave(self, unchanged: Collection[int]) -> None:
        """Take batches from what is left to do: they are done."""
        self.pending = [batch for batch in self.pending if batch not in unchanged]
        self.carried.difference_update(unchanged)
        left = [[batch for batch in group if batch not in unchanged] for group in self.groups]
        self.groups = [group for group in left if group]

    def lacking(self, damaged: Mapping[int, str], group: Sequence[int], lookback: int | None) -> dict[int, str]:
        """What batches are computed without, of damaged input of others before them that stay as they are."""
        stay = sorted(damaged.keys() - self.pending)
        found = {n: next((damaged[b] for b in stay if _reads(n, [b], lookback)), "") for n in group}
        return {n: what for n, what in found.items() if what and n not in damaged}


def decide(
    manifest: Manifest,
    inputs: Mapping[int, Mapping[str, str]],
    *,
    archives: Mapping[str, str],
    closable: int,
    lookback: int | None,
    reach: int,
    views: Mapping[str, str],
    sinks: Collection[str],
    windows: Mapping[str, str],
    only: Collection[int] | None = None,
    also: Collection[int] = (),
    among: Collection[int] | None = None,
    looked_at: Collection[int] | None = None,
    hurt: Mapping[int, Mapping[str, str]] | None = None,
    carried_lookback: int | None = None,
    few: bool = False,
) -> Work:
    """Decide what to compute.

    Where there is no look-back, a batch's fingerprint follows from that of the batch before it.

    Args:
        manifest: what is done.
        inputs: fingerprints of the input of each batch that has any, by archive.
        archives: all that are read: their names, by stage.
        closable: the last batch that may be computed.
        lookback: how many batches before it a batch is computed from; None: all.
        reach: how many batches after it an element can be seen in.
        views: that each batch must have, with the signature of their monoids.
        sinks: that each batch must have.
        windows: see `Work.windows`.
        only: compute these and no others, whether or not they are done.
        also: compute these in any case.
        among: these may have to be computed, no others (None: any may). `inputs` has all that they are computed from.
        looked_at: batches whose input is in `inputs`, if they have any; None: all.
        hurt: input of batches before it was damaged, see `hurt_batches`.
        carried_lookback: how many batches before it a batch is computed from, but for what is behind reductions; None:
            that is not to be had without all else.
        few: where there is no look-back: others than `among` follow from what they have followed from before.
    """
    starts: dict[int, str] = {}
    chain = functools.partial(_chained, manifest=manifest, starts=starts, among=among)
    work = Work(closable, chain, few=few, windows=windows)
    inputs, lost = with_lost(manifest, inputs, archives, looked_at)
    work.inputs = inputs
    work.hurt = sorted(hurt or ())
    candidates = sorted({batch + i for batch in inputs for i in range(reach + 1) if batch + i <= closable})
    orphaned = _orphaned(manifest, archives, views, sinks, looked_at, reach).difference(candidates)
    candidates = sorted({*candidates, *(batch for batch in orphaned if batch <= closable)})
    if among is None:
        lacking = {batch for view in views for batch in manifest.lacking(view, closable)}
        work.bare = sorted(lacking.difference(candidates))
    else:
        candidates = [batch for batch in candidates if batch in among]
    runs = [] if among is None else _runs(candidates, among)
    if lookback is None:
        starts |= {run[0]: _fingerprint_before(manifest, run[0]) for run in runs}
    work.fingerprints = _fingerprints(candidates, inputs, lookback, work.chain)
    if carried_lookback is not None:
        work.direct = _fingerprints(candidates, inputs, carried_lookback, work.chain)
    if hurt:
        unhurt = {b: {**found, **hurt.get(b, {})} for b, found in inputs.items()}
        work.unhurt = _fingerprints(candidates, unhurt, lookback, work.chain)
    if only is not None:
        work.pending = sorted(batch for batch in {*only, *also} if batch <= closable)
        work.fingerprints |= {batch: "" for batch in work.pending if batch not in work.fingerprints}
    else:
        ordered = {*orphaned, *also}
        work.pending = [b for b in candidates if b in ordered or not _is_done(manifest, work, b, views, sinks)]
        work.carried = {b for b in work.pending if _can_carry(manifest, work, b, views, sinks)}
        work.settled = _whole(manifest, work) if few else _settled(manifest, work, among)
    if few:
        work.passed_on = _passed_on(manifest, work, runs)
    work.orphaned = sorted(orphaned.intersection(work.pending))
    if lost:
        work.lost = sorted(lost)
        touched = [b for b in work.pending if _reads(b, work.lost, lookback)]
        work.kept = [b for b in touched if b in manifest.batches]
        kept = set(work.kept)
        work.pending = [b for b in work.pending if b not in kept]
        work.less = [b for b in touched if b not in manifest.batches]
    return work


def can_resume(
    manifest: Manifest, work: Work, group: Sequence[int], views: Mapping[str, str], sinks: Collection[str]
) -> bool:
    """Whether all batches before some that are neighbours are done, so that what was kept of those suffices.

    Or stay as they are: what is computed goes on from what they have.
    """
    inside = [batch for batch in work.fingerprints if min(group) <= batch <= max(group)]
    kept = {*work.kept}
    before = (batch for batch in work.fingerprints if batch < min(group) and batch not in kept)
    return sorted(inside) == sorted(group) and all(_is_done(manifest, work, batch, views, sinks) for batch in before)


def can_carry(
    manifest: Manifest, work: Work, views: Mapping[str, str], sinks: Collection[str], *, is_nested: bool
) -> bool:
    """Whether what reductions have kept of batches that are not computed is of the input that these have now.

    Args:
        manifest: what is done.
        work: what is to do, in the order of batches, or, if nothing is nested, those that are not carried first.
        views: that each batch must have, with the signature of their monoids.
        sinks: that each batch must have.
        is_nested: reductions keep what follows from others, which is only right where all before is done.
    """
    last, pending = max(work.pending, default=0), {*work.pending}
    return all(
        _is_done(manifest, work, batch, views, sinks)
        or (not is_nested and _has_kept(manifest, work, batch, views, sinks))
        for batch in work.fingerprints
        if batch < last and batch not in pending
    )


def renew(
    work: Work, inputs: Mapping[int, Mapping[str, str]], lookback: int | None, carried_lookback: int | None
) -> None:
    """Give work the fingerprints of its input as it turned out to be while it was read."""
    lost = set(work.lost)
    work.inputs = {**work.inputs, **{batch: found for batch, found in inputs.items() if batch not in lost}}
    known = sorted(batch for batch, fingerprint in work.fingerprints.items() if fingerprint)
    work.fingerprints |= _fingerprints(known, work.inputs, lookback, work.chain)
    if carried_lookback is not None:
        work.direct |= _fingerprints(known, work.inputs, carried_lookback, work.chain)


def with_lost(
    manifest: Manifest,
    inputs: Mapping[int, Mapping[str, str]],
    archives: Mapping[str, str],
    looked_at: Collection[int] | None = None,
) -> tuple[dict[int, dict[str, str]], set[int]]:
    """Inputs with those that archives have lost since a batch was made of them, and the batches that lack some.

    An archive only grows. Where it has fewer rows than before, somebody has removed files: what was computed from all
    of them is better than what could be computed now. What is damaged is not lost: it can be put back.

    Args:
        manifest: what is done.
        inputs: as there are now.
        archives: all that are read: their names, by stage.
        looked_at: see `decide`.
    """
    full = {batch: dict(found) for batch, found in inputs.items()}
    lost = set()
    known = manifest.batches.items()
    if looked_at is not None:
        known = ((batch, done) for batch in looked_at if (done := manifest.batches.get(batch)) is not None)
    for batch, done in known:
        for archive, recorded in _recorded(done, archives).items():
            found = inputs.get(batch, {}).get(archive)
            if found is None or (_rows(found) < _rows(recorded) and damage_of(found) == damage_of(recorded)):
                full.setdefault(batch, {})[archive] = recorded
                lost.add(batch)
    return full, lost


def _recorded(done: Batch, archives: Mapping[str, str]) -> dict[str, str]:
    """What was read of each archive that the program has, by its stage of now."""
    stage_of = {name: stage for stage, name in archives.items()}
    found = {}
    for stage, what in done.inputs.items():
        name = done.archives.get(stage, archives.get(stage, ""))  # an earlier heronpy did not say
        if (now := stage_of.get(name)) is not None:
            found[now] = what
    return found


def _orphaned(
    manifest: Manifest,
    archives: Mapping[str, str],
    views: Mapping[str, str],
    sinks: Collection[str],
    looked_at: Collection[int] | None,
    reach: int,
) -> set[int]:
    """Batches that were computed from no archive that the program has, and those that only these reach into.

    Where all were looked at, these are all with rows and without input: if windows are shorter now, nothing may reach
    into them.
    """
    known = manifest.batches.items()
    if looked_at is not None:
        known = ((batch, done) for batch in looked_at if (done := manifest.batches.get(batch)) is not None)
    found, reached = [], []
    for batch, done in known:
        if done.inputs and not _recorded(done, archives):
            found.append(batch)
        # Of what is read from its source, the version is the fingerprint.
        elif not done.inputs and done.fingerprint not in ("", done.version) and _has_rows(done, views, sinks):
            reached.append(batch)
    emptied = sorted({*found, *manifest.todo})  # an earlier run may have done a part of it
    return {*found, *(batch for batch in reached if looked_at is None or _reads(batch, emptied, reach))}


def _has_rows(done: Batch, views: Iterable[str], sinks: Iterable[str]) -> bool:
    found = [*(done.views.get(view) for view in views), *(done.sinks.get(sink) for sink in sinks)]
    return any(parts is not None and parts.rows for parts in found)


def _rows(fingerprint: str) -> int:
    """How many rows it is of: `batch:rows:hashes`."""
    return int(fingerprint.split(":")[1])


def _reads(batch: int, sources: Sequence[int], lookback: int | None) -> bool:
    """Whether a batch is computed from any of some, ascending."""
    at = bisect.bisect_right(sources, batch)
    return at > 0 and (lookback is None or sources[at - 1] >= batch - lookback)


def _is_done(manifest: Manifest, work: Work, batch: int, views: Mapping[str, str], sinks: Collection[str]) -> bool:
    done = manifest.batches.get(batch)
    return (
        done is not None
        and done.fingerprint in (work.fingerprints[batch], work.unhurt.get(batch))
        and _has_all(done, work, views, sinks)
    )


def _can_carry(manifest: Manifest, work: Work, batch: int, views: Mapping[str, str], sinks: Collection[str]) -> bool:
    """Whether all of a batch that is not behind reductions is as it is to be, and nothing of it was set aside.

    What reductions have refused is kept nowhere, and may count with other values before it.
    """
    done = manifest.batches.get(batch)
    is_whole = done is not None and not done.refused and not done.damaged
    return is_whole and _has_kept(manifest, work, batch, views, sinks)


def _settled(manifest: Manifest, work: Work, among: Collection[int] | None) -> set[int]:
    """A run that died may have replaced what is before a batch, and nobody knows any more which keys it had."""
    if not work.carried:
        return set()
    known = manifest.batches.between(None if among is None else min(among), max(work.carried))
    made = work.chain(sorted(work.carried), {n: done.inputs for n, done in known if done.inputs})
    return {batch for batch in work.carried if manifest.batches[batch].fingerprint == made[batch]}


def _whole(manifest: Manifest, work: Work) -> set[int]:
    """Those of which no run that died has left anything to do: see `commit`."""
    return {batch for batch in work.carried if manifest.batches[batch].fingerprint}


def _has_kept(manifest: Manifest, work: Work, batch: int, views: Mapping[str, str], sinks: Collection[str]) -> bool:
    done = manifest.batches.get(batch)
    is_known = done is not None and done.direct and done.direct == work.direct.get(batch)
    return bool(is_known) and done is not None and _has_all(done, work, views, sinks)


def _has_all(done: Batch, work: Work, views: Mapping[str, str], sinks: Collection[str]) -> bool:
    made_in = work.windows if done.windows is None else done.windows
    return (
        views.keys() <= done.views.keys()
        and all(done.monoids.get(view, monoid) == monoid for view, monoid in views.items())
        and (not sinks or set(sinks) == done.sinks.keys())  # one without a name has a number, another's if one is gone
        and all(made_in.get(output, "") == windows for output, windows in work.windows.items())
    )


def _fingerprints(
    candidates: Sequence[int],
    inputs: Mapping[int, Mapping[str, str]],
    lookback: int | None,
    chain: Chain,
) -> dict[int, str]:
    """One for each batch, made of those of everything that it is computed from."""
    if lookback is None:
        return chain(candidates, inputs)
    made = {}
    for batch in candidates:
        digest = hashlib.sha256()
        for source in range(batch - lookback, batch + 1):
            if source in inputs:
                digest.update(f"{source} {sorted(inputs[source].items())}\n".encode())
        made[batch] = digest.hexdigest()[:32]
    return made


def _runs(candidates: Sequence[int], among: Collection[int]) -> list[list[int]]:
    """Candidates, divided where batches between them are not among those that may have to be computed."""
    runs: list[list[int]] = []
    for batch in candidates:
        if not runs or (not isinstance(among, range) and any(n not in among for n in range(runs[-1][-1], batch))):
            runs.append([])
        runs[-1].append(batch)
    return runs


def _chained(
    candidates: Sequence[int],
    inputs: Mapping[int, Mapping[str, str]],
    *,
    manifest: Manifest,
    starts: Mapping[int, str],
    among: Collection[int] | None,
) -> dict[int, str]:
    """Fingerprints that follow from one another.

    Args:
        candidates: of which batches.
        inputs: of all that they follow from.
        manifest: what is done.
        starts: what the first of each run of neighbours follows from, where only some were looked at.
        among: those; None: all were.
    """
    made, before, wanted = {}, "", {*candidates}
    for batch in sorted({*wanted, *(n for n in inputs if among is None or n in among)}):
        before = starts.get(batch, before)
        if batch in inputs:
            link = f"{before}\n{batch} {sorted(inputs[batch].items())}\n"
            before = hashlib.sha256(link.encode()).hexdigest()[:32]
        if batch in wanted:
            made[batch] = before
        done = manifest.batches.get(batch)
        if done is not None and done.passed_on and done.fingerprint == before:
            before = done.passed_on
    return made


def _passed_on(manifest: Manifest, work: Work, runs: Sequence[Sequence[int]]) -> dict[int, str]:
    """What the batches after each run of neighbours follow from, where that is not what is computed now."""
    found = {}
    for last in (run[-1] for run in runs):
        if next(manifest.batches.between(last + 1, None), None) is not None:
            before = _fingerprint_before(manifest, last + 1)
            if last in work.pending and work.fingerprints[last] != before:
                found[last] = before
    return found


def _fingerprint_before(manifest: Manifest, batch: int) -> str:
    """Of the last batch before one that had any input: others are not computed any more if windows are shorter now."""
    for _, done in manifest.batches.before(batch):
        if done.passed_on or (done.fingerprint and done.inputs):
            return done.passed_on or done.fingerprint
    return ""


def carried_groups(work: Work, sizes: Mapping[int, int], group_bytes: int, *, is_nested: bool) -> list[list[int]]:
    """Groups where what reductions have kept stands for batches between; if it may be, what is carried comes last."""
    if is_nested:
        return grouped(work.pending, sizes, group_bytes)
    first = [batch for batch in work.pending if batch not in work.carried]
    then = [batch for batch in work.pending if batch in work.carried]
    return grouped(first, sizes, group_bytes) + grouped(then, sizes, group_bytes)


def grouped(
    pending: Sequence[int], sizes: Mapping[int, int], group_bytes: int, others: Collection[int] = ()
) -> list[list[int]]:
    """Neighbours together, up to so many bytes; none with one of `others` between them."""
    groups: list[list[int]] = []
    filled = 0
    between = sorted({*others} - {*pending})
    for batch in pending:
        size = sizes.get(batch, 0)
        apart = bool(groups) and bisect.bisect(between, groups[-1][-1]) != bisect.bisect(between, batch)
        if not groups or apart or filled + size > group_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(batch)
        filled += size
    return groups


def undone(
    manifest: Manifest,
    work: Work,
    dirty: Collection[int],
    span: int | None,
    reach: int,
    views: Mapping[str, str],
    sinks: Collection[str],
) -> list[int]:
    """Those of dirty batches that are not done yet, or have followers that are not; and those with later followers.

    Args:
        manifest: what is done.
        work: what was to do.
        dirty: see `Manifest.todo`.
        span: how many batches follow; None: all.
        reach: how many batches after it an element can be seen in.
        views: that each batch must have, with the signature of their monoids.
        sinks: that each batch must have.
    """
    left = unfinished(manifest, work, views, sinks)
    # Windows may reach into a batch without input: nothing else would lead to it when it is complete.
    reaching = {batch for batch in work.inputs if batch + reach > work.closable}
    if span is None:
        if dirty and (later := next(manifest.batches.between(work.closable + 1, None), None)) is not None:
            left.add(later[0])  # done before what it follows from was, which this run was not to go on to
        first = min(left, default=work.closable + 1)
        return sorted(left | reaching | {batch for batch in dirty if batch >= first or batch + reach > work.closable})
    waiting = reaching | {batch for batch in dirty if batch + span > work.closable}
    return sorted(waiting | left | {batch for batch in dirty if any(batch + i in left for i in range(span + 1))})


def unfinished(manifest: Manifest, work: Work, views: Mapping[str, str], sinks: Collection[str]) -> set[int]:
    """Those of all batches that there was something to do of that are not done."""
    # A batch that lacks a view because its rows are lost is found with them: until then no run looks for it.
    given_up = {b for b in work.kept if not manifest.batches[b].fingerprint}
    return {b for b in work.fingerprints if not _is_done(manifest, work, b, views, sinks)} - given_up


def committed_watermark(manifest: Manifest, work: Work, left: Collection[int]) -> int | None:
    """The last batch up to which all are done, if all but `left` of the pending ones are."""
    waiting = set(left)  # of the first run over a long archive that is most of it
    undone = [b for b in work.fingerprints if b in waiting or b not in manifest.batches]
    upto = min([work.closable, *(batch - 1 for batch in undone)])
    return upto if manifest.committed_watermark is None else max(manifest.committed_watermark, upto)
