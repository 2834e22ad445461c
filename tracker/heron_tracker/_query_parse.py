"""Reading the metrics query language.

    query    = call | number
    call     = name "(" argument { "," argument } ")"
    argument = query | word                   words only in TS: component, instance or *, metric
    word     = '"' anything but '"' '"' | characters other than blanks, commas, brackets and quotes

    TS(component, instance | *, metric)       DEFAULT(number, query)    PERCENTILE(number, query, …)
    SUM(query, …)   MAX(query, …)   DIVIDE(a, b)   MULTIPLY(a, b)   SUBTRACT(a, b)   RATE(query)

Names of functions may be written in any case. Every error carries the position of the character that is wrong, counted
from 1.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import NoReturn

from heronpy.errors import UsageError, nearest

LENGTH_MAX = 20_000
"""Longest query, in characters."""
DEPTH_MAX = 32
SERIES_MAX = 64
"""Most TS in one query: each is a question to the Topology Master."""

_TOKEN = re.compile(r'\s*(?:(?P<mark>[(),])|"(?P<quoted>[^"]*)"|(?P<word>[^\s(),"]+))')
_UNLIMITED = 1_000_000
_ARITY = {
    "TS": (3, 3),
    "DEFAULT": (2, 2),
    "SUM": (1, _UNLIMITED),
    "MAX": (1, _UNLIMITED),
    "PERCENTILE": (2, _UNLIMITED),
    "DIVIDE": (2, 2),
    "MULTIPLY": (2, 2),
    "SUBTRACT": (2, 2),
    "RATE": (1, 1),
}


class QueryError(UsageError):
    """A query that cannot be read."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position
        """Of the wrong character, from 1."""

    def __str__(self) -> str:
        return f"the query is wrong at position {self.position}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Number:
    """A constant: the same value in every minute."""

    value: float
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Series:
    """`TS`: one metric of one instance, or of all of a component."""

    component: str
    instance: str
    """Its id, or `*`."""
    metric: str
    position: int = field(default=0, compare=False)  # one that is named twice is asked for once


@dataclass(frozen=True, slots=True)
class Call:
    """Every other function."""

    function: str
    arguments: tuple[Node, ...]
    position: int = 0


Node = Number | Series | Call


def series_of(node: Node, *, optional: bool = False) -> list[tuple[Series, bool]]:
    """Every TS of a query, and whether a DEFAULT or RATE stands above it: then it may have no values at all."""
    if isinstance(node, Series):
        return [(node, optional)]
    if isinstance(node, Number):
        return []
    optional = optional or node.function in ("DEFAULT", "RATE")
    return [found for argument in node.arguments for found in series_of(argument, optional=optional)]


def parse(text: str) -> Node:
    """Read a query.

    Raises:
        QueryError: it cannot be read; says where, and what was expected.
    """
    if len(text) > LENGTH_MAX:
        raise QueryError(f"it is longer than {LENGTH_MAX} characters", LENGTH_MAX + 1)
    parser = _Parser(_tokens(text), len(text))
    node = parser.node(0)
    parser.end()
    return node


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:  # only a quote that is not closed matches nothing
            blanks = len(text[at:]) - len(text[at:].lstrip())
            raise QueryError("a quotation mark is not closed", at + blanks + 1)
        kind = match.lastgroup or ""
        quote = 1 if kind == "quoted" else 0
        tokens.append(_Token(match[kind] if kind == "mark" else kind, match[kind], match.start(kind) - quote + 1))
        at = match.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token], length: int) -> None:
        self._tokens = tokens
        self._at = 0
        self._end = _Token("end", "", length + 1)
        self._series = 0

    def node(self, depth: int) -> Node:
        token = self._peek()
        if depth > DEPTH_MAX:
            raise QueryError(f"it is nested deeper than {DEPTH_MAX}", token.position)
        if token.kind != "word":
            self._fail("a function or a number")
        self._next()
        if self._peek().kind != "(":
            return _number(token)
        return self._call(token, depth)

    def end(self) -> None:
        if self._peek().kind != "end":
            self._fail("the end")

    def _call(self, name: _Token, depth: int) -> Node:
        function = name.text.upper()
        if function not in _ARITY:
            raise QueryError(
                f"no function {name.text!r}{nearest(function, _ARITY) or '; known are ' + ', '.join(_ARITY)}",
                name.position,
            )
        self._next()
        if function == "TS":
            return self._ts(name)
        arguments = [self.node(depth + 1)]
        while self._peek().kind == ",":
            self._next()
            arguments.append(self.node(depth + 1))
        if self._peek().kind != ")":
            self._fail("',' or ')'")
        self._next()
        return _checked(function, tuple(arguments), name.position)

    def _ts(self, name: _Token) -> Series:
        words = []
        for what, after in (("a component", ","), ("an instance or *", ","), ("a metric", ")")):
            token = self._peek()
            if token.kind not in ("word", "quoted") or not token.text:
                self._fail(what)
            self._next()
            words.append(token.text)
            if self._peek().kind != after:
                self._fail(f"{after!r}")
            self._next()
        self._series += 1
        if self._series > SERIES_MAX:
            raise QueryError(f"it has more than {SERIES_MAX} TS", name.position)
        return Series(words[0], words[1], words[2], name.position)

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else self._end

    def _next(self) -> None:
        self._at += 1

    def _fail(self, expected: str) -> NoReturn:
        token = self._peek()
        found = "the end" if token.kind == "end" else repr(token.text)
        raise QueryError(f"expected {expected}, found {found}", token.position)


def _number(token: _Token) -> Number:
    try:
        value = float(token.text)
    except ValueError:
        raise QueryError(f"expected a number or a function with (, found {token.text!r}", token.position) from None
    if not math.isfinite(value):
        raise QueryError(f"{token.text} is not a number to calculate with", token.position)
    return Number(value, token.position)


def _checked(function: str, arguments: tuple[Node, ...], position: int) -> Call:
    least, most = _ARITY[function]
    if not least <= len(arguments) <= most:
        takes = f"{least}" if least == most else f"at least {least}"
        raise QueryError(f"{function} takes {takes} arguments, not {len(arguments)}", position)
    first = arguments[0]
    if function in ("DEFAULT", "PERCENTILE") and not isinstance(first, Number):
        raise QueryError(f"the first argument of {function} must be a number", first.position)
    if function == "PERCENTILE" and isinstance(first, Number) and not 0 <= first.value <= 100:
        raise QueryError("a percentile is between 0 and 100", first.position)
    return Call(function, arguments, position)
