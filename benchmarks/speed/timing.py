"""Seconds of several candidates that are called in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


def in_turns(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each, called in turns so that all meet the same load."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if number:  # the first round warms up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}
