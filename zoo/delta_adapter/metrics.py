"""Errors of edited pictures, one number a picture; and their means over groups of edits."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from zoo.metrics.image_mean import ImageMean

CHANGED = 2 / 255  # difference of the true edit above which it has changed a pixel


class ValueMean(ImageMean):
    """Mean of values that are computed elsewhere, (B,) at a time; none is fine."""

    def update(self, values: Tensor) -> None:
        """Adds one value a picture."""
        self.add(values)


def l1(output: Tensor, truth: Tensor) -> Tensor:
    """Mean absolute difference, in 0..1. Shape: (B, 3, H, W) twice to (B,)."""
    return (output - truth).abs().mean(dim=(1, 2, 3))


def psnr(output: Tensor, truth: Tensor) -> Tensor:
    """In dB, at most 80. Shape: (B, 3, H, W) twice to (B,)."""
    return -10 * (output - truth).square().mean(dim=(1, 2, 3)).clamp_min(1e-8).log10()


def ssim(output: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity. Shape: (B, 3, H, W) twice to (B,)."""
    found = structural_similarity_index_measure(output, truth, data_range=1.0, reduction="none")
    assert isinstance(found, Tensor)
    return found.reshape(-1)


def content_psnr(output: Tensor, query: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """PSNR against the query where the true edit leaves it alone.

    Args:
        output: Shape: (B, 3, H, W).
        query: The same.
        truth: The same.

    Returns:
        dB, at most 80, and whether there are such pixels. Shape: (B,) each.
    """
    alone = ((truth - query).abs().amax(dim=1, keepdim=True) <= CHANGED).to(output.dtype)
    count = alone.sum(dim=(1, 2, 3))
    error = ((output - query).square() * alone).sum(dim=(1, 2, 3)) / (3 * count).clamp_min(1)
    return -10 * error.clamp_min(1e-8).log10(), count > 0


def attributes_right(found: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Whether all attributes are right, and whether there are any; -1 is none.

    Args:
        found: Shape: (B, attributes).
        wanted: The same.

    Returns:
        1 or 0, and a mask. Shape: (B,) each.
    """
    known = wanted >= 0
    right = ((found == wanted) | ~known).all(dim=1)
    return right.float(), known.any(dim=1)


def attribute_accuracy(found: Tensor, wanted: Tensor) -> Tensor:
    """1 or 0 for each attribute that there is. Shape: (B, attributes) twice to (known,)."""
    known = wanted >= 0
    return (found == wanted)[known].to(torch.float32)
