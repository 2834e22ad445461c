"""A job: a captured program with a directory, and where everything in that directory is.

archive/<name>/batch=<id>/*.parquet      the master data set, unless `archive(path)` says another place
live/<view>/                             live views of embedded stores
views/<view>/batch=<id>/<version>/       batch views; manifest.json says which version counts
views/<view>/base/<version>/             several of them, rolled up
sinks/<stage>/batch=<id>/<version>/      what batch runs hand to sinks
bootstrap/                               initial state for a topology
positions/                               how far sources have read
dead-letter/<origin>/                    rows and files that were set aside, with the reason
reports/                                 of `reconcile`
dead-letter.json                         what was found in these files
history/                                 what is known of batches, by segment
intents/                                 what runs are about to write
manifest.json                            which segments count; replaced atomically
"""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.errors import ConfigError
from heronpy.filesystem import Location
from heronpy.stores import Store
from heronpy.streamlet.config import Config
from heronpy.streamlet.graph import ArchiveNode, Graph, StoreNode, use_live
from heronpy.streamlet.places import check_archives
from heronpy.streamlet.runner import Program


@dataclass(frozen=True)
class Job:
    """A program that has a batch side."""

    name: str
    config: Config
    graph: Graph
    directory: Location

    @classmethod
    def of(cls, program: Program, *, live: Store | None = None) -> Job:
        """The job of a captured program.

        Args:
            program: it.
            live: where its live views are, if not where it says.

        Raises:
            ConfigError: it has no directory.
            TopologyError: two of its parts have one name, or an archive is in a wrong place.
        """
        if program.config.directory is None:
            raise ConfigError(
                f"{program.name} has no batch side: give its Config a directory with set_pipeline(directory)"
            )
        graph = program.graph.named()
        check_archives(graph, program.config.directory)
        use_live(graph, program.config.live)
        if live is not None:
            use_live(graph, live, chosen=True)
        return cls(program.name, program.config, graph, program.config.directory)

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

    def places(self) -> dict[str, Location]:
        """Where its files are that tasks of a batch run read or write, by what is there."""
        archives = {f"the archive {name}": self.archive_path(node) for name, node in self.archives().items()}
        return {f"the directory of {self.name}": self.directory, **archives}

    def archive_path(self, node: ArchiveNode) -> Location:
        """Where an archive is."""
        return node.path or self.directory / "archive" / node.archive_name
