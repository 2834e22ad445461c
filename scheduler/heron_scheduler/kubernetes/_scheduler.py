"""The scheduler: makes the objects of a topology and removes them. Kubernetes does the rest."""

from __future__ import annotations

import base64
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from heron_scheduler._spi import ContainerStatus, Scheduler
from heron_scheduler.kubernetes._lost_pods import OVERDUE_S, release_lost_pods
from heron_scheduler.kubernetes._manifests import (
    BOOTSTRAP_KEY,
    CONTAINER_LABEL,
    Object,
    container_name,
    container_objects,
    grace_s,
    role_of,
    service_object,
    topology_selector,
)
from heron_scheduler.kubernetes._remedies import remedy
from heron_scheduler.kubernetes._settings import Settings
from heron_scheduler.kubernetes._status import HOPELESS, status_of, trouble_of
from heronpy.address import is_loopback
from heronpy.errors import ConfigError, HeronError, NotFoundError, UnavailableError, UntrustedError
from heronpy.kubernetes import Api, KubernetesError, load_access
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch
from heronpy.usersecrets import kubernetes_reference

log = logging.getLogger(__name__)

_POLL_S = 0.25
_KINDS = {
    "StatefulSet": "apis/apps/v1/namespaces/{}/statefulsets",
    "Service": "api/v1/namespaces/{}/services",
    "Secret": "api/v1/namespaces/{}/secrets",
    "Pod": "api/v1/namespaces/{}/pods",
    "ConfigMap": "api/v1/namespaces/{}/configmaps",
    "Event": "api/v1/namespaces/{}/events",
}
_END_MARGIN_S = 30.0


