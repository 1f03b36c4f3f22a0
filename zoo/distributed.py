"""Sums, draws and what each has, over the processes of a run, of which there may be one."""

from __future__ import annotations

from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from zoo.reproducible import generator, global_seed

T = TypeVar("T")


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


def gathered(value: T) -> list[T]:
    """What each process has, in the order of their numbers; every process must call it."""
    if world_size() == 1:
        return [value]
    shares: list[T | None] = [None] * world_size()
    dist.all_gather_object(shares, value)
    return cast("list[T]", shares)


def step_generator(step: int) -> torch.Generator:
    """Of a step's draws on this process: seed, rank and step alone, so a resumed run repeats it."""
    return generator(global_seed() or 0, rank(), step)
