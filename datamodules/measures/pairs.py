"""Synthetic clouds and their damaged copies, or a folder of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import ZooError
from zoo.measures import Measure, check_dims, read_measure

from .clouds import Damage, gaussian_clouds
from .library import VAL, MeasuresDataModule

VAL_SHARE = 5  # of a folder's queries, every fifth is for validation
TREE = "stored/*.npz and queries/*.npz, with points (n, d), and perhaps weights (n,) and id"


class PointCloudPairsDataModule(MeasuresDataModule):
    """Gaussian clouds with a shape of their own, asked for by noisy, shifted, partial copies.

    Each stored cloud is asked for once in validation and once in test, with other damage: noise,
    a common shift, another order, a quarter of the points lost, and new weights.

    Args:
        root: A folder with ``stored/*.npz`` and ``queries/*.npz``; ``None`` for the generator.
            Every fifth query is for validation. A query's ``id`` is that of the stored cloud;
            without an id, the file's name counts.
        patterns: K, clouds to store.
        points: m, of each.
        dim: d.
        sep: Typical distance of two centres, which are from N(0, sep^2 / (2 d) I).
        noise: Standard deviation of each coordinate of each point of a query.
        shift: The same of a shift that all of its points share.
        drop: Share of the points that a query has lost.
        batch_size: Of training.
        eval_batch_size: Of validation and test.
        base: ``num_workers``, ``seed`` and ``inputs``: see `ZooDataModule`.

    Raises:
        ZooError: If a size is out of range, or the folder has not what is expected.
    """

    def __init__(
        self,
        root: str | None = None,
        patterns: int = 32,
        points: int = 16,
        dim: int = 4,
        sep: float = 2.0,
        noise: float = 0.3,
        shift: float = 0.2,
        drop: float = 0.25,
        batch_size: int = 8,
        eval_batch_size: int = 32,
        **base: Any,
    ) -> None:
        super().__init__(root, batch_size, eval_batch_size, **base)
        for name, count in (("patterns", patterns), ("points", points), ("dim", dim)):
            if count < 1:
                raise ZooError(f"{name}={count} must be at least 1.")
        for name, size in (("sep", sep), ("noise", noise), ("shift", shift)):
            if size < 0:
                raise ZooError(f"{name}={size} must not be negative.")
        if not 0 <= drop < 1:
            raise ZooError(f"drop={drop}: expected 0 <= drop < 1.")
        self.sizes = patterns, points, dim
        self.sep, self.damage = sep, Damage(noise, shift, drop, reweigh=True)
        self._folder: tuple[list[Measure], list[Measure]] | None = None

    def describe(self) -> dict[str, Any]:
        """Names and settings, no paths."""
        if self.root is not None:
            return {**super().describe(), "dataset": self.root.name}
        count, points, dim = self.sizes
        sizes = {"patterns": count, "points": points, "dim": dim, "sep": self.sep}
        return {**super().describe(), "dataset": "gaussian_clouds", **sizes, **vars(self.damage)}

    def stored(self) -> list[Measure]:
        """The clouds to store, in order."""
        if self.root is not None:
            return self._read(self.root)[0]
        return gaussian_clouds(*self.sizes, self.sep, np.random.default_rng(self.seed))

    def queries(self, split: int) -> tuple[list[Measure], list[Measure]]:
        """One of each stored cloud, or the split's share of the folder's."""
        stored = self.stored()
        if self.root is None:
            rng = np.random.default_rng((self.seed, split))
            return [self.damage(one, rng) for one in stored], stored
        known = {one.label: one for one in stored}
        asked = self._read(self.root)[1]
        mine = [one for k, one in enumerate(asked) if (k % VAL_SHARE == 0) == (split == VAL)]
        return mine, [known[one.label] for one in mine]

    def _read(self, root: Path) -> tuple[list[Measure], list[Measure]]:
        if self._folder is None:
            found = []
            for name in ("stored", "queries"):
                paths = sorted((root / name).glob("*.npz"))
                if not paths:
                    raise ZooError(f"{root / name} has no .npz file: expected {TREE}.")
                found.append([read_measure(path) for path in paths])
            stored, asked = found
            check_dims([*stored, *asked], str(root))
            labels = {one.label for one in stored}
            if len(labels) < len(stored):
                raise ZooError(f"{root / 'stored'}: two clouds have the same id.")
            for one in asked:
                if one.label not in labels:
                    raise ZooError(
                        f"{root / 'queries'}: no stored cloud has the id '{one.label}' of a query."
                    )
            if len(asked) < 2:
                raise ZooError(f"{root / 'queries'} has one query: validation and test need two.")
            self._folder = stored, asked
        return self._folder
