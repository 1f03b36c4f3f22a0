"""The picture of a result: guide, input, output, truth, and errors on one scale."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

UNITS = {100.0: "cm", 1.0: "grey levels"}  # by factor from the data's unit to the reported one


def comparison(
    guide: Tensor,
    lr_depth: Tensor,
    bicubic: Tensor,
    depth: Tensor,
    std: Tensor,
    truth: Tensor,
    known: Tensor,
    report_scale: float,
    title: str,
) -> Figure:
    """Draws one image's result in two rows: depths, and errors with the predicted deviation.

    All depths share one colour scale, and so do the three maps of the second row.

    Args:
        guide: In 0..1. Shape: (3, H, W).
        lr_depth: The input, 0 where unknown. Shape: (h, w).
        bicubic: The input enlarged. Shape: (H, W).
        depth: The estimate. Shape: (H, W).
        std: Its standard deviation. Shape: (H, W).
        truth: The true depth. Shape: (H, W).
        known: Where the truth is known. Shape: (H, W).
        report_scale: Multiplies depths to the unit of the reported errors.
        title: Above all.
    """
    unit = UNITS.get(report_scale, "reported unit")
    masked = torch.where(known, truth, torch.nan)
    low, high = np.nanpercentile(masked.numpy(), (1, 99)) * report_scale
    errors = [(d - masked).abs() * report_scale for d in (bicubic, depth)]
    worst = float(np.nanpercentile(errors[0].numpy(), 99))
    lr_known = torch.where(lr_depth > 0, lr_depth, torch.nan)

    figure = Figure(figsize=(16, 6.5), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, 4)
    rmse = [float(e[known].square().mean().sqrt()) for e in errors]
    axes[0, 0].imshow(guide.permute(1, 2, 0).clamp(0, 1).numpy())
    axes[0, 0].set_title("guide")
    for axis, name, image in zip(
        axes[0, 1:],
        (f"input, {lr_depth.shape[0]} x {lr_depth.shape[1]}", "output", "truth"),
        (lr_known, depth, masked),
        strict=True,
    ):
        shown = axis.imshow((image * report_scale).numpy(), vmin=low, vmax=high, cmap="viridis")
        axis.set_title(name)
    figure.colorbar(shown, ax=axes[0, 1:], label=f"depth ({unit})", shrink=0.9)
    axes[1, 0].axis("off")
    for axis, name, image in zip(
        axes[1, 1:],
        (
            f"error of bicubic, RMSE {rmse[0]:.2f}",
            f"error of output, RMSE {rmse[1]:.2f}",
            "predicted deviation",
        ),
        (*errors, std * report_scale),
        strict=True,
    ):
        shown = axis.imshow(image.numpy(), vmin=0, vmax=worst, cmap="magma")
        axis.set_title(name)
    figure.colorbar(shown, ax=axes[1, 1:], label=f"error ({unit})", shrink=0.9)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    return figure
