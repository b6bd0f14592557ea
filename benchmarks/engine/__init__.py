"""Benchmarks of the reference engine; see benchmarks/README.md."""
