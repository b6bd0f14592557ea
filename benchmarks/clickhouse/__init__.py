"""ClickHouse beside the local store: inserts, bytes, the percentiles of a day."""
