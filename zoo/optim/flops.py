"""What the delta rule costs, counted: operations of a step and memory, against those of training.

The count of the abstract (15.74 % of a gated-MLP block) is 17/108: for each distinct input of width
n the cheaper of its Gram matrix, 2 n^2 a token, and a read-out of the memory, 2 m n a token, that
is added to the values in the weight gradient's own product. With AdamW that product cannot be
shared, since the second moment and clipping need the gradient alone, so a read-out costs 4 m n
here, and Gram matrices of half the tokens are cheaper still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.optim.keys import KEYS, attach_delta_keys


@dataclass(frozen=True)
class DeltaFlops:
    """Floating-point operations of one optimiser step; a multiply-add counts as two.

    Attributes:
        layers: Forward and backward of the captured linear layers.
        keys: Gram matrices of the keys, one for each distinct input.
        memory: The products M S, once a step whatever the number of tokens.
        paper: The abstract's count for the same layers, with all tokens.
        gram_bytes: Of the Gram matrices, which live from the forward pass to the step.
    """

    layers: int
    keys: int
    memory: int
    paper: int
    gram_bytes: int

    @property
    def overhead(self) -> float:
        """Of this implementation, as a fraction of the layers' own operations."""
        return (self.keys + self.memory) / self.layers

    @property
    def paper_overhead(self) -> float:
        """Of the abstract's count."""
        return self.paper / self.layers


def delta_flops(
    module: nn.Module,
    tokens: int,
    *,
    inputs: Mapping[str, Any] | None = None,
    key_fraction: float = 0.5,
    exclude: Sequence[str] = ("lm_head",),
) -> DeltaFlops:
    """Counts for the linear layers of ``module``; which share an input is seen in a forward pass.

    Args:
        module: May be on the meta device.
        tokens: Of a step, on all devices.
        inputs: Of ``forward``; ``None`` for ``module.example_inputs()`` of a zoo module.
        key_fraction: As in :func:`attach_delta_keys`.
        exclude: As there.

    Raises:
        ZooError: If there are no inputs, or no linear layers.
    """
    if inputs is None:
        example: Any = getattr(module, "example_inputs", None)
        if example is None:
            raise ZooError("delta_flops needs inputs for a forward pass of this module.")
        device = next(module.parameters()).device
        inputs = {name: value.to(device) for name, value in example().items()}
    training = module.training
    with (
        attach_delta_keys(module, key_fraction=1.0, exclude=exclude) as handle,
        torch.enable_grad(),
    ):
        weights: list[Tensor] = [module.get_parameter(f"{name}.weight") for name in handle.names]
        module.train()(**inputs)
        module.train(training)
        inputs_of = [KEYS.peek(weight).get("gram") for weight in weights]
    groups: dict[int, list[Tensor]] = {}
    for weight, seen in zip(weights, inputs_of, strict=True):
        if seen is not None and weight.ndim == 2:
            groups.setdefault(seen.serial, []).append(weight)
    if not groups:
        raise ZooError("delta_flops found no linear layer whose keys are captured.")
    widths = {group: members[0].shape[1] for group, members in groups.items()}
    rows = {group: sum(len(member) for member in members) for group, members in groups.items()}
    kept = max(1, round(key_fraction * tokens))
    return DeltaFlops(
        layers=sum(6 * tokens * rows[g] * widths[g] for g in groups),
        keys=sum(2 * kept * widths[g] ** 2 for g in groups),
        memory=sum(2 * rows[g] * widths[g] ** 2 for g in groups),
        paper=sum(2 * tokens * widths[g] * min(widths[g], rows[g]) for g in groups),
        gram_bytes=sum(4 * widths[g] ** 2 for g in groups),
    )
