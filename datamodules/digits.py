"""Handwritten digits of 8 by 8 pixels, which come with the package."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from zoo.errors import ZooError
from zoo.photo_files import SUFFIXES, read_small_image

from .base import ZooDataModule

TRAIN, VAL = 1297, 250  # of 1797; the other 250 test
SIZE, LEVELS = 8, 16  # pixels a side; the largest grey value


class LabelledImages(Dataset[dict[str, Any]]):
    """Images with their classes.

    Args:
        images: 8-bit. Shape: (N, C, H, W).
        labels: Shape: (N,).
        white: The value that becomes 1.
        padding: Zeros around an image before a random crop, for training; 0 takes it as it is.
        flip: Mirror left and right by chance.
    """

    def __init__(
        self,
        images: NDArray[np.uint8],
        labels: NDArray[np.integer[Any]],
        white: int,
        padding: int = 0,
        flip: bool = False,
    ) -> None:
        self.images, self.labels, self.white = images, labels, white
        self.padding, self.flip = padding, flip

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = torch.from_numpy(self.images[index]).float() / self.white
        if self.padding:
            image = self._crop(image)
        if self.flip and torch.rand(()) < 0.5:
            image = image.flip(-1)
        return {"image": image, "label": int(self.labels[index]), "index": index}

    def _crop(self, image: Tensor) -> Tensor:
        height, width = image.shape[-2:]
        padded = torch.nn.functional.pad(image, (self.padding,) * 4)
        top, left = torch.randint(2 * self.padding + 1, (2,)).tolist()
        return padded[:, top : top + height, left : left + width]


class NamedImages(Dataset[dict[str, Any]]):
    """Picture files to classify."""

    def __init__(self, paths: list[Path], channels: int, size: int) -> None:
        self.paths, self.channels, self.size = paths, channels, size
        for path in paths:
            read_small_image(path, channels, size)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        path = self.paths[index]
        return {"name": path.stem, "image": read_small_image(path, self.channels, self.size)}


@cache
def digit_table() -> NDArray[np.uint8]:
    """Rows of 64 grey values and the digit. Shape: (1797, 65)."""
    path = Path(str(files("zoo.datamodules"))) / "samples/digits/digits.csv.gz"
    with gzip.open(path, "rt", encoding="ascii") as file:
        return np.loadtxt(file, delimiter=",", dtype=np.uint8)


class DigitsDataModule(ZooDataModule):
    """1797 handwritten digits (UCI, CC BY 4.0): 1297 train, 250 validate, 250 test.

    A sample is a dict: ``image``, float32 in 0..1, shape (1, 8, 8); ``label``, 0 to 9; ``index``.
    In ``predict``: ``image`` and ``name``.

    Args:
        root: Must be ``None``: the data come with the package.
        base: ``batch_size``, ``eval_batch_size``, ``num_workers``, ``seed`` (of the split) and
            ``inputs``: see `ZooDataModule`.

    Raises:
        ZooError: If a root is given.
    """

    def __init__(
        self,
        root: str | None = None,
        batch_size: int = 64,
        eval_batch_size: int = 250,
        **base: Any,
    ) -> None:
        if root is not None:
            raise ZooError(f"The digits come with the package and take no root, but got {root}.")
        super().__init__(batch_size=batch_size, eval_batch_size=eval_batch_size, **base)

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``."""
        if split == "predict":
            return NamedImages(self.input_files(SUFFIXES), 1, SIZE)
        order = np.random.default_rng(self.seed).permutation(len(digit_table()))
        start, end = {
            "train": (0, TRAIN),
            "val": (TRAIN, TRAIN + VAL),
            "test": (TRAIN + VAL, len(order)),
        }[split]
        rows = digit_table()[order[start:end]]
        images = rows[:, :-1].reshape(-1, 1, SIZE, SIZE)
        return LabelledImages(images, rows[:, -1], LEVELS)
