"""Nodes for a control plane without kubelets: a stand-in that runs what is bound to them as processes of this machine.

It does of a kubelet's work what topologies can see: the container's command in a mount namespace of its own with
the pod's volumes (Secret, ConfigMap, emptyDir, projected), environment, user and group; restarts;
SIGTERM, grace time, SIGKILL; status and heartbeats. It pulls no image (two names are known, with the Python of this
checkout and with a bare one), sets no limits, and gives pods addresses of the loopback network. It is no proof for what
a kubelet does.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import reaper

from heronpy.kubernetes import Api, KubernetesError, load_access
from heronpy.testing.kubernetes import ControlPlane, kubernetes_missing

IMAGE = "registry.test/heron:1"
PYTHON_IMAGE = "registry.test/python:1"
"""It has a Python, and nothing else."""
_IMAGES = {IMAGE: Path(sys.executable).parent, PYTHON_IMAGE: Path(sys.base_prefix) / "bin"}
_TICK_S = 0.2
_BACKOFF_S = 1.0
_numbers = itertools.count(1)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Pod:
    """One pod that is bound to a node, as the node sees it."""

    def __init__(self, api: Api, pod: dict[str, Any], directory: Path, server: str) -> None:
        self.api, self.pod, self.directory, self.server = api, pod, directory, server
        self.name, self.namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.spec = pod["spec"]["containers"][0]
        self.ip = f"127.77.{next(_numbers)}.1"
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts, self.again_s, self.term_s, self.terminated = -1, 0.0, 0.0, False
        self.reported: Any = None

    def path(self, kind: str, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{kind}/{name}"

    def make_volumes(self) -> None:
        """Make the volumes as directories, with the files in them that the API says."""
        user = (self.pod["spec"].get("securityContext") or {}).get("runAsUser", 0)
        for volume in self.pod["spec"].get("volumes", []):
            root = self.directory / volume["name"]
            root.mkdir(parents=True, exist_ok=True)
            for source in [volume, *(volume.get("projected") or {}).get("sources", [])]:
                for name, content in self.files(source).items():
                    (root / name).write_bytes(content)
                    (root / name).chmod(0o440)
                    os.chown(root / name, 0, user)  # as a kubelet does: root's, readable by the group
            os.chown(root, user if "emptyDir" in volume else 0, user)
            root.chmod(0o770)

    def files(self, source: dict[str, Any]) -> dict[str, bytes]:
        if "secret" in source:
            wanted = source["secret"]
            data = self.api.get(self.path("secrets", wanted.get("secretName") or wanted["name"])).body["data"]
            places = {item["key"]: item["path"] for item in wanted.get("items", [])} or {key: key for key in data}
            return {path: base64.b64decode(data[key]) for key, path in places.items()}
        if "configMap" in source:
            data = self.api.get(self.path("configmaps", source["configMap"]["name"])).body["data"]
            places = {item["key"]: item["path"] for item in source["configMap"].get("items", [])}
            return {path: data[key].encode() for key, path in (places or {key: key for key in data}).items()}
        if "serviceAccountToken" in source:
            owner = {"kind": "Pod", "apiVersion": "v1", "name": self.name, "uid": self.pod["metadata"]["uid"]}
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
            request |= {"spec": {"audiences": ["https://heron.test"], "boundObjectRef": owner}}
            path = self.path("serviceaccounts", self.pod["spec"]["serviceAccountName"]) + "/token"
            return {"token": self.api.call("POST", path, request).body["status"]["token"].encode()}
        return {"namespace": self.namespace.encode()} if "downwardAPI" in source else {}

    def value(self, variable: dict[str, Any]) -> str:
        """Of a variable of the environment."""
        origin = variable.get("valueFrom", {})
        if "secretKeyRef" in origin:
            reference = origin["secretKeyRef"]
            return self.files({"secret": {"secretName": reference["name"]}})[reference["key"]].decode()
        field = origin.get("fieldRef", {}).get("fieldPath")
        return {"status.podIP": self.ip, "metadata.name": self.name}.get(field) or variable.get("value", "")

    def start(self) -> None:
        self.make_volumes()
        mounts = sorted(self.spec["volumeMounts"], key=lambda m: str(m["mountPath"]))  # outer ones first
        context = self.pod["spec"].get("securityContext") or {}
        user = str(context.get("runAsUser", 0))
        # The "image" is this machine, but that Python is there for everybody, even if it is in its owner's home.
        script = ["mount -t tmpfs tmpfs /run && mkdir -p /run/python /run/volumes /run/opt/upper /run/opt/work"]
        script += [f"mount --bind {sys.base_prefix} /run/python", f"mount --bind {self.directory} /run/volumes"]
        script += [f"mount -t tmpfs -o mode=755 tmpfs {Path.home()} && mkdir -p {sys.base_prefix}"]
        script += [f"mount --bind /run/python {sys.base_prefix}"]
        # Mount points are made there.
        script += ["mount -t overlay overlay -o lowerdir=/opt,upperdir=/run/opt/upper,workdir=/run/opt/work /opt"]
        for mount in mounts:
            target = mount["mountPath"].replace("/var/run/", "/run/")
            script += [f"mkdir -p {target}", f"mount --bind /run/volumes/{mount['name']} {target}"]
        script += [f"cd {self.spec.get('workingDir', '/')}"]
        script += [f'exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs "$@"']
        env = {
            "PATH": f"{_IMAGES[self.spec['image']]}:/usr/bin:/bin",
            reaper.RUN_ENV: os.environ[reaper.RUN_ENV],
        }
        host, _, port = self.server.rpartition("/")[2].rpartition(":")
        env |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        env |= {one["name"]: self.value(one) for one in self.spec.get("env", [])}
        words = [re.sub(r"\$\$\(", "$(", word) for word in self.spec["command"] + self.spec.get("args", [])]
        command = ["unshare", "--mount", "sh", "-ec", "\n".join(script), "sh", *words]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        self.restarts += 1

    def log(self) -> str:
        """What its container has printed, in all its runs."""
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    def kill(self) -> None:
        """All processes of the container at once; those in other sessions end with their parent."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def tick(self, pod: dict[str, Any]) -> bool:
        """Do what is due. False when the pod has ended and is not to be looked after any more."""
        self.pod, now_s = pod, time.monotonic()
        if self.spec["image"] not in _IMAGES:
            self.report(
                "Pending", {"waiting": {"reason": "ErrImagePull", "message": f"{self.spec['image']}: not found"}}
            )
            return not pod["metadata"].get("deletionTimestamp") or self.gone()
        code = None if self.process is None else self.process.poll()
        if pod["metadata"].get("deletionTimestamp"):
            self.term_s = self.term_s or now_s
            if self.process is None or code is not None:
                return self.gone()
            grace_s = pod["metadata"].get("deletionGracePeriodSeconds", 30)
            if now_s - self.term_s > grace_s:
                self.kill()
            elif not self.terminated:
                self.process.terminate()
            self.terminated = True
            return True
        if self.process is not None and code is None:
            self.report("Running", {"running": {"startedAt": now()[:19] + "Z"}})
        elif code is not None and self.pod["spec"].get("restartPolicy") == "Never":
            self.report("Failed" if code else "Succeeded", {"terminated": self.ended(code)})
        elif code is not None and not self.again_s:
            self.again_s = now_s + _BACKOFF_S * 2 ** min(self.restarts, 4)
            self.report("Running", {"terminated": self.ended(code)})
        elif now_s >= self.again_s:
            self.again_s = 0.0
            self.start()
        return True

    def ended(self, code: int) -> dict[str, Any]:
        """How the container has ended, in the API's words."""
        told = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error" if code else "Completed"}
        if code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            told["message"] = (self.directory / "log").read_text(errors="replace")[-2048:]
        return told

    def gone(self) -> bool:
        with contextlib.suppress(KubernetesError):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod["metadata"]["uid"]}}
            self.api.call("DELETE", self.path("pods", self.name), options)
        return False

    def report(self, phase: str, state: dict[str, Any]) -> None:
        if self.reported == (phase, self.restarts, list(state)):
            return
        container = {"name": self.spec["name"], "image": self.spec["image"], "imageID": "", "ready": "running" in state}
        container |= {"restartCount": max(0, self.restarts), "state": state}
        ready = {"type": "Ready", "status": "True" if "running" in state else "False"}
        status = {"phase": phase, "podIP": self.ip, "podIPs": [{"ip": self.ip}], "hostIP": "127.0.0.1"}
        status |= {"containerStatuses": [container], "conditions": [ready]}
        content = "application/strategic-merge-patch+json"
        self.api.call("PATCH", self.path("pods", self.name) + "/status", {"status": status}, content=content)
        self.reported = (phase, self.restarts, list(state))


