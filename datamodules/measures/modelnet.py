"""ModelNet40 as point clouds, in the HDF5 release that is used for sets of points."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError, check_choice, missing_extra
from zoo.measures import Measure

from .clouds import Damage
from .library import MeasuresDataModule

if TYPE_CHECKING:
    import h5py

PARTS = ("train", "test")
TREE = "ply_data_train*.h5, ply_data_test*.h5 and shape_names.txt"


class ModelNetCloudsDataModule(MeasuresDataModule):
    """Objects of ModelNet40 to store, as 256 of their 2048 points, and damaged copies to retrieve.

    A query is another draw of damage of the same 256 points: noise, a shift, and lost points.
    Clouds are centred and scaled into the unit sphere. A label is the object's number in its part
    and its kind, such as "17 (airplane)".

    Args:
        root: The folder ``modelnet40_ply_hdf5_2048`` as it is published.
        part: Whose objects are stored: "train" (9840) or "test" (2468).
        patterns: How many of them, drawn by the seed; ``None`` for all.
        points: Of each, by farthest-point sampling.
        noise: Standard deviation of each coordinate of each point; the object has radius 1.
        shift: The same of the common shift.
        drop: Share of the points that a query has lost.
        batch_size: Of training.
        eval_batch_size: Of validation and test.
        base: ``num_workers``, ``seed`` and ``inputs``: see `ZooDataModule`.

    Raises:
        ZooError: If the folder has not the files of the release, or one of them other arrays.
    """

    def __init__(
        self,
        root: str | None = None,
        part: str = "train",
        patterns: int | None = None,
        points: int = 256,
        noise: float = 0.05,
        shift: float = 0.05,
        drop: float = 0.25,
        batch_size: int = 64,
        eval_batch_size: int = 16,
        **base: Any,
    ) -> None:
        super().__init__(root, batch_size, eval_batch_size, **base)
        check_choice("part", part, PARTS)
        for name, count in (("patterns", patterns), ("points", points)):
            if count is not None and count < 1:
                raise ZooError(f"{name}={count} must be at least 1.")
        self.part, self.patterns, self.points = part, patterns, points
        self.damage = Damage(noise, shift, drop, reweigh=False)
        self._stored: list[Measure] | None = None

    def describe(self) -> dict[str, Any]:
        """Names and settings, no paths."""
        own = {"part": self.part, "patterns": self.patterns, "points": self.points}
        return {**super().describe(), "dataset": "modelnet40", **own, **vars(self.damage)}

    def stored(self) -> list[Measure]:
        """The objects to store, in order."""
        if self._stored is None:
            if self.root is None:
                raise ZooError(f"ModelNet40 needs --data.root: the folder with {TREE}.")
            clouds, kinds = self._read(self.root)
            chosen = np.arange(len(clouds))
            if self.patterns is not None:
                rng = np.random.default_rng(self.seed)
                chosen = np.sort(rng.permutation(len(clouds))[: self.patterns])
            self._stored = [self._measure(clouds[k], f"{k} ({kinds[k]})") for k in chosen]
        return self._stored

    def queries(self, split: int) -> tuple[list[Measure], list[Measure]]:
        """One of each stored object."""
        stored, rng = self.stored(), np.random.default_rng((self.seed, split))
        return [self.damage(one, rng) for one in stored], stored

    def _measure(self, cloud: NDArray[np.float32], label: str) -> Measure:
        cloud = cloud - cloud.mean(axis=0)
        cloud = cloud / max(float(np.linalg.norm(cloud, axis=1).max()), 1e-12)
        return Measure.checked(cloud[farthest_points(cloud, self.points)], None, label, label)

    def _read(self, root: Path) -> tuple[NDArray[np.float32], list[str]]:
        paths = sorted(root.glob(f"ply_data_{self.part}*.h5"))
        names = root / "shape_names.txt"
        if not paths or not names.is_file():
            raise ZooError(f"{root} is not the HDF5 release of ModelNet40: expected {TREE}.")
        shapes = names.read_text(encoding="utf-8").split()
        clouds, kinds = [], []
        for path in paths:
            data, label = _read_file(path, len(shapes))
            clouds.append(data)
            kinds += [shapes[k] for k in label]
        return np.concatenate(clouds), kinds


def _read_file(path: Path, kinds: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    try:
        import h5py
    except ImportError as error:
        raise missing_extra("h5py", "measures") from error
    try:
        with h5py.File(path, "r") as file:
            data, label = _array(file, "data", path), _array(file, "label", path).reshape(-1)
    except OSError as error:
        raise ZooError(f"{path} is no readable HDF5 file: {error}") from error
    if data.ndim != 3 or data.shape[-1] != 3 or len(label) != len(data):
        raise ZooError(
            f"{path}: expected data (N, 2048, 3) and label (N, 1), found {data.shape} and "
            f"{len(label)} labels."
        )
    if len(label) and not (label < kinds).all():
        raise ZooError(f"{path} has the label {label.max()}; shape_names.txt has {kinds} names.")
    return data.astype(np.float32), label.astype(np.int64)


def _array(file: h5py.File, key: str, path: Path) -> NDArray[Any]:
    if key not in file:
        raise ZooError(f"{path} has no array '{key}'; its arrays are: {', '.join(file)}.")
    return np.asarray(file[key])


def farthest_points(cloud: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Indices of ``count`` points, each the farthest from those before it; the first is first.

    Args:
        cloud: Shape: (n, d).
        count: At most n are taken.
    """
    count = min(count, len(cloud))
    chosen = np.zeros(count, dtype=np.int64)
    nearest = np.full(len(cloud), np.inf)
    for k in range(1, count):
        last = cloud[chosen[k - 1]]
        nearest = np.minimum(nearest, ((cloud - last) ** 2).sum(axis=1))
        chosen[k] = nearest.argmax()
    return chosen
