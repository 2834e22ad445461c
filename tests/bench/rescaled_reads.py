"""What tasks read of a checkpoint of small plain values when their number changes, before and after a merge.

python -m tests.bench.rescaled_reads --keys 200000 --tasks 3 8
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from heronpy.checkpoints import (
    BytesSource,
    ComponentEntry,
    Manifest,
    ObjectReader,
    ObjectRef,
    compact,
    next_manifest,
    read_saved,
)
from heronpy.hashing import index_of_group, key_group
from heronpy.state import Place, TaskStates

TOPOLOGY, COMPONENT, GROUPS = "words-1", "count", 1024


@dataclass
class Counting:
    """An object, and how much of it was read."""

    source: BytesSource
    read_bytes: int = 0

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def size(self) -> int:
        return self.source.size

    def read(self, offset: int, length: int) -> bytes:
        self.read_bytes += length
        return self.source.read(offset, length)


def written(keys: int, tasks: int, objects: dict[str, bytes]) -> Manifest:
    """A checkpoint of counts by word."""
    refs = []
    for index in range(tasks):
        states = TaskStates(Place(TOPOLOGY, COMPONENT, index, tasks, GROUPS))
        counts = states.keyed_state("counts", default=0)
        for number in range(keys):
            key = f"word-{number}"
            if index_of_group(key_group(key, GROUPS), tasks, GROUPS) == index:
                counts[key] = number
        states.begin(1, 1)
        pieces, ref = states.write(float("inf"))
        assert ref is not None
        objects[ref.name] = b"".join(pieces)
        refs.append(ref)
    return _next(None, 1, tasks, refs, [])


def merged(manifest: Manifest, tasks: int, objects: dict[str, bytes]) -> Manifest:
    """The next one, after a merge of everything."""
    refs = []
    for index in range(tasks):
        pieces: list[bytes] = []
        ref: ObjectRef | None = None
        for some, ref in compact(manifest, COMPONENT, index, 2, lambda ref: _opened(ref, objects)):  # noqa: B007
            pieces += some
        assert ref is not None
        objects[ref.name] = b"".join(pieces)
        refs.append(ref)
    return _next(manifest, 2, tasks, [], refs)


def _opened(ref: ObjectRef, objects: dict[str, bytes]) -> ObjectReader:
    return ObjectReader(BytesSource(ref.name, objects[ref.name]))


def _next(previous: Manifest | None, id: int, tasks: int, new: list[ObjectRef], merges: list[ObjectRef]) -> Manifest:
    made = Manifest(
        topology_id=TOPOLOGY,
        checkpoint_id=id,
        epoch=1,
        groups=GROUPS,
        components={COMPONENT: ComponentEntry(tasks, 0)},
        objects=tuple(new),
    )
    return next_manifest(previous, made, merges)


def restored(manifest: Manifest, tasks: int, objects: dict[str, bytes]) -> tuple[int, float, int]:
    """Bytes that so many tasks read, the CPU of the slowest in s, and how many keys they have."""
    read_bytes, slowest_s, keys = 0, 0.0, 0
    for index in range(tasks):
        sources: list[Counting] = []

        def opened(ref: ObjectRef, sources: list[Counting] = sources) -> ObjectReader:
            sources.append(Counting(BytesSource(ref.name, objects[ref.name])))
            return ObjectReader(sources[-1])

        began_s = time.process_time()
        saved = read_saved(manifest, COMPONENT, index, tasks, opened)
        keys += len(TaskStates(Place(TOPOLOGY, COMPONENT, index, tasks, GROUPS), saved).keyed_state("counts"))
        slowest_s = max(slowest_s, time.process_time() - began_s)
        read_bytes += sum(source.read_bytes for source in sources)
    return read_bytes, slowest_s, keys


def measured(keys: int, before: int, after: int) -> dict[str, float]:
    """All figures."""
    objects: dict[str, bytes] = {}
    fresh = written(keys, before, objects)
    found: dict[str, float] = {}
    for what, manifest in (("as written", fresh), ("merged", merged(fresh, before, objects))):
        size = sum(ref.size for ref in manifest.objects)
        read_bytes, slowest_s, count = restored(manifest, after, objects)
        assert count == keys
        found[f"{what}: bytes a key"] = size / keys
        found[f"{what}: read, times the checkpoint"] = read_bytes / size
        found[f"{what}: CPU of the slowest task, ms"] = slowest_s * 1000
    began_s = time.process_time()
    for number in range(keys):
        key_group(f"word-{number}", GROUPS)
    found["finding a key group, µs"] = (time.process_time() - began_s) / keys * 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--tasks", type=int, nargs=2, default=(3, 8), metavar=("BEFORE", "AFTER"))
    args = parser.parse_args()
    for what, value in measured(args.keys, *args.tasks).items():
        print(f"{what}: {value:.2f}")


if __name__ == "__main__":
    main()
