"""Principal components where an AnnData has none: of the training cells alone, with scanpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from zoo.errors import ZooError

if TYPE_CHECKING:
    from anndata import AnnData

COMPONENTS = 50


def add_pca(adata: AnnData, rep: str, fit_on: NDArray[np.bool_], where: str) -> None:
    """Writes ``obsm[rep]``; the components are those of the chosen cells, so nothing leaks.

    Args:
        adata: Changed in place; ``X`` is normalised, log-transformed expression.
        rep: Key of ``obsm``.
        fit_on: Cells of training. Shape: (N,).
        where: For messages.

    Raises:
        ZooError: If scanpy is not installed; it lists the keys that there are.
    """
    try:
        import scanpy as sc
    except ImportError as error:
        known = ", ".join(adata.obsm) or "none"
        raise ZooError(
            f"{where} has no obsm['{rep}']; its keys are: {known}. With scanpy installed "
            "(pip install scanpy) principal components of X would be computed."
        ) from error
    count = min(COMPONENTS, int(fit_on.sum()) - 1, adata.n_vars - 1)
    if count < 1:
        raise ZooError(f"{where} has {adata.n_vars} genes in X: too few for components.")
    rank_zero_info(f"obsm['{rep}'] of {where}: {count} components of {int(fit_on.sum())} cells.")
    training = adata[fit_on].copy()
    sc.pp.pca(training, n_comps=count)
    genes = np.asarray(training.varm["PCs"])
    centre = np.asarray(training.X.mean(axis=0)).ravel()
    projected: Any = adata.X @ genes  # sparse stays sparse until here
    adata.obsm[rep] = (np.asarray(projected) - centre @ genes).astype(np.float32)
