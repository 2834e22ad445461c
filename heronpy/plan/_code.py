"""Code that has come into a running topology after what was submitted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from heronpy.errors import TopologyError
from heronpy.proto import plan_pb2

_VERSION = re.compile(r"[0-9a-f]{12}(-[1-9][0-9]{0,8})?")


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """A package in the topology's directory, and the topology that it defines."""

    version: str
    """The first twelve hexadecimal digits of the SHA-256 of the package; `-2` and so on after them, where the same
    package came again with another configuration."""
    package_paths: tuple[str, ...]
    """Directories for sys.path, relative to the directory of this version, first first."""
    definition: bytes = field(repr=False)
    """A serialized Topology. Its id and state do not count."""
    package_url: str = ""
    """Where the package is stored for hosts that do not share the submitter's files; empty: they do."""
    package_sha256: str = ""
    package_bytes: int = 0

    def __post_init__(self) -> None:
        if not _VERSION.fullmatch(self.version):  # it is the name of a directory
            raise TopologyError(f"{self.version!r} is not a version of code")

    def to_proto(self) -> plan_pb2.CodeVersion:
        return plan_pb2.CodeVersion(
            version=self.version,
            package_paths=self.package_paths,
            definition=self.definition,
            package_url=self.package_url,
            package_sha256=self.package_sha256,
            package_bytes=self.package_bytes,
        )

    @classmethod
    def from_proto(cls, proto: plan_pb2.CodeVersion) -> CodeVersion:
        return cls(
            proto.version,
            tuple(proto.package_paths),
            proto.definition,
            proto.package_url,
            proto.package_sha256,
            proto.package_bytes,
        )


def package_of(version: str) -> str:
    """The digits of its package in a version of code."""
    return version.partition("-")[0]


def next_version(before: str, package: str) -> str:
    """The version of a package that comes after a version, and is not that version."""
    if package_of(before) != package:
        return package
    return f"{package}-{int(before.partition('-')[2] or 1) + 1}"


@dataclass(frozen=True, slots=True)
class CodeTrial:
    """New code that is not accepted yet."""

    fallback: str
    """The version that comes back if it is not accepted; empty: what was submitted."""
    timeout_s: float
    """In this time, from when it runs."""

    def to_proto(self) -> plan_pb2.CodeTrial:
        return plan_pb2.CodeTrial(fallback=self.fallback, timeout_s=self.timeout_s)

    @classmethod
    def from_proto(cls, proto: plan_pb2.CodeTrial) -> CodeTrial:
        return cls(proto.fallback, proto.timeout_s)
