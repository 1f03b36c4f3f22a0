"""From rows of a file to arrays: molecules featurised once, duplicates merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from zoo.errors import ZooError
from zoo.molecules import MoleculeTable, featurize

from .layouts import UNLABELLED, Row

AGREE = 0.7  # share of a tuple's labels that must agree


@dataclass(frozen=True)
class TupleTable:
    """N distinct tuples.

    Attributes:
        molecules: Features of the distinct molecules.
        molecule: Row of ``molecules``. Shape: (N,).
        smiles: As written first. Shape: (N,).
        target: Accession. Shape: (N,).
        e3: Accession, or "Other". Shape: (N,).
        label: 1, 0, or -1. Shape: (N,).
        potency: pDC50 and Dmax (0..1), NaN where not known. Shape: (N, 2).
        warhead: Empty where not known. Shape: (N,).
    """

    molecules: MoleculeTable
    molecule: NDArray[np.int64]
    smiles: NDArray[np.str_]
    target: NDArray[np.str_]
    e3: NDArray[np.str_]
    label: NDArray[np.int64]
    potency: NDArray[np.float32]
    warhead: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.label)

    @property
    def keys(self) -> NDArray[np.str_]:
        """Molecules' keys, which stereo-isomers and salts share. Shape: (N,)."""
        return self.molecules.keys[self.molecule]


def build_table(
    rows: Sequence[Row], errors: Sequence[ZooError], on_bad: str, where: str, cache: bool
) -> TupleTable:
    """Featurises and merges.

    Args:
        rows: Of the file.
        errors: Of its bad rows.
        on_bad: "raise" the first error, or "drop" bad rows and say how many.
        where: For messages.
        cache: Keep the molecules' features on disk.

    Raises:
        ZooError: With "raise", for the first bad row; if no row is left.
    """
    if errors and on_bad == "raise":
        raise errors[0]
    distinct = list(dict.fromkeys(row.smiles.strip() for row in rows))
    molecules, wrong = featurize(distinct, cache)
    place = {smiles: i for i, smiles in enumerate(distinct)}
    if wrong and on_bad == "raise":
        first = next(row for row in rows if place[row.smiles.strip()] in wrong)
        raise ZooError(f"{first.where}: {wrong[place[first.smiles.strip()]]}")
    good = [row for row in rows if place[row.smiles.strip()] not in wrong]
    dropped = len(errors) + len(rows) - len(good)
    if dropped:
        rank_zero_info(f"{where}: {dropped} bad rows were dropped.")
    if not good:
        raise ZooError(f"{where} has no usable row.")
    return _merge(good, molecules, [place[row.smiles.strip()] for row in good], where)


def _merge(
    rows: Sequence[Row], molecules: MoleculeTable, places: Sequence[int], where: str
) -> TupleTable:
    """One row for each molecule, target and E3; labels by majority, or not at all."""
    molecule = np.array(places, dtype=np.int64)
    target = np.array([row.target for row in rows], dtype=np.str_)
    e3 = np.array([row.e3 for row in rows], dtype=np.str_)
    label = np.array([row.label for row in rows], dtype=np.int64)
    potency = np.array([(row.pdc50, row.dmax) for row in rows], dtype=np.float32).reshape(-1, 2)
    columns = [
        np.unique(column, return_inverse=True)[1].reshape(-1)
        for column in (molecules.canonical[molecule], target, e3)
    ]
    codes = np.stack(columns, axis=1)
    _, first, group = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    known = label != UNLABELLED
    count = np.bincount(group[known], minlength=len(first))
    share = np.bincount(group[known], label[known], minlength=len(first)) / np.maximum(count, 1)
    merged = np.where(count == 0, UNLABELLED, (share >= 0.5).astype(np.int64))
    unclear = (count > 0) & (share > 1 - AGREE + 1e-9) & (share < AGREE - 1e-9)
    if unclear.any():
        rank_zero_info(
            f"{where}: {int(unclear.sum())} tuples with conflicting labels were dropped."
        )
    means = np.full((len(first), 2), np.nan, np.float32)
    for column in range(2):
        finite = np.isfinite(potency[:, column])
        number = np.bincount(group[finite], minlength=len(first))
        total = np.bincount(group[finite], potency[finite, column], minlength=len(first))
        means[number > 0, column] = (total / np.maximum(number, 1))[number > 0]
    order = np.argsort(first)  # the file's
    order = order[~unclear[order]]
    if len(order) == 0:
        raise ZooError(f"{where}: no tuple is left, since all labels conflict.")
    kept = first[order]
    return TupleTable(
        molecules=molecules,
        molecule=molecule[kept],
        smiles=np.array([rows[i].smiles.strip() for i in kept], dtype=np.str_),
        target=target[kept],
        e3=e3[kept],
        label=merged[order],
        potency=means[order],
        warhead=np.array([rows[i].warhead for i in kept], dtype=np.str_),
    )
