"""Executors of Spark as pods of the tests' control plane, as its image would have them.

PySpark's wheel has the jars for Kubernetes and no image. A pod template starts here what the image's entrypoint
starts, with a working directory, a /tmp and a user of the pod's own; the Python in the "image" has no heronpy.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
from kubernetes_nodes import IMAGE, Nodes, Pod

from heronpy.testing.servers import S3Server
from heronpy.testing.spark_hosts import OPTIONS, link_packages

EXECUTORS = "spark-role=executor"
KINDS = ("pods", "services", "configmaps", "persistentvolumeclaims")
"""Of what Spark makes."""
_ENTRYPOINT = """\
env | grep SPARK_JAVA_OPT_ | sort -t_ -k4 -n | sed 's/[^=]*=//' > /tmp/java_opts.txt
readarray -t options < /tmp/java_opts.txt
exec java "${options[@]}" -Xms$SPARK_EXECUTOR_MEMORY -Xmx$SPARK_EXECUTOR_MEMORY \\
  -cp "$SPARK_CLASSPATH:$SPARK_CONF_DIR:$SPARK_HOME/jars/*" \\
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \\
  --driver-url $SPARK_DRIVER_URL --executor-id $SPARK_EXECUTOR_ID --cores $SPARK_EXECUTOR_CORES \\
  --app-id $SPARK_APPLICATION_ID --hostname $SPARK_EXECUTOR_POD_IP \\
  --resourceProfileId $SPARK_RESOURCE_PROFILE_ID --podName $SPARK_EXECUTOR_POD_NAME
"""
"""What of the image's entrypoint starts an executor."""
DRIVER_ROLE = (
    ("create", "serviceaccount", "driver"),
    ("create", "role", "driver", "--verb=create,get,list,watch,delete,deletecollection", "--resource=pods,configmaps"),
    ("create", "rolebinding", "driver", "--role=driver", "--serviceaccount={namespace}:driver"),
)
"""What kubectl does for a driver that may what it must, and no more."""
_USER = 65534  # nobody, whom this machine knows as the image knows its user
_PLACES = {"tmp": "/tmp", "work": "/opt/spark/work-dir"}


def template() -> dict[str, Any]:
    """The pod template that stands in for the image."""
    container = {
        "name": "executor",
        "command": ["bash", "-ec", _ENTRYPOINT],
        "workingDir": _PLACES["work"],
        "env": [{"name": "SPARK_HOME", "value": str(Path(pyspark.__file__).parent)}],
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in _PLACES.items()],
    }
    volumes = [{"name": name, "emptyDir": {}} for name in _PLACES]
    context = {"runAsUser": _USER, "runAsGroup": _USER}
    spec = {"containers": [container], "volumes": volumes, "securityContext": context}
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}


def make_python(directory: Path, *, packages: bool) -> str:
    """Make a Python of this version without heronpy; its path. With packages, it has what tasks import."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    if packages:
        link_packages(directory)
    return str(directory / "bin/python")


class SparkPods:
    """A namespace for executors, with a Python in their image, and the credentials of the store in a Secret."""

    def __init__(self, nodes: Nodes, namespace: str, root: Path, s3: S3Server) -> None:
        """Make it.

        Args:
            nodes: Where pods run.
            namespace: Whose administrator this process is.
            root: A directory that pods see: not below /tmp, of which they have their own.
            s3: The store.
        """
        self.nodes, self.cluster, self.namespace, self.s3 = nodes, nodes.cluster, namespace, s3
        root.chmod(0o755)
        self.python, self.bare_python = (
            make_python(root / name, packages=name == "packages") for name in ("packages", "bare")
        )
        self.template = root / "template.json"
        self.template.write_text(json.dumps(template()))
        values = [f"--from-literal={name}={value}" for name, value in S3Server.credentials.items()]
        self.cluster.kubectl("create", "secret", "generic", "s3", "-n", namespace, *values)

    def conf(self, python: str, **more: str) -> list[str]:
        """Options of a `heron pipeline` command that runs there; a value that is empty takes a setting away."""
        key = "spark.kubernetes."
        settings = {
            f"{key}namespace": self.namespace,
            f"{key}container.image": IMAGE,
            f"{key}executor.podTemplateFile": str(self.template),
            **{f"{key}executor.secretKeyRef.{name}": f"s3:{name}" for name in S3Server.credentials},
            "spark.driver.host": "127.0.0.1",
            "spark.executor.instances": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": OPTIONS,
            "spark.pyspark.python": python,
            "spark.heron.startTimeout": "600",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        options = [word for name, value in settings.items() if value for word in ("--conf", f"{name}={value}")]
        return ["--master", f"k8s://{self.cluster.url}", *options]

    def executors(self) -> list[Pod]:
        """Those that nodes run."""
        names = [one["metadata"]["name"] for one in self.cluster.objects("pods", self.namespace, EXECUTORS)]
        return [pod for name in sorted(names) if (pod := self.nodes.pod(name)) is not None]

    def left(self) -> list[str]:
        """What is there of Spark's."""
        found = [(kind, one["metadata"]) for kind in KINDS for one in self.cluster.objects(kind, self.namespace)]
        return [f"{kind}/{one['name']}" for kind, one in found if one["name"] != "kube-root-ca.crt"]
