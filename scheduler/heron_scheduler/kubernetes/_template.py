"""A user's pod template and ours, merged: what the user wrote stays as it is, what the engine needs is added.

The container that the engine runs in has Heron's name (`executor`, or `manager` in container 0). A template that has a
container of this name describes it: its image, environment, mounts, resources and the like; all others are sidecars.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from heronpy.errors import ConfigError

_RESERVED = ("command", "args")


def merged(template: Mapping[str, Any], ours: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The pod template for a StatefulSet.

    Args:
        template: The user's; empty: none.
        ours: What the engine needs, with one container.
        where: What messages call the template.

    Raises:
        ConfigError: it is not a pod template, or something in it is not the user's to say.
    """
    result = copy.deepcopy(dict(template))
    result.pop("apiVersion", None)
    result.pop("kind", None)
    metadata, spec = result.setdefault("metadata", {}), result.setdefault("spec", {})
    if set(result) != {"metadata", "spec"} or not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise ConfigError(f"the {where} is not a pod template: it has metadata and spec, and nothing else")
    if spec.get("restartPolicy", "Always") != "Always":
        raise ConfigError(f"the {where} sets restartPolicy: containers of a topology are always started again")
    for kind in ("labels", "annotations"):
        metadata[kind] = {**(metadata.get(kind) or {}), **ours["metadata"][kind]}
    own = ours["spec"]
    engine = own["containers"][0]
    found = [c for c in spec.get("containers") or [] if c.get("name") == engine["name"]]
    others = [c for c in spec.get("containers") or [] if c.get("name") != engine["name"]]
    for key in _RESERVED:
        if found and key in found[0]:
            raise ConfigError(f"the {where} sets {key} of container {engine['name']}, which is the engine's")
    spec["containers"] = [_container(found[0] if found else {}, engine, where), *others]
    spec["volumes"] = _added(spec.get("volumes"), own["volumes"], "name", where)
    spec["tolerations"] = _preferred(spec.get("tolerations"), own["tolerations"], "key")
    for key, value in own.items():
        if key not in ("containers", "volumes", "tolerations"):
            spec.setdefault(key, copy.deepcopy(value))
    return result


def _container(theirs: Mapping[str, Any], engine: Mapping[str, Any], where: str) -> dict[str, Any]:
    result = {**theirs, **{key: engine[key] for key in ("name", *_RESERVED)}}
    result["env"] = _added(theirs.get("env"), engine["env"], "name", where)
    result["volumeMounts"] = _added(theirs.get("volumeMounts"), engine["volumeMounts"], "mountPath", where)
    own, given = engine["resources"], theirs.get("resources") or {}
    result["resources"] = {**given, **{kind: {**own[kind], **(given.get(kind) or {})} for kind in own}}
    for key, value in engine.items():
        result.setdefault(key, copy.deepcopy(value))
    return result


def _added(theirs: Any, ours: list[dict[str, Any]], key: str, where: str) -> list[dict[str, Any]]:
    """Both lists; what is ours cannot be said otherwise."""
    theirs, reserved = theirs or [], {one[key] for one in ours}
    for one in theirs:
        if one.get(key) in reserved:
            raise ConfigError(f"the {where} has {key} {one[key]}, which is the engine's")
    return [*theirs, *copy.deepcopy(ours)]


def _preferred(theirs: Any, ours: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Both lists, without what is ours where they have their own."""
    theirs = theirs or []
    said = {one.get(key) for one in theirs}
    return [*theirs, *(copy.deepcopy(one) for one in ours if one[key] not in said)]
