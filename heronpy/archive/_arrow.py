"""pyarrow, or one line that says how to get it."""

from __future__ import annotations

from heronpy.errors import ConfigError

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:
    raise ConfigError("archives need pyarrow: pip install 'heron-engine[spark]'") from error

__all__ = ["pa", "pc", "pq"]
