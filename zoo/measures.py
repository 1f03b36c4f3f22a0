"""Weighted point clouds: read from files and arrays, checked, and padded to batches."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.errors import ZooError

MAX_LABEL = 64  # bytes


@dataclass(frozen=True)
class Measure:
    """A discrete probability measure.

    Attributes:
        points: float32. Shape: (n, d).
        weights: Not negative, with sum 1, float32. Shape: (n,).
        label: What it is of.
    """

    points: NDArray[np.float32]
    weights: NDArray[np.float32]
    label: str

    @classmethod
    def checked(cls, points: Any, weights: Any, label: str, where: str) -> Measure:
        """Takes points and weights as they come, and normalises the weights.

        Args:
            points: Shape: (n, d).
            weights: Not negative; ``None`` for equal ones. Shape: (n,).
            label: At most 64 bytes.
            where: For the error.

        Raises:
            ZooError: If there is no point, a number is not finite, a weight is negative, or none is
                positive.
        """
        x = _array(points, f"The points of {where}")
        if x.ndim != 2 or 0 in x.shape:
            raise ZooError(
                f"The points of {where} have the shape {x.shape}: expected (n, d), n and d at "
                "least 1."
            )
        if not np.isfinite(x).all():
            row = int((~np.isfinite(x)).any(axis=1).argmax())
            raise ZooError(f"The points of {where} are not finite, first in row {row}.")
        a = np.ones(len(x)) if weights is None else _array(weights, f"The weights of {where}")
        if a.shape != (len(x),):
            raise ZooError(f"{where} has weights of shape {a.shape} for {len(x)} points.")
        if not np.isfinite(a).all() or (a < 0).any():
            row = int((~np.isfinite(a) | (a < 0)).argmax())
            raise ZooError(
                f"The weights of {where} must be finite and not negative; number {row} is {a[row]}."
            )
        if a.sum() <= 0:
            raise ZooError(f"The weights of {where} are all 0: one must be positive.")
        if len(label.encode()) > MAX_LABEL:
            raise ZooError(f"The label '{label}' of {where} has more than {MAX_LABEL} bytes.")
        return cls(x.astype(np.float32), (a / a.sum()).astype(np.float32), label)

    def sample(self) -> dict[str, Any]:
        """As :func:`pad_samples` takes it."""
        return {
            "points": torch.from_numpy(self.points),
            "weights": torch.from_numpy(self.weights),
            "label": self.label,
        }


def _array(values: Any, what: str) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ZooError(f"{what} are no array of numbers: {error}") from error


def read_measure(path: str | os.PathLike[str]) -> Measure:
    """Reads an ``.npz`` file with ``points`` (n, d), and perhaps ``weights`` (n,) and ``id``.

    Without an id the file's name is the label.

    Raises:
        ZooError: If the file is missing, no archive of arrays, or what it holds is no measure.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise ZooError(f"{path} is no file: expected a cloud as .npz.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            held: Mapping[str, Any] = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ZooError(f"{path} is no readable .npz archive of arrays: {error}") from error
    if "points" not in held:
        names = ", ".join(held) or "none"
        raise ZooError(f"{path} has no array 'points' of shape (n, d); its arrays are: {names}.")
    label = str(held["id"].item()) if "id" in held and held["id"].size == 1 else path.stem
    return Measure.checked(held["points"], held.get("weights"), label, str(path))


def check_dims(measures: Sequence[Measure], where: str) -> None:
    """Raises a :class:`ZooError` unless all clouds have the same dimension."""
    for one in measures:
        if one.points.shape[1] != measures[0].points.shape[1]:
            raise ZooError(
                f"{where}: the cloud '{one.label}' has {one.points.shape[1]} dimensions, "
                f"'{measures[0].label}' has {measures[0].points.shape[1]}."
            )


def pad_samples(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A batch: tensors of clouds are padded to the longest, with zeros; the rest are lists.

    ``mask``, True at real points, belongs to ``points``. Weights of padding are 0.
    """
    batch: dict[str, Any] = {}
    for key in samples[0]:
        values = [sample[key] for sample in samples]
        if isinstance(values[0], Tensor) and values[0].ndim:
            batch[key] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
        else:
            batch[key] = values
    batch["mask"] = torch.nn.utils.rnn.pad_sequence(
        [torch.ones(len(s["points"]), dtype=torch.bool) for s in samples], batch_first=True
    )
    return batch
