"""Gradient learners that play many games at once, and the regrets of what they played.

Each of them follows its own interim payoffs U_k(i, .), which depend on the others alone: each type
learns for itself (the agent-normal form), or weighs its payoffs by its chance ("ex_ante").

Regrets are those of the average over time of the joint play, not of the product of averages. For
them it is enough to sum M_k,i(a -> d) = sum_t S_t(i, a) (U_t(i, d) - U_t(i, a)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.bayes_auction.payoff import Games, payoffs, utility_loss

ALGOS = ("pga", "hedge", "mirror_entropy", "adam_logits", "reinforce")
EXPLORE = 0.05  # of "reinforce": chance of a uniform bid, so that no estimate divides by 0
LARGE = 1e9
CHECK_EVERY = 100  # steps between looks at the utility loss


@dataclass
class Run:
    """What came of a run.

    Attributes:
        strategy: Of the last step. Shape: (G, N, n, m).
        average: Mean over the steps. Shape: (G, N, n, m).
        swaps: M over the number of steps: what each bid would have gained as each other one, if it
            was asked for. float64. Shape: (G, N, n, m, m).
        joint: Mean over the steps of S_1 x S_2, if it was asked for. float64. Shape:
            (G, n, m, n, m).
        steps: Of the learners.
    """

    strategy: Tensor
    average: Tensor
    swaps: Tensor | None
    joint: Tensor | None
    steps: int


def project(y: Tensor, mask: Tensor) -> Tensor:
    """Nearest point of the simplex, of the allowed bids alone.

    Args:
        y: Shape: (..., m).
        mask: Broadcastable to it.

    Returns:
        Rows sum to 1; 0 where not allowed.
    """
    y = y.masked_fill(~mask, -LARGE)
    ordered = y.sort(dim=-1, descending=True).values
    count = torch.arange(1, y.shape[-1] + 1, device=y.device, dtype=y.dtype)
    excess = (ordered.cumsum(-1) - 1) / count
    kept = (ordered > excess).sum(-1, keepdim=True)
    x = (y - excess.gather(-1, kept - 1)).clamp_min(0).masked_fill(~mask, 0)
    return x / x.sum(-1, keepdim=True)


def random_strategies(games: Games, seeds: list[int]) -> Tensor:
    """Uniform on each simplex of allowed bids; a game's draws depend on its seed alone.

    Args:
        games: G of them.
        seeds: Of each.

    Returns:
        Shape: (G, N, n, m).
    """
    shape = games.prior.shape[1], *games.mask.shape[1:]
    drawn = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        drawn.append(torch.rand(shape, generator=generator, dtype=torch.float64))
    weight = -torch.stack(drawn).to(games.values.device).clamp_min(1e-300).log()
    weight = weight.masked_fill(~games.mask[:, None], 0).to(games.values.dtype)
    return weight / weight.sum(-1, keepdim=True)


def learn(
    games: Games,
    start: Tensor,
    steps: int,
    algo: str = "pga",
    eta0: float = 1.0,
    schedule: str = "sqrt",
    gradient: str = "interim",
    regrets: bool = True,
    joint: bool = False,
    tolerance: float | None = None,
    generator: torch.Generator | None = None,
) -> Run:
    """Lets all bidders learn at the same time.

    Args:
        games: G of them.
        start: Their first strategies. Shape: (G, N, n, m).
        steps: At most.
        algo: "pga", projected gradient ascent; "hedge" with falling, "mirror_entropy" with constant
            steps; "adam_logits"; "reinforce" from the payoff of its own sampled bid alone.
        eta0: First step.
        schedule: "sqrt", eta0 / sqrt(t), or "constant".
        gradient: "interim" or "ex_ante".
        regrets: Keep what regrets are computed of.
        joint: Keep the mean joint distribution; two bidders only.
        tolerance: Stop once no bidder of any game gains more by a best response.
        generator: Of "reinforce".
    """
    mask = games.mask[:, None]
    state = _Learner(start, mask, algo, eta0, schedule)
    total = torch.zeros_like(start)
    # sum_t S_t(a) U_t(d): M(a -> d) is that less its own diagonal.
    products = start.new_zeros(*start.shape, start.shape[-1] if regrets else 0).double()
    both = None
    if joint:
        both = start.new_zeros(len(start), *start.shape[2:], *start.shape[2:], dtype=torch.float64)
    weight = games.prior.to(start)[..., None] if gradient == "ex_ante" else 1.0
    done = 0
    for step in range(1, steps + 1):
        s = state.strategy
        u = payoffs(games, s)
        total += s
        x, value = s.double(), u.double()
        if regrets:
            products.addcmul_(x[..., :, None], value[..., None, :])
        if both is not None:
            both += torch.einsum("gia,gjc->giajc", x[:, 0], x[:, 1])
        done = step
        state.update((u * weight).masked_fill(~mask, 0), step, generator)
        if tolerance is None or step % CHECK_EVERY:
            continue
        if float(utility_loss(games, state.strategy).amax()) < tolerance:
            break
    swaps = None
    if regrets:
        swaps = products - products.diagonal(dim1=-2, dim2=-1)[..., None]
        swaps = swaps.masked_fill(~(mask[..., :, None] & mask[..., None, :]), 0) / done
    return Run(
        state.strategy,
        total / done,
        swaps,
        None if both is None else both / done,
        done,
    )


class _Learner:
    """One of the algorithms, on all games."""

    def __init__(self, start: Tensor, mask: Tensor, algo: str, eta0: float, schedule: str) -> None:
        self.strategy, self.mask, self.eta0 = start, mask, eta0
        self.constant = schedule == "constant" or algo == "mirror_entropy"
        updates: dict[str, Callable[[Tensor, float, torch.Generator | None], None]] = {
            "pga": self._pga,
            "hedge": self._hedge,
            "mirror_entropy": self._hedge,
            "adam_logits": self._adam,
            "reinforce": self._reinforce,
        }
        self._update = updates[algo]
        self.logits = start.clamp_min(1e-30).log().masked_fill(~mask, -LARGE)
        self.moments = torch.zeros_like(start), torch.zeros_like(start)
        self.step = 0

    def update(self, u: Tensor, step: int, generator: torch.Generator | None) -> None:
        self.step = step
        self._update(u, self.eta0 if self.constant else self.eta0 / math.sqrt(step), generator)

    def _pga(self, u: Tensor, eta: float, generator: torch.Generator | None) -> None:
        self.strategy = project(self.strategy + eta * u, self.mask)

    def _hedge(self, u: Tensor, eta: float, generator: torch.Generator | None) -> None:
        self.logits = self.logits + eta * u
        self.logits = self.logits - self.logits.amax(-1, keepdim=True)
        self.strategy = self.logits.masked_fill(~self.mask, -LARGE).softmax(-1)

    def _adam(self, u: Tensor, eta: float, generator: torch.Generator | None) -> None:
        """Adam on the logits of the expected utility, 0.05 times the step."""
        s = self.strategy
        grad = s * (u - (s * u).sum(-1, keepdim=True))
        first, second = self.moments
        first.mul_(0.9).add_(grad, alpha=0.1)
        second.mul_(0.999).addcmul_(grad, grad, value=0.001)
        a, b = first / (1 - 0.9**self.step), second / (1 - 0.999**self.step)
        self.logits = self.logits + 0.05 * eta * a / (b.sqrt() + 1e-8)
        self.strategy = self.logits.masked_fill(~self.mask, -LARGE).softmax(-1)

    def _reinforce(self, u: Tensor, eta: float, generator: torch.Generator | None) -> None:
        """Hedge on U_b / P(b) of the bid that was drawn: unbiased, and all that a bidder sees."""
        count = self.mask.sum(-1, keepdim=True).to(u.dtype)
        play = (1 - EXPLORE) * self.strategy + EXPLORE * self.mask / count
        edges = play.cumsum(-1)
        points = torch.rand(*play.shape[:-1], 1, generator=generator, dtype=u.dtype).to(u.device)
        bid = torch.searchsorted(edges, points * edges[..., -1:]).clamp_max(play.shape[-1] - 1)
        seen = u.gather(-1, bid) / play.gather(-1, bid).clamp_min(1e-12)
        estimate = torch.zeros_like(u).scatter(-1, bid, seen)
        self._hedge(estimate, eta / 10, generator)
