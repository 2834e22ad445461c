"""Tracebacks for the users: of their code, not of the engine's."""

from __future__ import annotations

import runpy
import traceback
from pathlib import Path

_ENGINE = str(Path(__file__).resolve().parents[1]) + "/"
_EXAMPLES = f"{_ENGINE}examples/"
"""Part of the distribution, but written like a user's code."""


def user_traceback(error: BaseException) -> str:
    """The traceback of an exception as text, without frames of the engine and of Python's import machinery.

    If nothing would remain, nothing is left out.
    """
    report = traceback.TracebackException.from_exception(error)
    _cut(report, set())
    return "".join(report.format())


def _cut(report: traceback.TracebackException | None, seen: set[int]) -> None:
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    theirs = [frame for frame in report.stack if not _is_engine(frame.filename)]
    if theirs or hasattr(report, "filename"):  # a syntax error says itself where it is
        report.stack = traceback.StackSummary.from_list(theirs)
    _cut(report.__cause__, seen)
    _cut(report.__context__, seen)
    for part in getattr(report, "exceptions", None) or ():
        _cut(part, seen)


def _is_engine(filename: str) -> bool:
    if filename.startswith("<frozen ") or filename == runpy.__file__ or "/importlib/" in filename:
        return True
    return filename.startswith(_ENGINE) and not filename.startswith(_EXAMPLES)
