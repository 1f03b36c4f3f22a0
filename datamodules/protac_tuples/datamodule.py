"""Tuples of degrader, target and E3 ligase as a LightningDataModule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from zoo.errors import ZooError, check_choice
from zoo.language_features import LanguageModel, embed, read_fasta
from zoo.proteins import ProteinFeatures, read_features

from ..base import ZooDataModule
from .batches import Pairs, Tables, Tuples, codes, vocabulary_of
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
            return Tables([self._input(path) for path in self.input_files((".csv", ".gz"))])
        table, rows, vocabulary = self.load()
        _, observed = codes(table, vocabulary, np.arange(len(table)))
        if split != "train":
            return Tuples(table, rows.val if split == "val" else rows.test, vocabulary, observed)
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
        _, observed = codes(table, vocabulary, pool, context)
        return Pairs(table, pool, context, rows.labelled, self.label_batch, vocabulary, observed)

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
            self._loaded = table, split, vocabulary_of(table, split, features)
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
        vocabulary = vocabulary_of(table, split, self._features())
        _, observed = codes(table, vocabulary, everything)
        dataset = Tuples(table, everything, vocabulary, observed)
        return {**dataset.__getitems__(list(everything)), "name": path.name.split(".")[0]}

    def _loader(self, split: str, batch_size: int | None = None) -> DataLoader[Any]:
        """The datasets collate whole batches themselves."""
        size = 1 if split == "predict" else batch_size
        loader = super()._loader(split, size)
        loader.collate_fn = _as_it_is
        return loader


def _as_it_is(batch: dict[str, Any]) -> dict[str, Any]:
    return batch
