"""Splits of a table of tuples that do not leak, the same on every machine and rank."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPLITS = ("random", "scaffold", "warhead", "target_e3", "target")
LARGEST = 0.25  # of what is to be held out: larger groups stay in training
MOST_GROUPS = 0.2  # of all


@dataclass(frozen=True)
class Split:
    """Row numbers of a table.

    Attributes:
        unlabelled: Training rows whose labels are not to be read.
        labelled: The training rows whose labels are.
        val: Validation rows, labelled.
        test: Test rows, labelled.
        dropped: Rows of no split, since their molecule or their group is in a held-out one.
    """

    unlabelled: NDArray[np.int64]
    labelled: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]
    dropped: NDArray[np.int64]

    @property
    def train(self) -> NDArray[np.int64]:
        """All training rows."""
        return np.sort(np.concatenate([self.labelled, self.unlabelled]))


def rank_of(seed: int, names: NDArray[np.str_]) -> NDArray[np.float64]:
    """A number in 0..1 for each name, from a hash: no library's generator changes it."""
    digests = [hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7] for name in names]
    return np.array([int.from_bytes(d, "big") for d in digests], dtype=np.float64) / 2**56


def hold_out(groups: NDArray[np.str_], count: int, seed: int) -> NDArray[np.bool_]:
    """Chooses whole groups, in hashed order, until they have about ``count`` rows.

    A group of more than a quarter of that (and more than the median) is never chosen: a fifth of
    the public table is the androgen receptor, which alone would be the test. Nor are more than a
    fifth of the groups, or the many small targets would all be held out, and training left with a
    handful of large ones.

    Args:
        groups: Of each row. Shape: (N,).
        count: Rows to hold out.
        seed: Of the order.

    Returns:
        Whether a row is held out. Shape: (N,).
    """
    names, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(rank_of(seed, names), kind="stable")
    order = order[sizes[order] <= max(LARGEST * count, np.median(sizes))]
    before = np.cumsum(sizes[order]) - sizes[order]
    chosen = np.zeros(len(names), bool)
    most = max(1, round(MOST_GROUPS * len(names)))
    chosen[order[before < count][:most]] = True
    return chosen[place.reshape(-1)]


def components(names: NDArray[np.str_]) -> NDArray[np.str_]:
    """Names that share a protein, as "A/B" and "B", become one. Shape: (N,) to (N,)."""
    root: dict[str, str] = {}

    def find(part: str) -> str:
        while root.setdefault(part, part) != part:
            part = root[part]
        return part

    for name in np.unique(names):
        first, *others = str(name).split("/")
        for other in others:
            root[find(other)] = find(first)
    return np.array([find(str(name).split("/")[0]) for name in names], dtype=np.str_)


def split_rows(
    units: NDArray[np.str_],
    molecules: NDArray[np.str_],
    labels: NDArray[np.int64],
    test_share: float,
    val_labels: int,
    label_budget: int,
    seed: int,
) -> Split:
    """Divides a table.

    No unit and no molecule is in two splits: rows of training whose molecule is held out, with
    another target say, are dropped.

    Args:
        units: What must not be in two splits: scaffold, target, pair ... Shape: (N,).
        molecules: Keys that stereo-isomers and salts share. Shape: (N,).
        labels: 1, 0, or -1 for not known. Shape: (N,).
        test_share: Of the rows.
        val_labels: Labelled rows of validation, about.
        label_budget: Labels of training that may be read.
        seed: Of all choices.
    """
    rows = np.arange(len(units))
    known = labels >= 0
    held = hold_out(units, round(test_share * len(units)), seed)
    left = rows[~held & ~np.isin(molecules, molecules[held])]
    wanted = round(val_labels / max(known[left].mean(), 1e-9)) if len(left) else 0
    val = np.zeros(len(rows), bool)
    val[left] = hold_out(units[left], wanted, seed + 1)
    train = left[~val[left] & ~np.isin(molecules[left], molecules[val])]
    # The labels that are read: a hash of the row's content, so other rows do not change it.
    with_label = train[known[train]]
    names = np.char.add(np.char.add(molecules[with_label], " "), units[with_label])
    names = np.char.add(names, np.char.add(" ", with_label.astype(np.str_)))
    chosen = with_label[np.argsort(rank_of(seed + 2, names), kind="stable")[:label_budget]]
    used = np.concatenate([train, rows[val & known], rows[held & known]])
    return Split(
        unlabelled=np.setdiff1d(train, chosen),
        labelled=np.sort(chosen),
        val=rows[val & known],
        test=rows[held & known],
        dropped=np.setdiff1d(rows, used),
    )
