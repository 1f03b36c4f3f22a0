"""Weighted point clouds to store, and what is left of them when someone asks again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoo.measures import Measure

DIRICHLET = 2.0  # of the weights: even, but no two alike
SHAPE = 0.5


@dataclass(frozen=True)
class Damage:
    """What happens to a stored cloud before it comes back as a query.

    Attributes:
        noise: Standard deviation of each coordinate of each point, in the data's unit.
        shift: The same of a shift that all points share.
        drop: Share of the points that are lost.
        reweigh: Draw the weights anew.
    """

    noise: float
    shift: float
    drop: float
    reweigh: bool

    def __call__(self, measure: Measure, rng: np.random.Generator) -> Measure:
        """A damaged copy, with its points in another order."""
        n, d = measure.points.shape
        kept = rng.permutation(n)[: max(1, n - round(self.drop * n))]
        points = measure.points[kept] + self.noise * rng.standard_normal((len(kept), d))
        points = points + self.shift * rng.standard_normal(d)
        weights = _random_weights(len(kept), rng) if self.reweigh else measure.weights[kept]
        return Measure.checked(points, weights, measure.label, measure.label)


def gaussian_clouds(
    count: int, points: int, dim: int, sep: float, rng: np.random.Generator
) -> list[Measure]:
    """Clouds with centres from N(0, sep^2 / (2 d) I) and a random linear shape each.

    Args:
        count: K.
        points: m, of each.
        dim: d.
        sep: Typical distance of two centres.
        rng: Of everything.
    """
    found = []
    for k in range(count):
        centre = sep / (2 * dim) ** 0.5 * rng.standard_normal(dim)
        shape = SHAPE * rng.standard_normal((dim, dim)) / dim**0.5
        cloud = centre + rng.standard_normal((points, dim)) @ shape
        found.append(Measure.checked(cloud, _random_weights(points, rng), str(k), str(k)))
    return found


def _random_weights(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.dirichlet(np.full(count, DIRICHLET))
