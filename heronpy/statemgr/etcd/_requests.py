"""What is asked of etcd and what it answers, as values: parts of transactions, keys with their revisions."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.statemgr.etcd._gateway import encode

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """A key as it is in etcd."""

    key: str
    value: bytes
    revision: int
    """Of the whole store, at its last change. Never used again."""
    lease: int
    """With which it vanishes; 0: with none."""

    @classmethod
    def of(cls, kv: Mapping[str, Any]) -> Found:
        return cls(
            base64.b64decode(kv["key"]).decode(),
            base64.b64decode(kv.get("value", "")),
            int(kv["mod_revision"]),
            int(kv.get("lease", 0)),
        )


def range_of(key: str, **more: Any) -> Json:
    return {"key": encode(key), **more}


def folder_of(prefix: str) -> Json:
    """All keys that begin with a prefix that ends with a slash."""
    assert prefix.endswith("/")
    return {"key": encode(prefix), "range_end": encode(prefix[:-1] + "0")}  # "0" comes after "/"


def read(key: str) -> Json:
    return {"request_range": range_of(key)}


def put(key: str, value: bytes, lease: int = 0) -> Json:
    return {"request_put": {"key": encode(key), "value": encode(value), "lease": str(lease)}}


def delete(key: str) -> Json:
    return {"request_delete_range": range_of(key)}


def value_is(key: str, value: bytes) -> Json:
    """False where there is no such key."""
    return {"target": "VALUE", "result": "EQUAL", "key": encode(key), "value": encode(value)}


def lease_is(key: str, lease: int) -> Json:
    """With lease 0 true also where there is no such key."""
    return {"target": "LEASE", "result": "EQUAL", "key": encode(key), "lease": str(lease)}


def revision_is(key: str, revision: int) -> Json:
    """With revision 0: there is no such key."""
    return {"target": "MOD", "result": "EQUAL", "key": encode(key), "mod_revision": str(revision)}


def exists(key: str) -> Json:
    return {**revision_is(key, 0), "result": "GREATER"}


def transaction(compare: Sequence[Json], success: Sequence[Json], failure: Sequence[Json] = ()) -> Json:
    return {"compare": list(compare), "success": list(success), "failure": list(failure)}


def revision_of(answer: Mapping[str, Any]) -> int:
    """The store's revision when it answered."""
    return int(answer["header"]["revision"])


def found_in(answer: Mapping[str, Any]) -> list[Found | None]:
    """What the single reads of a transaction have found."""
    ranges = [response.get("response_range", {}) for response in answer.get("responses", ())]
    return [Found.of(r["kvs"][0]) if r.get("kvs") else None for r in ranges]
