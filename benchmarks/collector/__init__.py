"""What the collector costs and what it keeps, measured against its bars; see ``../README.md``."""
