"""Measures what the cards claim: ``python -m benchmarks --help``."""
