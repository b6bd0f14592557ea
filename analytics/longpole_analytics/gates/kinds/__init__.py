"""The kinds of checks, one a file: each has a constant ``GATE``."""
