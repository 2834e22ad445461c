"""The two protocols of an application master: with the ResourceManager, and with NodeManagers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from heron_scheduler.yarn._config import parse_address
from heron_scheduler.yarn._rpc import RemoteError, RpcClient
from heronpy.errors import UnavailableError
from heronpy.proto import hadoop_pb2

R = TypeVar("R", bound=Message)

_MASTER = "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB"
_CONTAINERS = "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"
SUCCEEDED = 1
RESYNC, SHUTDOWN = 1, 2


class ResourceManager:
    """Keeps a connection, and makes the next one with the next address if it breaks."""

    def __init__(self, addresses: Sequence[str], token: hadoop_pb2.Token) -> None:
        self._addresses, self._token = [parse_address(one) for one in addresses], token
        self._client: RpcClient | None = None

    def register(self, host: str) -> hadoop_pb2.RegisterApplicationMasterResponse:
        """Say that the application master lives. Errors: see `_call`."""
        request = hadoop_pb2.RegisterApplicationMasterRequest(host=host, rpc_port=-1, tracking_url="")
        return self._call("registerApplicationMaster", request, hadoop_pb2.RegisterApplicationMasterResponse)

    def allocate(self, request: hadoop_pb2.AllocateRequest) -> hadoop_pb2.AllocateResponse:
        """Ask for containers, and say that the application master lives. Errors: see `_call`."""
        reply = self._call("allocate", request, hadoop_pb2.AllocateResponse)
        if reply.HasField("am_rm_token"):  # it is renewed from time to time
            self._token = reply.am_rm_token
        return reply

    def finish(self, diagnostics: str) -> bool:
        """Say that the application has done what it was to do; False: to be repeated. Errors: see `_call`."""
        request = hadoop_pb2.FinishApplicationMasterRequest(
            diagnostics=diagnostics, tracking_url="", final_application_status=SUCCEEDED
        )
        done = self._call("finishApplicationMaster", request, hadoop_pb2.FinishApplicationMasterResponse)
        return bool(done.is_unregistered)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _call(self, method: str, request: Message, reply: type[R]) -> R:
        """Call a method.

        Raises:
            RemoteError: the ResourceManager refuses.
            UnavailableError: it does not answer; the next call tries the next address.
        """
        try:
            if self._client is None:
                self._client = RpcClient(*self._addresses[0], _MASTER, self._token)
            return self._client.call(method, request, reply)
        except UnavailableError as e:
            if not isinstance(e, RemoteError) or e.kind in ("StandbyException", "InvalidToken"):
                self.close()
                self._addresses.append(self._addresses.pop(0))
            raise


class NodeManagers:
    """The NodeManagers that have containers of this application."""

    def __init__(self) -> None:
        self._tokens: dict[tuple[str, int], hadoop_pb2.Token] = {}

    def learn(self, tokens: Sequence[hadoop_pb2.NodeToken]) -> None:
        """Keep the tokens that the ResourceManager gives with the first container of each node."""
        for one in tokens:
            self._tokens[one.node_id.host, one.node_id.port] = one.token

    def start(self, container: hadoop_pb2.Container, command: str, credentials: bytes) -> None:
        """Start a container.

        Args:
            container: As the ResourceManager gave it.
            command: For the shell of its host.
            credentials: A file of credentials, for the container alone.

        Raises:
            UnavailableError: its node refuses, or does not answer.
        """
        node = container.node_id.host, container.node_id.port
        if node not in self._tokens:
            raise UnavailableError(f"the ResourceManager has given no token for {node[0]}")
        context = hadoop_pb2.ContainerLaunchContext(tokens=credentials, command=[command])
        request = hadoop_pb2.StartContainersRequest(
            start_container_request=[
                hadoop_pb2.StartContainerRequest(
                    container_launch_context=context, container_token=container.container_token
                )
            ]
        )
        with RpcClient(*node, _CONTAINERS, self._tokens[node]) as client:
            reply = client.call("startContainers", request, hadoop_pb2.StartContainersResponse)
        for failed in reply.failed_requests:
            raise RemoteError(failed.exception.class_name, failed.exception.message)
