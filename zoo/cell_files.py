"""Time-stamped cells from AnnData, CSV files or memory, checked at the door.

The field's CSV layout (WFR-FM, TIGON, DeepRUOT) has a column ``samples`` with the time and
columns ``x1`` to ``xp``. In AnnData the time is a column of ``obs`` and the coordinates are in
``obsm``. Data modules and methods read through the same functions, so both refuse the same input
in the same words.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from zoo.errors import ZooError, did_you_mean, missing_extra

if TYPE_CHECKING:
    from anndata import AnnData

Source: TypeAlias = "str | os.PathLike[str] | AnnData"

CSV_TIME = "samples"
SUFFIXES = (".h5ad", ".csv")
MIN_CELLS = 10  # at each time
MAX_REP = 64  # bytes of the coordinates' name


@dataclass(frozen=True)
class Cells:
    """Cells in the order of their source.

    Attributes:
        x: Coordinates, float32. Shape: (N, p).
        time: In the user's unit, float64. Shape: (N,).
        rep: What the coordinates are called; empty for those of a CSV file, which does not say.
    """

    x: NDArray[np.float32]
    time: NDArray[np.float64]
    rep: str


@dataclass(frozen=True)
class Snapshots(Cells):
    """Cells of an experiment with at least two times.

    Attributes:
        growth: True growth rate of each cell per unit of time, where it is known. Shape: (N,).
    """

    growth: NDArray[np.float64] | None = None

    @classmethod
    def stack(
        cls,
        points: Sequence[NDArray[np.floating[Any]]],
        times: Sequence[float],
        rep: str,
        growth: Sequence[NDArray[np.float64]] | None = None,
    ) -> Snapshots:
        """One array of each snapshot, in the order of their times."""
        return cls(
            np.concatenate(points).astype(np.float32),
            np.repeat(np.asarray(times, dtype=np.float64), [len(p) for p in points]),
            rep,
            None if growth is None else np.concatenate(growth),
        )

    @property
    def times(self) -> NDArray[np.float64]:
        """The distinct times in order. Shape: (K + 1,)."""
        return np.unique(self.time)

    def check(self, where: str) -> Snapshots:
        """Returns itself.

        Raises:
            ZooError: If there are fewer than two times or fewer than 10 cells at one of them.
        """
        if len(self.times) < 2:
            raise ZooError(
                f"{where} has cells at one time only ({self.times[0]:g}); at least two times are "
                "needed to learn how cells change."
            )
        for time in self.times:
            count = int((self.time == time).sum())
            if count < MIN_CELLS:
                raise ZooError(
                    f"{where} has {count} cells at the time {time:g}; at least {MIN_CELLS} are "
                    "needed at each."
                )
        return self


def read_cells(source: Source, time_key: str = "time", rep: str = "X_pca") -> Cells:
    """Reads cells from an ``.h5ad`` or ``.csv`` file, or takes them from an AnnData.

    Args:
        source: A path, or an AnnData.
        time_key: Column of ``obs``; a CSV file has its own, ``samples``.
        rep: Key of ``obsm``; a CSV file has one set of coordinates.

    Raises:
        ZooError: If the file is unreadable, a key is missing, a time cannot be ordered, or a
            coordinate is not finite; it names what was found.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        if not path.is_file():
            raise ZooError(f"{path} is no file: expected cells as .h5ad or .csv.")
        if path.suffix.lower() == ".csv":
            return _read_csv(path)
        return from_anndata(read_h5ad(path), time_key, rep, str(path))
    return from_anndata(source, time_key, rep)


def read_h5ad(path: Path) -> AnnData:
    """Reads an AnnData file.

    Raises:
        ZooError: If anndata is not installed, or the file is none of its.
    """
    try:
        import anndata
    except ImportError as error:
        raise missing_extra("anndata", "cells") from error
    try:
        return anndata.read_h5ad(path)
    except Exception as error:  # h5py, anndata and zarr raise whatever they meet
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ZooError(f"{path} is no readable .h5ad file: {reason}") from error


