"""What can be set for topologies on Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from heronpy.errors import ConfigError, nearest

_P = "heron.kubernetes."
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
REQUEST_MODES = ("NOT_SET", "EQUAL_TO_LIMIT")
ROLES = ("manager", "executor")
"""Heron's names: container 0 is the manager, all others are executors."""
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?")


def _key(default: Any, key: str) -> Any:
    return field(default=default, metadata={"key": key})


def _prefix(prefix: str) -> Any:
    return field(default_factory=dict, metadata={"prefix": prefix})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The scheduler's keys."""

    image: str = _key("", "heron.executor.docker.image")
    """The image that containers run: one with heronpy and what the topology needs. Required."""
    namespace: str = _key("default", _P + "scheduler.namespace")
    """Where everything is made."""
    context: str = _key("", _P + "scheduler.context")
    """The context of the kubeconfig; empty: its current one."""
    image_pull_policy: str = _key("", _P + "scheduler.imagePullPolicy")
    """Always, IfNotPresent or Never; empty: Kubernetes' default."""
    request_mode: str = _key("NOT_SET", _P + "resource.request.mode")
    """EQUAL_TO_LIMIT: a container may not use more CPU than the packing plan gives it, also where more is free. Its
    memory is limited to what it requests in any case."""
    executor_template: str = _key("", _P + "executor.pod.template")
    """CONFIGMAP.KEY: a pod template that the containers with user code are merged into."""
    manager_template: str = _key("", _P + "manager.pod.template")
    """The same for container 0."""
    template_disabled: bool = _key(False, _P + "pod.template.disabled")
    """Refuse pod templates: for clusters whose users may not choose what pods look like."""
    service_account: str = _key("", _P + "scheduler.serviceAccount")
    """The service account of the pods; empty: the namespace's `default`. With state in Kubernetes it needs rights."""
    wait_s: float = _key(10.0, _P + "scheduler.submit.wait.secs")
    """How long a submission waits to see that pods are made and images found. What takes longer is no error."""
    pod_labels: Mapping[str, str] = _prefix(_P + "pod.label.")
    """`….KEY: VALUE`"""
    pod_annotations: Mapping[str, str] = _prefix(_P + "pod.annotation.")
    """`….KEY: VALUE`"""
    service_labels: Mapping[str, str] = _prefix(_P + "service.label.")
    """`….KEY: VALUE`"""
    service_annotations: Mapping[str, str] = _prefix(_P + "service.annotation.")
    """`….KEY: VALUE`"""
    secrets: Mapping[str, str] = _prefix(_P + "pod.secret.")
    """`….NAME: /path`: mounts a Secret."""
    secret_keys: Mapping[str, str] = _prefix(_P + "pod.secretKeyRef.")
    """`….ENV_NAME: NAME:KEY`: a key of a Secret as an environment variable."""
    manager_limits: Mapping[str, str] = _prefix(_P + "manager.limits.")
    """`….cpu`, `….memory` or another resource of Kubernetes, for container 0."""
    manager_requests: Mapping[str, str] = _prefix(_P + "manager.requests.")
    executor_limits: Mapping[str, str] = _prefix(_P + "executor.limits.")
    """The same for the others; what is not here is from the packing plan."""
    executor_requests: Mapping[str, str] = _prefix(_P + "executor.requests.")

    def __post_init__(self) -> None:
        if not self.image:
            raise ConfigError("heron.executor.docker.image is not set: it names the image that containers run")
        self._check_choice("scheduler.imagePullPolicy", self.image_pull_policy, ("", *PULL_POLICIES))
        self._check_choice("resource.request.mode", self.request_mode, REQUEST_MODES)
        for role in ROLES:
            template = self.template(role)
            if template and self.template_disabled:
                raise ConfigError(f"{_P}{role}.pod.template: pod templates are disabled here")
            if template and not all(template.partition(".")[::2]):
                raise ConfigError(f"{_P}{role}.pod.template must be CONFIGMAP.KEY, not {template!r}")
            for kind, quantities in (("limits", self.limits(role)), ("requests", self.requests(role))):
                for resource, quantity in quantities.items():
                    if not _QUANTITY.fullmatch(quantity):
                        raise ConfigError(
                            f"{_P}{role}.{kind}.{resource} is not a quantity like 500m or 2Gi: {quantity}"
                        )
        for name, path in self.secrets.items():
            if not path.startswith("/"):
                raise ConfigError(f"{_P}pod.secret.{name} must be an absolute path, not {path!r}")
        for name, reference in self.secret_keys.items():
            if not all(reference.partition(":")[::2]):
                raise ConfigError(f"{_P}pod.secretKeyRef.{name} must be SECRET:KEY, not {reference!r}")

    @staticmethod
    def _check_choice(key: str, value: str, known: tuple[str, ...]) -> None:
        if value not in known:
            names = ", ".join(filter(None, known))
            raise ConfigError(f"{_P}{key} must be one of {names}, not {value!r}{nearest(value, known)}")

    def template(self, role: str) -> str:
        return self.manager_template if role == "manager" else self.executor_template

    def limits(self, role: str) -> Mapping[str, str]:
        return self.manager_limits if role == "manager" else self.executor_limits

    def requests(self, role: str) -> Mapping[str, str]:
        return self.manager_requests if role == "manager" else self.executor_requests

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read the keys of a configuration.

        Raises:
            ConfigError: an unknown key (names the nearest), or a value that its key cannot have.
        """
        known = {f.metadata["key"]: f for f in fields(cls) if "key" in f.metadata}
        prefixes = {f.metadata["prefix"]: f.name for f in fields(cls) if "prefix" in f.metadata}
        found: dict[str, Any] = {}
        for key, value in values.items():
            prefix = next((p for p in prefixes if key.startswith(p) and len(key) > len(p)), None)
            if prefix is not None:
                found.setdefault(prefixes[prefix], {})[key.removeprefix(prefix)] = str(value)
            elif key in known:
                found[known[key].name] = _converted(key, value, known[key].default)
            elif ".volumes." in key:
                raise ConfigError(f"{key}: volumes are described in a pod template, see {_P}executor.pod.template")
            else:
                raise ConfigError(f"unknown configuration key {key!r}{nearest(key, [*known, *prefixes])}")
        return cls(**found)


def _converted(key: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        if str(value).lower() not in ("true", "false"):
            raise ConfigError(f"{key} must be true or false, not {value!r}")
        return str(value).lower() == "true"
    if isinstance(default, float):
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{key} must be a number, not {value!r}") from None
    return "" if value is None else str(value)
