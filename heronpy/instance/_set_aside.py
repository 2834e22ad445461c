"""Tuples that user code fails on again and again, effectively once.

A tuple that is failed is a rollback of all tasks, after which it comes again; one that always fails would be the last
thing that a topology does. So a rollback names the tuple by a digest of its contents, and one that has had several
without a commit in between is set aside by the tasks of its component: not executed, but sent to the dead letters. As
it is not executed, it leaves nothing half-done in state, and is set aside again if it comes again after a rollback.

What is out of reach (a database, a directory) fails any tuple, and the first one after each rollback may always be the
same: errors that say so blame no tuple, however often they come.

Tuples of equal contents are one here: in what order they come is not the same after a rollback.

A tuple that cannot be deserialized is one that `process()` would fail on (`Unreadable`, `refusing`). Of a batch that
only a serializer of the user's own could take apart it is unknown which tuple is to blame: all that one component sends
another are one then. Once that is set aside, the sender serializes each tuple alone, so that only those that cannot be
read are.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from heronpy.api.tuple import Tuple
from heronpy.errors import TupleError, UnavailableError
from heronpy.shown import message, said, shown

if TYPE_CHECKING:
    from heronpy.instance._core import TaskCore

DEAD_LETTERS: Final = "dead_letters"
"""The stream for them, of (where, row, reason), if the component declares one."""
OUTAGES: Final = (UnavailableError, ConnectionError, TimeoutError)
"""What says nothing of the tuple that was executed."""
_DIGEST_CHARACTERS = 1 << 20
_COMMITS = 2
"""After so many in an epoch nothing is set aside any more: what was, is behind the newest of them."""


class Unreadable(list[Any]):
    """Takes the place of the values of a tuple that cannot be deserialized: there are none."""

    def __init__(self, serialized: bytes, error: BaseException, *, pickled: bool = False) -> None:
        super().__init__()
        self.serialized = serialized
        """A list of them alone."""
        self.pickled = pickled
        """Whether that is the same whichever batch they came in, so that it says which tuple it is."""
        self.error = error


def refusing(process: Callable[[Tuple], None]) -> Callable[[Tuple], None]:
    """A process() that raises on tuples that cannot be deserialized."""

    def refuse(tup: Tuple) -> None:
        if not isinstance(tup.values, Unreadable):
            process(tup)
            return
        error = tup.values.error
        if isinstance(error, OUTAGES):
            raise error
        what = f"a tuple of {tup.component}:{tup.stream}, from task {tup.task}, cannot be deserialized"
        raise TupleError(f"{what}: {said(error)}") from error

    return refuse


@dataclass(frozen=True, slots=True)
class FailedTuple:
    """What is reported of a tuple that was failed."""

    digest: bytes
    where: str
    """Component, stream and key, for people."""

    @classmethod
    def of(cls, core: TaskCore, tup: Tuple) -> FailedTuple:
        return cls(_digest(core, tup), _where(core, tup))

    @classmethod
    def unreadable(cls, core: TaskCore, sender: str) -> FailedTuple:
        """One of those that a component sends; which, is unknown."""
        name = core.component.name
        return cls(_unreadable_digest(name, sender), f"component {name!r}, tuples of component {sender!r}")

    @classmethod
    def emitted(cls, core: TaskCore, error: TupleError) -> FailedTuple:
        """One that cannot be sent. Its contents cannot be compared: what is wrong with it can."""
        said_of_it = f"{core.component.name}\0{message(error)}"
        return cls(blake2b(said_of_it.encode(), digest_size=16).digest(), f"component {core.component.name!r}")


class SetAside:
    """The tuples that a task is not to execute, or not to send."""

    def __init__(self, core: TaskCore, reasons: Mapping[bytes, str]) -> None:
        """Set tuples aside until the second commit from now.

        Args:
            core: The task's.
            reasons: By digest, why each has failed.
        """
        self._core, self._reasons = core, reasons
        receivers, sender = core.plan.logical.components, core.component.name
        core.apart = any(_unreadable_digest(receiver, sender) in reasons for receiver in receivers)
        self._commits_left = _COMMITS

    def __bool__(self) -> bool:
        return self._commits_left > 0

    def committed(self) -> None:
        """A checkpoint is committed."""
        self._commits_left -= 1
        if self._commits_left <= 0:
            self._core.apart = False

    def sifted(
        self, process: Callable[[Tuple], None], ack: Callable[[Tuple], None], emit: Callable[..., Any]
    ) -> Callable[[Tuple], None]:
        """A process() that emits them to the dead letters instead, and acks them."""

        def sifted(tup: Tuple) -> None:
            reason = self._reasons.get(_digest(self._core, tup))
            if reason is None:
                process(tup)
                return
            self._dead_letter(tup, reason, emit)
            ack(tup)

        return sifted

    def has(self, core: TaskCore, error: TupleError, emit: Callable[..., Any]) -> bool:
        """Whether a tuple that cannot be sent is set aside; then it is among the dead letters, without its values."""
        failed = FailedTuple.emitted(core, error)
        reason = self._reasons.get(failed.digest) if self else None
        if reason is not None:
            self._letter("emit()", failed.where, f"{core.component.name}/emitted", None, reason, emit)
        return reason is not None

    def _dead_letter(self, tup: Tuple, reason: str, emit: Callable[..., Any]) -> None:
        row = tup.values.serialized if isinstance(tup.values, Unreadable) else tup.values
        source = f"{tup.component}/{tup.stream}"
        self._letter("process()", _where(self._core, tup), source, row, reason, emit)

    def _letter(self, call: str, where: str, source: str, row: Any, reason: str, emit: Callable[..., Any]) -> None:
        core = self._core
        core.metrics.add(f"__dead-letter-count/{source}", 1)
        core.user_error(call, TupleError(f"{where}: set aside, as it has failed again and again: {reason}"))
        if len(getattr(core.component.outputs.get(DEAD_LETTERS), "fields", ())) == 3:
            emit([where, row, reason], stream=DEAD_LETTERS)


def _digest(core: TaskCore, tup: Tuple) -> bytes:
    values: Any = tup.values
    if isinstance(values, Unreadable):
        if not values.pickled:
            return _unreadable_digest(core.component.name, tup.component)
        values = values.serialized
    # Without memo: else equal values would differ if they share objects in another way.
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.fast = True
    contents = (core.component.name, tup.component, tup.stream, values)
    try:
        pickler.dump(contents)
        data = buffer.getvalue()
    except Exception:  # cyclic, of a class that is no module's, or of another serializer than pickle
        data = _rarer(contents)
    return blake2b(data, digest_size=16).digest()


def _unreadable_digest(receiver: str, sender: str) -> bytes:
    return blake2b(f"{receiver}\0{sender}\0cannot be deserialized".encode(), digest_size=16).digest()


def _rarer(contents: tuple[Any, ...]) -> bytes:
    import cloudpickle  # as where tuples are serialized

    try:
        return bytes(cloudpickle.dumps(contents, pickle.HIGHEST_PROTOCOL))
    except Exception:
        return shown(contents, _DIGEST_CHARACTERS).encode(errors="surrogatepass")


def _where(core: TaskCore, tup: Tuple) -> str:
    inputs = core.component.inputs
    decl = next((each for each in inputs if (each.component, each.stream) == (tup.component, tup.stream)), None)
    where = f"component {core.component.name!r}, a tuple of {tup.component}:{tup.stream}"
    if isinstance(tup.values, Unreadable):
        return f"{where}, from task {tup.task}"
    if decl is None or not decl.fields:
        return where
    return f"{where} with key {shown(tuple(tup[name] for name in decl.fields))}"
