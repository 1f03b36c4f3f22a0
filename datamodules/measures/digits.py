"""Handwritten digits as measures: ink at the places of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError
from zoo.measures import Measure

from ..digits import LEVELS, SIZE, digit_table
from .library import MeasuresDataModule

PIXEL = 1 / (SIZE - 1)  # distance of two neighbours


class DigitMeasuresDataModule(MeasuresDataModule):
    """Digits of 8 by 8 pixels as weighted points in the unit square: one for each inked pixel.

    Weights are the ink. A query is a stored image moved by up to one pixel, with jittered points,
    and without one quadrant, which is drawn; about 30 points become about 23. The label is the
    number of the image and its digit, such as "17 (3)". Real data: UCI, CC BY 4.0.

    Args:
        root: Must be ``None``: the data come with the package.
        patterns: Images to store, of 1797.
        jitter: Standard deviation of each coordinate of each point, in pixels.
        occlude: Leave a quadrant out; else queries are whole.
        batch_size: Of training.
        eval_batch_size: Of validation and test.
        base: ``num_workers``, ``seed`` and ``inputs``: see `ZooDataModule`.

    Raises:
        ZooError: If a root is given, or a size is out of range.
    """

    def __init__(
        self,
        root: str | None = None,
        patterns: int = 100,
        jitter: float = 0.2,
        occlude: bool = True,
        batch_size: int = 20,
        eval_batch_size: int = 25,
        **base: Any,
    ) -> None:
        if root is not None:
            raise ZooError(f"The digits come with the package and take no root, but got {root}.")
        super().__init__(None, batch_size, eval_batch_size, **base)
        if not 1 <= patterns <= len(digit_table()):
            raise ZooError(f"patterns={patterns}: expected 1 to {len(digit_table())} images.")
        if jitter < 0:
            raise ZooError(f"jitter={jitter} must not be negative.")
        self.patterns, self.jitter, self.occlude = patterns, jitter, occlude

    def describe(self) -> dict[str, Any]:
        """Names and settings."""
        own = {"patterns": self.patterns, "jitter": self.jitter, "occlude": self.occlude}
        return {**super().describe(), "dataset": "digits", **own}

    def stored(self) -> list[Measure]:
        """The images to store, in order."""
        order = np.random.default_rng(self.seed).permutation(len(digit_table()))[: self.patterns]
        return [digit_measure(digit_table()[row], int(row)) for row in order]

    def queries(self, split: int) -> tuple[list[Measure], list[Measure]]:
        """One of each stored image."""
        stored, rng = self.stored(), np.random.default_rng((self.seed, split))
        return [self._damage(one, rng) for one in stored], stored

    def _damage(self, measure: Measure, rng: np.random.Generator) -> Measure:
        points, weights = measure.points.astype(np.float64), measure.weights
        if self.occlude:
            side = points >= 0.5
            hidden = (side == (rng.random(2) < 0.5)).all(axis=1)
            if not hidden.all():
                points, weights = points[~hidden], weights[~hidden]
        order = rng.permutation(len(points))
        moved = points[order] + PIXEL * rng.uniform(-1, 1, 2)
        moved += self.jitter * PIXEL * rng.standard_normal(moved.shape)
        return Measure.checked(moved, weights[order], measure.label, measure.label)


def digit_measure(row: NDArray[np.uint8], number: int) -> Measure:
    """An image with its digit, as of ``digit_table``, as a measure; y points up."""
    ink = row[:-1].reshape(SIZE, SIZE) / LEVELS
    down, right = np.nonzero(ink)
    points = np.stack([right, SIZE - 1 - down], axis=1) * PIXEL
    label = f"{number} ({row[-1]})"
    return Measure.checked(points, ink[down, right], label, f"image {number}")
