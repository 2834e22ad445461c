"""A job's manifest in a store that knows neither renaming nor locks: numbered versions, each created once.

manifest.json/<number>.json    a manifest, or `{"same_as": n, …}`: a run has taken over the manifest of number n
manifest.lock/<ms>-<who>.json  who works on it, written every 20 s; only a courtesy to who comes second

A run that read version n creates n + 1, provided it is not there: so of several runs one is the next, and the
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
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from heronpy.errors import AlreadyExistsError, ConfigError, FencedError, HeronError, UnavailableError
from heronpy.filesystem import Found, UrlPath, files_of

_log = logging.getLogger(__name__)
_KEPT = 10
"""Versions that stay, for who has listed them and not read them yet."""
_ATTEMPTS = 10
_PROBES = 16
_PROBE = "probe-"
_RENEW_S = 20.0
_LEASE_S = 120.0
_leases: set[UrlPath] = set()
"""Those that this process has. One of it that is not among them could not be removed when it was over."""


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
    return max(_versions(_names(folder)), default=0)


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
    names = _names(folder)
    numbers = _versions(names)
    if max(numbers, default=number) > number:  # others had it, and it was so old that they removed it
        raise _fenced(folder)
    old = [_path(folder, n) for n in numbers if n < number - _KEPT and n != needed]
    if number > 1:  # of runs that died in it: no run that still asks what the store does can be the first
        old += [folder / name for name in names if name.startswith(_PROBE)]
    with contextlib.suppress(HeronError):  # the next one removes them
        files_of(folder).delete(old)
    return number


def _fenced(folder: UrlPath) -> FencedError:
    return FencedError(f"another batch run has taken over {folder.parent}: nothing of this one counts from now on")


def _names(folder: UrlPath) -> list[str]:
    return [file.path.name for file in files_of(folder).listed(folder)]


def _versions(names: Iterable[str]) -> list[int]:
    return sorted(int(number) for name in names if (number := name.removesuffix(".json")).isdecimal())


def _path(folder: UrlPath, number: int) -> UrlPath:
    return folder / f"{number:012d}.json"


def _same_as(content: bytes) -> int | None:
    try:
        found = msgspec.json.decode(content)
        return int(found["same_as"]) if isinstance(found, dict) and "same_as" in found else None
    except (msgspec.DecodeError, ValueError, TypeError):
        return None  # decoding it as a manifest says so


def _probe(folder: UrlPath) -> None:
    """Have several create one name at once."""
    from concurrent.futures import ThreadPoolExecutor  # here, because every worker of Spark imports this module

    files, path = files_of(folder), folder / f"{_PROBE}{secrets.token_hex(8)}"
    with ThreadPoolExecutor(_PROBES) as pool:
        won = sum(pool.map(lambda number: files.create(path, b"%d" % number), range(_PROBES)))
    files.delete([path])
    if won != 1 and newest_number(folder):
        raise _fenced(folder)  # which has removed it meanwhile
    if won != 1:
        raise ConfigError(
            f"{folder.parent}: of {_PROBES} that created one name at once {won} succeeded: this store does not honour "
            "If-None-Match, so two batch runs could replace each other's results"
        )


@contextlib.contextmanager
def lease(folder: UrlPath, what: str) -> Iterator[Callable[[], None]]:
    """Keep others from beginning, as long as the process lives, and somewhat longer if it dies on another host.

    Each process has an object of its own, so who wakes up after its lease was over takes away no other's. What the
    block is given raises AlreadyExistsError if another process has come meanwhile.

    Raises:
        AlreadyExistsError: another process has the lease.
    """
    from heronpy.archive.files import this_process  # as above: it takes asyncio with it

    path = folder / f"{time.time_ns() // 1_000_000:014d}-{this_process()}@{secrets.token_hex(4)}.json"
    files, over = files_of(path), threading.Event()
    written_s = float("inf")  # never yet

    def write() -> None:
        nonlocal written_s
        now_s = time.time()
        if now_s - written_s >= _LEASE_S:  # it was over: it is ours again if no other took it
            _refuse(what, [file.path for file in files.listed(folder) if file.path != path])
        files.write(path, b"{}")
        written_s = now_s

    def renew() -> None:
        while not over.wait(_RENEW_S):
            try:
                write()
            except HeronError as e:
                _log.warning("cannot renew %s: %s", path, e)  # without it another run may take over, at worst

    def confirm() -> None:
        write()
        _refuse(what, [other for other in _others(path) if other.name < path.name])  # of two at once, one goes on

    renewing = threading.Thread(target=renew, name="batch run's lease", daemon=True)
    _leases.add(path)
    try:
        held = files.listed(folder)
        write()
        if held:
            _refuse(what, _others(path))
        renewing.start()
        yield confirm
    finally:
        over.set()
        if renewing.is_alive():
            renewing.join()
        _leases.discard(path)
        with contextlib.suppress(HeronError):
            files.delete([path])


def _refuse(what: str, others: Sequence[UrlPath]) -> None:
    if others:
        raise AlreadyExistsError(
            f"{what}, on {_owner(others[0]).partition('@')[0]}: wait for its end, or end that process (then for up to "
            f"{_LEASE_S:g} s from another host)"
        )


def _others(own: UrlPath) -> list[UrlPath]:
    """Leases of others who live, as far as is known; those that are over are removed.

    Ages are differences to what was just written, so all times are of the store's clock.
    """
    from heronpy.archive.files import is_dead_here, this_process  # as above

    def is_over(file: Found[UrlPath]) -> bool:
        owner = _owner(file.path)
        given_up = owner.startswith(f"{this_process()}@") and file.path not in _leases
        return given_up or now_s - file.modified_s >= _LEASE_S or is_dead_here(owner)

    files = files_of(own)
    listed = files.listed(own.parent)
    now_s = max((file.modified_s for file in listed), default=0.0)
    others = [file for file in listed if file.path != own]
    over = [file.path for file in others if is_over(file)]
    files.delete(over)
    return [file.path for file in others if file.path not in over]


def _owner(path: UrlPath) -> str:
    """The process in the name of a lease."""
    return path.name.partition("-")[2]
