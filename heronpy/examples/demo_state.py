"""Counts that are exact though processes die: word count effectively once, with `kill -9` in the middle.

    python -m heronpy.examples.demo_state --build build/demo-state      (or: make demo-state)

Makes the input, submits `exactly_once_word_count`, kills an instance of each component, a Stream Manager and the
Topology Master with SIGKILL while it counts, and compares what was counted with `tr | sort | uniq -c`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from heronpy.errors import HeronError, NotFoundError, UnavailableError
from heronpy.examples import results
from heronpy.examples.demo import Demo, counted, expected_counts, make_input, verify
from heronpy.host import read_pids
from heronpy.submit import find_by_name

NAME = "ExactWordCount"
INPUT_BYTES = 40_000_000
COUNTS = 2
WAIT_S = 300.0
POLL_S = 0.2
VICTIMS = ("_count_", "stmgr-1", "_split_", "tmaster", "_lines_")
"""Parts of the names of processes that are killed, one after the other."""


class StateDemo(Demo):
    """One run, with everything below one directory."""

    name = NAME

    def run(self) -> None:
        """Count, kill, verify, show.

        Raises:
            HeronError: the topology does not start or end, or the counts are wrong.
        """
        self.kill()
        self.input.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.output, ignore_errors=True)
        if not self.input.exists():
            say("writing the input: the sources of Python's standard library")
            make_input(self.input, INPUT_BYTES)
        expected = expected_counts(self.input)
        total = expected.total()
        say(f"submitting {NAME} over {self.input.stat().st_size / 1e6:.1f} MB of text, {total:,} words")
        program = ["heronpy.examples.exactly_once_word_count", "-", NAME]
        if self.call("submit", "local", "--wait", *program, *self._arguments()) != 0:
            raise UnavailableError("the topology was not submitted")
        began_s = time.monotonic()
        for at, victim in enumerate(VICTIMS, 1):
            self._await_words(total * at // (len(VICTIMS) + 2))
            say(f"kill -9 {self._kill_process(victim)}, {self._words():,} words in the last checkpoint")
        self._await_words(total)
        say("verifying against tr | sort | uniq -c")
        counts = counted(self.output)
        verify(counts, expected)
        say(f"correct after {time.monotonic() - began_s:.0f} s: {counts.total():,} words, {len(counts):,} different")
        print(f"\n$ heron checkpoints {NAME}", flush=True)
        self.call("checkpoints", NAME)

    def _arguments(self) -> list[str]:
        return ["--input", str(self.input), "--output", str(self.output), "--counts", str(COUNTS)]

    def _words(self) -> int:
        return sum(int(done["words"]) for done in results.finished(self.output).values())

    def _await_words(self, words: int) -> None:
        give_up_s = time.monotonic() + WAIT_S
        while self._words() < words:
            if time.monotonic() > give_up_s:
                raise UnavailableError(f"{self._words():,} of {words:,} words after {WAIT_S:g} s\n{self.how_to_look()}")
            time.sleep(POLL_S)

    def _kill_process(self, part: str) -> str:
        launch = find_by_name(self.home, NAME)
        for container in sorted(launch.dir.glob("container_*")):
            for id, record in read_pids(container).items():
                if part in id and record.alive:
                    os.kill(record.pid, signal.SIGKILL)
                    return id
        raise NotFoundError(f"no process of {NAME} has {part} in its name")


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="demo_state", description="Word count effectively once, with deaths.")
    parser.add_argument("--build", type=Path, default=Path("build/demo-state"), help="directory for all files")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    demo = StateDemo(arguments.build.absolute())
    try:
        demo.run()
    except HeronError as e:
        sys.exit(f"demo: {e}")
    except KeyboardInterrupt:
        sys.exit("demo: interrupted")
    finally:
        demo.kill()


if __name__ == "__main__":
    main()
