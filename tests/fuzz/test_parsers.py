"""No bytes end a process, or make it take more memory or time than they are worth. `make fuzz` tries many more."""

from __future__ import annotations

import random
import resource
import time

import pytest
from parsers import SCRATCH, Parser, parsers, survives, with_checksums

RUNS = 1500
GROWN_KB_MAX = 200 * 1024
LONGEST_S = 5.0
SLOW = {"archive-file": 200, "launch": 600}
"""These write files: fewer runs."""
_PARSERS = parsers()


def mutated(seed: bytes, rng: random.Random) -> bytes:
    """One to eight changes: flipped bits, cut, repeated or inserted pieces, lengths that lie."""
    data = bytearray(seed)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at : at + rng.randint(1, 16)]
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                data[at:at] = data[: rng.randint(0, 64)]
            case 4:
                data[at : at + 4] = rng.choice(
                    (b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff\x0f", b"[" * 64, b"1e999")
                )
            case _:
                data[at : at + 1] = rng.choice(b"\x00\x01\x7f\x80\xff(){}[]:,*\"'").to_bytes(1, "big")
    return bytes(data)


@pytest.mark.parametrize("name", sorted(_PARSERS))
def test_a_parser_refuses_what_it_does_not_understand(name: str) -> None:
    parser: Parser = _PARSERS[name]
    rng = random.Random(name)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in parser.seeds:
        parser.parse(seed)
    for deep in (b"[" * 100_000, b'{"a":' * 100_000, b'{"a": ' + b"[" * 2000):
        survives(parser, deep)
    for run in range(SLOW.get(name, RUNS)):
        data = mutated(rng.choice(parser.seeds), rng)
        began = time.thread_time()
        try:
            survives(parser, data)
        except Exception as error:
            raise AssertionError(f"run {run}: {data!r}") from error
        assert time.thread_time() - began < LONGEST_S, data
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < GROWN_KB_MAX


def test_objects_of_both_formats_get_the_checksums_that_their_writers_gave_them() -> None:
    """Else all but the first bytes of what is behind them would be refused, and never parsed."""
    for seed in _PARSERS["checkpoint-object"].seeds:
        assert with_checksums(seed) == seed


@pytest.fixture(scope="module", autouse=True)
def scratch() -> object:
    import shutil

    yield
    shutil.rmtree(SCRATCH, ignore_errors=True)
