"""Sources and sinks, and what it takes to write one.

Sources: `TextFile`, `JsonLines`, `CsvFile`, `ParquetFile`, `RedisStream`, `KafkaTopic`, `ListSource`. Sinks:
`TextSink`, `JsonLinesSink`, `CsvSink`, `ParquetSink`, `SqlSink`, `RedisStreamSink`, `KafkaSink`. `SourceSpout` is the
spout of a source, `SinkBolt` the bolt of a sink. What each promises in which mode is in `docs/guarantees.md`.

One of your own implements `Source` or `Sink` and passes the tests of `heronpy.testing.connectors_kit`; of
`positions_kit` there if it has positions, and of `transactions_kit` if it writes exactly once.
"""

from heronpy.connectors._csv import CsvFile
from heronpy.connectors._kafka import KafkaTopic
from heronpy.connectors._kafka_messages import KafkaMessage
from heronpy.connectors._kafka_registry import RegistryFormat
from heronpy.connectors._kafka_sink import KafkaSink
from heronpy.connectors._lists import ListSource
from heronpy.connectors._parquet import ParquetFile
from heronpy.connectors._parquet_sink import ParquetSink
from heronpy.connectors._redis import RedisStream
from heronpy.connectors._redis_sink import RedisStreamSink
from heronpy.connectors._row_sinks import CsvSink, JsonLinesSink, TextSink
from heronpy.connectors._sink_bolt import SinkBolt
from heronpy.connectors._source_spout import SourceSpout
from heronpy.connectors._sql_sink import SqlSink
from heronpy.connectors._text import JsonLines, TextFile
from heronpy.connectors.spi import (
    Chunk,
    Record,
    Sink,
    SinkContext,
    SinkWriter,
    Source,
    SourceContext,
    SourceReader,
    Split,
    SplitReader,
    StreamSplit,
    TransactionalSinkWriter,
)

__all__ = [
    "Chunk",
    "CsvFile",
    "CsvSink",
    "JsonLines",
    "JsonLinesSink",
    "KafkaMessage",
    "KafkaSink",
    "KafkaTopic",
    "ListSource",
    "ParquetFile",
    "ParquetSink",
    "Record",
    "RedisStream",
    "RedisStreamSink",
    "RegistryFormat",
    "Sink",
    "SinkBolt",
    "SinkContext",
    "SinkWriter",
    "Source",
    "SourceContext",
    "SourceReader",
    "SourceSpout",
    "Split",
    "SplitReader",
    "SqlSink",
    "StreamSplit",
    "TextFile",
    "TextSink",
    "TransactionalSinkWriter",
]
