"""Errors of depth maps as the field reports them.

Each image is cropped by 6 pixels on all sides, then masked, then measured; the mean over images of
the per-image values is reported. Centimetres for metric depth, grey levels for Middlebury: the
factor ``scale`` comes with the data.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection

CROP = 6  # pixels, as published protocols have it
EDGE_JUMP = 0.05  # relative jump of depth between neighbours that makes an edge
EDGE_DISTANCE = 4  # pixels (along rows and columns) that still belong to an edge
DELTA = 1.05  # ratio of estimate and truth that counts as right


def near_edges(depth: Tensor, mask: Tensor) -> Tensor:
    """Pixels within 4 px of a jump of depth by more than 5 % between known neighbours.

    Args:
        depth: True depth. Shape: (B, 1, H, W).
        mask: Where it is known, bool. Shape: (B, 1, H, W).

    Returns:
        Bool. Shape: (B, 1, H, W).
    """
    depth = depth.masked_fill(~mask, 0)
    edges = torch.zeros_like(depth)
    for dim in (2, 3):
        n = depth.shape[dim] - 1
        a, b = depth.narrow(dim, 0, n), depth.narrow(dim, 1, n)
        known = mask.narrow(dim, 0, n) & mask.narrow(dim, 1, n)
        jump = (known & ((a - b).abs() > EDGE_JUMP * torch.minimum(a, b))).to(depth.dtype)
        for start in (0, 1):  # both pixels of the pair
            edges.narrow(dim, start, n).add_(jump)
    side = 2 * EDGE_DISTANCE + 1  # along rows, then along columns: 18 comparisons, not 81
    edges = F.max_pool2d(edges, (1, side), stride=1, padding=(0, EDGE_DISTANCE))
    return F.max_pool2d(edges, (side, 1), stride=1, padding=(EDGE_DISTANCE, 0)) > 0


class DepthError(Metric):
    """Base of the depth errors: all keep the same sums, so a ``MetricCollection`` updates once.

    Images without a pixel to measure are skipped; a value is 0 if all were.
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    #: Rows of the sums: what a subclass reports.
    row: int
    sums: Tensor
    counts: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("sums", torch.zeros(5), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(5), dist_reduce_fx="sum")

    def update(
        self, pred: Tensor, target: Tensor, mask: Tensor, scale: float | Tensor = 1.0
    ) -> None:
        """Adds a batch.

        Args:
            pred: Estimated depth. Shape: (B, 1, H, W).
            target: True depth, anything where unknown. Shape: (B, 1, H, W).
            mask: Where the truth is known, bool. Shape: (B, 1, H, W).
            scale: Factor from the depths' unit to the reported one, for all or one an image,
                for instance 100 from metres to centimetres. Shape of a tensor: (B,).
        """
        inner = (..., slice(CROP, -CROP), slice(CROP, -CROP))
        edge = (near_edges(target, mask) & mask)[inner].flatten(1)  # (B, N)
        pred, target, known = (x[inner].flatten(1) for x in (pred.float(), target, mask))
        pred, target = pred.masked_fill(~known, 0), target.float().masked_fill(~known, 0)
        factor = torch.as_tensor(scale, dtype=pred.dtype, device=pred.device).reshape(-1, 1)
        error = factor * (pred - target).abs()
        square = error.square()
        right = known & (pred < DELTA * target) & (target < DELTA * pred)

        pixels, edge_pixels = known.sum(dim=1), edge.sum(dim=1)  # (B,)
        n, m = pixels.clamp_min(1), edge_pixels.clamp_min(1)
        rmse = (square.sum(dim=1) / n).sqrt()
        mae = error.sum(dim=1) / n
        rmse_edge = ((square * edge).sum(dim=1) / m).sqrt()
        delta = right.sum(dim=1) / n
        images, with_edges = (pixels > 0).sum(), (edge_pixels > 0).sum()
        self.sums += torch.stack([rmse, mae, square.sum(dim=1), rmse_edge, delta]).sum(dim=1)
        self.counts += torch.stack([images, images, pixels.sum(), with_edges, images])

    def compute(self) -> Tensor:
        """The mean over images. Shape: ()."""
        return self.sums[self.row] / self.counts[self.row].clamp_min(1)


class RMSE(DepthError):
    """Root mean square error of an image, mean over images: the field's figure."""

    row = 0


class MAE(DepthError):
    """Mean absolute error of an image, mean over images."""

    row = 1


class PooledRMSE(DepthError):
    """Root mean square error over the pixels of all images together."""

    row = 2

    def compute(self) -> Tensor:
        """The root of the mean over pixels. Shape: ()."""
        return super().compute().sqrt()


class EdgeRMSE(DepthError):
    """RMSE of the pixels near depth edges of an image, mean over images that have some."""

    row = 3


class Delta105(DepthError):
    """Fraction of an image's pixels within a factor of 1.05 of the truth, mean over images."""

    higher_is_better = True
    row = 4


def depth_metrics() -> dict[str, Metric | MetricCollection]:
    """All of them by the names they are logged under; for a ``MetricCollection``."""
    return {
        "rmse": RMSE(),
        "mae": MAE(),
        "rmse_pooled": PooledRMSE(),
        "rmse_edge": EdgeRMSE(),
        "delta_105": Delta105(),
    }
