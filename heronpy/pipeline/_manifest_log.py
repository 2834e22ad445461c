"""A job's manifest in a store that knows neither renaming nor locks: numbered versions, each created once.

manifest.json/<number>.json    a manifest, or `{"same_as": n, …}`: a run has taken over the manifest of number n
manifest.lock/lease.json       who works on it, and since when; only a courtesy to who comes second

Whoever has read version n creates n + 1, on condition that it is not there: so of several runs one is the next, and the
others find out before anything of theirs counts. A run begins by creating a version that says no more than this. From
then on no earlier one can commit, whatever it believes, and what it has written can be removed.

`If-None-Match` alone is relied upon, for stores that have only that; a store that lets two create the same is refused.
*Rejected:* `If-Match` on one object (of versitygw 1.8, two of 16 writers succeeded in 5 of 40 rounds).
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from heronpy.errors import AlreadyExistsError, ConfigError, FencedError, HeronError, UnavailableError
from heronpy.filesystem import UrlPath, files_of

_log = logging.getLogger(__name__)
_KEPT = 10
"""Versions that stay, for who has listed them and not read them yet."""
_ATTEMPTS = 10
_PROBES = 16
_RENEW_S = 20.0
_LEASE_S = 120.0


def newest(folder: UrlPath) -> tuple[int, UrlPath, bytes | None]:
    """The number of the newest version, and where its manifest is, with its content; None: there is none yet.

    Raises:
        HeronError: the store does not answer, or it changes faster than it can be read.
    """
    for _ in range(_ATTEMPTS):
        number = newest_number(folder)
        path = _path(folder, number)
        if number == 0:
            return 0, path, None
        with contextlib.suppress(FileNotFoundError):  # many newer ones were made meanwhile
            content = files_of(folder).read(path)
            if (same_as := _same_as(content)) is None:
                return number, path, content
            if same_as == 0:
                return number, path, None
            path = _path(folder, same_as)
            return number, path, files_of(folder).read(path)
    raise UnavailableError(f"{folder} changes faster than it can be read; try again")


def newest_number(folder: UrlPath) -> int:
    """Of the newest version; 0: there is none."""
    return max(_numbers(folder), default=0)


def claim(folder: UrlPath, number: int, run: str) -> int:
    """Make a version that says the same as `number`, so that who read that can make none; its number.

    Args:
        folder: the manifest's.
        number: of the version that was read.
        run: a name that no other run has.

    Raises:
        FencedError: another run was faster.
        ConfigError: of several that create a name in this store, not exactly one succeeds.
    """
    if number == 0:
        _probe(folder)
        same_as = 0
    else:
        try:
            found = _same_as(files_of(folder).read(_path(folder, number)))
        except FileNotFoundError:
            raise _fenced(folder) from None
        same_as = number if found is None else found
    return _create(folder, number + 1, msgspec.json.encode({"same_as": same_as, "run": run}), same_as)


def append(folder: UrlPath, number: int, content: bytes) -> int:
    """Make the version after `number`; its number.

    Raises:
        FencedError: there is one already.
    """
    return _create(folder, number + 1, content, number + 1)


def _create(folder: UrlPath, number: int, content: bytes, needed: int) -> int:
    if not files_of(folder).create(_path(folder, number), content):
        raise _fenced(folder)
    numbers = _numbers(folder)
    if max(numbers, default=number) > number:  # others had it, and it was so old that they removed it
        raise _fenced(folder)
    old = [_path(folder, n) for n in numbers if n < number - _KEPT and n != needed]
    with contextlib.suppress(HeronError):  # the next one removes them
        files_of(folder).delete(old)
    return number


def _fenced(folder: UrlPath) -> FencedError:
    return FencedError(f"another batch run has taken over {folder.parent}: nothing of this one counts from now on")


def _numbers(folder: UrlPath) -> list[int]:
    names = [file.path.name.removesuffix(".json") for file in files_of(folder).listed(folder)]
    return sorted(int(name) for name in names if name.isdecimal())


def _path(folder: UrlPath, number: int) -> UrlPath:
    return folder / f"{number:012d}.json"


def _same_as(content: bytes) -> int | None:
    try:
        found = msgspec.json.decode(content)
        return int(found["same_as"]) if isinstance(found, dict) and "same_as" in found else None
    except (msgspec.DecodeError, ValueError, TypeError):
        return None  # whoever decodes it as a manifest says so


def _probe(folder: UrlPath) -> None:
    """Have several create one name at once."""
    from concurrent.futures import ThreadPoolExecutor  # here, because every worker of Spark imports this module

    files, path = files_of(folder), folder / f"probe-{secrets.token_hex(8)}"
    with ThreadPoolExecutor(_PROBES) as pool:
        won = sum(pool.map(lambda number: files.create(path, b"%d" % number), range(_PROBES)))
    files.delete([path])
    if won != 1:
        raise ConfigError(
            f"{folder.parent}: of {_PROBES} that created one name at once {won} succeeded: this store does not honour "
            "If-None-Match, so two batch runs could replace each other's results"
        )


@contextlib.contextmanager
def lease(folder: UrlPath, what: str) -> Iterator[None]:
    """Keep others from beginning, as long as the process lives, and somewhat longer if it dies on another host.

    Raises:
        AlreadyExistsError: another process has the lease.
    """
    from heronpy.archive.files import is_dead_here, this_process  # as above: it takes asyncio with it

    path = folder / "lease.json"
    holder = _holder(path)
    if holder is not None and not is_dead_here(holder["owner"]) and time.time() - holder["at_s"] < _LEASE_S:
        raise AlreadyExistsError(
            f"{what}, on {holder['owner'].partition('@')[0]}: wait for its end, or end that process (then for up to "
            f"{_LEASE_S:g} s from another host)"
        )
    me = f"{this_process()}@{secrets.token_hex(8)}"
    over = threading.Event()

    def write() -> None:
        files_of(path).write(path, msgspec.json.encode({"owner": me, "at_s": time.time()}))

    def renew() -> None:
        while not over.wait(_RENEW_S):
            try:
                write()
            except HeronError as e:
                _log.warning("cannot renew %s: %s", path, e)  # without it another run may take over, at worst

    write()
    renewing = threading.Thread(target=renew, name="batch run's lease", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()
        with contextlib.suppress(HeronError):
            if (holder := _holder(path)) is not None and holder["owner"] == me:
                files_of(path).delete([path])


def _holder(path: UrlPath) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(files_of(path).read(path))
        return {"owner": str(found["owner"]), "at_s": float(found["at_s"])}
    except (FileNotFoundError, msgspec.DecodeError, ValueError, KeyError, TypeError):
        return None
