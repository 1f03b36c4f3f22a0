"""The cost of a pair of masses at a distance, c(m0, m1, d) = m0 h(d, log(m1 / m0)), made fast.

It is 1-homogeneous in the masses, so c = alpha m0 + beta m1 with alpha and beta its derivatives in
m0 and m1. Both forms here give alpha and beta for the logarithm of the ratio of masses: then
no ratio ever has to be formed, and a mass that goes to 0 does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

ROWS, COLUMNS = 65, 513  # of the table: distances, ratios
CROWDING = 3.0  # how much closer the ratios are together at 1
HIDDEN = 64  # of the network


class CostTable(nn.Module):
    """h on a grid, convex in the ratio of masses, and linear between the points.

    A row is a distance; rows are evenly spaced in d^2, of which h is a smooth function. A column is
    a ratio rho = e^r; they are closer together near 1, where the ratios of most pairs lie and where
    a coarse grid would quantise growth. Each row is replaced by its lower convex envelope in rho
    and interpolated linearly in rho, not in r: so m0 h(d, log(m1 / m0)) is jointly convex in both
    masses exactly. Beyond the last column it goes on linearly.

    Args:
        max_distance: D; larger distances cost what D does.
        max_log_ratio: R of the last column.
    """

    alpha: Tensor
    beta: Tensor

    def __init__(self, max_distance: float, max_log_ratio: float) -> None:
        super().__init__()
        self.max_distance, self.max_log_ratio = max_distance, max_log_ratio
        self.register_buffer("alpha", torch.zeros(ROWS, COLUMNS - 1))
        self.register_buffer("beta", torch.zeros(ROWS, COLUMNS - 1))

    def grid(self) -> tuple[Tensor, Tensor]:
        """The distances of the rows, and the r of the columns, in float64."""
        d = self.max_distance * torch.linspace(0, 1, ROWS, dtype=torch.float64).sqrt()
        u = torch.linspace(-1, 1, COLUMNS, dtype=torch.float64)
        return d, self.max_log_ratio * torch.sinh(CROWDING * u) / math.sinh(CROWDING)

    @torch.no_grad()
    def fill(self, h: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Evaluates h(d, r) once on the grid; it takes and gives vectors."""
        d, r = self.grid()
        pairs = torch.cartesian_prod(d, r).to(self.alpha)
        rho = r.exp().numpy()
        values = h(pairs[:, 0], pairs[:, 1]).double().cpu().view(ROWS, COLUMNS).numpy()
        values = np.stack([lower_envelope(rho, row) for row in values])
        slope = np.diff(values, axis=1) / np.diff(rho)
        self.alpha.copy_(torch.from_numpy(values[:, :-1] - slope * rho[:-1]))
        self.beta.copy_(torch.from_numpy(slope))

    def rows(self, d: Tensor) -> tuple[Tensor, Tensor]:
        """Where the row below each distance begins in the flat table, and the weight of the next.

        Args:
            d: Distances. Shape: any.
        """
        place = (d / self.max_distance).square().clamp(max=1) * (ROWS - 1)
        row = place.floor().clamp(max=ROWS - 2)
        return (row * (COLUMNS - 1)).long(), place - row

    def marginal(self, rows: tuple[Tensor, Tensor], log_ratio: Tensor) -> tuple[Tensor, Tensor]:
        """Alpha and beta of each pair.

        Args:
            rows: Of the pairs' distances, from :meth:`rows`.
            log_ratio: log(m1 / m0). Shape: that of the distances.
        """
        base, weight = rows
        u = torch.asinh(log_ratio * (math.sinh(CROWDING) / self.max_log_ratio)) / CROWDING
        column = ((u + 1) * ((COLUMNS - 1) / 2)).clamp(0, COLUMNS - 2).long()
        low = base + column
        high = low + (COLUMNS - 1)
        alpha, beta = self.alpha.flatten(), self.beta.flatten()
        return (
            torch.lerp(alpha[low], alpha[high], weight),
            torch.lerp(beta[low], beta[high], weight),
        )


class CostNet(nn.Module):
    """h(d, r) / (1 + e^r) as a small network, the smooth alternative to the table.

    It is regressed on the path network and not convex by construction.

    Args:
        max_distance: D; larger distances cost what D does.
        max_log_ratio: R; ratios beyond it are clipped.
    """

    def __init__(self, max_distance: float, max_log_ratio: float) -> None:
        super().__init__()
        self.max_distance, self.max_log_ratio = max_distance, max_log_ratio
        self.layers = nn.Sequential(
            nn.Linear(2, HIDDEN),
            nn.Tanh(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.Tanh(),
            nn.Linear(HIDDEN, 1),
        )

    def forward(self, d: Tensor, r: Tensor) -> Tensor:
        """h(d, r). Shape: that of d and r."""
        return (1 + r.exp()) * self.share(d, r)

    def share(self, d: Tensor, r: Tensor) -> Tensor:
        """h(d, r) / (1 + e^r). Shape: that of d and r."""
        d = d.clamp(max=self.max_distance)
        inputs = torch.stack([2 * d / self.max_distance - 1, r / self.max_log_ratio], dim=-1)
        return self.layers(inputs)[..., 0]  # type: ignore[no-any-return]

    def rows(self, d: Tensor) -> tuple[Tensor, Tensor]:
        """The distances; the second entry is unused, and there as in the table."""
        return d, d

    def marginal(self, rows: tuple[Tensor, Tensor], log_ratio: Tensor) -> tuple[Tensor, Tensor]:
        """Alpha = h - h' and beta = h' e^-r, with the derivative h' in r."""
        r = log_ratio.clamp(-self.max_log_ratio, self.max_log_ratio)
        with torch.inference_mode(False), torch.enable_grad():
            r = r.detach().clone().requires_grad_()
            h = self(rows[0].clone(), r)
            (slope,) = torch.autograd.grad(h.sum(), r)
        h, slope = h.detach(), slope.detach()
        return h - slope, slope * (-r.detach()).exp()


def lower_envelope(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest convex function that is nowhere above the points, at the same x.

    Args:
        x: Increasing. Shape: (N,).
        y: Shape: (N,).
    """
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) <= (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.interp(x, x[hull], y[hull])
