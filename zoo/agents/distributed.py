"""Sums over the processes of a run, which are the identity where there is one."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Number of this process, from 0 on."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of ``values`` over all processes, without gradient; every rank must call it."""
    total = values.detach().clone()
    if world_size() > 1:
        dist.all_reduce(total)
    return total


def rank_generator(seed: int, step: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that depends on seed, rank and step alone, so that a resumed run draws the same.

    The three numbers are mixed by splitmix64's finaliser: neighbouring seeds share no stream.
    """
    mixed = seed
    for number in (rank(), step):
        mixed = _mix((mixed + number + 1) * 0x9E3779B97F4A7C15)
    return torch.Generator(device).manual_seed(mixed % 2**63)


def _mix(x: int) -> int:
    x %= 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)
