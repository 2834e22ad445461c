"""What an entry of a Redis stream means."""

from __future__ import annotations

from typing import Any

import msgspec

from heronpy.errors import ConfigError


class Decoder:
    """Entries as elements: dicts of text, the text of one field, or the JSON value in one field."""

    def __init__(self, field: str | None = None, json_field: str | None = None) -> None:
        """Take the field's name.

        Raises:
            ConfigError: two of them.
        """
        if field is not None and json_field is not None:
            raise ConfigError("RedisStream takes either field or json_field")
        name = field if field is not None else json_field
        self._name = None if name is None else name.encode()
        self._json = json_field is not None

    def decode(self, fields: dict[bytes, bytes]) -> Any:
        """The element.

        Raises:
            ValueError: malformed; says why.
        """
        if self._name is None:
            return {name.decode(): value.decode() for name, value in fields.items()}
        value = fields.get(self._name)
        if value is None:
            raise ValueError(f"it has no field {self._name.decode()!r}")
        if not self._json:
            return value.decode()
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError) as e:
            raise ValueError(f"field {self._name.decode()!r} is not JSON: {e}") from e


def shown(fields: dict[bytes, bytes]) -> dict[str, str]:
    """Fields as a dead letter has them: as text, with escapes for what is none."""
    return {
        name.decode(errors="backslashreplace"): value.decode(errors="backslashreplace")
        for name, value in fields.items()
    }


def time_ms(entry_id: str) -> int:
    """The time in an entry id, `<ms>-<n>`."""
    return int(entry_id.partition("-")[0])
