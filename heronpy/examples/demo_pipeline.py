"""From live counts to the exact ones: word count by topology and by Spark, from one definition.

    python -m heronpy.examples.demo_pipeline --build build/demo-pipeline      (or: make demo-pipeline)
    make demo-pipeline URL='s3://bucket/prefix?endpoint=http://host:port&region=us-east-1' LIVE=redis://host:port/0

Makes lines of text with timestamps, submits `words_pipeline` as a topology, and kills processes of it with SIGKILL
while it counts, so that some lines are counted twice. Then Spark counts whole batches from the archive, the merged read
is compared with what plain Python counts in the same file, and `reconcile` shows how far the live counts had drifted.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from heronpy.archive import Archive
from heronpy.errors import HeronError, UnavailableError
from heronpy.examples.demo import make_input
from heronpy.examples.words_pipeline import arguments_of, program, words_of
from heronpy.files import replacing
from heronpy.filesystem import UrlPath, files_of, location
from heronpy.pipeline import Job, MergedStore
from heronpy.stores import StoreContext, StoreReader
from heronpy.streamlet.runner import Program

NAME = "Words"
FOLDER = "heron-demo-pipeline"
"""Below a URL; emptied first."""
MINUTES = 6
TEXT_BYTES = 12_000_000
WAIT_S = 300.0
POLL_S = 0.5
_LAST_BATCH = 1 << 62
VICTIMS = ("lines", "store-1")
"""Components of which one process is killed, one after the other."""


def make_lines(path: Path, scratch: Path) -> None:
    """Write the sources of Python's standard library as lines of JSON, spread over the last minutes."""
    make_input(scratch, TEXT_BYTES)
    begin_s = int(time.time()) // 60 * 60 - MINUTES * 60
    texts = [text for text in scratch.read_text(errors="replace").splitlines() if text.strip()]
    with replacing(path, durable=False) as f:
        for n, text in enumerate(texts):
            line = {"timestamp": round(begin_s + n * MINUTES * 60 / len(texts), 3), "text": text}
            f.write(json.dumps(line).encode() + b"\n")
    scratch.unlink()


def exact_counts(path: Path) -> Counter[str]:
    """What plain Python counts in the lines."""
    with path.open() as f:
        return Counter(word for line in f for word, _ in words_of(json.loads(line)))


