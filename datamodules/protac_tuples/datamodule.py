"""Tuples of degrader, target and E3 ligase as a LightningDataModule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from zoo.errors import ZooError, check_choice
from zoo.language_features import LanguageModel, embed, read_fasta
from zoo.proteins import OTHER_E3, ProteinFeatures, pack_names, read_features

from ..base import ZooDataModule
from .layouts import LAYOUTS, UNLABELLED, read_rows
from .splits import SPLITS, Split, components, rank_of, split_rows
from .table import TupleTable, build_table

SAMPLE = Path(__file__).parent.parent / "samples/degraders"
CACHE_FROM = 500  # molecules; fewer are featurised in a moment
ON_BAD = ("raise", "drop")
TEST_SHARE = 0.2


class ProtacTuplesDataModule(ZooDataModule):
    """Tables of (molecule, target, E3 ligase) with few labels.

    A training batch holds two parts. ``unlabelled``: tuples of all of training, without a label.
    ``labelled``: tuples of the label budget, with theirs. Beside them stand the ``vocabulary`` of
    proteins, with features and with counts of training alone, and ``observed``, the codes of the
    tuples that are recorded. Batches are gathered from flat arrays at once.

    Args:
        root: A table, or the folder that holds it; ``None`` for the sample that is packaged.
        layout: "tuples" (``smiles,target_uniprot,e3_type,label``), "protacdb" (an export of
            PROTAC-DB) or "protac8k" (``PROTAC.json`` of DegradeMaster).
        split: No two splits share a molecule, and by "scaffold", "warhead", "target_e3" or
            "target" no such group either.
        label_budget: Labels of training that may be read; the other tuples of training come
            without.
        val_labels: Of validation, about.
        label_batch: Labelled tuples a step and device.
        transductive: Let the tuples of the test, without labels, into ``unlabelled``.
        permute: Give the tuples of ``unlabelled`` each other's targets and ligases: a control
            that destroys what pretraining could learn.
        on_bad: "raise" the first bad row, or "drop" bad rows and say how many.
        features: An ``.npz`` with ``uniprot`` (N,) and ``features`` (N, P); ``None`` for the 64
            packaged components.
        protein_dim: P that the model expects; ``None`` for any.
        sequences: A FASTA of the proteins, which ``protein_model`` turns into features, in the
            place of ``features``.
        protein_model: The encoder of sequences, as the model's.
        smiles_model: The encoder of SMILES, as the model's; ``None`` for none.
        tuples: Of the sample, as many in hashed order; ``None`` for all.
        batch_size: As of the base class, and so are the rest.
        eval_batch_size: See above.
        num_workers: See above.
        seed: See above.
        inputs: See above; tables of the layout "tuples", labels unneeded.
    """

    def __init__(
        self,
        root: str | None = None,
        layout: str = "tuples",
        split: str = "random",
        label_budget: int = 300,
        val_labels: int = 150,
        label_batch: int = 64,
        transductive: bool = False,
        permute: bool = False,
        on_bad: str = "raise",
        features: str | None = None,
        protein_dim: int | None = None,
        sequences: str | None = None,
        protein_model: LanguageModel | None = None,
        smiles_model: LanguageModel | None = None,
        tuples: int | None = None,
        batch_size: int = 128,
        eval_batch_size: int = 256,
        num_workers: int = 0,
        seed: int = 0,
        inputs: list[str] | str | None = None,
    ) -> None:
        super().__init__(root, batch_size, eval_batch_size, num_workers, seed, inputs)
        check_choice("layout", layout, tuple(LAYOUTS))
        check_choice("split", split, SPLITS)
        check_choice("on_bad", on_bad, ON_BAD)
        for name, value in (
            ("label_budget", label_budget),
            ("val_labels", val_labels),
            ("label_batch", label_batch),
        ):
            if value < 1:
                raise ZooError(f"{name}={value} must be at least 1.")
        self.layout, self.split, self.on_bad = layout, split, on_bad
        self.label_budget, self.val_labels, self.label_batch = label_budget, val_labels, label_batch
        self.transductive, self.permute, self.tuples = transductive, permute, tuples
        if (sequences is None) != (protein_model is None):
            raise ZooError("sequences and protein_model go together: give both, or neither.")
        self.features, self.protein_dim = features, protein_dim
        self.sequences, self.protein_model = sequences, protein_model
        self.smiles_model = smiles_model
        self._loaded: tuple[TupleTable, Split, dict[str, Tensor]] | None = None

    def describe(self) -> dict[str, Any]:
        """Names and settings, no paths."""
        return {
            **super().describe(),
            "layout": self.layout,
            "split": self.split,
            "label_budget": self.label_budget,
            "transductive": self.transductive,
            "permute": self.permute,
        }

    def build(self, split: str) -> Dataset[Any]:
        """Batches of training, of labelled tuples, or of the tables of ``inputs``."""
        if split == "predict":
            return _Tables([self._input(path) for path in self.input_files((".csv", ".gz"))])
        table, rows, vocabulary = self.load()
        code, observed = _codes(table, vocabulary, np.arange(len(table)))
        if split != "train":
            return _Tuples(table, rows.val if split == "val" else rows.test, vocabulary, observed)
        pool = rows.train
        if self.transductive:
            pool = np.sort(np.concatenate([pool, rows.test]))
            rank_zero_info(
                f"transductive: {len(rows.test)} tuples of the test enter pretraining, without "
                "labels."
            )
        context = np.arange(len(table))
        if self.permute:
            context[pool] = np.random.default_rng([self.seed, 7]).permutation(pool)
        _, observed = _codes(table, vocabulary, pool, context)
        return _Pairs(table, pool, context, rows.labelled, self.label_batch, vocabulary, observed)

    def load(self) -> tuple[TupleTable, Split, dict[str, Tensor]]:
        """The table, its split, and the vocabulary of proteins; read once.

        Raises:
            ZooError: For whatever is wrong with the files or the split.
        """
        if self._loaded is None:
            path = self.root or SAMPLE / "tuples.csv.gz"
            where = str(self.root) if self.root is not None else "The packaged sample"
            rows, errors = read_rows(path, self.layout)
            if self.root is None and self.tuples is not None:
                names = np.array([f"{r.smiles} {r.target} {r.e3}" for r in rows], dtype=np.str_)
                order = np.argsort(rank_of(0, names), kind="stable")
                rows = [rows[i] for i in order[: self.tuples]]
            cache = len(rows) >= CACHE_FROM
            table = build_table(rows, errors, self.on_bad, where, cache)
            table = self._with_language(table)
            split = self._split(table, where)
            features = self._features()
            self._loaded = table, split, _vocabulary(table, split, features)
        return self._loaded

    def _features(self) -> ProteinFeatures:
        if self.sequences is not None and self.protein_model is not None:
            found = read_fasta(self.sequences)
            vectors = embed(list(found.values()), self.protein_model).numpy()
            return ProteinFeatures(vectors.shape[1], dict(zip(found, vectors, strict=True)))
        path = self.features or SAMPLE / "protein_features.npz"
        return read_features(path, self.protein_dim)

    def _with_language(self, table: TupleTable) -> TupleTable:
        """The table whose molecules have a language model's features too, if one is named."""
        if self.smiles_model is None:
            return table
        molecules = table.molecules
        language = embed(molecules.canonical.tolist(), self.smiles_model).numpy()
        return replace(table, molecules=replace(molecules, language=language))

    def _split(self, table: TupleTable, where: str) -> Split:
        """Divides, and checks that there is something to learn and to measure."""
        for name, column in (("target", table.target), ("E3 ligase", table.e3)):
            found = np.unique(column)
            if len(found) < 2:
                raise ZooError(
                    f"{where} has one {name} only ({found[0]}): without a second one there is "
                    "nothing to swap."
                )
        if self.split == "warhead" and (table.warhead == "").any():
            raise ZooError(
                f"{where}: split='warhead' needs a warhead for each tuple, but "
                f"{int((table.warhead == '').sum())} of {len(table)} have none."
            )
        units = {
            "random": table.keys,
            "scaffold": table.molecules.scaffolds[table.molecule],
            "warhead": table.warhead,
            "target_e3": np.char.add(np.char.add(table.target, " "), table.e3),
            "target": components(table.target),
        }[self.split]
        split = split_rows(
            units,
            table.keys,
            table.label,
            TEST_SHARE,
            self.val_labels,
            self.label_budget,
            self.seed,
        )
        for name, rows in (("train", split.labelled), ("val", split.val), ("test", split.test)):
            classes = np.unique(table.label[rows])
            if len(rows) == 0:
                raise ZooError(
                    f"{where}: split={self.split!r} leaves no labelled rows for {name}; there are "
                    f"{int((table.label != UNLABELLED).sum())} in all."
                )
            if len(classes) == 1:
                raise ZooError(
                    f"{where}: split={self.split!r} gives {name} {len(rows)} rows with the label "
                    f"{classes[0]} only; both are needed."
                )
        if len(split.dropped):
            rank_zero_info(
                f"split={self.split!r}: {len(split.dropped)} of {len(table)} rows are in no split: "
                "their molecule is held out elsewhere, or they have no label there."
            )
        return split

    def _input(self, path: Path) -> dict[str, Any]:
        """A file to predict, as one batch."""
        rows, errors = read_rows(path, "tuples")
        if errors:
            raise errors[0]
        if not rows:
            raise ZooError(f"{path} has no rows to predict.")
        table = build_table(rows, [], "raise", str(path), cache=False)
        table = self._with_language(table)
        everything = np.arange(len(table))
        nothing = everything[:0]
        split = Split(nothing, nothing, nothing, nothing, nothing)
        vocabulary = _vocabulary(table, split, self._features())
        _, observed = _codes(table, vocabulary, everything)
        dataset = _Tuples(table, everything, vocabulary, observed)
        return {**dataset.__getitems__(list(everything)), "name": path.name.split(".")[0]}

    def _loader(self, split: str, batch_size: int | None = None) -> DataLoader[Any]:
        """The datasets collate whole batches themselves."""
        size = 1 if split == "predict" else batch_size
        loader = super()._loader(split, size)
        loader.collate_fn = _as_it_is
        return loader


