"""Errors of HDR images in stops, by what the input had lost, and fidelity to the input.

All are means over images. Alignment of scale uses well-exposed pixels alone: the truth's mean
would be ruled by what the input clips.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from zoo.display import decode, encode
from zoo.hdr_bracket.bracket import CLIPPED, DARK, WELL_EXPOSED
from zoo.hdr_bracket.loss import log2_radiance
from zoo.metrics.image_mean import ImageMean
from zoo.metrics.pu21 import PU21PSNR

ROWS = ("mae", "square", "clipped", "dark", "well_exposed", "reexposed")


def align(pred: Tensor, target: Tensor, image: Tensor) -> Tensor:
    """``pred`` times the median ratio to the truth over well-exposed pixels of the input.

    Args:
        pred: Radiance. Shape: (B, 3, H, W).
        target: The truth. Shape: (B, 3, H, W).
        image: The input, display-encoded. Shape: (B, 3, H, W).
    """
    low, high = WELL_EXPOSED
    use = ((image > low) & (image < high)).all(dim=1, keepdim=True).expand_as(pred)
    ratio = torch.where(use, target / pred.clamp_min(1e-6), torch.nan).flatten(1)
    return pred * ratio.nanmedian(dim=1).values.nan_to_num(1.0).view(-1, 1, 1, 1)


class HDRError(Metric):
    """Base of the errors: all keep the same sums, so a ``MetricCollection`` updates once.

    ``update`` takes radiance and the truth, (B, 3, H, W), and the display-encoded input.
    Images without a pixel of the kind are skipped.
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    #: Of the sums: what a subclass reports.
    row: str
    sums: Tensor
    counts: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        zeros = torch.zeros(len(ROWS), dtype=torch.float64)
        self.add_state("sums", zeros, dist_reduce_fx="sum")
        self.add_state("counts", zeros.clone(), dist_reduce_fx="sum")

    def update(self, pred: Tensor, target: Tensor, image: Tensor) -> None:
        """Adds a batch."""
        error = (log2_radiance(pred) - log2_radiance(target)).abs()
        low, high = WELL_EXPOSED
        sets = {
            "clipped": image >= CLIPPED,
            "dark": image <= DARK,
            "well_exposed": ((image > low) & (image < high)).all(dim=1, keepdim=True),
        }
        everything = torch.ones_like(error, dtype=torch.bool)
        # Re-exposed as the input was, radiance must give the input back where that is unclipped.
        kept = (image < CLIPPED).all(dim=1, keepdim=True)
        again = (encode(pred.float()) - image).square()
        values = [(error, everything), (error.square(), everything)]
        values += [(error, chosen.expand_as(error)) for chosen in sets.values()]
        values.append((again, kept.expand_as(error)))
        for row, (value, chosen) in enumerate(values):
            pixels = chosen.flatten(1).sum(dim=1)
            mean = (value * chosen).flatten(1).sum(dim=1) / pixels.clamp_min(1)
            if ROWS[row] == "square":
                mean = mean.sqrt()
            if ROWS[row] == "reexposed":
                mean = -10 * mean.clamp_min(1e-10).log10()
            self.sums[row] += (mean * (pixels > 0)).double().sum()
            self.counts[row] += (pixels > 0).sum()

    def compute(self) -> Tensor:
        """The mean over images. Shape: ()."""
        row = ROWS.index(self.row)
        return (self.sums[row] / self.counts[row].clamp_min(1)).float()


class Log2MAE(HDRError):
    """Mean absolute error of log2(H + 2^-8), in stops."""

    row = "mae"


class Log2RMSE(HDRError):
    """Root mean square error of log2(H + 2^-8), in stops."""

    row = "square"


class ClippedError(HDRError):
    """Mean absolute error in stops where the input is at 0.99 or above."""

    row = "clipped"


class DarkError(HDRError):
    """Mean absolute error in stops where the input is at 0.02 or below."""

    row = "dark"


class WellExposedError(HDRError):
    """Mean absolute error in stops where the input is well exposed."""

    row = "well_exposed"


class ReexposurePSNR(HDRError):
    """PSNR in dB between the result, exposed as the input was, and the input, where unclipped."""

    row = "reexposed"
    higher_is_better = True


class PicturePSNR(ImageMean):
    """PSNR in dB of display-encoded pictures, mean over images; input and truth are linear."""

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Adds pictures of (B, 3, H, W)."""
        error = (encode(pred.float()) - encode(target.float())).square().flatten(1).mean(dim=1)
        self.add(-10 * error.clamp_min(1e-10).log10())


class Sharpness(ImageMean):
    """Variance of the Laplacian of the result over that of the truth: 1 is as sharp."""

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Adds pictures of (B, 3, H, W)."""
        kernel = pred.new_tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]).expand(3, 1, 3, 3)
        ours, theirs = (
            torch.nn.functional.conv2d(encode(x.float()), kernel, groups=3).flatten(1).var(dim=1)
            for x in (pred, target)
        )
        self.add(ours / theirs.clamp_min(1e-10))


class BetterThanInput(PU21PSNR):
    """Share of the images whose PU21-PSNR is above that of the input linearised as it is.

    A mean of decibels is ruled by images that have lost next to nothing, where any change is one
    for the worse.

    Args:
        curve: Display curve of the inputs.
    """

    def __init__(self, curve: str = "srgb") -> None:
        super().__init__()
        self.curve = curve

    def update(self, pred: Tensor, target: Tensor, image: Tensor) -> None:  # type: ignore[override]
        """Adds images of radiance, and the display-encoded inputs. Shape of all: (B, 3, H, W)."""
        before = self.scores(decode(image.float(), self.curve), target)
        self.add((self.scores(pred, target) > before).double())