class Demo:
    """One run, with everything below one directory."""

    def __init__(self, build: Path, url: str | None, live: str | None) -> None:
        self._build, self._live = build, live
        self._input = build / "lines.jsonl"
        self._job = location("--url", url) / FOLDER if url else build / "job"
        self._env = {**os.environ, "HERON_HOME": str(build / "home")}
        self._heron = str(Path(sys.executable).with_name("heron"))
        place = self._job.url if isinstance(self._job, UrlPath) else str(self._job)
        arguments = [NAME, "--input", str(self._input), "--directory", place]
        if live or url:
            arguments += ["--live", live or str(build)]
        self._program = ["heronpy.examples.words_pipeline", *arguments]
        config, builder = program(arguments_of(arguments))
        self._definition = Job.of(Program(NAME, config, builder.graph))

    def run(self) -> None:
        """Count live, kill, count again in batch, verify, show.

        Raises:
            HeronError: a step failed, or the counts are wrong.
        """
        self.kill()
        for folder in (self._job, self._build / "live"):
            files_of(folder).delete_folder(folder)
        if self._live:
            with self._live_view() as view:
                view.drop(_LAST_BATCH)
        self._build.mkdir(parents=True, exist_ok=True)
        say("writing the input: the sources of Python's standard library, with timestamps of the last minutes")
        make_lines(self._input, self._build / "text")
        exact = exact_counts(self._input)
        say(f"submitting {NAME}: {exact.total():,} words in {MINUTES} minutes of event time, a batch each minute")
        module, *arguments = self._program
        self._heron_call("submit", "local", "--wait", module, "-", *arguments)
        for part, victim in enumerate(VICTIMS, 1):
            words = exact.total() * part // (len(VICTIMS) + 1)
            self._await(functools.partial(self._counted, words), f"{words:,} words to be counted")
            say(f"kill -9 of the process {self._kill_one(victim)}")
        self._await(self._all_archived, "all lines to be in the archive")
        self._await(functools.partial(self._counted, exact.total()), "all words to be counted")
        live = self._live_total()
        say(f"live counts: {live:,} words, {live - exact.total():,} of them counted twice after the kills")
        print(f"\n$ heron pipeline run {NAME}", flush=True)
        self._heron_call("pipeline", "run", module, "--", *arguments)  # one of its own options is --live, too
        say("verifying batch and merged counts against plain Python")
        merged = self._merged()
        wrong = sorted(word for word in merged.keys() | exact.keys() if merged[word] != exact[word])
        if wrong:
            shown = ", ".join(f"{word} {merged[word]} instead of {exact[word]}" for word in wrong[:5])
            raise HeronError(f"{len(wrong)} words are counted wrong: {shown}")
        say(f"correct: {merged.total():,} words, {len(merged):,} different")
        for command in (["query", NAME, "the"], ["reconcile", NAME, "--limit", "5"], ["status", NAME]):
            print(f"\n$ heron pipeline {' '.join(command)}", flush=True)
            self._heron_call("pipeline", *command)

    def kill(self) -> None:
        """End the topology if it runs."""
        if (Path(self._env["HERON_HOME"]) / "topologies").exists():
            subprocess.run([self._heron, "kill", NAME], env=self._env, capture_output=True, check=False)

    def _heron_call(self, *args: str) -> None:
        code = subprocess.run([self._heron, *args], env=self._env, stdin=subprocess.DEVNULL, check=False).returncode
        if code != 0:
            raise UnavailableError(f"heron {args[0]} failed with exit code {code}")

    def _kill_one(self, component: str) -> str:
        out = subprocess.run([self._heron, "status", NAME, "--json"], env=self._env, capture_output=True, check=True)
        for process in json.loads(out.stdout)["processes"]:
            if f"_{component}_" in process["id"] and process["pid"]:
                os.kill(process["pid"], signal.SIGKILL)
                return str(process["id"])
        raise UnavailableError(f"no process of {component} runs")

    def _live_total(self) -> int:
        with self._live_view() as view:
            return sum(count for batch in view.batches() for _, count in view.items(batch))

    def _live_view(self) -> contextlib.closing[StoreReader]:
        node = self._definition.stores()["counts"]
        reader = node.store.reader(
            StoreContext(view="counts", monoid=node.monoid, directory=self._definition.directory)
        )
        return contextlib.closing(reader)

    def _merged(self) -> Counter[str]:
        with MergedStore(self._definition, "counts") as store:
            return Counter(dict(store.items()))

    def _counted(self, words: int) -> bool:
        return self._live_total() >= words

    def _all_archived(self) -> bool:
        archive = Archive(self._job / "archive" / "events")
        return archive.exists and archive.complete_before_ms() is None

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + WAIT_S
        for symbol in itertools.cycle("|/-\\"):
            if condition():
                break
            if time.monotonic() > give_up_s:
                raise UnavailableError(f"waited {WAIT_S:g} s for {what}: heron logs {NAME}")
            if sys.stdout.isatty():
                print(f"\r{symbol} waiting for {what}", end="", flush=True)
            time.sleep(POLL_S)
        if sys.stdout.isatty():
            print("\r" + " " * 60, end="\r")


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="demo_pipeline", description="Word count, live and in batch, verified.")
    parser.add_argument("--build", type=Path, default=Path("build/demo-pipeline"), help="directory for all files")
    parser.add_argument("--url", help=f"below which archive and views are kept, in {FOLDER}: s3://… or hdfs://…")
    parser.add_argument("--live", help="where live views are kept: redis://…, postgresql://… or a directory; emptied")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        demo = Demo(arguments.build.absolute(), arguments.url, arguments.live)
        try:
            demo.run()
        finally:
            demo.kill()
    except HeronError as e:
        sys.exit(f"demo: {e}")
    except KeyboardInterrupt:
        sys.exit("demo: interrupted")


if __name__ == "__main__":
    main()
