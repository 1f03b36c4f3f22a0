"""Linear warm-up, then a cosine to a fraction of the peak."""

import math

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from zoo.errors import ZooError


class WarmupCosineLR(LRScheduler):
    """Scales each group's own learning rate, so that groups keep their ratios (muP needs that).

    Args:
        optimizer: Of which the groups' learning rates are the peaks.
        total_steps: Length; ``None`` in a config means that of the training.
        warmup_steps: Steps of the linear rise from peak / warmup_steps.
        final: Fraction of the peak at the end.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_steps: int | None = None,
        warmup_steps: int = 0,
        final: float = 0.1,
    ) -> None:
        if total_steps is None or total_steps <= warmup_steps or warmup_steps < 0:
            raise ZooError(
                f"WarmupCosineLR(total_steps={total_steps}, warmup_steps={warmup_steps}): the "
                "total must be larger than the warm-up, and neither may be negative."
            )
        if not 0 <= final <= 1:
            raise ZooError(f"WarmupCosineLR(final={final}) must lie in 0..1.")
        self.total_steps, self.warmup_steps, self.final = total_steps, warmup_steps, final
        super().__init__(optimizer)

    def factor(self, step: int) -> float:
        """Of the peak, before step ``step``, counted from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * done))

    def get_lr(self) -> list[float | Tensor]:
        """The learning rate of each group."""
        return [base * self.factor(self.last_epoch) for base in self.base_lrs]
