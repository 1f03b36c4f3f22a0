"""A bound on what a constructor may allocate, for configs that strangers wrote."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.base import ZooModule

# What a constructor may make beyond the weights: tables, metrics and temporaries.
SLACK_BYTES, TIMES_BYTES = 2**28, 4
SLACK_TENSORS, TIMES_TENSORS = 1000, 20
FROZEN_TENSORS = 100_000  # of the largest backbones

FACTORIES = frozenset(
    {
        *(torch.empty, torch.empty_strided, torch.zeros, torch.ones, torch.full, torch.eye),
        *(torch.rand, torch.randn, torch.randint, torch.randperm),
        *(torch.arange, torch.linspace, torch.logspace),
        *(Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full),
    }
)


class AllocationLimit(TorchFunctionMode):
    """Inside, tensors are made only until their sizes or numbers reach a limit; then it raises.

    The size is known before there is any memory: each is made on the meta device first.

    Args:
        limit: Bytes.
        tensors: How many, since a billion small layers take all the time there is.
        what: What asks for the memory, for the error.
    """

    def __init__(self, limit: int, tensors: int, what: str) -> None:
        super().__init__()
        self.limit, self.tensors, self.what = limit, tensors, what
        self.used = self.made = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in FACTORIES and str(kwargs.get("device")) != "meta":
            self.used += _size(func, args, kwargs)
            self.made += 1
            if self.used > self.limit or self.made > self.tensors:
                raise ZooError(
                    f"{self.what} asks for more than {self.limit / 2**20:,.0f} MiB or "
                    f"{self.tensors:,} tensors, which does not fit its weights."
                )
        return func(*args, **kwargs)


def allocation_limit(
    cls: type[ZooModule], weights_bytes: int, weights_tensors: int, what: str
) -> AllocationLimit:
    """The limit for building a model whose weights are so large and so many on disk.

    What a method's frozen parts take is in no file: for those, it is the machine's memory.
    """
    from zoo.base import ZooModule

    limit = SLACK_BYTES + TIMES_BYTES * weights_bytes
    tensors = SLACK_TENSORS + TIMES_TENSORS * weights_tensors
    if cls.frozen_modules is not ZooModule.frozen_modules:
        limit, tensors = max(limit, _machine_memory()), tensors + FROZEN_TENSORS
    return AllocationLimit(limit, tensors, what)


def _size(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    plain = {k: v for k, v in kwargs.items() if k not in ("generator", "pin_memory", "out")}
    try:
        made: Tensor = func(*args, **{**plain, "device": "meta"})
    except (RuntimeError, TypeError, ValueError):
        return 0  # the call itself will say what is wrong with it
    return made.nbytes


def _machine_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # no POSIX
        return 2**36
