"""Diffusion as in EDM, with the scalings that Stable Video Diffusion was trained with.

D(z; s) = c_skip z + c_out F(c_in z; c_noise) estimates the noiseless latents, whose deviation is
about 1. With these coefficients F is the v-prediction of a variance-preserving process.

Reference:
    "Elucidating the Design Space of Diffusion-Based Generative Models", T. Karras et al., 2022.
    https://arxiv.org/abs/2206.00364; "Stable Video Diffusion", A. Blattmann et al., 2023.
    https://arxiv.org/abs/2311.15127
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

LOG_MEAN, LOG_STD = 0.7, 1.6  # of ln sigma in training, as for Stable Video Diffusion
RHO = 7.0
SIGMA_MIN = 0.002


class Scalings(NamedTuple):
    """Coefficients at one noise level, shaped to multiply latents."""

    skip: Tensor
    out: Tensor
    into: Tensor
    noise: Tensor


def scalings(sigma: Tensor) -> Scalings:
    """c_skip, c_out, c_in, of shape (B, 1, 1, 1, 1), and c_noise, of shape (B,).

    Args:
        sigma: Noise levels, > 0. Shape: (B,).
    """
    s = sigma.float().view(-1, 1, 1, 1, 1)
    root = (s.square() + 1).sqrt()
    return Scalings(1 / root.square(), -s / root, 1 / root, 0.25 * sigma.float().log())


def loss_weight(sigma: Tensor) -> Tensor:
    """Lambda = (1 + s^2) / s^2, which makes the loss that of F alone. Shape: (B, 1, 1, 1, 1)."""
    s = sigma.float().view(-1, 1, 1, 1, 1)
    return (1 + s.square()) / s.square()


def draw_sigmas(count: int, device: torch.device, log_mean: float = LOG_MEAN) -> Tensor:
    """Noise levels of training, log-normal. Shape: (count,)."""
    return (log_mean + LOG_STD * torch.randn(count, device=device)).exp()


def karras_sigmas(steps: int, sigma_max: float, sigma_min: float = SIGMA_MIN) -> list[float]:
    """Noise levels of the sampler from ``sigma_max`` down to ``sigma_min``, then 0 (eq. 5)."""
    top, bottom = sigma_max ** (1 / RHO), sigma_min ** (1 / RHO)
    share = [i / max(steps - 1, 1) for i in range(steps)]
    return [*((top + x * (bottom - top)) ** RHO for x in share), 0.0]


def euler(
    denoise: Callable[[Tensor, Tensor], Tensor], noise: Tensor, sigmas: list[float]
) -> Tensor:
    """Solves the probability flow by Euler's method.

    Args:
        denoise: D, from latents and the noise level, of shape (B,), to noiseless latents.
        noise: Standard normal. Shape: (B, N, C, h, w).
        sigmas: Falling, the last one 0.
    """
    z = sigmas[0] * noise
    for sigma, following in pairwise(sigmas):
        clean = denoise(z, torch.full((len(z),), sigma, device=z.device))
        z = clean + (following / sigma) * (z - clean)  # z + (following - sigma) (z - clean) / sigma
    return z
