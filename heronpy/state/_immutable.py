"""Which values cannot change behind the back of the state that holds them."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import uuid
from typing import Any

ATOMS = frozenset(
    (
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        decimal.Decimal,
        fractions.Fraction,
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        uuid.UUID,
        range,
    )
)
"""Types whose values are immutable, whatever is in them."""


def immutable(value: Any) -> bool:
    """Whether a value is certainly immutable: an atom, an Enum's member, or a tuple or frozenset of such values.

    NamedTuples are, unless a subclass gives them attributes. Everything else is taken for mutable, frozen dataclasses
    included; that is only slower.
    """
    kind = type(value)
    if kind in ATOMS:
        return True
    if kind is tuple or kind is frozenset:
        return ATOMS.issuperset(map(type, value)) or all(map(immutable, value))
    if isinstance(value, tuple):
        return not hasattr(value, "__dict__") and all(map(immutable, value))
    return isinstance(value, enum.Enum)
