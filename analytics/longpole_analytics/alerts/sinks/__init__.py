"""Who is told of an alert: one sink a file, each with a constant ``SINK``."""
