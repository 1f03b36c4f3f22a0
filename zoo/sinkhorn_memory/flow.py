"""Retrieval: the Sinkhorn-Hopfield-Kantorovich flow of a measure down the memory's energy.

With stored measures nu_k and S the debiased Sinkhorn divergence, the energy of a measure mu is

    E(mu) = -1/beta log sum_k exp(-beta S(mu, nu_k))

and its first variation phi = sum_k w_k f^k - p, with w = softmax(-beta S), f^k the potential of mu
towards nu_k and p that of mu towards itself. A step moves the points and reweighs them:

    x_i <- x_i + tau (sum_k w_k T_k(x_i) - T_0(x_i)),   a_i <- a_i exp(-eta (phi_i - <a, phi>)) / Z

where T_k and T_0 are the barycentric projections of the plans to nu_k and to mu itself.

Source: S. Mustafi and S. Mukherjee, arXiv 2603.20656, of which only the abstract was at hand: the
formulas are derived from it by the calculus of entropic transport (J. Feydy et al., arXiv
1810.08278). Ours are the control of the step, which keeps the energy from rising, and the active
set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.errors import ZooError
from zoo.layers.sinkhorn import (
    cost_matrix,
    exact_rows,
    self_potential,
    self_value,
    sinkhorn_potentials,
)

HALVINGS = 8  # of a step that raises the energy
GROWTH = 1.3  # of the next step after one that lowered it, up to the first step's size
STOP = 1e-6  # relative decrease of the energy below which a query is done
LOG_FLOOR = -30.0  # of a weight: one that reached 0 would never return
LEAST_ACTIVE = 8  # patterns that are followed in any case
REFRESH = 10  # steps after which all patterns are looked at again
MARGINAL = 1e-5  # L1 error of the inner problems' marginals in float32,
MARGINAL_DOUBLE = 1e-8  # and in float64, for which a stored pattern rests to 1e-6
MAX_ELEMENTS = 20_000_000  # of one tensor of plans


class Retrieval(NamedTuple):
    """What a batch of queries flowed to.

    Attributes:
        points: Shape: (Q, n, d).
        weights: Rows sum to 1; 0 for padding. Shape: (Q, n).
        pattern_prob: softmax(-beta S) at the end. Shape: (Q, K).
        divergence: S to each pattern: at the end to those that were followed, and at the last look
            at all patterns to the rest. Not below 0. Shape: (Q, K).
        energy: At the start and after each step; a query that is done keeps its last value.
            Shape: (Q, max_steps + 1).
        steps: Taken. Shape: (Q,), int64.
        converged: Whether it came to rest before ``max_steps``. Shape: (Q,), bool.
    """

    points: Tensor
    weights: Tensor
    pattern_prob: Tensor
    divergence: Tensor
    energy: Tensor
    steps: Tensor
    converged: Tensor


@dataclass(frozen=True)
class Patterns:
    """Stored measures with what is computed of them once.

    Attributes:
        points: Shape: (K, m, d).
        weights: Rows sum to 1; 0 for padding. Shape: (K, m).
        own: OT_eps(nu_k, nu_k). Shape: (K,).
    """

    points: Tensor
    weights: Tensor
    own: Tensor

    @classmethod
    def prepare(
        cls, points: Tensor, weights: Tensor, eps: float, inner_iters: int = 100
    ) -> Patterns:
        """Computes the self-terms."""
        with torch.autocast(points.device.type, enabled=False):
            cost = cost_matrix(points, points)
            tol = _marginal(points.dtype)
            p = self_potential(cost, weights, eps, max_iters=inner_iters, tol=tol)
            return cls(points, weights, self_value(cost, weights, p, eps))


@dataclass(frozen=True)
class Dynamics:
    """Constants of the energy and of the flow.

    Attributes:
        eps: Entropic regularisation, in units of |x - y|^2 / 2.
        beta: Inverse temperature, in its inverse.
        tau: Step of the points; 0 leaves them where they are.
        eta: Step of the weights; 0 leaves them as they are.
        max_steps: 0 only compares with the patterns.
        inner_iters: Of each Sinkhorn problem, at most.
        active_threshold: Patterns of less probability are not followed between two looks at all.
        max_elements: Of one tensor of plans; what is larger is done in pieces.
    """

    eps: float = 0.1
    beta: float = 20.0
    tau: float = 1.0
    eta: float = 0.5
    max_steps: int = 50
    inner_iters: int = 100
    active_threshold: float = 1e-6
    max_elements: int = MAX_ELEMENTS

    def __post_init__(self) -> None:
        for name in ("eps", "beta"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ZooError(f"{name}={value} must be positive.")
        for name in ("tau", "eta", "active_threshold"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ZooError(f"{name}={value} must be 0 or positive.")
        if self.max_steps < 0:
            raise ZooError(f"max_steps={self.max_steps} must be 0 or more.")
        if self.inner_iters < 1:
            raise ZooError(f"inner_iters={self.inner_iters} must be at least 1.")


def _marginal(dtype: torch.dtype) -> float:
    return MARGINAL_DOUBLE if dtype == torch.float64 else MARGINAL


def energy(divergence: Tensor, beta: float) -> Tensor:
    """E = -1/beta log sum_k exp(-beta S_k). Shape: (..., K) to (...)."""
    return -torch.logsumexp(-beta * divergence, -1) / beta


@torch.no_grad()
def shk_retrieve(
    points: Tensor, weights: Tensor | None, patterns: Patterns, dynamics: Dynamics | None = None
) -> Retrieval:
    """Lets queries flow to the stored measures.

    Args:
        points: Queries. Shape: (Q, n, d).
        weights: Rows sum to 1, 0 for padding; ``None`` for 1/n. Shape: (Q, n).
        patterns: See :meth:`Patterns.prepare`; with the same eps.
        dynamics: ``None`` for the defaults.

    Raises:
        ZooError: If the dimensions differ, or one pair of clouds alone exceeds ``max_elements``.
    """
    dynamics = dynamics or Dynamics()
    (count, n, dim), (stored, m, own_dim) = points.shape, patterns.points.shape
    if dim != own_dim:
        raise ZooError(f"The queries have {dim} dimensions, the stored patterns {own_dim}.")
    if n * m > dynamics.max_elements:
        raise ZooError(
            f"One pair of clouds of {n} and {m} points needs {n * m} elements; max_elements is "
            f"{dynamics.max_elements}."
        )
    if weights is None:
        weights = points.new_full((count, n), 1 / n)
    size = max(1, dynamics.max_elements // (stored * max(n, m)))  # potentials of all pairs are kept
    with torch.autocast(points.device.type, enabled=False):
        parts = [
            _Flow(x, a, patterns, dynamics).run()
            for x, a in zip(torch.split(points, size), torch.split(weights, size), strict=True)
        ]
    return Retrieval(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


class _State(NamedTuple):
    """Measures with all that their energy is made of; rows are queries."""

    x: Tensor  # (R, n, d)
    log_a: Tensor  # (R, n)
    p: Tensor  # (R, n)
    g: Tensor  # (R, K, m)
    s: Tensor  # (R, K)
    energy: Tensor  # (R,)

    def take(self, rows: Tensor) -> _State:
        return _State(*(tensor[rows] for tensor in self))

    def put(self, rows: Tensor, other: _State) -> None:
        for tensor, new in zip(self, other, strict=True):
            tensor[rows] = new


class _Flow:
    """A chunk of queries on their way."""

    def __init__(self, x: Tensor, a: Tensor, patterns: Patterns, dynamics: Dynamics) -> None:
        self.patterns, self.dynamics = patterns, dynamics
        q, (k, m) = len(x), patterns.weights.shape
        self.real = a > 0
        self.active = torch.ones(q, k, dtype=torch.bool, device=x.device)
        # The energy does not round to better than this.
        self.tolerance = max(1e-7, 8 * torch.finfo(x.dtype).eps)
        start = _State(
            x.clone(),
            a.log(),
            torch.zeros_like(a),
            x.new_zeros(q, k, m),
            x.new_zeros(q, k),
            x.new_zeros(q),
        )
        self.state = self._evaluate(start, torch.arange(q, device=x.device), cold=True)
        self.active = self._probable()
        self.state.energy.copy_(self._energy(self.state.s, torch.arange(q, device=x.device)))

    def run(self) -> Retrieval:
        limit, state = self.dynamics.max_steps, self.state
        count = len(state.x)
        trace = state.energy[:, None].repeat(1, limit + 1)
        steps = torch.zeros(count, dtype=torch.long, device=state.x.device)
        size = torch.ones_like(state.energy)  # of the step, relative to tau and eta
        running = torch.ones_like(steps, dtype=torch.bool)
        for step in range(limit):
            rows = running.nonzero().squeeze(1)
            if not len(rows):
                break
            if step and step % REFRESH == 0:
                self._look_at_all(rows)
            before = state.energy[rows]
            moved = self._step(rows, size)
            steps[rows[moved]] += 1
            after = state.energy[rows]
            trace[rows, step + 1 :] = after[:, None]
            scale = before.abs().clamp_min(self.dynamics.eps)
            running[rows] = moved & (before - after > STOP * scale)
            size[rows] = (size[rows] * GROWTH).clamp(max=1)
        return Retrieval(
            state.x,
            state.log_a.exp(),
            torch.softmax(-self.dynamics.beta * state.s, -1),
            state.s.clamp_min(0),
            trace,
            steps,
            ~running,
        )

    # -- one step ----------------------------------------------------------------------------

    def _step(self, rows: Tensor, size: Tensor) -> Tensor:
        """Moves ``rows``, each by the longest of its halved steps that does not raise the energy.

        Returns:
            Which of them moved. Shape: (R,), bool.
        """
        start = self.state.take(rows)
        drift, phi = self._directions(start, rows)
        open_ = torch.arange(len(rows), device=rows.device)
        for _ in range(HALVINGS + 1):
            here = rows[open_]
            tau = (self.dynamics.tau * size[here])[:, None, None]
            eta = (self.dynamics.eta * size[here])[:, None]
            trial = start.take(open_)
            log_a = (trial.log_a - eta * phi[open_]).clamp_min(LOG_FLOOR)
            log_a = torch.where(self.real[here], log_a, -torch.inf).log_softmax(-1)
            trial = trial._replace(x=trial.x + tau * drift[open_], log_a=log_a)
            trial = self._evaluate(trial, here)
            rise = trial.energy - start.energy[open_]
            good = rise <= self.tolerance * start.energy[open_].abs().clamp_min(1)
            self.state.put(here[good], trial.take(good))
            open_ = open_[~good]
            if not len(open_):
                break
            size[rows[open_]] /= 2
        moved = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        moved[open_] = False
        return moved

    def _directions(self, state: _State, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Drift of the points and centred first variation. Shapes: (R, n, d) and (R, n)."""
        eps, a = self.dynamics.eps, state.log_a.exp()
        prob = torch.softmax(self._scores(state.s, rows), -1)
        own = exact_rows(cost_matrix(state.x, state.x), a, state.p, eps).kernel @ state.x
        drift, phi = -own, -state.p
        at, which = self.active[rows].nonzero(as_tuple=True)
        for part in self._pieces(len(at), state.x.shape[1]):
            r, k = at[part], which[part]
            y, b = self.patterns.points[k], self.patterns.weights[k]
            cost = cost_matrix(state.x[r], y)
            kernel, f = exact_rows(cost, b, state.g[r, k], eps)
            share = prob[r, k]
            drift = drift.index_add(0, r, share[:, None, None] * (kernel @ y))
            phi = phi.index_add(0, r, share[:, None] * f)
        real = self.real[rows]
        phi = torch.where(real, phi - (a * phi).sum(-1, keepdim=True), 0.0)
        return torch.where(real[..., None], drift, 0.0), phi

    # -- energy ------------------------------------------------------------------------------

    def _evaluate(self, state: _State, rows: Tensor, cold: bool = False) -> _State:
        """Potentials, divergences to the active patterns, and energy of measures.

        Args:
            state: Of which points and weights are new, and the rest is to start from.
            rows: Which queries they are. Shape: (R,).
            cold: There is nothing to start from.
        """
        eps, iters, a = self.dynamics.eps, self.dynamics.inner_iters, state.log_a.exp()
        tol = _marginal(a.dtype)
        cost = cost_matrix(state.x, state.x)
        p = self_potential(cost, a, eps, None if cold else state.p, iters, tol)
        own = self_value(cost, a, p, eps)
        g, s = state.g.clone(), state.s.clone()
        at, which = self.active[rows].nonzero(as_tuple=True)
        for part in self._pieces(len(at), state.x.shape[1]):
            r, k = at[part], which[part]
            cost = cost_matrix(state.x[r], self.patterns.points[k])
            b = self.patterns.weights[k]
            start = None if cold else g[r, k]
            f, found, _ = sinkhorn_potentials(cost, a[r], b, eps, start, iters, tol)
            value = (a[r] * f).sum(-1) + (b * found).sum(-1)
            g[r, k], s[r, k] = found, value - (own[r] + self.patterns.own[k]) / 2
        state = state._replace(p=p, g=g, s=s)
        return state._replace(energy=self._energy(state.s, rows))

    def _scores(self, s: Tensor, rows: Tensor) -> Tensor:
        return torch.where(self.active[rows], -self.dynamics.beta * s, -torch.inf)

    def _energy(self, s: Tensor, rows: Tensor) -> Tensor:
        return -torch.logsumexp(self._scores(s, rows), -1) / self.dynamics.beta

    # -- active patterns ---------------------------------------------------------------------

    def _probable(self) -> Tensor:
        """Patterns of more than the threshold, and the few nearest in any case. (Q, K), bool."""
        s = self.state.s
        active = torch.softmax(-self.dynamics.beta * s, -1) > self.dynamics.active_threshold
        nearest = s.topk(min(LEAST_ACTIVE, s.shape[1]), dim=1, largest=False).indices
        return active.scatter(1, nearest, True)

    def _look_at_all(self, rows: Tensor) -> None:
        """Adds patterns that have become probable. None is dropped: that would raise the energy."""
        followed = self.active
        if bool(followed[rows].all()):
            return
        self.active = ~followed
        state = self.state.take(rows)
        self.state.s[rows] = self._evaluate(state, rows).s
        self.active = followed | self._probable()
        rows = torch.arange(len(followed), device=rows.device)
        self.state.energy.copy_(self._energy(self.state.s, rows))

    def _pieces(self, pairs: int, n: int) -> list[slice]:
        """Parts of the pairs whose plans fit into ``max_elements``."""
        m = self.patterns.points.shape[1]
        size = max(1, self.dynamics.max_elements // (n * m))
        return [slice(i, min(i + size, pairs)) for i in range(0, pairs, size)]
