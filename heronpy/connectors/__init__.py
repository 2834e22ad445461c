"""Sources and sinks, and what it takes to write one."""

from heronpy.connectors._spi import (
    Chunk,
    Record,
    Sink,
    SinkContext,
    SinkWriter,
    Source,
    SourceContext,
    SourceReader,
    Split,
)

__all__ = ["Chunk", "Record", "Sink", "SinkContext", "SinkWriter", "Source", "SourceContext", "SourceReader", "Split"]
