"""SUDO as a LightningModule: where does each cell go, and how fast does it divide or die?

Reference:
    The method's abstract (simulation-free unbalanced dynamic optimal transport with general convex
    growth penalties); its text was not at hand. The special case of the quadratic penalty follows
    WFR-FM (arXiv 2601.06810), semi-couplings follow L. Chizat et al., 2018; the reduction of the
    path problem, the networks and the solver of the coupling are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.errors import ZooError, did_you_mean
from zoo.stages import Stage
from zoo.sudo_ot.cost import CostNet, CostTable
from zoo.sudo_ot.coupling import Coupling, Sides, couple_in_blocks
from zoo.sudo_ot.path import PathNet
from zoo.sudo_ot.penalty import GrowthPenalty
from zoo.sudo_ot.protocol import CellTrajectories, Interval

REACH = 0.95  # of pi delta, where the quadratic penalty stops moving mass at all
PATH_BATCH, PATH_LR, PATH_CLIP = 256, 3e-3, 1.0


class SudoOT(CellTrajectories):
    """Simulation-free unbalanced dynamic optimal transport between snapshots of cells.

    Training has two stages in one fit, and a third with ``cost="net"``. The path network learns the
    cheapest way to move and grow, which needs no data; then semi-couplings are computed once; then
    the fields of velocity and growth are regressed on those paths. No ODE is ever integrated in
    training. Lightning's manual optimisation is not needed: the zoo's stages switch optimisers.

    Args:
        dim: p, dimensions of the data.
        penalty: "quadratic" (Wasserstein-Fisher-Rao), "power", "asymmetric" or "entropic".
        delta: Length in the data's unit beyond which growing is cheaper than moving.
        birth: Weight of growth in "asymmetric".
        death: Weight of death in "asymmetric".
        power: Exponent of "power".
        rate: Of the branching prior of "entropic", per interval between snapshots.
        max_distance: D, beyond which no pair is coupled; ``None`` for 0.95 pi delta.
        max_log_ratio: R, largest logarithm of the factor by which a cell may grow in an interval.
        path_steps: Optimiser steps of the path network, and of the cost network if there is one.
        match_steps: Optimiser steps of the fields.
        coupling_iters: Iterations of the solver of the coupling.
        coupling: "learned", or "pot" for POT's solver, with the quadratic penalty only.
        cost: "table", or "net" for a regressed network.
        hidden: Width of the fields. Real scale: 256.
        layers: Hidden layers of the velocity. Real scale: 5.
        lambda_g: Weight of growth in the matching loss.
        ema: Of the weights that are evaluated and published.
        chunk_size: Larger snapshots are coupled in random blocks of as many cells.
        pairs: Drawn in each interval at each step.
    """

    def __init__(
        self,
        dim: int = 2,
        penalty: str = "asymmetric",
        delta: float = 1.5,
        birth: float = 1.0,
        death: float = 10.0,
        power: float = 2.0,
        rate: float = 1.0,
        max_distance: float | None = None,
        max_log_ratio: float = 5.0,
        path_steps: int = 2400,
        match_steps: int = 2000,
        coupling_iters: int = 200,
        coupling: str = "learned",
        cost: str = "table",
        hidden: int = 64,
        layers: int = 3,
        lambda_g: float = 1.0,
        ema: float = 0.995,
        chunk_size: int = 2000,
        pairs: int = 256,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        _choose("coupling", coupling, ("learned", "pot"))
        _choose("cost", cost, ("table", "net"))
        if coupling == "pot" and penalty != "quadratic":
            raise ZooError(
                f"coupling='pot' knows the quadratic penalty only, not penalty={penalty!r}."
            )
        for name, count in (
            ("path_steps", path_steps),
            ("match_steps", match_steps),
            ("coupling_iters", coupling_iters),
            ("pairs", pairs),
        ):
            if count < 1:
                raise ZooError(f"{name}={count} must be at least 1.")
        self.setup_fields(dim, hidden, layers, ema, self.make_penalty().check_convex())
        self.delta, self.lambda_g, self.pairs = delta, lambda_g, pairs
        self.coupling, self.coupling_iters, self.chunk_size = coupling, coupling_iters, chunk_size
        self.max_distance = max_distance or REACH * math.pi * delta
        self.max_log_ratio = max_log_ratio
        self.path_net = PathNet(self.max_distance, max_log_ratio)
        kind = CostTable if cost == "table" else CostNet
        self.cost = kind(self.max_distance, max_log_ratio)
        self._plans: list[tuple[Interval, list[Coupling]]] | None = None
        adam = {"class_path": "torch.optim.Adam", "init_args": {"lr": PATH_LR}}
        cosine = {
            "class_path": "torch.optim.lr_scheduler.CosineAnnealingLR",
            "init_args": {"T_max": path_steps},
            "interval": "step",
        }
        net = [Stage("cost", ["cost"], path_steps, adam, cosine)] if cost == "net" else []
        self.training_stages = (
            Stage("path", ["path_net"], path_steps, adam, cosine),
            *net,
            Stage("match", ["fields"], match_steps),
        )

    def make_penalty(self) -> GrowthPenalty:
        """The penalty that the arguments name.

        A function of one's own is no JSON value, so it is no argument: a subclass returns
        ``GrowthPenalty(psi)`` here.
        """
        names = ("delta", "power", "birth", "death", "rate")
        given = {name: self.hparams[name] for name in names}
        return GrowthPenalty.named(self.hparams["penalty"], **given)

    # -- training ----------------------------------------------------------------------------

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """The loss of the current stage."""
        if not self.fitted:
            self._check_reach(self.intervals(batch))
        if self.stage.name == "path":
            loss = self._path_loss()
            self.log("path_action", loss, batch_size=PATH_BATCH)
        elif self.stage.name == "cost":
            loss = self._cost_loss()
        else:
            if self._plans is None:
                self._plans = self._couple_all(self.intervals(batch))
            loss = self._match_loss(self._plans)
        self.log("train_loss", loss, prog_bar=True, batch_size=self.pairs)
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """The path network's gradient is always clipped: large ratios have large costs."""
        if self.stage.name == "path":
            gradient_clip_val, gradient_clip_algorithm = PATH_CLIP, "norm"
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def _random_pairs(self) -> tuple[Tensor, Tensor]:
        d = self.max_distance * torch.rand(PATH_BATCH, device=self.device)
        r = self.max_log_ratio * (2 * torch.rand(PATH_BATCH, device=self.device) - 1)
        return d, r

    def _path_loss(self) -> Tensor:
        """Mean of h / (1 + e^r): without the divisor, large ratios would be all that counts."""
        d, r = self._random_pairs()
        return (self.path_net.cost(d, r, self.penalty) / (1 + r.exp())).mean()

    def _cost_loss(self) -> Tensor:
        """Regression of the cost network on the path network, relative to delta^2."""
        assert isinstance(self.cost, CostNet)
        d, r = self._random_pairs()
        with torch.no_grad():
            target = self.path_net.cost(d, r, self.penalty) / (1 + r.exp())
        return ((self.cost.share(d, r) - target) / self.delta**2).square().mean()

    def _match_loss(self, plans: list[tuple[Interval, list[Coupling]]]) -> Tensor:
        """Regression of velocity and growth on those of the paths of random pairs.

        Each pair counts with the mass m_t / m_0 that it has at its time, in both terms. Paths run
        from 0 to 1; velocity and growth are divided by the length of the interval.
        """
        drawn = [self._draw(interval, blocks) for interval, blocks in plans]
        start, length, x, y, ratio = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        t = torch.rand(len(x), device=x.device)
        gap = y - x
        with torch.no_grad():
            d = gap.norm(dim=1).clamp(max=self.max_distance)
            r = ratio.clamp(-self.max_log_ratio, self.max_log_ratio)
            point = self.path_net.point(t, d, r)
        place = x + point.place[:, None] * gap
        v, g = self.flow(self.fields, start + t * length, place)
        velocity_error = (v - gap * (point.speed / length)[:, None]).square().sum(dim=1)
        growth_error = (g - point.rate / length).square()
        weight = point.log_mass.exp()
        return (weight * (velocity_error + self.lambda_g * growth_error)).mean()

    def _draw(self, interval: Interval, blocks: list[Coupling]) -> tuple[Tensor, ...]:
        """Start, length, both ends, and log-ratio of ``pairs`` pairs of one interval."""
        which = 0
        if len(blocks) > 1:
            masses = torch.stack([interval.a[block.rows].sum() for block in blocks])
            which = int(torch.multinomial(masses, 1))
        rows, columns, ratio = blocks[which].draw(self.pairs)
        start = torch.full_like(ratio, interval.start)
        length = torch.full_like(ratio, interval.length)
        return start, length, interval.x[rows], interval.y[columns], ratio

    # -- couplings ---------------------------------------------------------------------------

    def _check_reach(self, intervals: list[Interval]) -> None:
        """Raises if no cell of an interval has another one within reach."""
        for one in intervals:
            nearest = torch.cat(
                [torch.cdist(part, one.y).amin(dim=1) for part in torch.split(one.x, 4096)]
            )
            if nearest.min() > self.max_distance:
                raise ZooError(
                    f"delta={self.delta:g} is too small between the times {one.start:g} and "
                    f"{one.start + one.length:g}: median nearest distance "
                    f"{float(nearest.median()):.3g}, but D = {self.max_distance:.3g}."
                )

    @torch.no_grad()
    def _couple_all(self, intervals: list[Interval]) -> list[tuple[Interval, list[Coupling]]]:
        """Semi-couplings of all intervals, once the costs are known."""
        self.fill_table()
        found = self._couple([(one.x, one.y, one.a, one.b) for one in intervals])
        return list(zip(intervals, found, strict=True))

    def fill_table(self) -> None:
        """Evaluates the trained path network on the table of costs."""
        if isinstance(self.cost, CostTable):
            self.cost.fill(lambda d, r: self.path_net.cost(d, r, self.penalty))

    def _couple(self, intervals: Sequence[Sides]) -> list[list[Coupling]]:
        delta = self.delta if self.coupling == "pot" else None
        return couple_in_blocks(intervals, self.cost, self.coupling_iters, self.chunk_size, delta)

    @torch.no_grad()
    def couple(
        self, x0: Tensor, x1: Tensor, m0: Tensor | None = None, m1: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Semi-coupling of two sets of cells, once the path network is trained.

        Args:
            x0: Earlier cells. Shape: (n, p).
            x1: Later cells. Shape: (m, p).
            m0: Masses; ``None`` for 1 each. Shape: (n,).
            m1: Masses; ``None`` for 1 each. Shape: (m,).

        Returns:
            Mass that leaves i for j, whose rows sum to m0, and mass that arrives at j from i, whose
            columns sum to m1 (of each block, to a share of it). Shapes: (n, m).
        """
        self._check_dim(x0)
        self._check_dim(x1)
        a = torch.ones_like(x0[:, 0]) if m0 is None else m0
        b = torch.ones_like(x1[:, 0]) if m1 is None else m1
        g0, g1 = x0.new_zeros(len(x0), len(x1)), x0.new_zeros(len(x0), len(x1))
        for block in self._couple([(x0, x1, a, b)])[0]:
            where = block.rows[:, None], block.columns[None]
            g0[where], g1[where] = block.log_g0.exp(), block.log_g1.exp()
        return g0, g1

    @torch.no_grad()
    def path(
        self, x0: Tensor, x1: Tensor, m0: Tensor, m1: Tensor, t: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The cheapest way from weighted cells to weighted cells, in time that runs from 0 to 1.

        Args:
            x0: Shape: (B, p).
            x1: Shape: (B, p).
            m0: Masses, above 0. Shape: (B,).
            m1: Masses, above 0. Shape: (B,).
            t: Times in 0..1. Shape: (B,).

        Returns:
            Place (B, p), mass (B,), velocity (B, p) and growth rate (B,) at t.
        """
        gap = x1 - x0
        d = gap.norm(dim=1).clamp(max=self.max_distance)
        r = (m1 / m0).log().clamp(-self.max_log_ratio, self.max_log_ratio)
        point = self.path_net.point(t, d, r)
        return (
            x0 + point.place[:, None] * gap,
            m0 * point.log_mass.exp(),
            point.speed[:, None] * gap,
            point.rate,
        )


def _choose(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ZooError(
            f"{name}={value!r} is none of {', '.join(known)}.{did_you_mean(value, known)}"
        )
