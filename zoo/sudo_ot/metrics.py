"""How far a weighted cloud of cells is from what was measured."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from zoo.errors import missing_extra
from zoo.reproducible import generator

MAX_POINTS = 2000  # a side; the exact solver takes the cube of it


def wasserstein1(x: Tensor, w: Tensor, y: Tensor, m: Tensor) -> float:
    """W1 between two weighted clouds, each scaled to mass 1, with Euclidean cost, exactly.

    Clouds of more than 2000 points are thinned to as many by their weights, always the same ones.

    Args:
        x: Shape: (n, p).
        w: Weights of x, at least 0. Shape: (n,).
        y: Shape: (k, p).
        m: Weights of y. Shape: (k,).

    Returns:
        In the data's unit.

    Raises:
        ZooError: If POT is not installed.
    """
    try:
        import ot
    except ImportError as error:
        raise missing_extra("POT", "cells") from error
    (x, w), (y, m) = _thin(x, w), _thin(y, m)
    cost = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").double().cpu().numpy()
    a, b = (np.asarray(v.double().cpu()) for v in (w, m))
    return float(ot.emd2(a / a.sum(), b / b.sum(), cost, numItermax=1_000_000))


def _thin(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    if len(x) <= MAX_POINTS:
        return x, w
    chosen = torch.multinomial(w.cpu().float(), MAX_POINTS, True, generator=generator(len(x)))
    chosen = chosen.to(x.device)
    return x[chosen], torch.ones_like(w[chosen])
