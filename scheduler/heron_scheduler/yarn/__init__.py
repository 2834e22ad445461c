"""Topologies on Hadoop YARN: an application per topology, with a container of YARN for each of its containers.

The application master (`heron_scheduler.yarn.master`) is a process of Python, which speaks Hadoop's RPC. It does what a
node of the state manager asks for, and says there what runs (`heron_scheduler.driven`): so any machine can command the
topology. Secrets travel among the credentials of YARN's containers. See docs/yarn.md.
"""

from heron_scheduler.yarn._config import YarnConfig
from heron_scheduler.yarn._credentials import Credentials
from heron_scheduler.yarn._outcomes import Attempts
from heron_scheduler.yarn._requests import Requests, container_name, request_id
from heron_scheduler.yarn._rest import Application, Rest, one_line, reason_in
from heron_scheduler.yarn._rpc import RemoteError, RpcClient
from heron_scheduler.yarn._sasl import DigestClient, parse_challenge
from heron_scheduler.yarn._scheduler import YarnScheduler
from heron_scheduler.yarn._submission import BOOTSTRAP, application, order_of, shell_command

__all__ = [
    "BOOTSTRAP",
    "Application",
    "Attempts",
    "Credentials",
    "DigestClient",
    "RemoteError",
    "Requests",
    "Rest",
    "RpcClient",
    "YarnConfig",
    "YarnScheduler",
    "application",
    "container_name",
    "one_line",
    "order_of",
    "parse_challenge",
    "reason_in",
    "request_id",
    "shell_command",
]
