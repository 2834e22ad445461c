"""Files of text lines, and of JSON lines."""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

from heronpy.connectors._files import Pattern, why
from heronpy.connectors._parts import DeadLetter
from heronpy.connectors.lines import LineFiles, LineFormat, shown, starts_of
from heronpy.errors import ConfigError


class TextFile(LineFiles):
    r"""The lines of text files, as `str` without their end (`\n` or `\r\n`), also empty ones.

    Every line is read once by all tasks together, also of files that many tasks share. Its id is
    `<path>:<byte offset>`, its time the time at which the file was last changed. The source ends with the last line.
    In a program with a directory a line keeps the time that the file had when the line was first seen.
    After a restart it goes on where everything was acked, if the program has a directory; also with files that have
    grown or are new since, and from the beginning of one that has become shorter. A last line that was half written
    then is read again: whole, and under the same id. A task that looks for more while it runs (`discover_every_s`)
    leaves a last line without an end alone until its file has not changed for a minute.

    Files whose names end with `.gz` are decompressed, each by one task, and are not supposed to become shorter.
    """

    def __init__(self, pattern: Pattern, *, encoding: str = "utf-8", errors: str = "strict") -> None:
        """Describe the files; they are looked up when the source is opened.

        Args:
            pattern: a glob (`**` for any folders), a file or a list of paths; relative ones from the present directory.
                Or URLs, `s3://bucket/logs/*/*.jsonl?endpoint=…&region=…`; in a glob among them `?` is no wildcard.
            encoding: one in which a newline is one byte, so not UTF-16. A byte order mark of UTF-8 is skipped.
            errors: `strict`: a line with bytes that are no text is a dead letter; else as in `bytes.decode`.

        Raises:
            ConfigError: an unknown or unsuitable encoding.
        """
        super().__init__(pattern, _TextFormat(encoding, errors))


class _TextFormat(LineFormat):
    def __init__(self, encoding: str, errors: str) -> None:
        check_encoding(encoding)
        try:
            codecs.lookup_error(errors)
        except LookupError:
            raise ConfigError(f"unknown handling of encoding errors: {errors!r}; try 'strict' or 'replace'") from None
        self.utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
        self._encoding = "utf-8" if self.utf8 else encoding
        self._errors = errors

    def decode(self, block: bytes, offset: int, path: str, dead_letter: DeadLetter) -> tuple[list[str], list[int]]:
        values = self._lines(block)
        if values is None:
            values, starts = self._each(block, offset, path, dead_letter)
        else:
            starts = starts_of(values if block.isascii() else block.split(b"\n"), offset)
            if len(starts) != len(values):  # a decoder with `errors` may take a newline for part of a character
                values, starts = self._each(block, offset, path, dead_letter)
        if b"\r" in block:
            values = [value.removesuffix("\r") for value in values]
        return values, starts

    def _lines(self, block: bytes) -> list[str] | None:
        try:
            return block.decode(self._encoding, self._errors).split("\n")
        except UnicodeDecodeError:
            return None

    def _each(self, block: bytes, offset: int, path: str, dead_letter: DeadLetter) -> tuple[list[str], list[int]]:
        values, starts = [], []
        lines = block.split(b"\n")
        for line, start in zip(lines, starts_of(lines, offset), strict=True):
            try:
                values.append(line.decode(self._encoding, self._errors))
                starts.append(start)
            except UnicodeDecodeError as e:
                dead_letter(f"{path}:{start}", shown(line), f"not {self._encoding}: {e.reason} at byte {e.start}")
        return values, starts


class JsonLines(LineFiles):
    """The lines of files, each one JSON value. Empty lines are not records. The rest is as with `TextFile`."""

    def __init__(self, pattern: Pattern) -> None:
        """Describe the files; they are looked up when the source is opened.

        Args:
            pattern: a glob (`**` for any folders), a file or a list of paths; relative ones from the present directory.
                Or URLs, `s3://bucket/logs/*/*.jsonl?endpoint=…&region=…`; in a glob among them `?` is no wildcard.
        """
        super().__init__(pattern, _JsonFormat())


class _JsonFormat(LineFormat):
    def decode(self, block: bytes, offset: int, path: str, dead_letter: DeadLetter) -> tuple[list[Any], list[int]]:
        lines = block.split(b"\n")
        starts = starts_of(lines, offset)
        try:
            return list(map(_decode, lines)), starts
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._each(lines, starts, path, dead_letter)

    def _each(
        self, lines: list[bytes], starts: list[int], path: str, dead_letter: DeadLetter
    ) -> tuple[list[Any], list[int]]:
        values, kept = [], []
        for line, start in zip(lines, starts, strict=True):
            if not line.strip():
                continue
            try:
                values.append(_decode(line))
                kept.append(start)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
                dead_letter(f"{path}:{start}", shown(line), f"not JSON: {why(e)}")
        return values, kept


# One for the process: a decoder cannot be pickled.
_decode = msgspec.json.Decoder().decode


def check_encoding(encoding: str) -> None:
    """Refuse what cannot be cut at bytes that are newlines.

    Raises:
        ConfigError: such an encoding, or an unknown one.
    """
    try:
        newline = "\n".encode(encoding).removeprefix(codecs.BOM_UTF8)
    except LookupError:
        raise ConfigError(f"unknown encoding {encoding!r}") from None
    if newline != b"\n":
        raise ConfigError(f"files in {encoding} cannot be cut into lines; convert them to UTF-8")
