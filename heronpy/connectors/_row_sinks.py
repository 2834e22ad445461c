"""Sinks that write files of lines."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import msgspec

from heronpy.connectors._files import why
from heronpy.connectors._part_files import FileSink
from heronpy.connectors._staged_files import Encoder
from heronpy.connectors.spi import Sink
from heronpy.errors import ConfigError
from heronpy.shown import shown


class JsonLinesSink(FileSink):
    """Files of lines, one JSON value each.

    Tuples become arrays, and so do `Window` ([start, end]) and `KeyedWindow` ([key, [start, end]]); dataclasses and
    dicts become objects, sets arrays, bytes base64 text, times and dates ISO 8601 text. NaN and infinities, which JSON
    does not have, become null.
    """

    suffix = ".jsonl"

    def encoder(self, f: BinaryIO) -> Encoder:
        return _LineEncoder(f, self, msgspec.json.Encoder().encode)


class TextSink(FileSink):
    """Files of lines of UTF-8 text: the elements, which are text without newlines, or `str(element)` of others."""

    suffix = ".txt"

    def encoder(self, f: BinaryIO) -> Encoder:
        return _LineEncoder(f, self, _text_line)


class CsvSink(FileSink):
    """CSV files with a header. Elements are dicts with just these fields, or sequences of their values in order."""

    suffix = ".csv"

    def __init__(self, path: str | os.PathLike[str], fields: Sequence[str], *, delimiter: str = ",") -> None:
        """Describe the sink.

        Args:
            path: the directory, or a URL, as of every sink of files.
            fields: names of the fields.
            delimiter: between fields; one character.

        Raises:
            ConfigError: no field, one twice, or an unsuitable delimiter.
        """
        super().__init__(path)
        self._fields = tuple(fields)
        if isinstance(fields, str) or not self._fields or len(set(self._fields)) < len(self._fields):
            raise ConfigError(f"CsvSink takes a list of different names as fields, not {fields!r}")
        try:
            csv.writer(io.StringIO(), delimiter=delimiter)
        except (TypeError, ValueError) as e:
            raise ConfigError(f"CsvSink: {why(e)}") from None
        self._delimiter = delimiter

    def encoder(self, f: BinaryIO) -> Encoder:
        rows = _CsvRows(self._fields, self._delimiter)
        f.write(rows.encode(self._fields) + b"\n")
        return _LineEncoder(f, self, rows.encode)


class _LineEncoder:
    """One element, one line."""

    def __init__(self, f: BinaryIO, sink: FileSink, encode: Callable[[Any], bytes]) -> None:
        self._file = f
        self._sink = sink
        self._encode = encode

    def add(self, element: Any) -> None:
        try:
            line = self._encode(element)
        except (TypeError, ValueError, OverflowError, RecursionError, csv.Error, msgspec.MsgspecError) as e:
            raise unfit(self._sink, element, why(e)) from e
        self._file.write(line + b"\n")

    def finish(self) -> None:
        pass


def unfit(sink: Sink, element: Any, reason: str) -> ValueError:
    """What is raised for an element that a sink cannot hold."""
    return ValueError(f"{type(sink).__name__} cannot hold {shown(element)}: {reason}")


def _text_line(element: Any) -> bytes:
    text = element if isinstance(element, str) else str(element)
    if "\n" in text or "\r" in text:
        raise ValueError("it has a line end within")
    return text.encode()


class _CsvRows:
    """Rows as bytes, without their line end."""

    def __init__(self, fields: tuple[str, ...], delimiter: str) -> None:
        self._fields = fields
        self._names = set(fields)
        self._buffer = io.StringIO(newline="")
        # Ends lines by "\r\n": with another end it would leave these two unquoted in texts.
        self._writer = csv.writer(self._buffer, delimiter=delimiter)

    def encode(self, element: Any) -> bytes:
        self._buffer.seek(0)
        self._buffer.truncate()
        self._writer.writerow(self._values(element))
        return self._buffer.getvalue()[:-2].encode()

    def _values(self, element: Any) -> Sequence[Any]:
        if isinstance(element, dict):
            if element.keys() != self._names:
                raise ValueError(f"its fields are not {list(self._fields)}")
            return [element[name] for name in self._fields]
        if not isinstance(element, (tuple, list)) or len(element) != len(self._fields):
            raise ValueError(f"it is neither a dict nor a sequence of {list(self._fields)}")
        return element
