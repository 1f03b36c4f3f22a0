"""CIFAR-10 as its authors publish it: ``cifar-10-batches-py/``."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from zoo.errors import ZooError
from zoo.photo_files import SUFFIXES

from .base import ZooDataModule
from .digits import LabelledImages, NamedImages

FOLDER = "cifar-10-batches-py"
TRAIN_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_FILES = ("test_batch",)
VAL = 5000  # of the 50,000 training images, the last of a seeded order
SIZE, WHITE, CLASSES = 32, 255, 10
PADDING = 4  # pixels around a training image before its random crop


class _PlainUnpickler(pickle.Unpickler):
    """Reads numpy arrays and plain values only: a pickle may otherwise run any code."""

    ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 3, 32, 32) and labels (N,) of one of the published files.

    Raises:
        ZooError: If it is missing, damaged, or holds anything but such images.
    """
    if not path.is_file():
        files = ", ".join((*TRAIN_FILES, *TEST_FILES))
        raise ZooError(f"{path} is missing: root must hold {FOLDER}/ with {files}.")
    try:
        with path.open("rb") as file:
            batch = _PlainUnpickler(file, encoding="bytes").load()
        images = np.asarray(batch[b"data"])
        labels = np.asarray(batch[b"labels"], dtype=np.int64)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ZooError(f"{path} is no batch of CIFAR-10: {error}.") from error
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape != (len(labels), 3 * SIZE**2):
        raise ZooError(
            f"{path} has data of shape {images.shape} and {len(labels)} labels: expected "
            f"(N, {3 * SIZE**2}) of 8 bits and N labels."
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() < CLASSES:
        wrong = int(np.argmax((labels < 0) | (labels >= CLASSES)))
        raise ZooError(f"{path} has the label {labels[wrong]} at row {wrong}: expected 0 to 9.")
    return images.reshape(-1, 3, SIZE, SIZE), labels


class CifarDataModule(ZooDataModule):
    """CIFAR-10: 45,000 images train (cropped and mirrored), 5000 validate, 10,000 test.

    A sample is a dict: ``image``, float32 in 0..1, shape (3, 32, 32); ``label``, 0 to 9; ``index``.
    In ``predict``: ``image`` and ``name``.

    Args:
        root: Folder that holds ``cifar-10-batches-py/``.
        base: ``batch_size``, ``eval_batch_size``, ``num_workers``, ``seed`` (of the split) and
            ``inputs``: see `ZooDataModule`.
    """

    def __init__(
        self, root: str, batch_size: int = 128, eval_batch_size: int = 500, **base: Any
    ) -> None:
        super().__init__(root=root, batch_size=batch_size, eval_batch_size=eval_batch_size, **base)
        self.folder = Path(root).expanduser() / FOLDER

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``.

        Raises:
            ZooError: If a file is missing or damaged.
        """
        if split == "predict":
            return NamedImages(self.input_files(SUFFIXES), 3, SIZE)
        names = TEST_FILES if split == "test" else TRAIN_FILES
        batches = [read_batch(self.folder / name) for name in names]
        images, labels = (np.concatenate(part) for part in zip(*batches, strict=True))
        if split == "test":
            return LabelledImages(images, labels, WHITE)
        order = np.random.default_rng(self.seed).permutation(len(images))
        held_out = min(VAL, len(order) // 10)
        if split == "val":
            chosen = order[-held_out:]
            return LabelledImages(images[chosen], labels[chosen], WHITE)
        chosen = order[: len(order) - held_out]
        return LabelledImages(images[chosen], labels[chosen], WHITE, PADDING, flip=True)
