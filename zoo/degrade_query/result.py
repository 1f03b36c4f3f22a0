"""What DegradeQuery answers."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.atomic import atomic_path

COLUMNS = (
    "smiles",
    "target_uniprot",
    "e3_type",
    "probability",
    "compatibility",
    "labels_of_target",
)


@dataclass(frozen=True)
class RankedTarget:
    """One target of a scan.

    Attributes:
        target: UniProt accession.
        gene: Its usual name, or the accession again.
        compatibility: How well the tuple fits, -1..1, comparable between targets.
        probability: Of strong degradation, if the molecule engages the target at all.
        labels: Labels of this target that training had: with few, the probability is a guess from
            its features.
    """

    target: str
    gene: str
    compatibility: float
    probability: float
    labels: int


@dataclass(frozen=True)
class Explanation:
    """Where the answer for one tuple looks.

    Attributes:
        smiles: Of the molecule.
        target: Attention of the target's side, sums to 1, by atom in RDKit's order, which is that
            of the string. Shape: (A,).
        e3: The same of the ligase's side. Shape: (A,).
        probability: Of strong degradation.
        compatibility: -1..1.
    """

    smiles: str
    target: NDArray[np.float32]
    e3: NDArray[np.float32]
    probability: float
    compatibility: float


def write_table(prediction: Mapping[str, Any], path: Path) -> Path:
    """Writes a prediction of several tuples as CSV, whole or not at all."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for *words, probability, fit, labels in zip(
            *(prediction[column] for column in COLUMNS), strict=True
        ):
            writer.writerow([*words, f"{probability:.4f}", f"{fit:.4f}", int(labels)])
    return path
