"""What is submitted to YARN. Pure."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

from heron_scheduler.driven import Order
from heron_scheduler.yarn._config import YarnConfig
from heron_scheduler.yarn._rest import APPLICATION_TYPE
from heronpy.environment import python_command
from heronpy.plan import Resources
from heronpy.runtime import Launch

BOOTSTRAP = "heron.bootstrap"
"""The name of a bootstrap file among a container's credentials."""
MIB = 1 << 20
_ATTEMPTS = 20
"""Of the application master within `_VALIDITY_MS`; the cluster's own limit is lower as a rule."""
_VALIDITY_MS = 600_000
_NAME_MAX = 100
# A launch script has a command between double quotes, and replaces braces in it: so it comes in letters and digits.
_DECODE = "import base64,json,os,sys;a=json.loads(base64.b64decode(sys.argv[1]));os.execvp(a[0],a)"


def order_of(resources: Resources) -> Order:
    """What a container asks for: whole vcores, and MiB."""
    return Order(1, max(1, math.ceil(resources.cpu)), max(1, math.ceil(resources.ram_bytes / MIB)))


def tag_of(topology_id: str) -> str:
    """By which a topology's application is found; YARN makes tags lower case."""
    return f"heron-{topology_id}".lower()[:_NAME_MAX]


def python_of(launch: Launch, config: YarnConfig) -> list[str]:
    """The Python of the application master, and of what starts containers."""
    return [config.python] if config.python else python_command(launch)


def shell_command(arguments: Sequence[str], stdout: str = "stdout") -> str:
    """A command as a launch context takes it. Its output goes to YARN's logs."""
    program = json.dumps(list(arguments)).encode()
    words = f"exec {arguments[0]} -c '{_DECODE}' {base64.b64encode(program).decode()}"
    return f"{words} 1><LOG_DIR>/{stdout} 2><LOG_DIR>/stderr"


def application(
    launch: Launch, config: YarnConfig, *, id: str, document: bytes, addresses: Sequence[str]
) -> dict[str, Any]:
    """The application of a topology, as `POST /ws/v1/cluster/apps` takes it.

    Args:
        launch: The topology.
        config: The scheduler's keys.
        id: A new application's.
        document: The bootstrap file of container 0. It is among the application's credentials, which YARN gives to its
            master alone, in a file of its user's.
        addresses: Where the ResourceManager takes application masters.
    """
    command = [*python_of(launch, config), "-m", "heron_scheduler.yarn.master", "--scheduler", ",".join(addresses)]
    return {
        "application-id": id,
        "application-name": f"heron {launch.topology_id}",
        "application-type": APPLICATION_TYPE,
        "application-tags": {"tag": [tag_of(launch.topology_id)]},
        "queue": config.queue,
        "priority": config.priority,
        "max-app-attempts": _ATTEMPTS,
        "attempt-failures-validity-interval": _VALIDITY_MS,
        "keep-containers-across-application-attempts": True,
        "resource": {"memory": config.driver_memory_mb, "vCores": 1},
        **({"app-node-label-expression": config.node_label} if config.node_label else {}),
        "am-container-spec": {
            "commands": {"command": shell_command(command)},
            "environment": {"entry": []},
            "credentials": {
                "tokens": {},
                "secrets": {"entry": [{"key": BOOTSTRAP, "value": base64.b64encode(document).decode()}]},
            },
        },
    }
