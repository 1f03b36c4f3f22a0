"""Snapshots of cells as a LightningDataModule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from zoo.cell_files import SUFFIXES, Snapshots, from_anndata, read_cells, read_h5ad, read_times
from zoo.errors import ZooError, did_you_mean

from ..base import ZooDataModule
from .gaussian_wfr import gaussian_wfr
from .gene_circuit import gene_circuit
from .pca import add_pca

GENERATORS = ("gene_circuit", "gaussian_wfr")
MASSES = ("counts", "uniform")
TRAIN, VAL, TEST = 0, 1, 2
SHARES = (0.7, 0.1, 0.2)  # of the cells of each time


class CellSnapshotsDataModule(ZooDataModule):
    """Cells that were measured at two or more times, each once.

    A training sample is the whole experiment: all training cells with time and mass. So a step
    sees everything and draws from it what it needs, and ``steps_per_epoch`` says how many steps an
    epoch has. A sample of validation and test is one later snapshot, with the cells of the first
    snapshot to start from. A generator simulates validation and test anew, as large as training,
    each with masses of its own. A file's cells are split 70/10/20 at each time; each split's cells
    carry the whole mass of their time.

    Args:
        root: An ``.h5ad`` file, or a ``.csv`` file in the field's layout; ``None`` for a generator.
        dataset: The generator: "gene_circuit" or "gaussian_wfr".
        cells: Of the generator, at its first time.
        dim: Of "gaussian_wfr".
        time_key: Column of ``obs`` with the time: numbers, or an ordered category.
        rep: Key of ``obsm``. If it is missing and scanpy is installed, components of ``X`` are
            computed from training cells.
        mass: Total mass at each time: "counts" for the numbers of cells, "uniform" for balanced
            transport, or a mapping from time to mass.
        holdout_time: A middle time that is left out of training and validation, to test
            interpolation.
        steps_per_epoch: Training samples an epoch, over all devices.
        num_workers: As of the base class, and so are ``seed`` and ``inputs``.
        seed: See above.
        inputs: See above.
    """

    def __init__(
        self,
        root: str | None = None,
        dataset: str = "gene_circuit",
        cells: int = 300,
        dim: int = 2,
        time_key: str = "time",
        rep: str = "X_pca",
        mass: str | dict[str, float] = "counts",
        holdout_time: float | None = None,
        steps_per_epoch: int = 200,
        num_workers: int = 0,
        seed: int = 0,
        inputs: list[str] | str | None = None,
    ) -> None:
        super().__init__(root, batch_size=1, num_workers=num_workers, seed=seed, inputs=inputs)
        if root is None and dataset not in GENERATORS:
            hint = did_you_mean(dataset, GENERATORS)
            raise ZooError(f"dataset={dataset!r} is none of {', '.join(GENERATORS)}.{hint}")
        if isinstance(mass, str) and mass not in MASSES:
            hint = did_you_mean(mass, MASSES)
            raise ZooError(
                f"mass={mass!r} is none of {', '.join(MASSES)}, and no mapping from time to mass."
                f"{hint}"
            )
        if steps_per_epoch < 1:
            raise ZooError(f"steps_per_epoch={steps_per_epoch} must be at least 1.")
        self.dataset, self.cells, self.dim = dataset, cells, dim
        self.time_key, self.rep, self.mass = time_key, rep, mass
        self.holdout_time, self.steps_per_epoch = holdout_time, steps_per_epoch
        self._file: tuple[Snapshots, NDArray[np.int64]] | None = None

    def describe(self) -> dict[str, Any]:
        """Names and settings, no paths."""
        name = self.dataset if self.root is None else self.root.stem
        return {
            **super().describe(),
            "dataset": name,
            "mass": self.mass,
            "holdout_time": self.holdout_time,
        }

    def build(self, split: str) -> Dataset[Any]:
        """The experiment again and again; its later snapshots; or the files of ``inputs``."""
        if split == "predict":
            files = self.input_files(SUFFIXES)
            return _Items([self._input(path) for path in files])
        snapshots, chosen = self.snapshots({"train": TRAIN, "val": VAL, "test": TEST}[split])
        masses = self._masses(snapshots)
        if split != "test" and self.holdout_time is not None:
            chosen = chosen & (snapshots.time != self.holdout_time)
        if split == "train":
            return _Items([_experiment(snapshots, chosen, masses)] * self.steps_per_epoch)
        return _Items(_later(snapshots, chosen, masses, self.holdout_time))

    def snapshots(self, split: int) -> tuple[Snapshots, NDArray[np.bool_]]:
        """All cells of the experiment that a split is part of, and which of them it has.

        Args:
            split: ``TRAIN``, ``VAL`` or ``TEST``.

        Raises:
            ZooError: If the cells cannot be read, or are too few.
        """
        if self.root is None:
            found = self._simulate(split)
            chosen = np.ones(len(found.time), dtype=bool)
            where = f"The generator '{self.dataset}' with cells={self.cells}"
        else:
            if self._file is None:
                self._file = self._from_file(self.root)
            found, labels = self._file
            chosen = labels == split
            where = str(self.root)
        found.check(where)
        self._check_holdout(found, where)
        return found, chosen

    def _simulate(self, split: int) -> Snapshots:
        seed = (self.seed, split)
        if self.dataset == "gene_circuit":
            return gene_circuit(self.cells, seed)
        return gaussian_wfr(self.cells, self.dim, seed)

    def _from_file(self, path: Path) -> tuple[Snapshots, NDArray[np.int64]]:
        if path.suffix.lower() not in SUFFIXES:
            raise ZooError(f"{path} is neither an .h5ad nor a .csv file of cells.")
        if path.suffix.lower() == ".csv":
            cells = read_cells(path)
            labels = split_cells(cells.time, self.seed)
        else:
            if not path.is_file():
                raise ZooError(f"{path} is no file: expected cells as .h5ad or .csv.")
            adata = read_h5ad(path)
            time = read_times(adata, self.time_key, str(path))
            labels = split_cells(time, self.seed)
            if self.rep not in adata.obsm:
                known = (labels == TRAIN) & (time != self.holdout_time)
                add_pca(adata, self.rep, known, str(path))
            cells = from_anndata(adata, self.time_key, self.rep, str(path))
        return Snapshots(cells.x, cells.time, cells.rep), labels

    def _check_holdout(self, found: Snapshots, where: str) -> None:
        middle = found.times[1:-1]
        if self.holdout_time is not None and self.holdout_time not in middle:
            known = ", ".join(f"{t:g}" for t in middle) or "none"
            raise ZooError(
                f"holdout_time={self.holdout_time:g} is no middle time of {where}; they are: "
                f"{known}."
            )

    def _masses(self, snapshots: Snapshots) -> dict[float, float]:
        """Total mass of each time."""
        times = [float(t) for t in snapshots.times]
        if self.mass == "counts":
            return {t: float((snapshots.time == t).sum()) for t in times}
        if self.mass == "uniform":
            return dict.fromkeys(times, 1.0)
        assert isinstance(self.mass, Mapping)
        given = {float(key): float(value) for key, value in self.mass.items()}
        for time in times:
            if given.get(time, 0.0) <= 0:
                raise ZooError(
                    f"mass has no positive entry for the time {time:g}; it has "
                    f"{', '.join(f'{k:g}: {v:g}' for k, v in sorted(given.items()))}."
                )
        return given

    def _input(self, path: Path) -> dict[str, Any]:
        cells = read_cells(path, self.time_key, self.rep)
        return {
            "name": path.stem,
            "path": str(path),
            "rep": cells.rep,
            "time_key": self.time_key,
            "x": torch.from_numpy(cells.x),
            "time": torch.from_numpy(cells.time).float(),
        }

    def _loader(self, split: str, batch_size: int | None = None) -> DataLoader[Any]:
        """A sample is a batch by itself, and is not copied."""
        loader = super()._loader(split, batch_size)
        loader.collate_fn = _only
        return loader


class _Items(Dataset[dict[str, Any]]):
    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]


def _only(items: list[dict[str, Any]]) -> dict[str, Any]:
    (item,) = items
    return item


def split_cells(time: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    """0, 1 or 2 for training, validation and test, in the same shares at each time.

    Args:
        time: Of each cell. Shape: (N,).
        seed: Of the choice.
    """
    rng = np.random.default_rng([seed, 1])
    labels = np.zeros(len(time), dtype=np.int64)
    for t in np.unique(time):
        here = rng.permutation(np.flatnonzero(time == t))
        held = [max(1, round(share * len(here))) for share in SHARES[1:]]
        labels[here[: held[0]]] = VAL
        labels[here[held[0] : sum(held)]] = TEST
    return labels


def _tensor(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float32))


def _weights(time: NDArray[np.float64], masses: Mapping[float, float]) -> NDArray[np.float64]:
    """Mass of each cell: that of its time, in equal parts."""
    times, place, counts = np.unique(time, return_inverse=True, return_counts=True)
    share = np.array([masses[float(t)] for t in times]) / counts
    return share[place]


def _experiment(
    snapshots: Snapshots, chosen: NDArray[np.bool_], masses: Mapping[float, float]
) -> dict[str, Any]:
    time = snapshots.time[chosen]
    return {
        "x": _tensor(snapshots.x[chosen]),
        "time": _tensor(time),
        "mass": _tensor(_weights(time, masses)),
        "rep": snapshots.rep,
    }


def _later(
    snapshots: Snapshots,
    chosen: NDArray[np.bool_],
    masses: Mapping[float, float],
    holdout: float | None,
) -> list[dict[str, Any]]:
    """One item for each snapshot after the first: the last one, then the rest.

    A snapshot that training has not seen comes before all: a test that is cut short has it too.
    """
    time, x = snapshots.time[chosen], _tensor(snapshots.x[chosen])
    weight = _tensor(_weights(time, masses))
    times = np.unique(time)
    shared = {
        "x0": x[time == times[0]],
        "mass0": weight[time == times[0]],
        "times": _tensor(times),
        "masses": _tensor(np.array([masses[float(t)] for t in times])),
        "cells": x,
        "cell_time": _tensor(time),
        "rep": snapshots.rep,
        "holds_out": torch.tensor(bool((times == holdout).any())),
    }
    items = []
    order = [len(times) - 1, *range(1, len(times) - 1)]
    for number in sorted(order, key=lambda k: times[k] != holdout):
        now, before = time == times[number], time == times[number - 1]
        item = {
            **shared,
            "x": x[now],
            "mass": weight[now],
            "time": torch.tensor(float(times[number])),
            "source": x[before],
            "source_time": torch.tensor(float(times[number - 1])),
            "held_out": torch.tensor(times[number] == holdout),
        }
        if snapshots.growth is not None:
            item["growth"] = _tensor(snapshots.growth[chosen][before])
        items.append(item)
    return items
