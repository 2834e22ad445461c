"""How commands show tables and durations."""

from heronpy.cli._show import WIDTH, duration, empty_table

__all__ = ["WIDTH", "duration", "empty_table"]
