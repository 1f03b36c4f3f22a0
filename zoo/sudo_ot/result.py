"""What the models give back: simulated trajectories, and cells with what was found of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zoo.atomic import atomic_path
from zoo.errors import missing_extra

if TYPE_CHECKING:
    from anndata import AnnData


@dataclass(frozen=True)
class Trajectories:
    """Weighted cells that were moved through time.

    Attributes:
        times: When, in the user's unit. Shape: (T,).
        x: Places. A cell that starts later rests at its own place until then. Shape: (T, B, p).
        logw: Logarithm of the mass that one cell has become. Shape: (T, B).
        g: Growth rate per unit of time. Shape: (T, B).
    """

    times: NDArray[np.float64]
    x: NDArray[np.float32]
    logw: NDArray[np.float32]
    g: NDArray[np.float32]

    def save(self, path: str | Path) -> Path:
        """Writes the field's CSV layout: samples (time), cell, x1 to xp, logw and growth_rate."""
        count, cells, dim = self.x.shape
        table = np.column_stack(
            [
                np.repeat(self.times, cells),
                np.tile(np.arange(cells), count),
                self.x.reshape(-1, dim),
                self.logw.ravel(),
                self.g.ravel(),
            ]
        )
        header = ["samples", "cell", *(f"x{i + 1}" for i in range(dim)), "logw", "growth_rate"]
        with atomic_path(path) as temporary:
            np.savetxt(
                temporary, table, fmt="%.9g", delimiter=",", header=",".join(header), comments=""
            )
        return Path(path)


def new_anndata(x: NDArray[np.float32], time: NDArray[np.float64], rep: str, key: str) -> AnnData:
    """An AnnData of coordinates and times alone.

    Raises:
        ZooError: If anndata is not installed.
    """
    try:
        import anndata
        import pandas as pd
    except ImportError as error:
        raise missing_extra("anndata", "cells") from error
    obs = pd.DataFrame({key: time}, index=[str(i) for i in range(len(x))])
    return anndata.AnnData(obs=obs, obsm={rep: x})


def save_anndata(adata: AnnData, path: Path) -> Path:
    """Writes an ``.h5ad`` file, whole or not at all."""
    with atomic_path(path) as temporary:
        adata.write_h5ad(temporary)
    return path


def add_columns(adata: AnnData, found: dict[str, NDArray[Any]]) -> AnnData:
    """Adds growth rate, velocity and fate to the cells, row by row in their own order.

    Args:
        adata: Changed in place, unless it is a view, which is copied first.
        found: ``growth_rate`` and ``fate_mass`` (N,), and ``velocity`` (N, p).
    """
    adata = adata.copy() if adata.is_view else adata
    adata.obs["growth_rate"] = found["growth_rate"]
    adata.obs["fate_mass"] = found["fate_mass"]
    adata.obsm["velocity_sudo"] = found["velocity"]
    return adata
