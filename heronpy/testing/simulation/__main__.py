"""A campaign: `python -m heronpy.testing.simulation --seeds N [--first N] [--seconds N]`. Exits 1 if a run failed."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from heronpy.testing.simulation import failure_of, schedule_of, shrunk, test_of

CHECK_EVERY = 10
"""An invariant that is violated mostly stays so; checking each step costs half of the time."""


def main() -> int:
    """Run seeds one after the other; print a small test for each that fails."""
    parser = argparse.ArgumentParser(prog="python -m heronpy.testing.simulation")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no seed after so long")
    parser.add_argument("--no-shrinking", action="store_true")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first one")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began_s, done, failed = time.monotonic(), 0, 0
    for seed in range(options.first, options.first + options.seeds):
        if time.monotonic() - began_s > options.seconds:
            break
        done += 1
        if not (failure := failure_of(seed, check_every=CHECK_EVERY)):
            continue
        failed += 1
        print(f"seed {seed}, number {done}: {failure}", flush=True)
        faults = schedule_of(seed)
        if not options.no_shrinking:
            kind = failure.partition(":")[0]
            faults = shrunk(faults, lambda fewer, seed=seed, kind=kind: failure_of(seed, fewer).startswith(kind))  # type: ignore[misc]  # the loop's variables
        print(test_of(seed, faults, failure), flush=True)
        if options.until_failure:
            break
    print(f"{done} seeds, {failed} failed, {time.monotonic() - began_s:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