def pods_missing() -> str | None:
    """Why no pods can run on this machine, or None if they can."""
    if Path("/tmp") in Path(sys.prefix).resolve().parents:
        return f"no pods: {sys.prefix} is below /tmp, of which each pod has its own"
    return kubernetes_missing()


class Nodes:
    """Nodes of a control plane. A context manager; at its end every process is gone."""

    def __init__(self, cluster: ControlPlane, directory: Path, names: tuple[str, ...] = ("n1", "n2")) -> None:
        self.cluster, self.directory, self.names = cluster, directory, names
        self.pods: dict[str, dict[str, Pod]] = {name: {} for name in names}
        self._stopped = {name: threading.Event() for name in names}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for name in self.names:
            self.join(name)
        return self

    def join(self, name: str) -> None:
        """A node, new or back after it had vanished."""
        api = Api(load_access(kubeconfig=self.cluster.kubeconfig("admin")))
        resources = {"cpu": "16", "memory": "64Gi", "pods": "100", "ephemeral-storage": "100Gi"}
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()[:19] + "Z"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        }
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
        lease |= {"spec": {"holderIdentity": name, "leaseDurationSeconds": 6, "renewTime": now()}}
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        for path, wanted in (("/api/v1/nodes", node), (leases, lease)):
            with contextlib.suppress(KubernetesError):  # it is there
                api.call("POST", path, wanted)
        status = {"status": {"capacity": resources, "allocatable": resources, "conditions": [condition]}}
        merge = "application/merge-patch+json"
        api.call("PATCH", f"/api/v1/nodes/{name}/status", status, content=merge)
        stopped = self._stopped[name] = threading.Event()
        known = self.pods[name]

        def run() -> None:
            beat_s = 0.0
            while not stopped.wait(_TICK_S):
                with contextlib.suppress(KubernetesError):  # as a kubelet, which goes on without the API server
                    if time.monotonic() > beat_s:
                        renewed = {"spec": {"renewTime": now()}}
                        api.call("PATCH", f"{leases}/{name}", renewed, content=merge)
                        api.call("PATCH", f"/api/v1/nodes/{name}/status", status, content=merge)
                        beat_s = time.monotonic() + 2.0
                    self._tick(api, name, known)
            for pod in known.values():  # what was started while it vanished
                pod.kill()

        self._threads.append(threading.Thread(target=run, name=f"node-{name}"))
        self._threads[-1].start()

    def _tick(self, api: Api, name: str, known: dict[str, Pod]) -> None:
        query = {"fieldSelector": f"spec.nodeName={name}"}
        found = {pod["metadata"]["uid"]: pod for pod in api.get("/api/v1/pods", query=query).body["items"]}
        for uid in [uid for uid in known if uid not in found]:
            known.pop(uid).kill()
        for uid, pod in found.items():
            if uid not in known:
                known[uid] = Pod(api, pod, self.directory / uid, self.cluster.url)
            if not known[uid].tick(pod):
                known.pop(uid).kill()

    def vanish(self, name: str) -> None:
        """All processes of the node end at once, and it says nothing more."""
        self._stopped[name].set()
        pods, self.pods[name] = self.pods[name], {}
        for pod in list(pods.values()):
            pod.kill()

    def pod(self, name: str) -> Pod | None:
        return next((p for pods in self.pods.values() for p in list(pods.values()) if p.name == name), None)

    def logs(self) -> str:
        """The ends of all containers' output, for error messages."""
        pods = [pod for pods in self.pods.values() for pod in list(pods.values())]
        return "\n".join(f"{pod.name}: {pod.log()[-3000:]}" for pod in pods)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name in self.names:
            self.vanish(name)
        for thread in self._threads:
            thread.join()
        for name in self.names:
            self.cluster.kubectl("delete", "node", name, "--ignore-not-found", check=False)
        shutil.rmtree(self.directory, ignore_errors=True)
