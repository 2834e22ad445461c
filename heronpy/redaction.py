"""Showing configurations without their secrets: hidden by the name of a key, and by what a value looks like. Pure.

Names catch most; values catch what a name does not show: a URL with a password in it, a key in a list of arguments. A
hidden value that was none costs a look into a file; a secret that is shown cannot be taken back. So doubt hides.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from heronpy.plan import Pickled

HIDDEN = "********"
_NAME = re.compile(
    r"(?i)passw|pwd|passphrase|secret|token|credential|private.?key|api.?key|access.?key|signing.?key|encryption.?key"
    r"|auth(?!or)|cookie|session.?(id|key)|conn(ection)?.?str|(^|[^a-z])(dsn|salt|pin|jwt|bearer)([^a-z]|$)"
)
# Every repetition is bounded: what is searched was written by the topology's submitter.
_VALUE = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
    r"|\b(AKIA|ASIA|AGPA|AIDA|AROA|ANPA)[A-Z0-9]{16}\b"  # AWS
    r"|\bgh[pousr]_[A-Za-z0-9]{30}|\bgithub_pat_\w{30}|\bglpat-[\w-]{20}"
    r"|\bxox[abeoprs]-[\w-]{10}|\b[rs]k_(live|test)_\w{10}|\bAIza[\w-]{35}"  # Slack, Stripe, Google
    r"|\beyJ[\w-]{8}"  # JWT
    r"|\b(password|passwd|pwd|token|secret\w{0,40}|api_?key)\s{0,5}[=:]|sharedaccesskey=|accountkey="
    r"|\b(bearer|basic)\s{1,5}[\w+/=.~-]{8}|--(password|token|secret|api-key)[ =]",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(
    r"(?P<before>\b[a-z][a-z0-9+.-]{0,20}://[^\s/?#@:]{0,100}:)(?P<password>[^\s/?#]{0,300})(?=@)", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
_HEX = re.compile(r"[0-9a-fA-F]{32,}")
_TEXT_MAX = 10_000
_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_AWS_SECRET = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9/+]{40}")
_RANDOMNESS = 0.27
"""In random words the kind of character changes 62 times in 100, 16 are digits and 16 vowels; in names 39, 3 and 36."""


def shown_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as everybody may see it, for JSON."""
    return {redacted(key): shown(key, value) for key, value in values.items()}


def shown(key: str, value: Any) -> Any:
    """The value of a key as everybody may see it, for JSON: objects are only named."""
    return HIDDEN if hidden_by_name(key) else _plain(value)


def _plain(value: Any, depth: int = 0) -> Any:
    if isinstance(value, Pickled):
        return "<an object of the topology>"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, bool | int | None):
        return value
    if isinstance(value, str):
        return redacted(value.encode(errors="replace").decode())  # half a surrogate pair cannot be sent as JSON
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if depth < 10:
        if isinstance(value, dict):
            return {
                redacted(str(k)): HIDDEN if hidden_by_name(str(k)) else _plain(v, depth + 1) for k, v in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(v, depth + 1) for v in value]
    return _plain(str(value))


def hidden_by_name(key: str) -> bool:
    """Whether a key speaks of a secret."""
    return _NAME.search(key) is not None


def redacted(text: str) -> str:
    """The text as everybody may see it: without the password of a URL, and hidden if it looks like a secret."""
    if len(text) > _TEXT_MAX:
        return f"<{len(text)} characters>"
    text = _URL_PASSWORD.sub(lambda match: match["before"] + HIDDEN, text)
    if _VALUE.search(text) or _VALUE.search(unquote(text)) or _has_random_word(text):
        return HIDDEN
    return text


def _has_random_word(text: str) -> bool:
    return any(_is_random(word) for word in _WORD.findall(_UUID.sub("", text)))  # ids are meant to be seen


def _is_random(word: str) -> bool:
    """Whether a long word without blanks is random rather than a name."""
    if _HEX.search(word) or _AWS_SECRET.fullmatch(word):
        return True
    if word.startswith("/"):  # a path
        return False
    characters = [c for c in word if c not in "/_-"]
    kinds = [_kind(c) for c in characters]
    changes = sum(a != b for a, b in itertools.pairwise(kinds))
    vowels = sum(c in "aeiouAEIOU" for c in characters)
    return len(set(kinds)) >= 3 and changes + 0.5 * kinds.count("0") - 0.7 * vowels >= _RANDOMNESS * len(kinds)


def _kind(character: str) -> str:
    return "0" if character.isdigit() else "a" if character.islower() else "A" if character.isupper() else character
