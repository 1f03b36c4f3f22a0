"""Seconds of several candidates that are called in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def in_turns(
    candidates: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1
) -> dict[str, float]:
    """Median seconds of each, called in turns so that all meet the same load.

    Args:
        candidates: What to call, by name.
        rounds: That count.
        warm_up: Rounds before them.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(warm_up + rounds):
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if number >= warm_up:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}
