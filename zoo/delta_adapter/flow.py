"""Flow matching between pictures and noise: times, the path, and Euler's steps back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

BASE_TOKENS, MAX_TOKENS = 256, 4096
BASE_SHIFT, MAX_SHIFT = 0.5, 1.15


def resolution_shift(tokens: int) -> float:
    """mu: the more tokens, the more of the time belongs to much noise. Linear, as in Flux."""
    slope = (MAX_SHIFT - BASE_SHIFT) / (MAX_TOKENS - BASE_TOKENS)
    return BASE_SHIFT + slope * (tokens - BASE_TOKENS)


def shift_time(t: Tensor, mu: float) -> Tensor:
    """e^mu / (e^mu + 1/t - 1), of t in 0..1."""
    weight = math.exp(mu)
    return weight * t / (1 + (weight - 1) * t)


def draw_times(count: int, mu: float, device: torch.device) -> Tensor:
    """Logit-normal times, shifted. Shape: (count,), in 0..1."""
    return shift_time(torch.randn(count, device=device).sigmoid(), mu)


def draw(clean: Tensor, mu: float) -> tuple[Tensor, Tensor]:
    """Noise and times of a training step. Shape: (B, N, C) to (B, N, C) and (B,)."""
    return torch.randn_like(clean), draw_times(len(clean), mu, clean.device)


def noisy(clean: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    """z_t = (1 - t) z_1 + t eps: clean at t = 0. Shape: (B, N, C) twice, and (B,)."""
    t = t.view(-1, 1, 1)
    return (1 - t) * clean + t * noise


def clean_estimate(z: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    """z_t - t v, which is z_1 if v is right. Shape: (B, N, C) twice, and (B,)."""
    return z - t.view(-1, 1, 1) * velocity


def euler(
    velocity: Callable[[Tensor, Tensor], Tensor], noise: Tensor, steps: int, mu: float
) -> Tensor:
    """Integrates dz/dt = v from noise at t = 1 to a picture at t = 0.

    Args:
        velocity: Of z, (B, N, C), at the time t, (B,).
        noise: Shape: (B, N, C).
        steps: Calls of ``velocity``.
        mu: Shift of its times.
    """
    times = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    times = shift_time(times, mu).to(noise)
    z = noise
    for now, then in pairwise(times):
        z = z + (then - now) * velocity(z, now.expand(len(z)))
    return z


def draw_noise(like: Tensor, seeds: Sequence[int]) -> Tensor:
    """Standard normal numbers; those of a sample depend on its seed alone, on any device.

    Args:
        like: Gives shape, (B, N, C), device and dtype.
        seeds: Of each sample.
    """
    samples = [
        torch.randn(like.shape[1:], generator=torch.Generator().manual_seed(seed)) for seed in seeds
    ]
    return torch.stack(samples).to(like)
