"""What an application master asks of the ResourceManager: pure, so that nothing is asked twice, or forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

from heron_scheduler.driven import Order
from heronpy.proto import hadoop_pb2

_GENERATIONS = 1 << 32
_PRIORITY = 1


def request_id(container: int, generation: int) -> int:
    """YARN repeats it with the container that it gives, also to the next attempt of the application master."""
    return container * _GENERATIONS + generation


def requested(id: int) -> tuple[int, int]:
    """The container and the generation of a request."""
    return divmod(id, _GENERATIONS)


def container_name(id: hadoop_pb2.ContainerId) -> str:
    """As YARN writes it: container_e17_1410901177871_0001_01_000005; without the epoch if it is 0."""
    epoch, number = divmod(id.id, 1 << 40)
    attempt = id.app_attempt_id
    application = attempt.application_id
    return (
        f"container_{f'e{epoch:02d}_' if epoch else ''}{application.cluster_timestamp}_{application.id:04d}_"
        f"{attempt.attempt_id:02d}_{number:06d}"
    )


@dataclass(slots=True)
class Requests:
    """Containers that are asked for, and those that are given back."""

    node_label: str = ""
    _wanted: dict[int, hadoop_pb2.Resource] = field(default_factory=dict)
    _unsent: dict[int, hadoop_pb2.Resource | None] = field(default_factory=dict)
    """What the ResourceManager has not been sent yet; None: not wanted any more."""
    _releases: list[hadoop_pb2.ContainerId] = field(default_factory=list)
    _sizes: dict[int, hadoop_pb2.Resource] = field(default_factory=dict)
    _response_id: int = 0

    def want(self, container: int, order: Order) -> None:
        """Ask for one container of this size."""
        id = request_id(container, order.generation)
        size = hadoop_pb2.Resource(memory_mb=order.ram_mb, vcores=order.cpus)
        self._wanted[id] = self._unsent[id] = self._sizes[id] = size

    def withdraw(self, container: int, generation: int) -> None:
        """It is not wanted any more. It may be given all the same."""
        id = request_id(container, generation)
        if self._wanted.pop(id, None) is not None:
            self._unsent[id] = None

    def forget(self, container: int, generation: int) -> None:
        """The ResourceManager has refused the message with this request: it is not sent again."""
        id = request_id(container, generation)
        self._wanted.pop(id, None)
        self._unsent.pop(id, None)

    def given(self, container: hadoop_pb2.Container) -> tuple[int, int] | None:
        """The container and generation that one was asked for; None: nothing needs it, and it is to be released."""
        id = container.allocation_request_id
        return requested(id) if self._wanted.pop(id, None) is not None else None

    def release(self, id: hadoop_pb2.ContainerId) -> None:
        """Give a container back: the ResourceManager ends it."""
        self._releases.append(id)

    def message(self) -> hadoop_pb2.AllocateRequest:
        """The next message. Until `answered` the same is sent again: the ResourceManager knows a repetition."""
        asks = [
            hadoop_pb2.ResourceRequest(
                priority=hadoop_pb2.Priority(priority=_PRIORITY),
                resource_name="*",
                capability=self._sizes[id],
                num_containers=1 if size is not None else 0,
                relax_locality=True,
                allocation_request_id=id,
                **({"node_label_expression": self.node_label} if self.node_label else {}),
            )
            for id, size in self._unsent.items()
        ]
        return hadoop_pb2.AllocateRequest(ask=asks, release=self._releases, response_id=self._response_id, progress=0.0)

    def answered(self, sent: hadoop_pb2.AllocateRequest, reply: hadoop_pb2.AllocateResponse) -> None:
        """The ResourceManager has taken a message."""
        for ask in sent.ask:
            id = ask.allocation_request_id
            if (self._unsent.get(id) is not None) == bool(ask.num_containers):
                self._unsent.pop(id, None)
        del self._releases[: len(sent.release)]
        self._response_id = reply.response_id

    def registered(self) -> None:
        """The ResourceManager has been started again: it knows nothing of what was asked."""
        self._unsent = dict(self._wanted)
        self._response_id = 0
