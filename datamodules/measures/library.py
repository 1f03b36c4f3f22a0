"""What the data modules of measures share: clouds to store, and queries with the clean cloud."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from zoo.measures import Measure, check_dims, pad_samples, read_measure

from ..base import EpochLoader, ZooDataModule

VAL, TEST = 1, 2  # part of the seed of the queries


class Stored(Dataset[dict[str, Any]]):
    """Clouds to store; ``index`` is their order in the memory."""

    def __init__(self, measures: Sequence[Measure]) -> None:
        self.measures = measures

    def __len__(self) -> int:
        return len(self.measures)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.measures[index].sample(), "index": index}


class Queries(Dataset[dict[str, Any]]):
    """Damaged clouds with the clean ones: ``target_points`` and ``target_weights``."""

    def __init__(self, queries: Sequence[Measure], targets: Sequence[Measure]) -> None:
        self.queries, self.targets = queries, targets

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, index: int) -> dict[str, Any]:
        target = self.targets[index]
        return {
            **self.queries[index].sample(),
            "target_points": torch.from_numpy(target.points),
            "target_weights": torch.from_numpy(target.weights),
        }


class Named(Dataset[dict[str, Any]]):
    """Clouds of files to retrieve."""

    def __init__(self, names: Sequence[str], measures: Sequence[Measure]) -> None:
        self.names, self.measures = names, measures

    def __len__(self) -> int:
        return len(self.measures)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.measures[index].sample(), "name": self.names[index]}


class MeasuresDataModule(ZooDataModule):
    """Base of the libraries of measures.

    A training sample is a cloud to store: ``points`` (m, d) and ``weights`` (m,), float32,
    ``label`` and ``index``. A sample of validation and test is a query with its label and with the
    clean cloud. Batches are padded with points of weight 0, which ``mask`` (B, m) marks False. An
    epoch of training has every cloud, also those of the last incomplete batch. ``inputs`` are
    ``.npz`` files with ``points`` and perhaps ``weights``.
    """

    @abstractmethod
    def stored(self) -> list[Measure]:
        """The clouds to store, in order."""

    @abstractmethod
    def queries(self, split: int) -> tuple[list[Measure], list[Measure]]:
        """Queries of ``VAL`` or ``TEST``, and the clean cloud of each."""

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``."""
        if split == "predict":
            paths = self.input_files((".npz",))
            measures = [read_measure(path) for path in paths]
            check_dims(measures, "--data.inputs")
            return Named([path.stem for path in paths], measures)
        if split == "train":
            return Stored(self.stored())
        return Queries(*self.queries(VAL if split == "val" else TEST))

    def _loader(self, split: str, batch_size: int | None = None) -> DataLoader[Any]:
        loader = super()._loader(split, batch_size)
        if split == "train":  # anew, since the base leaves out the last incomplete batch
            return EpochLoader(
                loader.dataset,
                batch_size=self.batch_size,
                sampler=loader.sampler,
                num_workers=self.num_workers,
                generator=torch.Generator(),
                collate_fn=pad_samples,
            )
        loader.collate_fn = pad_samples
        return loader
