"""The master data set: elements as Parquet, partitioned by batch id, each with an event id."""
