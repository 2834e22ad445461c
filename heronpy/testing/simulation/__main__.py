"""A campaign: `python -m heronpy.testing.simulation --seeds N [--checkpoints | --at-least-once] …`.

Exits 1 if a run failed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from heronpy.testing.simulation import Schedule, failure_of, schedule_of, shrunk, test_of

CHECK_EVERY = 10
"""An invariant that is violated mostly stays so; checking each step costs half of the time."""


def main() -> int:
    """Run seeds one after the other; print a small test for each that fails."""
    parser = argparse.ArgumentParser(prog="python -m heronpy.testing.simulation")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--checkpoints", action="store_true", help="effectively once")
    parser.add_argument("--at-least-once", action="store_true", help="with checkpoints, at least once")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no seed after so long")
    parser.add_argument("--no-shrinking", action="store_true")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first one")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    mode = {"checkpoints": options.checkpoints, "at_least_once": options.at_least_once}
    began_s, done, failed = time.monotonic(), 0, 0
    for seed in range(options.first, options.first + options.seeds):
        if time.monotonic() - began_s > options.seconds:
            break
        done += 1
        if not (failure := _failure(seed, None, mode)):
            continue
        failed += 1
        print(f"seed {seed}, number {done}: {failure}", flush=True)
        faults = schedule_of(seed, **mode)
        if not options.no_shrinking:
            kind = failure.partition(":")[0]

            def fails(fewer: Schedule, seed: int = seed, kind: str = kind) -> bool:
                return _failure(seed, fewer, mode).startswith(kind)

            faults = shrunk(faults, fails)
        print(test_of(seed, faults, failure, **mode), flush=True)
        if options.until_failure:
            break
    print(f"{done} seeds, {failed} failed, {time.monotonic() - began_s:.0f} s", flush=True)
    return 1 if failed else 0


def _failure(seed: int, faults: Schedule | None, mode: dict[str, bool]) -> str:
    return failure_of(seed, faults, check_every=CHECK_EVERY, **mode)


if __name__ == "__main__":
    sys.exit(main())
