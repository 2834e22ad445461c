"""How nodes of the state tree are kept in Kubernetes objects. Pure: objects in, objects out.

All nodes of one name (of one topology, that is) are in one ConfigMap, its *head*, because Kubernetes changes one object
at a time: a fenced write compares one node and writes another, and is atomic because both have one resourceVersion.

An object takes 1 MiB at most. A value above `INLINE_BYTES_MAX` is therefore in a ConfigMap of its own, immutable, whose
name the head has: written before the head refers to it, and removed after the head does no longer. The head alone says
what counts.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

INLINE_BYTES_MAX = 48 * 1024
"""Larger values are in an object of their own. One of every kind fits into a head."""
VALUE_BYTES_MAX = 1_000_000
"""A ConfigMap takes 1 MiB, keys included; this is ZooKeeper's bound too."""

ROOT_LABEL = "heron/root"
PART_LABEL = "heron/part"
NODE_LABEL = "heron/node"
NAME_ANNOTATION = "heron/name"
PATH_ANNOTATION = "heron/path"
HEAD, BLOB = "head", "value"
_HAS = "heron/has-"
_OWNER = "heron/owner-"
_BLOB = ".value"


def digest(*parts: str, length: int = 16) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]


def head_name(root: str, name: str) -> str:
    """The name of the ConfigMap with the nodes of this name: readable as far as Kubernetes allows, and unique."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
    return "-".join(filter(None, ("heron", slug, digest(root, name))))


@dataclass(frozen=True, slots=True)
class Entry:
    """One node."""

    value: bytes | None
    """None: it is in the object `blob`."""
    owner: str = ""
    """The session that the node ends with; empty: the node stays."""
    blob: str = ""
    """The name of the object with the value."""
    blob_digest: str = ""
    """SHA-256 of the value there."""

    def equals(self, value: bytes) -> bool:
        """Whether this is the node's value."""
        if self.value is not None:
            return self.value == value
        return self.blob_digest == hashlib.sha256(value).hexdigest()


@dataclass(frozen=True, slots=True)
class Head:
    """All nodes of one name."""

    root: str
    name: str
    entries: Mapping[str, Entry] = field(default_factory=dict)
    """By kind."""
    version: str = ""
    """The object's resourceVersion; empty: there is no object."""
    uid: str = ""

    def to_object(self, entries: Mapping[str, Entry]) -> dict[str, Any]:
        """The ConfigMap that replaces this one, and only this one."""
        metadata: dict[str, Any] = {
            "name": head_name(self.root, self.name),
            "labels": {
                "app.kubernetes.io/managed-by": "heron",
                ROOT_LABEL: digest(self.root),
                PART_LABEL: HEAD,
                **{_HAS + kind: "yes" for kind in entries},
            },
            "annotations": {
                NAME_ANNOTATION: self.name,
                PATH_ANNOTATION: self.root,
                **{_OWNER + kind: entry.owner for kind, entry in entries.items() if entry.owner},
            },
        }
        if self.version:
            metadata |= {"resourceVersion": self.version, "uid": self.uid}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "binaryData": {
                kind: base64.b64encode(entry.value).decode()
                for kind, entry in entries.items()
                if entry.value is not None
            },
            "data": {
                kind + _BLOB: f"{entry.blob} {entry.blob_digest}" for kind, entry in entries.items() if entry.blob
            },
        }


def head_of(root: str, name: str, found: Mapping[str, Any] | None) -> Head:
    """What an object has; None: there is no object."""
    if found is None:
        return Head(root, name)
    metadata = found["metadata"]
    owners = metadata.get("annotations") or {}
    entries: dict[str, Entry] = {}
    for kind, value in (found.get("binaryData") or {}).items():
        entries[kind] = Entry(base64.b64decode(value or ""), owners.get(_OWNER + kind, ""))
    for key, reference in (found.get("data") or {}).items():
        if key.endswith(_BLOB):
            blob, _, checksum = reference.partition(" ")
            kind = key.removesuffix(_BLOB)
            entries[kind] = Entry(None, owners.get(_OWNER + kind, ""), blob, checksum)
    return Head(root, name, entries, metadata["resourceVersion"], metadata.get("uid", ""))


def blob_object(root: str, name: str, value: bytes, unique: str) -> dict[str, Any]:
    """The ConfigMap for one large value. Never changed, so a reader sees the value whole or not at all."""
    node = head_name(root, name)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{node}-{unique}",
            "labels": {
                "app.kubernetes.io/managed-by": "heron",
                ROOT_LABEL: digest(root),
                PART_LABEL: BLOB,
                NODE_LABEL: node,
            },
        },
        "immutable": True,
        "binaryData": {"value": base64.b64encode(value).decode()},
    }


def blob_value(found: Mapping[str, Any]) -> bytes:
    return base64.b64decode((found.get("binaryData") or {}).get("value", ""))


def selector(root: str, kind: str) -> str:
    """Selects the heads with a node of this kind."""
    return f"{ROOT_LABEL}={digest(root)},{PART_LABEL}={HEAD},{_HAS}{kind}"


def listed(metadata: Mapping[str, Any], kind: str) -> tuple[str, str]:
    """A node's name and its owner, from the metadata of its head."""
    annotations = metadata.get("annotations") or {}
    return annotations.get(NAME_ANNOTATION, ""), annotations.get(_OWNER + kind, "")
