"""Reading and changing the objects that hold the nodes of one tree."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from heronpy.kubernetes import Answer, Api, KubernetesError, Stream
from heronpy.statemgr._kubernetes_objects import (
    BLOB,
    INLINE_BYTES_MAX,
    NODE_LABEL,
    PART_LABEL,
    ROOT_LABEL,
    Entry,
    Head,
    blob_object,
    blob_value,
    digest,
    head_name,
    head_of,
    listed,
    selector,
)

log = logging.getLogger(__name__)

_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_PAGE = "500"
_RETRY_S = 0.01
_RETRY_MAX_S = 0.3
_WATCH_S = 240
_ORPHAN_S = 3600.0
"""A large value that no head refers to is removed when it is older: its writer has died, or will not finish."""


class Call:
    """One call of the state manager: how long it may still take, and whether an answer was lost on the way."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline_s = time.monotonic() + timeout_s
        self._pause_s = _RETRY_S
        self.repeated = False
        """An earlier attempt got no answer: it may have been carried out."""

    def left_s(self) -> float:
        return max(0.05, self._deadline_s - time.monotonic())

    def pause(self, what: str) -> None:
        """Before another attempt, because somebody else changed the same object.

        Raises:
            KubernetesError: the time is up.
        """
        if time.monotonic() + self._pause_s >= self._deadline_s:
            raise KubernetesError(f"{what} is changed by others all the time: cannot change it")
        time.sleep(self._pause_s * (0.5 + random.random()))
        self._pause_s = min(self._pause_s * 2, _RETRY_MAX_S)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a node is to be."""

    value: bytes
    owner: str = ""
    """The session that it ends with; empty: it stays."""


class Verdict(Enum):
    """What else can be decided about a node."""

    DONE = "it is as wanted: an earlier attempt has done it"
    REFUSED = "leave it alone"
    REMOVE = "there is to be none"


Decide = Callable[[Head], Wanted | Verdict]


class Store:
    """The objects of one tree in one namespace. All methods raise KubernetesError."""

    def __init__(self, api: Api, namespace: str, root: str) -> None:
        self._api = api
        self._root = root
        self._configmaps = f"/api/v1/namespaces/{namespace}/configmaps"

    def read(self, call: Call, name: str) -> Head:
        try:
            found = self._api.get(f"{self._configmaps}/{head_name(self._root, name)}", timeout_s=call.left_s())
        except KubernetesError as e:
            if e.status != 404:
                raise
            return head_of(self._root, name, None)
        return head_of(self._root, name, found.body)

    def value(self, call: Call, entry: Entry) -> bytes | None:
        """A node's value; None: the head that `entry` is from has been replaced."""
        if entry.value is not None:
            return entry.value
        try:
            return blob_value(self._api.get(f"{self._configmaps}/{entry.blob}", timeout_s=call.left_s()).body)
        except KubernetesError as e:
            if e.status != 404:
                raise
            return None

    def update(self, call: Call, name: str, kind: str, decide: Decide) -> bool:
        """Change one node as `decide` has it, who is asked again whenever somebody else was quicker.

        Returns whether the node is now what was wanted.
        """
        made: Entry | None = None
        while True:
            head = self.read(call, name)
            wanted = decide(head)
            if isinstance(wanted, Wanted):
                made = made or self._made(call, name, wanted.value)
                entries = {**head.entries, kind: replace(made, owner=wanted.owner)}
            elif wanted is Verdict.REMOVE:
                entries = {k: entry for k, entry in head.entries.items() if k != kind}
            else:
                if made is not None and not call.repeated:
                    self._remove_blob(call, made.blob)
                return wanted is Verdict.DONE
            if self._write(call, head, entries):
                before = head.entries.get(kind)
                if before is not None:
                    self._remove_blob(call, before.blob)
                return True
            call.pause(f"{name!r}")

    def _write(self, call: Call, head: Head, entries: dict[str, Entry]) -> bool:
        """Replace a head. False: it is not that one any more."""
        path = f"{self._configmaps}/{head_name(self._root, head.name)}"
        try:
            if entries and head.version:
                self._send(call, "PUT", path, head.to_object(entries))
            elif entries:
                self._send(call, "POST", self._configmaps, head.to_object(entries))
            elif head.version:
                condition = {"uid": head.uid, "resourceVersion": head.version}
                self._send(call, "DELETE", path, {"preconditions": condition})
        except KubernetesError as e:
            if e.reason in ("Conflict", "AlreadyExists") or (e.status == 404 and head.version):
                return False
            raise
        return True

    def _send(self, call: Call, method: str, path: str, body: dict[str, Any]) -> Answer:
        try:
            answer = self._api.call(method, path, body, timeout_s=call.left_s())
        except KubernetesError as e:
            call.repeated = call.repeated or e.repeated
            raise
        call.repeated = call.repeated or answer.repeated
        return answer

    def _made(self, call: Call, name: str, value: bytes) -> Entry:
        if len(value) <= INLINE_BYTES_MAX:
            return Entry(value)
        self._sweep(call, name)
        blob = blob_object(self._root, name, value, uuid.uuid4().hex[:12])
        try:
            self._api.call("POST", self._configmaps, blob, timeout_s=call.left_s())
        except KubernetesError as e:
            if not (e.repeated and e.reason == "AlreadyExists"):
                raise
        return Entry(None, blob=blob["metadata"]["name"], blob_digest=hashlib.sha256(value).hexdigest())

    def _remove_blob(self, call: Call, blob: str) -> None:
        """Never raises: what is left is swept later."""
        if blob:
            with contextlib.suppress(KubernetesError):
                self._api.call("DELETE", f"{self._configmaps}/{blob}", timeout_s=call.left_s())

    def _sweep(self, call: Call, name: str) -> None:
        """Remove large values that writers who died have left."""
        selected = f"{ROOT_LABEL}={digest(self._root)},{PART_LABEL}={BLOB},{NODE_LABEL}={head_name(self._root, name)}"
        found = list(self._pages(call, selected))
        used = {entry.blob for entry in self.read(call, name).entries.values()}
        for metadata, server_s in found:
            age_s = server_s - datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
            if metadata["name"] not in used and age_s > _ORPHAN_S:
                log.info("removing %s, which a writer that died has left", metadata["name"])
                self._remove_blob(call, metadata["name"])

    def names(self, call: Call, kind: str) -> list[tuple[str, str]]:
        """The names and owners of all nodes of a kind."""
        return [listed(metadata, kind) for metadata, _ in self._pages(call, selector(self._root, kind))]

    def _pages(self, call: Call, selected: str) -> Iterator[tuple[dict[str, Any], float]]:
        """The metadata of the selected objects, and the server's time."""
        query = {"labelSelector": selected, "limit": _PAGE}
        while True:
            answer = self._api.get(self._configmaps, query=query, accept=_METADATA, timeout_s=call.left_s())
            for item in answer.body.get("items") or []:
                yield item["metadata"], answer.server_s
            following = answer.body["metadata"].get("continue")
            if not following:
                return
            query = {**query, "continue": following}

    def check(self, call: Call) -> None:
        """Whether the server answers us."""
        query = {"labelSelector": f"{ROOT_LABEL}={digest(self._root)}", "limit": "1"}
        self._api.get(self._configmaps, query=query, accept=_METADATA, timeout_s=call.left_s())

    def read_version(self, call: Call, name: str) -> tuple[Head, str]:
        """A head, and the version from which on to follow it."""
        query = {"fieldSelector": f"metadata.name={head_name(self._root, name)}"}
        found = self._api.get(self._configmaps, query=query, timeout_s=call.left_s()).body
        item = next(iter(found.get("items") or []), None)
        return head_of(self._root, name, item), found["metadata"]["resourceVersion"]

    def watch(self, call: Call, name: str, version: str) -> Stream:
        """The changes of a head after a version."""
        query = {
            "fieldSelector": f"metadata.name={head_name(self._root, name)}",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        return self._api.watch(self._configmaps, query, timeout_s=call.left_s())

    def head_in(self, name: str, event: dict[str, Any]) -> Head:
        """What an event of `watch` says that there is now."""
        return head_of(self._root, name, None if event["type"] == "DELETED" else event["object"])