def _as_it_is(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


# -- arrays ------------------------------------------------------------------------------------


def _vocabulary(table: TupleTable, split: Split, features: ProteinFeatures) -> dict[str, Tensor]:
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


def _indices(table: TupleTable, vocabulary: Mapping[str, Tensor]) -> NDArray[np.int64]:
    """Molecule key, target and E3 of each tuple as numbers. Shape: (N, 3)."""
    packed = vocabulary["names"].numpy()
    names = [bytes(row).rstrip(b"\0").decode() for row in packed]
    index = {name: i for i, name in enumerate(names)}
    molecule = np.unique(table.keys, return_inverse=True)[1].reshape(-1)
    target = [index[name] for name in table.target.tolist()]
    e3 = [index[name] for name in table.e3.tolist()]
    return np.stack([molecule, target, e3], axis=1).astype(np.int64)


def _codes(
    table: TupleTable,
    vocabulary: Mapping[str, Tensor],
    rows: NDArray[np.int64],
    context: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], Tensor]:
    """The numbers of all tuples, and the sorted codes (molecule V + target) V + E3 of ``rows``."""
    index = _indices(table, vocabulary)
    size = len(vocabulary["names"])
    proteins = index if context is None else index[context]
    code = (index[rows, 0] * size + proteins[rows, 1]) * size + proteins[rows, 2]
    return index, torch.from_numpy(np.unique(code))


class _Tuples(Dataset[dict[str, Any]]):
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
        self.index = torch.from_numpy(_indices(table, vocabulary))
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


class _Pairs(Dataset[dict[str, Any]]):
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
        self.index = torch.from_numpy(_indices(table, vocabulary))

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


class _Tables(Dataset[dict[str, Any]]):
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