class KubernetesScheduler(Scheduler):
    """The containers of one topology as StatefulSets."""

    secret_kinds = frozenset({"file", "env", "kubernetes"})
    runs_as_submitter = False

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self._settings = Settings.of(launch.scheduler_config)
        self._opened: Api | None = None

    @classmethod
    def check_config(cls, values: Mapping[str, Any]) -> None:
        Settings.of(values)

    # The SPI

    def on_schedule(self, plan: PackingPlan) -> None:
        self._check_launch()
        with self._refusals("submit to"):
            release_lost_pods(self._api, self._settings.namespace, topology_selector(self.launch))
            there = set(self._by_container("StatefulSet"))
            missing = [n for n in (0, *(c.id for c in plan.containers)) if n not in there]
            self._start(plan, missing)

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        self.on_schedule(new)
        wanted = {0, *(c.id for c in new.containers)}
        with self._refusals("update"):
            self._end([n for n in self._by_container("StatefulSet") if n not in wanted])

    def on_restart(self, container: int | None) -> None:
        with self._refusals("restart"):
            there = sorted(self._by_container("StatefulSet"))
            if container is not None and container not in there:
                raise NotFoundError(f"Kubernetes runs no container {container} of {self.launch.topology}")
            chosen = there if container is None else [container]
            pods = [pod for n, pods in self._by_container("Pod").items() if n in chosen for pod in pods]
            for pod in pods:
                self._delete("Pod", pod["metadata"]["name"], {"preconditions": {"uid": pod["metadata"]["uid"]}})
            self._await_end({pod["metadata"]["uid"] for pod in pods})

    def on_secrets(self) -> None:
        from heronpy.container import bootstrap_document

        with self._refusals("write the secrets of"):
            for n in self._by_container("StatefulSet"):
                path = self._path("Secret", container_name(self.launch, n))
                secret = self._api.get(path).body
                secret["data"][BOOTSTRAP_KEY] = base64.b64encode(bootstrap_document(self.launch, n)).decode()
                self._api.call("PUT", path, secret)

    def on_kill(self) -> None:
        with self._refusals("kill"):
            selector = {"labelSelector": topology_selector(self.launch)}
            # First what starts pods, then the pods themselves, so that none is started meanwhile.
            for kind in ("StatefulSet", "Pod", "Service", "Secret"):
                for found in self._list(kind, selector):
                    self._delete(kind, found["metadata"]["name"])
                if kind == "Pod":
                    self._await_end(None)

    def job_links(self) -> Sequence[str]:
        return []  # a cluster's dashboard, if there is one, is not known to its API

    def containers(self) -> Sequence[ContainerStatus]:
        with self._refusals("read"):
            sets, pods = self._by_container("StatefulSet"), self._by_container("Pod")
            waiting = [n for n in sets if n not in pods]
            events = self._events() if waiting else []
        return [
            status_of(n, pods.get(n, []), trouble_of(container_name(self.launch, n), events) if n in waiting else "")
            for n in sorted({*sets, *pods})
        ]

    def read_bootstrap(self) -> bytes:
        with self._refusals("read the secrets of"):
            try:
                secret = self._api.get(self._path("Secret", container_name(self.launch, 0))).body
            except KubernetesError as e:
                if e.status == 404:
                    raise NotFoundError(f"Kubernetes has no secrets of {self.launch.topology}") from e
                raise
        try:
            return base64.b64decode(secret["data"][BOOTSTRAP_KEY])
        except (LookupError, TypeError, ValueError) as e:
            name = container_name(self.launch, 0)
            raise UntrustedError(f"Secret {name} of namespace {self._settings.namespace} has no bootstrap file") from e

    # Starting

    def _check_launch(self) -> None:
        if self.launch.statemgr.type == "file":
            raise ConfigError(
                "containers on Kubernetes do not reach a state manager in files: "
                "set heron.class.state.manager to kubernetes, etcd or zookeeper"
            )
        if self.launch.statemgr.type == "kubernetes" and not self.launch.statemgr.connection.rpartition("/")[2]:
            raise ConfigError(
                "heron.statemgr.connection.string names no namespace, so pods and commands may not mean the same one: "
                "set it to NAMESPACE, or CONTEXT/NAMESPACE"
            )
        bind = self.launch.config.network.bind
        if is_loopback(bind):
            raise ConfigError(
                f"heron.network.bind.address is {bind}, which other pods do not reach: set it to 0.0.0.0 or ::"
            )

    def _start(self, plan: PackingPlan, numbers: Sequence[int]) -> None:
        """Make the objects of containers that there are none of yet; of all, or of none if one is refused."""
        if not numbers:
            return
        # Here: only who starts containers needs them.
        from heronpy.container import bootstrap_document
        from heronpy.environment import python_command

        templates = {role: self._template(role) for role in {role_of(n) for n in numbers}}
        python = python_command(self.launch)
        resources = {0: plan.master, **{c.id: c.required for c in plan.containers}}
        self._check_user_secrets()
        wanted = [service_object(self.launch, self._settings)]
        for n in numbers:
            wanted += container_objects(
                n,
                resources[n],
                self.launch,
                self._settings,
                bootstrap=bootstrap_document(self.launch, n),
                python=python,
                template=templates[role_of(n)],
            )
        self._rehearse(wanted)
        for one in wanted:
            self._create(one)
        self._await_pods(numbers)

    def _check_user_secrets(self) -> None:
        """Refuse secrets of user code that are not there: their pods would wait for them for ever."""
        for name, reference in self.launch.secrets.items():
            if (found := kubernetes_reference(reference)) is None:
                continue
            secret, key = found
            try:
                data = self._api.get(self._path("Secret", secret)).body.get("data") or {}
            except KubernetesError as e:
                if e.status != 404:
                    raise
                namespace = self._settings.namespace
                raise NotFoundError(f"secret {name!r}: namespace {namespace} has no Secret {secret!r}") from e
            if key not in data:
                known = ", ".join(sorted(data)) or "none"
                raise NotFoundError(f"secret {name!r}: Secret {secret!r} has no key {key!r}: it has {known}")

    def _template(self, role: str) -> Mapping[str, Any]:
        named = self._settings.template(role)
        if not named:
            return {}
        name, _, key = named.partition(".")
        where = f"heron.kubernetes.{role}.pod.template: ConfigMap {name} of namespace {self._settings.namespace}"
        try:
            data = self._api.get(self._path("ConfigMap", name)).body.get("data") or {}
        except KubernetesError as e:
            if e.status == 404:
                raise ConfigError(f"{where} does not exist") from e
            raise
        if key not in data:
            raise ConfigError(f"{where} has no key {key!r}: it has {', '.join(sorted(data)) or 'none'}")
        try:
            template = yaml.safe_load(data[key])
        except yaml.YAMLError as e:
            raise ConfigError(f"{where}: {key} is not valid YAML") from e
        if not isinstance(template, dict):
            raise ConfigError(f"{where}: {key} is not a pod template")
        # As in Kubernetes' PodTemplate, and in Heron: the object, or what it describes.
        return template.get("template", template) if template.get("kind") == "PodTemplate" else template

    def _rehearse(self, wanted: Sequence[Object]) -> None:
        """Have the server check everything before anything is made: rights, schemas, admission, quota of each pod."""
        for one in wanted:
            self._create(one, dry_run=True)
            if one["kind"] == "StatefulSet":
                template = one["spec"]["template"]
                metadata = {**template["metadata"], "name": f"{one['metadata']['name']}-0"}
                metadata["namespace"] = self._settings.namespace
                with contextlib.suppress(_MayNotError):
                    self._create({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}, dry_run=True)

    def _create(self, wanted: Object, *, dry_run: bool = False) -> None:
        kind = wanted["kind"]
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        try:
            self._api.call("POST", self._path(kind), wanted, query=query)
        except KubernetesError as e:
            if e.reason == "AlreadyExists":
                return  # by an earlier attempt: names are of this submission alone
            # To make pods oneself is another right than to have them made.
            if kind == "Pod" and e.status == 403 and "is forbidden: User" in str(e):
                raise _MayNotError from e
            raise

    def _await_pods(self, numbers: Iterable[int]) -> None:
        """Wait until the pods are on nodes, for a moment: to see what prevents it for good.

        Raises:
            ConfigError: an image is missing, or the like.
            UnavailableError: the quota is exceeded, or the pods are not admitted.
        """
        waiting, deadline_s = set(numbers), time.monotonic() + self._settings.wait_s
        while waiting and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            pods = self._by_container("Pod")
            for n in sorted(waiting & set(pods)):
                status = status_of(n, pods[n], "")
                if status.reason.startswith(HOPELESS):
                    raise ConfigError(
                        f"container {n} cannot start in Kubernetes: {status.reason}{remedy(status.reason)}"
                    )
            waiting = {n for n in waiting if n not in pods or not pods[n][0]["spec"].get("nodeName")}
            if unmade := sorted(waiting - set(pods)):
                events = self._events()
                for n in unmade:
                    if trouble := trouble_of(container_name(self.launch, n), events):
                        raise UnavailableError(f"Kubernetes makes no pod for container {n}: {trouble}{remedy(trouble)}")

    # Ending

    def _end(self, numbers: Sequence[int]) -> None:
        for n in numbers:
            self._delete("StatefulSet", container_name(self.launch, n))
        pods = self._by_container("Pod")
        self._await_end({pod["metadata"]["uid"] for n in numbers for pod in pods.get(n, [])})
        for n in numbers:
            self._delete("Secret", container_name(self.launch, n))

    def _await_end(self, uids: set[str] | None) -> None:
        """Wait until pods (None: all) are gone; those whose node is lost are removed after their grace time."""
        selector = topology_selector(self.launch)
        deadline_s = time.monotonic() + grace_s(self.launch) + OVERDUE_S + _END_MARGIN_S
        while True:
            pods = [p for p in self._list("Pod", {"labelSelector": selector}) if self._is_one(p, uids)]
            if not pods:
                return
            if time.monotonic() > deadline_s:
                names = ", ".join(pod["metadata"]["name"] for pod in pods)
                raise UnavailableError(f"Kubernetes does not end the pods {names} of {self.launch.topology}")
            release_lost_pods(self._api, self._settings.namespace, selector)
            time.sleep(_POLL_S)

    @staticmethod
    def _is_one(pod: Mapping[str, Any], uids: set[str] | None) -> bool:
        return uids is None or pod["metadata"]["uid"] in uids

    def _delete(self, kind: str, name: str, options: Object | None = None) -> None:
        try:
            self._api.call("DELETE", self._path(kind, name), {"propagationPolicy": "Background"} | (options or {}))
        except KubernetesError as e:
            if e.status not in (404, 409):  # gone, or replaced by another
                raise

    # The API

    @property
    def _api(self) -> Api:
        if self._opened is None:
            try:
                self._opened = Api(load_access(self._settings.context))
            except ConfigError as e:
                raise ConfigError(f"{e}; see KUBECONFIG and heron.kubernetes.scheduler.context") from e
        return self._opened

    def _path(self, kind: str, name: str = "") -> str:
        return "/" + _KINDS[kind].format(self._settings.namespace) + (f"/{name}" if name else "")

    def _list(self, kind: str, query: Mapping[str, str]) -> list[Object]:
        found: list[Object] = self._api.get(self._path(kind), query=query).body["items"]
        return found

    def _by_container(self, kind: str) -> dict[int, list[Object]]:
        found: dict[int, list[Object]] = {}
        for one in self._list(kind, {"labelSelector": topology_selector(self.launch)}):
            number = one["metadata"]["labels"].get(CONTAINER_LABEL, "")
            if number.isdecimal():
                found.setdefault(int(number), []).append(one)
        return found

    def _events(self) -> list[Object]:
        try:
            return self._list("Event", {"fieldSelector": "reason=FailedCreate"})
        except KubernetesError as e:
            if e.status == 403:  # they only explain
                return []
            raise

    @contextlib.contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        """Errors of the API with what to do about them."""
        try:
            yield
        except KubernetesError as e:
            namespace = self._settings.namespace
            if e.status == 404 and f'namespaces "{namespace}" not found' in str(e):
                raise ConfigError(
                    f"Kubernetes has no namespace {namespace!r}: create it, or set heron.kubernetes.scheduler.namespace"
                ) from e
            hint = remedy(str(e))
            invalid = ConfigError if e.status == 422 or e.status == 400 else UnavailableError
            raise invalid(f"cannot {what} topology {self.launch.topology}: {e}{hint}") from e
        except HeronError:
            raise
        except OSError as e:
            raise UnavailableError(f"cannot {what} topology {self.launch.topology}: {e}") from e


class _MayNotError(Exception):
    """This user may not make pods: what they would be refused for is known later."""
