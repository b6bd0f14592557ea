"""The sections of a report, one a file: each has a constant ``SECTION``."""
