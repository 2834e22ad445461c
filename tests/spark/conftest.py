"""The Spark session that all tests of this directory share, one for each process of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


# A JVM takes ten seconds of CPU to start, and a process can have one at a time. It ends with the last of these tests.
@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    """A session; batch runs that the tests begin find it, and leave it."""
    from heronpy.pipeline import spark_session

    with spark_session("tests", "local[2]") as session:
        yield session
