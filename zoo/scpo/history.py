"""What earlier steps say about each skill: two numbers, and how skills move together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.agents.losses import Prior, SkillSums
from zoo.errors import check_choice

COUPLINGS = ("none", "group", "correlated")
COVARIANCE_DECAY = 0.95  # of correlations and variances, which need more steps than levels do
IDENTITY = 0.9  # weight of the identity in the correlations: some twenty steps say little of K^2
WARM = 10  # steps of history before correlations are used
BETWEEN_FLOOR = 2e-3
DRIFT = 3.0  # standard errors that a batch may be off the history


class SkillHistory(nn.Module):
    """Decayed sums of rewards by skill, and an estimate of the covariance between skills.

    Args:
        n_skills: K.
        decay: rho, by which a step's sums shrink at the next.
        coupling: "none" uses no history at all; "group" treats each skill by itself; "correlated"
            lets skills lend to each other, from the tenth step on.
        drift_guard: Cut a skill's weight to a quarter where a batch is further than three standard
            errors from its history.

    The buffers are the same on all processes, since they are made of sums over all.
    """

    total: Tensor
    weight: Tensor
    level: Tensor
    product: Tensor
    pairs: Tensor
    noise: Tensor
    noise_weight: Tensor
    steps: Tensor

    def __init__(
        self,
        n_skills: int,
        decay: float = 0.7,
        coupling: str = "correlated",
        drift_guard: bool = False,
    ) -> None:
        super().__init__()
        check_choice("coupling", coupling, COUPLINGS)
        self.decay, self.coupling, self.drift_guard = decay, coupling, drift_guard
        for name in ("total", "weight", "level", "noise", "noise_weight"):
            self.register_buffer(name, torch.zeros(n_skills))
        self.register_buffer("product", torch.zeros(n_skills, n_skills))
        self.register_buffer("pairs", torch.zeros(n_skills, n_skills))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def prior(self) -> Prior | None:
        """For the baseline of this step, before :meth:`update` with it; ``None`` without any."""
        if self.coupling == "none" or not int(self.steps):
            return None
        if self.coupling == "group" or len(self.total) == 1 or int(self.steps) < WARM:
            return Prior(self.total, self.weight)
        noise = self.noise / self.noise_weight.clamp_min(1e-6)
        pooled = self.noise.sum() / self.noise_weight.sum().clamp_min(1e-6)
        noise = torch.where(self.noise_weight > 0, noise, pooled).clamp_min(BETWEEN_FLOOR)
        return Prior(self.total, self.weight, self._spread(noise) * self.correlation(), noise)

    def correlation(self) -> Tensor:
        """Between the skills' mean rewards over the steps, positive definite. Shape: (K, K)."""
        covariance = self.product / self.pairs.clamp_min(1e-6)
        deviation = covariance.diagonal().clamp_min(1e-8).sqrt()
        found = (covariance / deviation / deviation[:, None]).clamp(-1, 1)
        eye = torch.eye(len(found), device=found.device)
        mixed = IDENTITY * eye + (1 - IDENTITY) * torch.where(self.pairs > 0, found, eye)
        values, vectors = torch.linalg.eigh(0.5 * (mixed + mixed.mT))
        nearest: Tensor = (vectors * values.clamp_min(1e-4)) @ vectors.mT
        return nearest

    def _spread(self, noise: Tensor) -> Tensor:
        """Variance between the values of the skills, from their decayed means."""
        known = self.weight > 1e-3
        if int(known.sum()) < 2:
            return noise.new_tensor(BETWEEN_FLOOR)
        means = self.total[known] / self.weight[known]
        sampling = (noise[known] / self.weight[known]).mean()
        return (means.var() - sampling).clamp_min(BETWEEN_FLOOR)

    @torch.no_grad()
    def update(self, sums: SkillSums) -> None:
        """Takes in the sums of a step, after its baseline was used."""
        seen = sums.weight > 0
        mean = sums.total / sums.weight.clamp_min(1e-6)
        apart = (sums.square - sums.total.square() / sums.weight.clamp_min(1e-6)).clamp_min(0)
        degrees = (sums.weight - 1).clamp_min(0)
        if self.drift_guard:
            self._guard(mean, apart / degrees.clamp_min(1e-6), sums.weight, degrees > 0)
        self.total.mul_(self.decay).add_(sums.total)
        self.weight.mul_(self.decay).add_(sums.weight)
        self.noise.mul_(COVARIANCE_DECAY).add_(apart)
        self.noise_weight.mul_(COVARIANCE_DECAY).add_(degrees)

        first = seen & (self.pairs.diagonal() == 0) & (self.level == 0)
        self.level.copy_(torch.where(first, mean, self.level))
        off = torch.where(seen, mean - self.level, 0.0)
        both = (seen[:, None] & seen).to(off.dtype)
        self.product.mul_(COVARIANCE_DECAY).add_(off[:, None] * off)
        self.pairs.mul_(COVARIANCE_DECAY).add_(both)
        self.level.add_((1 - COVARIANCE_DECAY) * off)
        self.steps.add_(1)

    def _guard(self, mean: Tensor, variance: Tensor, weight: Tensor, known: Tensor) -> None:
        past = self.total / self.weight.clamp_min(1e-6)
        error = (variance * (1 / weight.clamp_min(1e-6) + 1 / self.weight.clamp_min(1e-6))).sqrt()
        drifted = known & (self.weight > 0) & ((mean - past).abs() > DRIFT * error.clamp_min(1e-3))
        keep = torch.where(drifted, 0.25, 1.0)
        self.total.mul_(keep)
        self.weight.mul_(keep)
