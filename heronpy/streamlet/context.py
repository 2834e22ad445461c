"""What generators and transform operators know of their place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from heronpy.api.state import State


class Context(ABC):
    """Passed to `setup`."""

    @abstractmethod
    def get_task_id(self) -> int:
        """Id of the task, unique in the topology; in a batch job the number of the partition."""

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """The program's configuration."""

    @abstractmethod
    def get_stream_name(self) -> str:
        """Name of the streamlet that this task computes."""

    @abstractmethod
    def get_num_partitions(self) -> int:
        """Number of partitions of the streamlet."""

    @abstractmethod
    def get_partition_index(self) -> int:
        """Which of them this task is, from 0."""

    @abstractmethod
    def get_state(self) -> State:
        """A state of this operator in this task: lost with its process, but saved at checkpoints effectively once.

        Ask it for a value again before you change it in place.
        """

    @abstractmethod
    def emit(self, values: list[Any]) -> None:
        """Emit an element, the only one in `values`. In transform operators only."""
