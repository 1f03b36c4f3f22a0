"""The encoder's features of training pairs, kept on disk: phi may cost more than reading.

Each pair has its features as it is, and those of a few augmented views, drawn when they are first
asked for; the later epochs draw among them.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

VIEWS = 4  # augmented views of each pair


class FeatureCache:
    """Half-precision features by number of the pair and of the view; view 0 is the pair as it is.

    Args:
        samples: Number of pairs.
        shape: P and C, of the features of one picture.
        folder: Where the file goes, of 4 (1 + VIEWS) P C bytes a pair, sparse until they are
            written. It is removed with the cache.
    """

    def __init__(self, samples: int, shape: tuple[int, int], folder: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="features-", dir=folder))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.filled = np.zeros((samples, 1 + VIEWS), dtype=bool)
        self.values = np.memmap(
            self.folder / "features.f16",
            dtype=np.float16,
            mode="w+",
            shape=(samples, 1 + VIEWS, 2, *shape),
        )

    def get(self, index: Tensor, augmented: bool, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Features of pairs.

        Args:
            index: Numbers of the pairs. Shape: (B,), long.
            augmented: Whether of a view, drawn at random.
            compute: Gives those that are not there, from places in the batch, (b,), long: features
                of source and target, (b, 2, P, C).

        Returns:
            float32, on the CPU. Shape: (B, 2, P, C).
        """
        rows = index.cpu().numpy()
        views = np.zeros_like(rows)
        if augmented:
            views = torch.randint(1, 1 + VIEWS, (len(rows),)).numpy()
        missing = np.flatnonzero(~self.filled[rows, views])
        if len(missing):
            found = compute(torch.from_numpy(missing)).half().cpu().numpy()
            self.values[rows[missing], views[missing]] = found
            self.filled[rows[missing], views[missing]] = True
        return torch.from_numpy(self.values[rows, views].astype(np.float32))
