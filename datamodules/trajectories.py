"""Agents' trajectories as token sequences to imitate, of which the agent's own turns count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from zoo.agents.codec import Codec
from zoo.agents.trajectory import Trajectory, encode, read_trajectories
from zoo.errors import ZooError

from .base import ZooDataModule

SPLITS = {"train": "train.jsonl", "val": "val.jsonl", "test": "test.jsonl"}


class TrajectoryDataset(Dataset[dict[str, Any]]):
    """Trajectories as rows of one length, padded on the right."""

    def __init__(self, trajectories: Sequence[Trajectory], codec: Codec, max_length: int) -> None:
        self.rows = []
        for trajectory in trajectories:
            ids, mask = encode(trajectory, codec)
            if len(ids) > max_length:
                raise ZooError(
                    f"Trajectory {trajectory.task_id} has {len(ids)} tokens: max_length is "
                    f"{max_length}."
                )
            self.rows.append((trajectory.task_id, ids, mask))
        self.max_length, self.pad_id = max_length, codec.pad_id

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name, ids, mask = self.rows[index]
        blank = self.max_length - len(ids)
        return {
            "name": name,
            "input_ids": torch.tensor(ids + [self.pad_id] * blank),
            "attention_mask": torch.tensor([1] * len(ids) + [0] * blank),
            "actions": torch.tensor(mask + [False] * blank),
        }


class TrajectoryDataModule(ZooDataModule):
    """Trajectories to imitate: ``train.jsonl``, ``val.jsonl`` and ``test.jsonl`` below ``root``.

    A sample is a dict of ``input_ids`` and ``attention_mask``, int64, and ``actions``, bool: true
    on the tokens of the agent, whom a policy in its stage "sft" imitates. Shape of each:
    (max_length,).

    Args:
        root: Folder with files that :func:`zoo.agents.trajectory.write_trajectories` wrote.
        vocabulary: Words of a small policy; or
        tokenizer_id: hub id or folder of a tokenizer.
        tokenizer_revision: On the hub.
        successes: Keep only trajectories that succeeded, for training.
        max_length: Tokens of the longest; a longer one is refused.
        base: ``batch_size``, ``eval_batch_size`` and ``num_workers``: see `ZooDataModule`.

    Raises:
        ZooError: If a file is missing or a line is no trajectory; it names file and line.
    """

    def __init__(
        self,
        root: str,
        vocabulary: list[str] | None = None,
        tokenizer_id: str | None = None,
        tokenizer_revision: str | None = None,
        successes: bool = True,
        max_length: int = 512,
        batch_size: int = 64,
        eval_batch_size: int = 64,
        **base: Any,
    ) -> None:
        super().__init__(root, batch_size, eval_batch_size, **base)
        if (vocabulary is None) == (tokenizer_id is None):
            raise ZooError("Trajectories need exactly one of vocabulary and tokenizer_id.")
        self.vocabulary, self.tokenizer_id = vocabulary, tokenizer_id
        self.tokenizer_revision, self.successes = tokenizer_revision, successes
        self.max_length = max_length

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``."""
        if split == "predict":
            raise ZooError("Trajectories are for training; there is nothing to predict from them.")
        assert self.root is not None
        found = list(read_trajectories(self.root / SPLITS[split]))
        if split == "train" and self.successes:
            found = [t for t in found if t.success]
        if self.vocabulary is not None:
            codec = Codec.of_words(self.vocabulary, self.max_length)
        else:
            codec = Codec.fetch(str(self.tokenizer_id), self.tokenizer_revision)
        return TrajectoryDataset(found, codec, self.max_length)
