"""One module a method; each declares ``CLAIM`` (see :mod:`benchmarks.runner`)."""