def from_anndata(
    adata: AnnData, time_key: str = "time", rep: str = "X_pca", where: str = "The AnnData"
) -> Cells:
    """Takes times and coordinates from an AnnData; see :func:`read_cells`."""
    if rep not in adata.obsm:
        known = ", ".join(adata.obsm) or "none"
        hint = did_you_mean(rep, adata.obsm)
        raise ZooError(f"{where} has no obsm['{rep}']; its keys are: {known}.{hint}")
    time = read_times(adata, time_key, where)
    x = adata.obsm[rep]
    if hasattr(x, "toarray"):
        rank_zero_info(f"obsm['{rep}'] of {where} is sparse: {x.shape} become a dense table.")
        x = x.toarray()
    return Cells(check_coordinates(np.asarray(x), f"obsm['{rep}'] of {where}"), time, rep)


def read_times(adata: AnnData, time_key: str, where: str) -> NDArray[np.float64]:
    """The time of each cell.

    Raises:
        ZooError: If there is no such column, or its values have no order in time.
    """
    if time_key not in adata.obs:
        known = ", ".join(map(str, adata.obs)) or "none"
        hint = did_you_mean(time_key, map(str, adata.obs))
        raise ZooError(f"{where} has no obs['{time_key}']; its columns are: {known}.{hint}")
    return _orderable(adata.obs[time_key], f"obs['{time_key}'] of {where}")


def check_coordinates(x: NDArray[Any], what: str) -> NDArray[np.float32]:
    """Coordinates as float32.

    Raises:
        ZooError: If they are no table of finite numbers; it names the first row that is not.
    """
    if x.ndim != 2 or not np.issubdtype(x.dtype, np.number) or 0 in x.shape:
        raise ZooError(
            f"{what} must be a table of numbers (cells, dimensions); it has the shape {x.shape} "
            f"and the type {x.dtype}."
        )
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        raise ZooError(
            f"{what} has NaN or infinite coordinates in {int(bad.sum())} of {len(x)} cells, first "
            f"in row {int(bad.argmax())}."
        )
    return x


def _orderable(column: Any, what: str) -> NDArray[np.float64]:
    """Times as numbers: numbers as they are, labels such as "day 7" refused unless ordered."""
    if hasattr(column, "cat"):  # pandas categorical
        labels = list(column.cat.categories)
        try:
            numbers = np.array([float(label) for label in labels])
        except (TypeError, ValueError):
            if not column.cat.ordered:
                raise ZooError(
                    f"{what} is a category that is not ordered ({_first(labels)}): give numbers, "
                    "or an ordered category."
                ) from None
            numbers = np.arange(len(labels), dtype=np.float64)
        codes = np.asarray(column.cat.codes)
        time = np.where(codes < 0, np.nan, numbers[codes])
    else:
        try:
            time = np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError):
            labels = list(dict.fromkeys(map(str, column)))
            raise ZooError(
                f"{what} cannot be ordered in time ({_first(labels)}): give numbers, or an ordered "
                "category."
            ) from None
    if not np.isfinite(time).all():
        raise ZooError(f"{what} has no finite time for {int((~np.isfinite(time)).sum())} cells.")
    return time


def _first(labels: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, labels[:3]))
    return shown + (", ..." if len(labels) > 3 else "")


def _read_csv(path: Path) -> Cells:
    """The field's layout: ``samples`` and ``x1`` to ``xp``; other columns are left alone."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = [name.strip().strip('"') for name in file.readline().split(",")]
    columns = [i for i, name in enumerate(header) if re.fullmatch(r"x\d+", name)]
    columns.sort(key=lambda i: int(header[i][1:]))
    if CSV_TIME not in header or not columns:
        shown = _first(header)
        raise ZooError(
            f"{path} has not the columns '{CSV_TIME}' (time) and 'x1', 'x2', ...: it has {shown}."
        )
    wanted = [header.index(CSV_TIME), *columns]
    try:
        with warnings.catch_warnings():  # of an empty table, which is refused below
            warnings.filterwarnings("ignore", "loadtxt: input contained no data")
            table = np.loadtxt(path, delimiter=",", skiprows=1, usecols=wanted, ndmin=2)
    except ValueError as error:
        raise ZooError(f"{path} is no table of numbers: {error}") from error
    if not len(table):
        raise ZooError(f"{path} has no cells: there is nothing below its header.")
    time, x = table[:, 0], table[:, 1:]
    if not np.isfinite(time).all():
        raise ZooError(f"'{CSV_TIME}' in {path} has no finite time for some cells.")
    return Cells(check_coordinates(x, f"{path}"), time, "")
