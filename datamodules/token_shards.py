"""Large corpora as shards of token ids: pre-tokenised files, or parquet that is tokenised once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from zoo.atomic import atomic_path, write_json
from zoo.errors import ZooError, missing_extra

from .base import ZooDataModule
from .byte_text import (
    SUFFIXES,
    FixedWindows,
    Prompts,
    RandomWindows,
    check_windows,
    read_text,
)

META = "meta.json"
VAL_EVERY = 200  # of the documents, one goes to validation
BATCH = 1024  # documents tokenised at a time
CHECKED = 2**24  # tokens looked at in one go

LAYOUT = (
    "expected train_*.bin and val_*.bin (little-endian uint16) with meta.json "
    '{"vocab_size": ..., "eos_id": ...}, or *.parquet with a column "text" and tokenizer_path'
)


class Shards(Dataset[dict[str, Any]]):
    """Random windows of several shards, each as likely as its length.

    Args:
        shards: Memory-mapped tokens.
        length: Of a window.
        count: Windows in an epoch.
    """

    def __init__(self, shards: list[NDArray[np.uint16]], length: int, count: int) -> None:
        self.parts = [RandomWindows(shard, length, count) for shard in shards]
        self.ends = np.cumsum([len(shard) for shard in shards])
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        # A permutation of the index by a large odd multiple spreads an epoch over all shards.
        place = (index * 2654435761 + 12345) % 2**32 / 2**32 * self.ends[-1]
        return self.parts[int(np.searchsorted(self.ends, place, side="right"))][index]


class TokenShardsDataModule(ZooDataModule):
    """Windows of a tokenised corpus, FineWeb-Edu's 10-billion-token sample for instance.

    ``root`` holds ``train_*.bin`` and ``val_*.bin`` (and ``test_*.bin``; else validation is the
    test as well): tokens as little-endian uint16, documents divided by ``eos_id``, with
    ``meta.json``. Or it holds parquet files with a column ``text``, as FineWeb-Edu is published
    (ODC-By 1.0): then the first run writes the former into ``cache``, one shard a file, every 200th
    document for validation. Shards are memory-mapped, and windows drawn by seed, epoch and rank.

    A sample is a dict: ``ids``, int64, shape (context + 1,); ``index``. In ``predict``: ``name``
    and ``text``.

    Args:
        root: Folder of the corpus.
        tokenizer_path: A ``tokenizers`` JSON file, for parquet.
        vocab_size: Of the model: larger ids are refused.
        context: T, tokens that a window predicts.
        samples_per_epoch: Random windows that make an epoch.
        eval_windows: Windows of validation and test, at even distances, at most.
        cache: Where tokenised parquet goes; ``None`` for ``root/tokens``.
        base: ``batch_size``, ``eval_batch_size``, ``num_workers``, ``seed`` and ``inputs``: see
            `ZooDataModule`.

    Raises:
        ZooError: For counts below 1, or a vocabulary that 16 bits cannot count.
    """

    def __init__(
        self,
        root: str,
        tokenizer_path: str | None = None,
        vocab_size: int = 32000,
        context: int = 2048,
        samples_per_epoch: int = 65536,
        eval_windows: int = 512,
        cache: str | None = None,
        batch_size: int = 16,
        eval_batch_size: int = 16,
        **base: Any,
    ) -> None:
        super().__init__(root=root, batch_size=batch_size, eval_batch_size=eval_batch_size, **base)
        if min(context, samples_per_epoch, eval_windows) < 1 or not 1 < vocab_size <= 2**16:
            raise ZooError(
                f"context={context}, samples_per_epoch={samples_per_epoch} and "
                f"eval_windows={eval_windows} must be at least 1, vocab_size={vocab_size} in "
                f"2..{2**16}."
            )
        self.folder = Path(root).expanduser()
        self.tokenizer_path, self.vocab_size, self.context = tokenizer_path, vocab_size, context
        self.samples_per_epoch, self.eval_windows = samples_per_epoch, eval_windows
        self.cache = Path(cache).expanduser() if cache else self.folder / "tokens"

    def describe(self) -> dict[str, Any]:
        """Vocabulary and context, beside what the base class tells."""
        return {**super().describe(), "vocab_size": self.vocab_size, "context": self.context}

    def prepare_data(self) -> None:
        """Tokenises parquet files that no earlier run has: on one rank, each file whole or not."""
        parquet = sorted(self.folder.glob("*.parquet"))
        if parquet and not list(self.folder.glob("train_*.bin")):
            tokenise(parquet, self.tokenizer_path, self.cache)

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``.

        Raises:
            ZooError: If files are missing, cut off, too short or have ids that are too large; it
                names the shard and the place.
        """
        if split == "predict":
            paths = self.input_files(SUFFIXES)
            for path in paths:
                read_text(path)
            return Prompts(paths)
        shards = self._shards(split)
        length = self.context + 1
        if split == "train":
            return Shards(shards, length, self.samples_per_epoch)
        return FixedWindows(np.concatenate(shards), length, self.eval_windows)

    def _shards(self, split: str) -> list[NDArray[np.uint16]]:
        if not self.folder.is_dir():
            raise ZooError(f"root={self.folder} is no folder: {LAYOUT}.")
        direct = list(self.folder.glob("train_*.bin"))
        if not direct and list(self.folder.glob("*.parquet")) and not self.cache.is_dir():
            self.prepare_data()  # set up by hand, without a trainer
        folder = self.folder if direct or not self.cache.is_dir() else self.cache
        paths = sorted(folder.glob(f"{split}_*.bin"))
        if not paths and split == "test":
            paths = sorted(folder.glob("val_*.bin"))
        if not paths:
            raise ZooError(f"{folder} has no {split}_*.bin: {LAYOUT}.")
        meta = read_meta(folder)
        if meta["vocab_size"] > self.vocab_size:
            raise ZooError(
                f"{folder / META} says vocab_size {meta['vocab_size']}, more than the "
                f"{self.vocab_size} of the config."
            )
        return [open_shard(path, self.vocab_size, self.context + 1) for path in paths]


