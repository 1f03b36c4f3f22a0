"""Side-by-side timings, each a script: ``python -m benchmarks.speed.overhead``."""
