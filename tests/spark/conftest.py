"""The Spark session that all tests of this directory share, one for each process of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


# A JVM takes ten seconds of CPU to start, and a process can have one at a time. It ends with the last of these tests.
@pytest.fixture(scope="package")
def spark(s3_credentials: None) -> Iterator[Any]:
    """A session; batch runs that the tests begin find it, and leave it."""
    from heronpy.pipeline import spark_session

    with spark_session("tests", "local[2]") as session:
        yield session


@pytest.fixture(scope="package")
def s3_credentials() -> Iterator[None]:
    """What the servers of these tests ask for, in the environment that Spark's workers have, too."""
    from heronpy.testing.servers import S3Server

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield
