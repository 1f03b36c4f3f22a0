"""What SUDO is compared with: the same fields, trained by simulation, as TIGON is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.errors import ZooError
from zoo.sudo_ot.network import _rk4
from zoo.sudo_ot.penalty import GrowthPenalty
from zoo.sudo_ot.protocol import CellTrajectories, Interval

WIDTHS = (0.1, 0.3, 1.0, 3.0)  # of the kernels, in standard deviations of the data


class SimulatedOT(CellTrajectories):
    """Fields of velocity and growth, trained by gradients through an ODE solver.

    As in TIGON (Sha et al. 2024), each step moves weighted cells from each snapshot to the next one
    by RK4, matches the mass that arrives near each measured cell, and adds the action. The density
    is matched with Gaussian kernels: TIGON does so with mixtures of them, and the kernel's distance
    (MMD) has gradients everywhere.

    Args:
        dim: p, dimensions of the data.
        delta: Length scale of the quadratic penalty of growth in the action.
        action: Weight of the action in the loss.
        hidden: Width of the fields.
        layers: Hidden layers of the velocity.
        ema: Of the weights that are evaluated.
        pairs: Cells that are moved in each interval at each step.
        steps: Of RK4 in an interval.
    """

    def __init__(
        self,
        dim: int = 2,
        delta: float = 1.5,
        action: float = 0.01,
        hidden: int = 64,
        layers: int = 3,
        ema: float = 0.995,
        pairs: int = 256,
        steps: int = 10,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if steps < 1 or pairs < 1:
            raise ZooError(f"steps={steps} and pairs={pairs} must be at least 1.")
        self.setup_fields(dim, hidden, layers, ema, GrowthPenalty.quadratic(delta))
        self.action, self.pairs, self.steps = action, pairs, steps

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Mass and density at the end of each interval, and the action on the way."""
        losses = [self._interval_loss(one) for one in self.intervals(batch)]
        loss = torch.stack(losses).mean()
        self.log("train_loss", loss, prog_bar=True, batch_size=self.pairs)
        return loss

    def _interval_loss(self, one: Interval) -> Tensor:
        x = one.x[torch.randint(len(one.x), (self.pairs,), device=one.x.device)]
        y = one.y[torch.randint(len(one.y), (self.pairs,), device=one.y.device)]
        t, h = torch.full_like(x[:, 0], one.start), one.length / self.steps
        step, log_w, action = torch.full_like(t, h), torch.zeros_like(t), torch.zeros(()).to(x)
        for _ in range(self.steps):
            v, g = self.flow(self.fields, t, x)
            density = (v * one.length).square().sum(dim=1) / 2 + self.penalty(g * one.length)
            action = action + (log_w.exp() * density).mean() / self.steps
            x, log_w = _rk4(lambda t, x: self.flow(self.fields, t, x), t, x, log_w, step)
            t = t + step
        grown = one.b.sum() / one.a.sum()
        weight = log_w.exp()
        mass = (weight.mean() / grown - 1).square()
        return self._mmd(x, weight / grown, y) + mass + self.action * action / self.scale**2

    def _mmd(self, x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
        """Squared distance of two weighted clouds in Gaussian kernels of several widths."""
        points = torch.cat([x, y]) / self.scale
        signed = torch.cat([weight, -torch.ones_like(y[:, 0])]) / self.pairs
        square = torch.cdist(points, points, compute_mode="use_mm_for_euclid_dist").square()
        kernel = sum((-square / (2 * width**2)).exp() for width in WIDTHS)
        return signed @ torch.as_tensor(kernel) @ signed
