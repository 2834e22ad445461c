"""The master data set: elements as Parquet, partitioned by batch id, each with an event id."""

from heronpy.archive._deadletter import DeadLetters, dead_letter_counts

__all__ = ["DeadLetters", "dead_letter_counts"]
