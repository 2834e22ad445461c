"""Where a streamlet program begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.api import TopologyBuilder
from heronpy.connectors import Source
from heronpy.connectors.split_set import check_forgetting
from heronpy.errors import TopologyError
from heronpy.streamlet._generated import GeneratorSource, SupplierSource
from heronpy.streamlet.config import Config
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.graph import Graph, SourceNode
from heronpy.streamlet.streamlet import Streamlet


class Builder:
    """Makes source streamlets, and remembers them."""

    def __init__(self) -> None:
        self._graph = Graph()

    @property
    def graph(self) -> Graph:
        """The program so far."""
        return self._graph

    def new_source(
        self,
        source: Source | Generator | Callable[[], Any],
        *,
        discover_every_s: float | None = None,
        forget_after_s: float | None = None,
    ) -> Streamlet:
        """A streamlet of what a source reads, a generator makes, or a function returns each time it is called.

        Effectively once it must be a source with positions (`Source.rewindable`), or a generator that is `stateful`.

        Args:
            source: where elements come from.
            discover_every_s: effectively once: how often to look for new splits, and for more in those that had ended;
                None: as the source does, most of them only when a task begins.
            forget_after_s: with `discover_every_s`, of files: the position of one that has been gone for so long is
                forgotten. If it is there again later, it is read again. None: positions are kept for ever.

        Raises:
            TopologyError: none of those.
            ConfigError: `forget_after_s` of another source, or of one that is not followed.
        """
        if isinstance(source, Generator):
            source = GeneratorSource(source)
        elif not isinstance(source, Source):
            if not callable(source):
                raise TopologyError(f"new_source() takes a Source, a Generator or a function, not {source!r}")
            source = SupplierSource(source)
        check_forgetting(source, discover_every_s, forget_after_s)
        node = SourceNode(parents=(), source=source, discover_every_s=discover_every_s, forget_after_s=forget_after_s)
        self._graph.sources.append(node)
        return Streamlet(node)

    def build(self, bldr: TopologyBuilder, config: Config | None = None) -> None:
        """Add the program's stages to a topology.

        Raises:
            TopologyError: the program is not valid.
        """
        from heronpy.streamlet._topology import add_stages  # the planner is needed only here

        add_stages(bldr, self._graph, config or Config())
