"""What state by key costs a task: CPU of get and set, of a checkpoint, of a restore, and the longest stops.

python tests/bench/keyed_state.py --keys 200000
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from heronpy.checkpoints import BytesSource, ComponentEntry, Manifest, ObjectReader, read_saved
from heronpy.state import Place, TaskStates

PLACE = Place("bench-1", "count")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for name, value in measured(arguments.keys, arguments.rounds).items():
        print(f"{name:45} {value:12,.1f}")


def measured(keys: int, rounds: int) -> dict[str, float]:
    """Figures by name, the least of the rounds; the kinds of mapping in turn, so that all see the same noise."""
    words = [f"key-{n}" for n in range(keys)] * 2
    random.Random(1).shuffle(words)
    words = [(word + " ")[:-1] for word in words]  # objects of their own, as they come from a link
    kinds: dict[str, Callable[[], MutableMapping[str, int]]] = {
        "dict": lambda: dict.fromkeys(words, 0),
        "keyed state": lambda: settled(words),
    }
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, make in kinds.items():
            found.setdefault(f"{name}: ns per get and set", []).append(updates(make(), words) / len(words) * 1e9)
        found.setdefault("dict and dirty set: ns per get and set", []).append(by_hand(words) / len(words) * 1e9)
        for name, value in checkpoint(words).items():
            found.setdefault(name, []).append(value)
    return {name: min(values) for name, values in found.items()}


def settled(words: list[str]) -> MutableMapping[str, int]:
    """As after a committed checkpoint: everything is there, nothing is dirty."""
    states = TaskStates(PLACE)
    counts = states.keyed_state("counts")
    counts.update(dict.fromkeys(words, 0))
    one_checkpoint(states, 1)
    return counts


def updates(counts: MutableMapping[str, int], words: list[str]) -> float:
    gc.collect()
    gc.disable()
    began = time.thread_time()
    for word in words:
        counts[word] = counts[word] + 1
    took = time.thread_time() - began
    gc.enable()
    return took


def by_hand(words: list[str]) -> float:
    counts = dict.fromkeys(words, 0)
    dirty: set[str] = set()
    gc.collect()
    gc.disable()
    began = time.thread_time()
    for word in words:
        counts[word] = counts[word] + 1
        dirty.add(word)
    took = time.thread_time() - began
    gc.enable()
    return took


def checkpoint(words: list[str]) -> dict[str, float]:
    """Write everything, commit, write 1 % of it, and restore the whole."""
    states = TaskStates(PLACE)
    counts = states.keyed_state("counts")
    counts.update(dict.fromkeys(words, 1))
    found: dict[str, float] = {}
    full, marker_s, slices_s, release_s = one_checkpoint(states, 1)
    found["marker, everything dirty: ms"] = marker_s * 1e3
    found["checkpoint: ns per key"] = sum(slices_s) / len(counts) * 1e9
    found["checkpoint: longest slice, ms"] = max(slices_s) * 1e3
    found["after the commit: longest slice, ms"] = max(release_s) * 1e3
    for word in words[: len(counts) // 100]:
        counts[word] = counts[word] + 1
    found["bytes at 1 % dirty keys, % of all"] = len(one_checkpoint(states, 2)[0][0]) / len(full[0]) * 100
    data, ref = full
    manifest = Manifest(
        topology_id=PLACE.topology_id,
        checkpoint_id=1,
        epoch=0,
        groups=PLACE.groups,
        components={PLACE.component: ComponentEntry(1, 0)},
        objects=(ref,),
    )
    began = time.thread_time()
    saved = read_saved(manifest, PLACE.component, 0, 1, lambda ref: ObjectReader(BytesSource(ref.name, data)))
    restored = TaskStates(PLACE, saved).keyed_state("counts")
    found["restore: ns per key"] = (time.thread_time() - began) / len(counts) * 1e9
    assert len(restored) == len(counts)
    return found


def one_checkpoint(states: TaskStates, checkpoint_id: int) -> tuple[tuple[bytes, Any], float, list[float], list[float]]:
    """The object and its reference; CPU of the marker, of each slice, and of each slice of freeing."""
    began = time.thread_time()
    states.begin(checkpoint_id, 0)
    marker_s = time.thread_time() - began
    chunks: list[bytes] = []
    slices_s = []
    ref = None
    while ref is None:
        began = time.thread_time()
        some, ref = states.write()
        slices_s.append(time.thread_time() - began)
        chunks += some
    states.commit(checkpoint_id)
    release_s = []
    done = False
    while not done:
        began = time.thread_time()
        done = states.release()
        release_s.append(time.thread_time() - began)
    return (b"".join(chunks), ref), marker_s, slices_s, release_s


if __name__ == "__main__":
    main()
