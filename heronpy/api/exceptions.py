"""Errors of user code, raised by it or by the building of a topology."""

from __future__ import annotations

from heronpy.errors import TopologyError


class FailedException(Exception):  # Storm's name
    """Raised by a bolt with `auto_fail` to fail the tuple in hand without being reported as an exception."""


class InvalidTopologyError(TopologyError, ValueError):
    """The topology, a component or a stream is declared wrongly.

    A `ValueError` too, because that is what Heron raises here.
    """
