"""Coverage-guided fuzzing of every parser: `make fuzz`, or `python tests/fuzz/run.py --runs 100000 tuples acks`.

Each parser runs in a process of its own under libFuzzer (atheris), with bounds on memory and time for each input. What
it finds is left in the working directory as `crash-…`, `oom-…` or `timeout-…`; put it into the parser's seeds.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RSS_MB_MAX = 1024
INPUT_BYTES_MAX = 4096
SECONDS_MAX = 10


def fuzz_one(name: str, runs: int, seed: int) -> None:
    """Fuzz a parser in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["heronpy", "heron_tracker"]):
        from parsers import SCRATCH, parsers, survives
    parser = parsers()[name]
    with tempfile.TemporaryDirectory(prefix="heron-corpus-") as corpus:
        for number, data in enumerate(parser.seeds):
            Path(corpus, str(number)).write_bytes(data)
        options = [
            f"-runs={runs}",
            f"-seed={seed}",
            f"-max_len={max(INPUT_BYTES_MAX, *(2 * len(data) for data in parser.seeds))}",
            f"-rss_limit_mb={RSS_MB_MAX}",
            f"-timeout={SECONDS_MAX}",
            "-print_final_stats=1",
            corpus,
        ]
        atheris.Setup([sys.argv[0], *options], lambda data: survives(parser, data))
        try:
            atheris.Fuzz()
        finally:
            shutil.rmtree(SCRATCH, ignore_errors=True)


def main() -> int:
    """Fuzz all parsers, or those that are named; 1 if any of them failed."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="PARSER")
    arguments.add_argument("--runs", type=int, default=1_000_000, help="inputs for each parser")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.one:
        fuzz_one(options.one, options.runs, options.seed)
        return 0
    from parsers import parsers

    failed = []
    for name in options.names or parsers():
        print(f"== {name}", flush=True)
        again = [sys.executable, __file__, "--one", name, "--runs", str(options.runs), "--seed", str(options.seed)]
        if subprocess.run(again, check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "no parser failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
