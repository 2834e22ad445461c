"""From submission to a verified result: word count over the sources of Python's standard library.

    python -m heronpy.examples.demo --build build/demo      (or: make demo)

Makes the input, submits the topology as any user does, waits for the counts, and compares them with those of
`tr | sort | uniq -c`. The topology keeps its files below the build directory and is killed at the end, also after
Ctrl-C; with --keep it stays, to be looked at.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from heronpy.errors import HeronError, NotFoundError, UnavailableError
from heronpy.examples import results
from heronpy.files import replacing

NAME = "WordCount"
INPUT_BYTES = 12_000_000
TASKS = {"spouts": 1, "splits": 1, "counts": 2}
WAIT_S = 600.0
POLL_S = 0.5


def make_input(path: Path, size_bytes: int) -> None:
    """Write the sources of the standard library, one after the other and over again if need be.

    Raises:
        NotFoundError: this Python comes without sources.
    """
    root = Path(sysconfig.get_path("stdlib"))
    packages = {"site-packages", "dist-packages"}
    sources = sorted(p for p in root.rglob("*.py") if not packages.intersection(p.parts))
    if not sources:
        raise NotFoundError(f"{root} has no Python sources to count")
    with replacing(path, durable=False) as f:
        for source in itertools.cycle(sources):
            f.write(source.read_bytes())
            if f.tell() >= size_bytes:
                break


def expected_counts(path: Path) -> Counter[str]:
    """What the classic pipeline counts in a file."""
    pipeline = r"tr -cs 'A-Za-z' '\n' | tr 'A-Z' 'a-z' | sort | uniq -c"
    with path.open("rb") as f:
        counted = subprocess.run(
            ["sh", "-c", pipeline], stdin=f, capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"}
        )
    lines = (line.split() for line in counted.stdout.decode().splitlines())
    return Counter({words[1]: int(words[0]) for words in lines if len(words) == 2})  # the empty word is none


def counted(output: Path) -> Counter[str]:
    """What the topology counted."""
    return Counter({word: int(count) for word, count in results.read_results(output)})


class Demo:
    """One run, with everything below one directory."""

    name = NAME

    def __init__(self, build: Path) -> None:
        self.input = build / "input.txt"
        self.output = build / "counts"
        self.home = build / "home"
        self._env = {**os.environ, "HERON_HOME": str(self.home)}
        self._heron = Path(sys.executable).with_name("heron")

    def run(self) -> None:
        """Count, verify, show.

        Raises:
            HeronError: the topology does not start or end, or the counts are wrong.
        """
        self.kill()
        self.input.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.output, ignore_errors=True)
        if not self.input.exists():
            say("writing the input: the sources of Python's standard library")
            make_input(self.input, INPUT_BYTES)
        mb = self.input.stat().st_size / 1e6
        say(f"submitting {NAME} over {mb:.1f} MB of text")
        self._submit()
        done = self._await_counts()
        counts = counted(self.output)
        seconds = max(part["seconds"] for part in done.values())
        say("verifying against tr | sort | uniq -c")
        verify(counts, expected_counts(self.input))
        words = counts.total()
        say(f"correct: {words:,} words, {len(counts):,} different")
        say(f"{seconds:.1f} s from the first line to the last ack: {words / seconds:,.0f} words/s")
        print("\n   count  word")
        for word, count in counts.most_common(10):
            print(f"{count:8,}  {word}")
        print(f"\n$ heron status {NAME}", flush=True)
        self.call("status", NAME)

    def kill(self) -> None:
        """End the topology if it runs."""
        if (self.home / "topologies").exists():
            self.call("kill", self.name, quiet=True)

    def how_to_look(self) -> str:
        """What the user can type while the topology runs."""
        heron = f"HERON_HOME={self.home} {self._heron}"
        return (
            f"look at it:  {heron} status {self.name}\n             {heron} logs {self.name}\n"
            f"             {heron} tracker      # web UI; prints the URL that signs in\n"
            f"end it:      {heron} kill {self.name}"
        )

    def _submit(self) -> None:
        tasks = [word for kind, n in TASKS.items() for word in (f"--{kind}", str(n))]
        command = ["submit", "local", "--wait", "heronpy.examples.word_count", "-", NAME]
        if self.call(*command, "--input", str(self.input), "--output", str(self.output), *tasks) != 0:
            raise UnavailableError("the topology was not submitted")

    def call(self, *args: str, quiet: bool = False) -> int:
        """Run `heron`, in the demo's own place. Returns its exit code."""
        out = subprocess.DEVNULL if quiet else None
        return subprocess.run(
            [str(self._heron), *args], env=self._env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        ).returncode

    def _await_counts(self) -> dict[int, dict[str, float]]:
        give_up_s = time.monotonic() + WAIT_S
        for symbol in spinner():
            done = results.finished(self.output)
            if len(done) == TASKS["counts"]:
                if sys.stdout.isatty():
                    print("\r" + " " * 40, end="\r")
                return done
            if time.monotonic() > give_up_s:
                raise UnavailableError(f"no counts after {WAIT_S:g} s\n{self.how_to_look()}")
            if sys.stdout.isatty():
                print(f"\r{symbol} counting", end="", flush=True)
            time.sleep(POLL_S)
        raise AssertionError("the spinner never ends")


def spinner() -> Iterator[str]:
    return itertools.cycle("|/-\\")


def verify(counts: Counter[str], expected: Counter[str]) -> None:
    """Compare.

    Raises:
        HeronError: they differ; names some of the words.
    """
    wrong = sorted(word for word in counts.keys() | expected.keys() if counts[word] != expected[word])
    if wrong:
        shown = ", ".join(f"{word} {counts[word]} instead of {expected[word]}" for word in wrong[:5])
        raise HeronError(f"{len(wrong)} words are counted wrong: {shown}")


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="demo", description="Word count, submitted and verified.")
    parser.add_argument("--build", type=Path, default=Path("build/demo"), help="directory for all files")
    parser.add_argument("--keep", action="store_true", help="leave the topology running")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    demo = Demo(arguments.build.absolute())
    keep = False
    try:
        demo.run()
        keep = arguments.keep
    except HeronError as e:
        sys.exit(f"demo: {e}")
    except KeyboardInterrupt:
        sys.exit("demo: interrupted")
    finally:
        if keep:
            print(f"\n{demo.how_to_look()}")
        else:
            demo.kill()
    if not keep:
        say("the topology is killed; `make demo KEEP=1` leaves it running")


if __name__ == "__main__":
    main()
