"""Weights of a bracket's frames at each pixel, by a small network that starts at a classic.

Logits of its own would collapse: without noise the darkest frame alone reproduces the scene, the
softmax saturates on it, and the weights explain nothing. So they are bounded, and added to the
weights that photographers have long merged with, triangles of exposure or local contrast of focus;
the last layer starts at zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.hdr_bracket.bracket import contrast_prior, triangle_prior

PRIORS = {"triangle": triangle_prior, "contrast": contrast_prior}
REACH = 4.0  # the network changes a log weight by at most so much


class Block(nn.Sequential):
    """Two convolutions; no normalisation, so that brightness stays what it is."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, 3, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(out_channels, out_channels, 3, padding=1),
            nn.LeakyReLU(0.1),
        )


class FusionUNet(nn.Module):
    """Per-pixel weights of N frames: w = softmax_i(prior_i + 4 tanh(u_i)).

    Args:
        frames: N.
        width: Channels at full resolution. Real scale: 32.
        prior: "triangle" for frames of different exposure, "contrast" of different focus.
    """

    def __init__(self, frames: int, width: int = 12, prior: str = "triangle") -> None:
        super().__init__()
        self.prior = PRIORS[prior]
        self.down1 = Block(3 * frames, width)
        self.down2 = Block(width, 2 * width)
        self.middle = Block(2 * width, 4 * width)
        self.up2 = Block(6 * width, 2 * width)
        self.up1 = Block(3 * width, width)
        self.out = nn.Conv2d(width, frames, 1)
        nn.init.zeros_(self.out.weight)
        assert self.out.bias is not None
        nn.init.zeros_(self.out.bias)

    def forward(self, frames: Tensor) -> Tensor:
        """Weights of a bracket.

        Args:
            frames: Display-encoded, 0..1. Shape: (B, N, 3, H, W).

        Returns:
            Summing to 1 over the frames, float32. Shape: (B, N, H, W).
        """
        height, width = frames.shape[-2:]
        x = frames.flatten(1, 2) - 0.5  # (B, 3 N, H, W)
        x = F.pad(x, (0, -width % 4, 0, -height % 4), mode="replicate")
        full = self.down1(x)
        half = self.down2(F.avg_pool2d(full, 2))
        quarter = self.middle(F.avg_pool2d(half, 2))
        half = self.up2(torch.cat([F.interpolate(quarter, scale_factor=2.0), half], dim=1))
        full = self.up1(torch.cat([F.interpolate(half, scale_factor=2.0), full], dim=1))
        logits = REACH * torch.tanh(self.out(full)[..., :height, :width].float())
        return (logits + self.prior(frames)).softmax(dim=1)
