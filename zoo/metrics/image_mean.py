"""What metrics that are means over images share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class ImageMean(Metric):
    """Mean over images of a value; a subclass's ``update`` gives :meth:`add` the values."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    total: Tensor
    images: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("images", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def add(self, values: Tensor) -> None:
        """Adds one value an image. Shape: (B,)."""
        self.total += values.double().sum()
        self.images += len(values)

    def compute(self) -> Tensor:
        """The mean over images, 0 without one. Shape: ()."""
        return (self.total / self.images.clamp_min(1)).float()
