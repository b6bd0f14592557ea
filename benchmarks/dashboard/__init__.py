"""Benchmarks of the dashboard in a real browser; see ``benchmarks/README.md``."""
