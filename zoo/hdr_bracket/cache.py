"""Brackets of the frozen generator, sampled once before the fusion trains on them.

Sampling costs several calls of the large network, the fusion's step a fraction of one. What is
cached is a function of seed, data and generator alone, so that a resumed run trains on the same.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

Bracket = Callable[[Mapping[str, Any], int], Tensor]


class BracketCache:
    """Sampled frames with the truth of their scenes, on disk in half precision.

    Args:
        samples: How many.
        folder: Where the file goes; ``None`` for the system's temporary folder. It is removed with
            the cache.
    """

    def __init__(self, samples: int, folder: str | None = None) -> None:
        self.samples = samples
        self.folder = Path(tempfile.mkdtemp(prefix="brackets-", dir=folder))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.arrays: dict[str, NDArray[np.float16]] = {}
        self.filled = 0

    def fill(self, loader: Any, bracket: Bracket, seed: int, rank: int, world: int) -> bool:
        """Samples brackets of training images; every rank takes its share of them.

        Args:
            loader: The loader of training; its dataset is asked for samples by index.
            bracket: From a batch of the dataset's samples, and its number, to frames.
            seed: Of what the dataset draws anew each time.
            rank: Of this process.
            world: Number of processes.

        Returns:
            Whether it could: a dataset without a length cannot be asked by index.
        """
        dataset = getattr(loader, "dataset", None)
        if not isinstance(loader, DataLoader) or not isinstance(dataset, Sized) or not len(dataset):
            return False
        images: Any = dataset
        batched = loader.batch_size is not None
        size = loader.batch_size or 1
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        number = rank
        with torch.random.fork_rng(devices), torch.no_grad():
            while self.filled < self.samples:
                indices = [(number * size + i) % len(dataset) for i in range(size)]
                torch.manual_seed(seed + 7919 * number)
                batch: Any = _fetch(images, indices) if batched else images[indices[0]]
                if batched:
                    batch = (loader.collate_fn or default_collate)(batch)
                self._add(bracket(batch, number), batch["target"])
                number += world
        return True

    def _add(self, frames: Tensor, target: Tensor) -> None:
        values = {"frames": frames, "target": target.clamp(max=6e4)}
        count = min(len(frames), self.samples - self.filled)
        for name, value in values.items():
            if name not in self.arrays:
                self.arrays[name] = np.memmap(
                    self.folder / f"{name}.f16",
                    dtype=np.float16,
                    mode="w+",
                    shape=(self.samples, *value.shape[1:]),
                )
            self.arrays[name][self.filled : self.filled + count] = (
                value[:count].half().cpu().numpy()
            )
        self.filled += count

    def draw(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Frames, (count, N, 3, H, W), and true radiance, (count, 3, H, W), drawn at random."""
        chosen = torch.randint(self.samples, (count,)).numpy()
        frames, target = (
            torch.from_numpy(self.arrays[name][chosen]).float().to(device)
            for name in ("frames", "target")
        )
        return frames, target


def _fetch(dataset: Any, indices: list[int]) -> list[Mapping[str, Any]]:
    if hasattr(dataset, "__getitems__"):
        found: list[Mapping[str, Any]] = dataset.__getitems__(indices)
        return found
    return [dataset[index] for index in indices]