def read_meta(folder: Path) -> dict[str, int]:
    """``meta.json`` of a folder of shards.

    Raises:
        ZooError: If it is missing or incomplete.
    """
    path = folder / META
    if not path.is_file():
        raise ZooError(f"{path} is missing: {LAYOUT}.")
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        return {key: int(meta[key]) for key in ("vocab_size", "eos_id")}
    except (ValueError, KeyError, TypeError) as error:
        raise ZooError(f"{path} has no numbers vocab_size and eos_id: {error}.") from error


def open_shard(path: Path, vocab_size: int, length: int) -> NDArray[np.uint16]:
    """A memory-mapped shard, every id of which is below ``vocab_size``.

    Raises:
        ZooError: If it is cut off within a token, shorter than a window, or has a larger id.
    """
    size = path.stat().st_size
    if size % 2:
        raise ZooError(f"{path} has {size} bytes, no multiple of the 2 of a token: it is cut off.")
    if size < 2 * length:
        check_windows(np.empty(size // 2), length, str(path))
    ids: NDArray[np.uint16] = np.memmap(path, dtype="<u2", mode="r")
    for start in range(0, len(ids), CHECKED):
        part = ids[start : start + CHECKED]
        if int(part.max()) >= vocab_size:
            place = start + int(np.argmax(part >= vocab_size))
            raise ZooError(
                f"{path} has the token {int(ids[place])} at offset {place}; ids must be below "
                f"vocab_size={vocab_size}."
            )
    return ids


def tokenise(parquet: list[Path], tokenizer_path: str | None, cache: Path) -> None:
    """Writes a training and a validation shard for each parquet file that has none yet.

    Raises:
        ZooError: If there is no tokenizer, it has no end-of-text token, or a file no column
            ``text``.
    """
    if tokenizer_path is None or not Path(tokenizer_path).is_file():
        raise ZooError(
            f"tokenizer_path={tokenizer_path} is no file: parquet files are tokenised by a "
            "'tokenizers' JSON."
        )
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise missing_extra("tokenizers", "text") from error
    tokenizer = Tokenizer.from_file(tokenizer_path)
    names = ("<|endoftext|>", "</s>", "<eos>", "[SEP]")
    found = [tokenizer.token_to_id(name) for name in names]
    eos = next((i for i in found if i is not None), None)
    if eos is None:
        raise ZooError(f"{tokenizer_path} has no end-of-text token ({', '.join(names)}).")
    if tokenizer.get_vocab_size() > 2**16:
        raise ZooError(f"{tokenizer_path} has more than {2**16} tokens, which uint16 cannot count.")
    for path in parquet:
        train, val = (cache / f"{split}_{path.stem}.bin" for split in ("train", "val"))
        if train.is_file() and val.is_file():
            continue
        with atomic_path(train) as a, atomic_path(val) as b, a.open("wb") as ta, b.open("wb") as tb:
            number = 0
            for texts in _documents(path):
                for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
                    ids = np.array([*encoding.ids, eos], dtype="<u2")
                    (tb if number % VAL_EVERY == VAL_EVERY - 1 else ta).write(ids.tobytes())
                    number += 1
    write_json(cache / META, {"vocab_size": tokenizer.get_vocab_size(), "eos_id": eos})


def _documents(path: Path) -> Iterator[list[str]]:
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise missing_extra("pyarrow", "text") from error
    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        raise ZooError(f"{path} is no parquet file: {error}") from error
    if "text" not in file.schema_arrow.names:
        columns = ", ".join(file.schema_arrow.names)
        raise ZooError(f"{path} has no column 'text', only {columns}.")
    for batch in file.iter_batches(BATCH, columns=["text"]):
        yield [text or "" for text in batch.column(0).to_pylist()]
