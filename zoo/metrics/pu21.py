"""PSNR and SSIM of HDR images in perceptually uniform units.

In linear light, the sun's pixels rule every mean. PU21 maps luminance in nits so that equal steps
are about equally visible, and 8-bit screens' metrics keep their meaning.

Reference:
    "PU21: A novel perceptually uniform encoding for adapting existing quality metrics for HDR",
    R. K. Mantiuk and M. Azimi, PCS 2021; the fit "banding_glare".
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from zoo.metrics.image_mean import ImageMean

L_MIN, L_MAX = 0.005, 10000.0  # nits: where the fit holds
PARAMETERS = (
    0.353487901,
    0.3734658629,
    8.277049286e-5,
    0.9062562627,
    0.09150303166,
    0.9099517204,
    596.3148142,
)


def pu21_encode(nits: Tensor) -> Tensor:
    """PU21 units of luminance; 100 nits are 256.4 and 10000 nits about 595.

    Args:
        nits: Absolute luminance or RGB; clamped to 0.005..10000. Any shape.
    """
    p1, p2, p3, p4, p5, p6, p7 = PARAMETERS
    power = nits.float().clamp(L_MIN, L_MAX) ** p4
    return p7 * (((p1 + p2 * power) / (1 + p3 * power)) ** p5 - p6)


PEAK = float(pu21_encode(torch.tensor(L_MAX)))


class _PU21(ImageMean):
    """Mean over images of a score in PU21 units.

    Args:
        white: Nits of radiance 1.
        **kwargs: Of :class:`torchmetrics.Metric`.
    """

    def __init__(self, white: float = 100.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.white = white

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Adds images of linear radiance. Shape of both: (B, 3, H, W)."""
        self.add(self.scores(pred, target))

    def scores(self, pred: Tensor, target: Tensor) -> Tensor:
        """Of each image. Shape: (B, 3, H, W) twice to (B,)."""
        return self._score(*(pu21_encode(self.white * x.float()) for x in (pred, target)))

    @abstractmethod
    def _score(self, pred: Tensor, target: Tensor) -> Tensor:
        """The same of PU21 values."""


class PU21PSNR(_PU21):
    """PSNR in dB on PU21 values, whose peak is that of 10000 nits; mean over images."""

    def _score(self, pred: Tensor, target: Tensor) -> Tensor:
        error = (pred - target).square().flatten(1).mean(dim=1).clamp_min(1e-12)
        return 10 * torch.log10(PEAK**2 / error)


class PU21SSIM(_PU21):
    """SSIM on PU21 values, over a range of those of 10000 nits; mean over images."""

    def _score(self, pred: Tensor, target: Tensor) -> Tensor:
        score = structural_similarity_index_measure(pred, target, data_range=PEAK, reduction="none")
        assert isinstance(score, Tensor)
        return score.reshape(-1)
