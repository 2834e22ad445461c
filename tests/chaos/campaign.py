"""A campaign of faults: one after the other, or two at a time, each made good before the next one comes.

Meanwhile input flows. A seed gives the same faults in the same order.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Protocol

import figures
from faults import PAIRED, PATIENCE, WITHIN_S, Scene

FIGURES = os.environ.get("HERON_CHAOS_FIGURES", "")
EXACT_WITHIN_S = 240.0 * PATIENCE

Fault = Callable[[Scene], str]


class Results(Protocol):
    """What comes in, and what has come out."""

    def append_until(self, done: threading.Event) -> None:
        """Append input at a steady pace."""

    def wait_more(self, rows: int) -> None:
        """Wait until so many more rows have come out."""

    def wait_exact(self, within_s: float) -> None:
        """Wait until all that the input makes has come out, and see that nothing else has."""


class Campaign:
    """Faults on a topology, one after the other."""

    def __init__(
        self, scene: Scene, results: Results, kinds: Sequence[Fault], alike: Sequence[Collection[Fault]]
    ) -> None:
        """Get ready.

        Args:
            scene: what the faults are done to.
            results: how they show.
            kinds: what is chosen from; twice there, twice as often.
            alike: those that are done to the same thing: of a pair, the second one comes after the first.
        """
        self.scene, self.results, self.kinds, self.alike = scene, results, kinds, alike
        self.made_good = 0
        # Not a thread for each fault: a server that one of them starts ends with the thread that started it.
        self.pool = ThreadPoolExecutor(2)

    def run(self, faults: int) -> None:
        """Strike so many times."""
        while self.made_good < faults:
            self._strike(self.made_good + 1)
            self.made_good += 1

    def _strike(self, number: int) -> None:
        """Inject one fault, or two at the same time, and wait until all results are committed and exact."""
        dice = self.scene.dice
        faults = [dice.choice(self.kinds) for _ in range(2 if dice.random() < PAIRED else 1)]
        kinds = sorted(fault.__name__ for fault in faults)
        self.scene.look()
        with _flowing(self.results):
            self.results.wait_more(200)
            time.sleep(dice.uniform(0, 0.6))  # anywhere between two checkpoints
            began_s = time.monotonic()
            injected: list[Future[str]] = []
            for n, fault in enumerate(faults):
                wait(injected[m] for m in range(n) if any({fault, faults[m]} <= set(group) for group in self.alike))
                injected.append(self.pool.submit(fault, self.scene))
                time.sleep(dice.uniform(0, 1.5))  # both at once, or one while the other is made good
            for each in injected:
                print(f"{time.strftime('%H:%M:%S')} {each.result()}", flush=True)
            self.scene.topology.wait_running(WITHIN_S)
            whole_s = time.monotonic() - began_s
        self.results.wait_exact(EXACT_WITHIN_S)
        settled_s = time.monotonic() - began_s
        print(f"fault {number} ({' and '.join(kinds)}): whole {whole_s:.1f} s, exact {settled_s:.1f} s", flush=True)
        figures.append(FIGURES, seed=self.scene.seed, kinds=kinds, whole_s=whole_s, settled_s=settled_s)


@contextmanager
def _flowing(results: Results) -> Iterator[None]:
    """Input comes as long as the block runs."""
    done = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="input") as thread:
        appending = thread.submit(results.append_until, done)
        try:
            yield
        finally:
            done.set()
        appending.result()
