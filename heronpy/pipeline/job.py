"""A job: a captured program with a directory, and where everything in that directory is.

archive/<name>/batch=<id>/*.parquet      the master data set, unless `archive(path)` says another place
live/<view>/                             live views of embedded stores
views/<view>/batch=<id>/<version>/       batch views; manifest.json says which version counts
views/<view>/base/<version>/             all of them up to some batch, rolled up
sinks/<stage>/batch=<id>/<version>/      what batch runs hand to sinks
bootstrap/                               initial state for a topology
positions/                               how far sources have read
dead-letter/<origin>/                    rows and files that were set aside, with the reason
reports/                                 of `reconcile`
manifest.json                            which batches are done; replaced atomically
"""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.errors import ConfigError
from heronpy.filesystem import Location
from heronpy.streamlet.config import Config
from heronpy.streamlet.graph import ArchiveNode, Graph, StoreNode
from heronpy.streamlet.runner import Program


@dataclass(frozen=True)
class Job:
    """A program that has a batch side."""

    name: str
    config: Config
    graph: Graph
    directory: Location

    @classmethod
    def of(cls, program: Program) -> Job:
        """The job of a captured program.

        Raises:
            ConfigError: it has no directory.
            TopologyError: two of its parts have one name.
        """
        if program.config.directory is None:
            raise ConfigError(
                f"{program.name} has no batch side: give its Config a directory with set_pipeline(directory)"
            )
        return cls(program.name, program.config, program.graph.named(), program.config.directory)

    @property
    def batch_length_ms(self) -> int:
        """A batch id is the event time divided by this."""
        return self.config.batch_length_ms

    def stores(self) -> dict[str, StoreNode]:
        """Its views by name."""
        return {node.store_name: node for node in self.graph.nodes() if isinstance(node, StoreNode)}

    def archives(self) -> dict[str, ArchiveNode]:
        """Its archives by name."""
        return {node.archive_name: node for node in self.graph.nodes() if isinstance(node, ArchiveNode)}

    def archive_path(self, node: ArchiveNode) -> Location:
        """Where an archive is."""
        return node.path or self.directory / "archive" / node.archive_name
