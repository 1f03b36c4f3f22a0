"""Captures the keys that the optimisers of the delta rule need, in any method's training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning import Callback, LightningModule, Trainer

from zoo.errors import ZooError
from zoo.optim import attach_delta_keys
from zoo.optim.delta import DeltaRule
from zoo.optim.keys import DeltaKeyHandle


def has_delta_rule(trainer: Trainer) -> bool:
    """Whether an optimiser of this training corrects its momentum."""
    return any(
        isinstance(optimizer, DeltaRule) and any(g["eta"] > 0 for g in optimizer.param_groups)
        for optimizer in trainer.optimizers
    )


class DeltaKeyCapture(Callback):
    """Attaches :func:`zoo.optim.attach_delta_keys` while there is an optimiser that uses the keys.

    With ``torch.optim.AdamW`` in the same config it does nothing and costs nothing.

    Args:
        key_fraction: Of the tokens whose keys are taken, in (0, 1].
        max_keys: Patches of a convolution's input that are taken a forward pass, at most.
        exclude: Names of layers, or their last parts, that keep plain momentum.
        values: "raw" or "unit".
        route: "gram", "readout" or "isotropic".

    Raises:
        ZooError: As ``attach_delta_keys`` does, or for unit values with a loss scale, which their
            gradients would keep.
    """

    def __init__(
        self,
        key_fraction: float = 0.5,
        max_keys: int = 4096,
        exclude: Sequence[str] = ("lm_head",),
        values: str = "raw",
        route: str = "gram",
    ) -> None:
        self.options: dict[str, Any] = {
            "key_fraction": key_fraction,
            "max_keys": max_keys,
            "exclude": tuple(exclude),
            "values": values,
            "route": route,
        }
        self.handle: DeltaKeyHandle | None = None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Attaches the hooks, once the weights are where they stay and a stage needs them."""
        if self.handle is None and has_delta_rule(trainer):
            if self.options["values"] == "unit" and trainer.precision == "16-mixed":
                raise ZooError("DeltaKeyCapture(values='unit') needs bf16-mixed or 32-true.")
            self.handle = attach_delta_keys(pl_module, **self.options)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Removes them, also after an error."""
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
