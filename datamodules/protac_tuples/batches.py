"""Batches of tuples, gathered from flat arrays at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from zoo.proteins import OTHER_E3, ProteinFeatures, pack_names, unpack_names

from .splits import Split
from .table import TupleTable


def vocabulary_of(table: TupleTable, split: Split, features: ProteinFeatures) -> dict[str, Tensor]:
    """Names, features and counts of V proteins, the first of which is none.

    Returns:
        ``names``, uint8 (V, 32); ``features``, float32 (V, P), zeros where not known;
        ``target_count`` and ``e3_count``, tuples of training, long (V,); ``labels`` and
        ``positives``, labels of training by target, long (V,).
    """
    found = {*features.by_name, *table.target.tolist(), *table.e3.tolist(), OTHER_E3}
    names = ["", *sorted(found)]
    index = {name: i for i, name in enumerate(names)}
    target = np.array([index[name] for name in table.target.tolist()])
    e3 = np.array([index[name] for name in table.e3.tolist()])
    train, labelled = split.train, split.labelled

    def count(values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.bincount(values, minlength=len(names)).astype(np.int64))

    positive = labelled[table.label[labelled] == 1]
    return {
        "names": pack_names(names),
        "features": torch.from_numpy(np.stack([features.of(name) for name in names])),
        "target_count": count(target[train]),
        "e3_count": count(e3[train]),
        "labels": count(target[labelled]),
        "positives": count(target[positive]),
    }


def indices(table: TupleTable, vocabulary: Mapping[str, Tensor]) -> NDArray[np.int64]:
    """Molecule key, target and E3 of each tuple as numbers. Shape: (N, 3)."""
    index = {name: i for i, name in enumerate(unpack_names(vocabulary["names"]))}
    molecule = np.unique(table.keys, return_inverse=True)[1].reshape(-1)
    target = [index[name] for name in table.target.tolist()]
    e3 = [index[name] for name in table.e3.tolist()]
    return np.stack([molecule, target, e3], axis=1).astype(np.int64)


def codes(
    table: TupleTable,
    vocabulary: Mapping[str, Tensor],
    rows: NDArray[np.int64],
    context: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], Tensor]:
    """The numbers of all tuples, and the sorted codes (molecule V + target) V + E3 of ``rows``."""
    index = indices(table, vocabulary)
    size = len(vocabulary["names"])
    proteins = index if context is None else index[context]
    code = (index[rows, 0] * size + proteins[rows, 1]) * size + proteins[rows, 2]
    return index, torch.from_numpy(np.unique(code))


class Tuples(Dataset[dict[str, Any]]):
    """Labelled tuples of validation or test."""

    def __init__(
        self,
        table: TupleTable,
        rows: NDArray[np.int64],
        vocabulary: dict[str, Tensor],
        observed: Tensor,
    ) -> None:
        self.table, self.rows = table, rows
        self.vocabulary, self.observed = vocabulary, observed
        self.index = torch.from_numpy(indices(table, vocabulary))
        keys, first = np.unique(table.keys, return_inverse=True)
        pairs = np.unique(np.stack([first.reshape(-1), self.index[:, 1].numpy()], axis=1), axis=0)
        self.several = np.bincount(pairs[:, 0], minlength=len(keys)) > 1

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])

    def __getitems__(self, numbers: Sequence[int]) -> dict[str, Any]:
        """A collated batch, as PyTorch's loader asks for it."""
        rows = self.rows[np.asarray(numbers, dtype=np.int64)]
        molecule, target, e3 = self.index[rows].unbind(dim=1)
        return {
            "tuples": {
                **self.table.molecules.batch(self.table.molecule[rows]),
                "molecule": molecule,
                "target": target,
                "e3": e3,
                "label": torch.from_numpy(self.table.label[rows]),
                "several": torch.from_numpy(self.several[molecule.numpy()].reshape(-1)),
            },
            "vocabulary": self.vocabulary,
            "observed": self.observed,
            "smiles": self.table.smiles[rows].tolist(),
        }


class Pairs(Dataset[dict[str, Any]]):
    """Training: tuples without labels, and beside them some of the label budget."""

    def __init__(
        self,
        table: TupleTable,
        pool: NDArray[np.int64],
        context: NDArray[np.int64],
        labelled: NDArray[np.int64],
        label_batch: int,
        vocabulary: dict[str, Tensor],
        observed: Tensor,
    ) -> None:
        self.table, self.pool, self.context = table, pool, context
        self.labelled, self.label_batch = labelled, label_batch
        self.vocabulary, self.observed = vocabulary, observed
        self.index = torch.from_numpy(indices(table, vocabulary))

    def __len__(self) -> int:
        return len(self.pool)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])

    def __getitems__(self, numbers: Sequence[int]) -> dict[str, Any]:
        """A collated batch, as PyTorch's loader asks for it.

        The sampler's shuffled numbers, modulo the number of labels, choose the labelled tuples: so
        an epoch shows each about as often.
        """
        chosen = np.asarray(numbers, dtype=np.int64)
        rows = self.pool[chosen]
        labelled = self.labelled[chosen[: self.label_batch] % len(self.labelled)]
        context = self.index[self.context[rows]]
        known = self.index[labelled]
        molecules = self.table.molecules
        return {
            "unlabelled": {
                **molecules.batch(self.table.molecule[rows]),
                "molecule": self.index[rows, 0],
                "target": context[:, 1],
                "e3": context[:, 2],
            },
            "labelled": {
                **molecules.batch(self.table.molecule[labelled]),
                "target": known[:, 1],
                "e3": known[:, 2],
                "label": torch.from_numpy(self.table.label[labelled]),
                "potency": torch.from_numpy(self.table.potency[labelled]),
            },
            "vocabulary": self.vocabulary,
            "observed": self.observed,
        }


class Tables(Dataset[dict[str, Any]]):
    """Files to predict, one a batch."""

    def __init__(self, tables: list[dict[str, Any]]) -> None:
        self.tables = tables

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.tables[number]

    def __getitems__(self, numbers: Sequence[int]) -> dict[str, Any]:
        """One of them."""
        (number,) = numbers
        return self.tables[number]
