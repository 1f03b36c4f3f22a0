"""Text as bytes: the Python standard library of the running interpreter, or a folder of files."""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from zoo.errors import ZooError
from zoo.reproducible import generator

from .base import ZooDataModule

VOCABULARY = 128  # other bytes count as 127
SPLITS = {"train": (0.0, 0.9), "val": (0.9, 0.95), "test": (0.95, 1.0)}  # of the bytes
SUFFIXES = (".txt", ".py", ".md", ".json", ".csv", ".html", ".c", ".h", ".js")


class RandomWindows(Dataset[dict[str, Any]]):
    """Windows at random places, drawn anew each time from torch's generator and the index.

    Args:
        ids: Tokens, memory-mapped or not.
        length: Of a window.
        count: Windows in an epoch.
    """

    def __init__(self, ids: NDArray[Any], length: int, count: int) -> None:
        self.ids, self.length, self.count = ids, length, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = generator(int(torch.randint(2**31, ())), index)
        start = int(torch.randint(len(self.ids) - self.length + 1, (), generator=rng))
        return {"ids": window(self.ids, start, self.length), "index": index}


class FixedWindows(Dataset[dict[str, Any]]):
    """Windows at even distances that do not overlap."""

    def __init__(self, ids: NDArray[Any], length: int, count: int) -> None:
        self.ids, self.length = ids, length
        fit = len(ids) // length
        self.count = min(count, fit)
        self.step = fit // self.count * length

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"ids": window(self.ids, index * self.step, self.length), "index": index}


class Prompts(Dataset[dict[str, Any]]):
    """Texts to continue, one a file."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"name": self.paths[index].stem, "text": read_text(self.paths[index])}


def window(ids: NDArray[Any], start: int, length: int) -> Tensor:
    """Tokens from ``start`` on, int64. Shape: (length,)."""
    return torch.from_numpy(ids[start : start + length].astype(np.int64))


def read_text(path: Path) -> str:
    """A file as text.

    Raises:
        ZooError: If it is none, or empty.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ZooError(f"{path} is no UTF-8 text: {error.reason} at byte {error.start}.") from error
    if not text:
        raise ZooError(f"{path} is empty: a text to continue needs a character.")
    return text


def check_windows(ids: NDArray[Any], length: int, where: str) -> None:
    """Raises a ZooError if not one window fits."""
    if len(ids) < length:
        raise ZooError(
            f"{where} has {len(ids)} tokens, but a window of context + 1 needs {length}."
        )


@cache
def standard_library() -> NDArray[np.uint8]:
    """The ``.py`` files of the running interpreter's library, top level and ``json/``, in order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return read_folder([*root.glob("*.py"), *(root / "json").glob("*.py")])


def read_folder(paths: list[Path]) -> NDArray[np.uint8]:
    """All files after each other, bytes of 128 and more as 127."""
    text = b"".join(path.read_bytes() for path in sorted(paths))
    return np.minimum(np.frombuffer(text, dtype=np.uint8), VOCABULARY - 1)


class ByteTextDataModule(ZooDataModule):
    """Windows of text for byte models.

    The first 90 % of the bytes train, the next 5 % validate, the last 5 % test; no window crosses a
    border. A sample is a dict: ``ids``, int64 below 128, shape (context + 1,): inputs and, shifted
    by one, targets; ``index``. In ``predict``: ``name`` and ``text``.

    Args:
        root: Folder of text files, read with all below it; ``None`` for the standard library of the
            running interpreter (PSF licence), whose text differs between versions of Python.
        context: T, bytes that a window predicts.
        samples_per_epoch: Random windows that make an epoch.
        eval_windows: Windows of validation and test, at even distances, at most.
        ascii_inputs: Refuse inputs of ``predict`` that a byte model cannot read.
        base: ``batch_size``, ``eval_batch_size``, ``num_workers``, ``seed`` and ``inputs``: see
            `ZooDataModule`.

    Raises:
        ZooError: For counts below 1.
    """

    def __init__(
        self,
        root: str | None = None,
        context: int = 128,
        samples_per_epoch: int = 400,
        eval_windows: int = 256,
        ascii_inputs: bool = True,
        batch_size: int = 16,
        eval_batch_size: int = 32,
        **base: Any,
    ) -> None:
        super().__init__(root=root, batch_size=batch_size, eval_batch_size=eval_batch_size, **base)
        if min(context, samples_per_epoch, eval_windows) < 1:
            raise ZooError(
                f"context={context}, samples_per_epoch={samples_per_epoch} and "
                f"eval_windows={eval_windows} must be at least 1."
            )
        self.context, self.samples_per_epoch = context, samples_per_epoch
        self.eval_windows, self.ascii_inputs = eval_windows, ascii_inputs
        self._ids: NDArray[np.uint8] | None = None

    def describe(self) -> dict[str, Any]:
        """Text by its hash, beside what the base class tells."""
        ids = self._read()
        return {
            **super().describe(),
            "context": self.context,
            "bytes": len(ids),
            "sha256": hashlib.sha256(ids.tobytes()).hexdigest(),
            "python": platform.python_version() if self.root is None else None,
        }

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``.

        Raises:
            ZooError: If there is no text, or too little of it, or an input cannot be read.
        """
        if split == "predict":
            return self._prompts()
        ids = self._read()
        low, high = (round(share * len(ids)) for share in SPLITS[split])
        part, where = ids[low:high], f"The {split} split of {self.root or 'the standard library'}"
        check_windows(part, self.context + 1, where)
        if split == "train":
            return RandomWindows(part, self.context + 1, self.samples_per_epoch)
        return FixedWindows(part, self.context + 1, self.eval_windows)

    def _read(self) -> NDArray[np.uint8]:
        if self._ids is None:
            self._ids = standard_library() if self.root is None else self._files(self.root)
        return self._ids

    def _files(self, root: Path) -> NDArray[np.uint8]:
        if not root.is_dir():
            raise ZooError(f"root={root} is no folder: expected one with text files.")
        paths = [p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file()]
        if not paths:
            raise ZooError(f"{root} has no text file ({', '.join(SUFFIXES)}) in it or below.")
        return read_folder(paths)

    def _prompts(self) -> Dataset[Any]:
        paths = self.input_files(SUFFIXES)
        for path in paths:
            text = read_text(path)
            place = next((i for i, c in enumerate(text) if ord(c) >= VOCABULARY), None)
            if self.ascii_inputs and place is not None:
                raise ZooError(
                    f"{path} has {text[place]!r} (U+{ord(text[place]):04X}) at character {place}; "
                    "a byte model knows ASCII only."
                )
        return Prompts(paths)
