"""A circuit of three genes in dividing cells, whose true growth is known.

x1 and x2 repress each other, each activates itself, and x3, which nobody sees, represses both: the
circuit that TIGON and DeepRUOT simulate, with constants of our own. A cell divides the faster the
more x2 it has; none dies.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zoo.cell_files import Snapshots

TIMES = (0, 8, 16, 24, 32)
NOISE, SPREAD, SCATTER = 0.05, 0.1, 0.02  # of a step, of the start, of a daughter
STARTS = ((2.0, 0.2, 0.0), (0.0, 1.9, 2.0))  # two populations
DIVISION = 0.06  # largest chance to divide in a step
VISIBLE = 2  # genes that are measured


def division_chance(x2: NDArray[np.float64]) -> NDArray[np.float64]:
    """Chance to divide in one step. Shape: any."""
    return DIVISION * x2**2 / (1 + x2**2)


def gene_circuit(cells: int = 300, seed: int | Sequence[int] = 0) -> Snapshots:
    """Simulates the circuit with Euler steps of 1, and measures it at five times.

    Args:
        cells: At time 0, half of them in each population.
        seed: Of everything random.

    Returns:
        Snapshots in two genes, with the logarithm of the expected growth in one step.
    """
    rng = np.random.default_rng(seed)
    halves = (cells - cells // 2, cells // 2)
    x = np.concatenate(
        [rng.normal(start, SPREAD, (n, 3)) for start, n in zip(STARTS, halves, strict=True)]
    ).clip(min=0)
    seen = [x]
    for step in range(1, TIMES[-1] + 1):
        divides = rng.random(len(x)) < division_chance(x[:, 1])
        x = np.concatenate([x, x[divides] + rng.normal(0, SCATTER, (int(divides.sum()), 3))])
        x = (x + _drift(x.clip(min=0)) + rng.normal(0, NOISE, x.shape)).clip(min=0)
        if step in TIMES:
            seen.append(x)
    return Snapshots.stack(
        [s[:, :VISIBLE] for s in seen],
        [float(t) for t in TIMES],
        rep="genes",
        growth=[np.log1p(division_chance(s[:, 1])) for s in seen],
    )


def _drift(x: NDArray[np.float64]) -> NDArray[np.float64]:
    a, b, c = (x**2).T
    crowd = 1 + 0.5 * a + b + 10 * c + 1
    return np.stack(
        [
            (0.5 * a + 1) / crowd - 0.4 * x[:, 0],
            (b + 1) / crowd - 0.4 * x[:, 1],
            c / (1 + c) - 0.4 * x[:, 2],
        ],
        axis=1,
    )
