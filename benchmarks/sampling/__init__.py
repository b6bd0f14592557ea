"""Benchmarks of sampling; see benchmarks/README.md."""
