"""Calls of a schema registry that may hang, from tasks that must not.

    answering --a call fails, or is not answered in time--> silent --a call in the background is answered--> answering

While it answers, calls are the client's own, caches and all. The first that fails costs the task its timeout. From then
on the task waits no more: what was answered before is answered again, everything else fails at once, and one call at a
time is repeated in the background, at growing intervals, until there is an answer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from heronpy.errors import UnavailableError

RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 30.0
ANSWERS_MAX: Final = 1000
"""So many answers are kept, those that were used last."""
_ASKING: Final = ("get_", "register_", "lookup_", "test_")
"""How the names of methods begin that ask the registry."""


class RegistryCalls:
    """Stands for a `SchemaRegistryClient`: has its methods. Used by one task."""

    def __init__(
        self,
        client: Any,
        silence: Callable[[Exception], str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Everything answers, as far as is known.

        Args:
            client: The client.
            silence: Why the registry does not answer, if that is what an error says; else empty.
            clock: In seconds.
        """
        self._client, self._silence_of, self._clock = client, silence, clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[Any, Any] = OrderedDict()
        self._silence = ""
        """Why it does not answer now."""
        self._failed = 0
        """How many calls in a row."""
        self._again_s = 0.0
        """When it is asked again."""
        self._asking: threading.Thread | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if not name.startswith(_ASKING):
            return method
        return lambda *args, **options: self._call(method, _key(name, args, options), args, options)

    def _call(self, method: Callable[..., Any], key: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call it.

        Raises:
            UnavailableError: the registry does not answer; it is being asked again.
            Exception: of the client, about what it was asked.
        """
        with self._lock:
            silence = self._silence
            if silence and key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
            if silence:
                if self._asking is None and self._clock() >= self._again_s:
                    self._asking = threading.Thread(
                        target=self._ask_quietly, args=(method, key, args, options), name="schema-registry", daemon=True
                    )
                    self._asking.start()
                raise UnavailableError(f"{silence} ({self._failed} calls failed)")
        return self._ask(method, key, args, options)

    def _ask(self, method: Callable[..., Any], key: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            answer = method(*args, **options)
        except Exception as e:
            with self._lock:
                self._silence = self._silence_of(e)
                if self._silence:
                    self._failed += 1
                    wait_s = min(RETRY_MAX_S, RETRY_S * 2.0 ** (self._failed - 1))
                    self._again_s = self._clock() + wait_s
                else:  # it has answered, if only that there is no such schema
                    self._failed = 0
            raise
        with self._lock:
            self._silence, self._failed = "", 0
            self._answers[key] = answer
            while len(self._answers) > ANSWERS_MAX:
                self._answers.popitem(last=False)
        return answer

    def _ask_quietly(self, *call: Any) -> None:
        """Ask in a thread of its own: the next caller gets the answer."""
        try:
            self._ask(*call)
        except Exception:
            pass  # noted down; if it was answered, the next caller gets the same
        finally:
            with self._lock:
                self._asking = None


def _key(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    key = (name, args, *sorted(options.items()))
    try:
        hash(key)
    except TypeError:  # `use.latest.with.metadata` is a dict
        return repr(key)
    return key
