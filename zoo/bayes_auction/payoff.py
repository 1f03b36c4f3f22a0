"""Expected payoffs of every bid against the others' strategies, for many games at once.

A strategy S_k(i, a) is the chance that bidder k with type i makes bid a. All that the others see of
it is the distribution of its bids, q_k(a) = sum_i p_k(i) S_k(i, a), so payoffs cost O(n m) a game:
with g_j = q_j(a) and G_j = P(bid of j < b_a), the good goes to whoever bids most, ties by lot, and
bid b_a wins with sum_r [t^r] prod_(j != k) (G_j + g_j t) / (r + 1).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

PAYMENT_CODES = {"first": 0, "all_pay": 1, "second": 2}  # as in zoo.auction_games.PAYMENTS


@dataclass
class Games:
    """Games side by side, padded to one size; padding has chance 0 and may only bid the lowest.

    Attributes:
        values: Shape: (G, n).
        bids: Shape: (G, m).
        prior: 0 for bidders that are padding. Shape: (G, N, n).
        mask: Bids that a type may make. Shape: (G, n, m), bool.
        payment: See :data:`PAYMENT_CODES`. Shape: (G,), long.
    """

    values: Tensor
    bids: Tensor
    prior: Tensor
    mask: Tensor
    payment: Tensor

    def repeat(self, count: int) -> Games:
        """Each game ``count`` times, one after the other."""
        return Games(*(getattr(self, f.name).repeat_interleave(count, 0) for f in fields(self)))

    def double(self) -> Games:
        """In float64."""
        return Games(
            self.values.double(), self.bids.double(), self.prior.double(), self.mask, self.payment
        )


def bid_distribution(games: Games, strategy: Tensor) -> Tensor:
    """q, the chance of each bid of each bidder. Shape: (G, N, n, m) to (G, N, m)."""
    return torch.einsum("gkn,gknm->gkm", games.prior.to(strategy), strategy)


def payoffs(games: Games, strategy: Tensor) -> Tensor:
    """Interim payoff of each bid of each type, given what the others do.

    Args:
        games: G of them.
        strategy: Shape: (G, N, n, m).

    Returns:
        Of all bids, allowed or not. Shape: (G, N, n, m).
    """
    q = bid_distribution(games, strategy)
    above = q.flip(-1).cumsum(-1).flip(-1)  # chance of this bid or more
    below = 1 - above  # 1 for padding, which takes no part
    win, least = winning(q, below)  # (G, N, m) twice
    b = games.bids.to(strategy)[:, None]
    highest = _without_self(below + q) - least  # P(highest of the others = b)
    paid = (highest * b).cumsum(-1) - highest * b + b * (win - least)
    code = games.payment.view(-1, 1, 1)
    pay = torch.where(code == 0, b * win, torch.where(code == 1, b.expand_as(win), paid))
    v = games.values.to(strategy)[:, None, :, None]
    return v * win[:, :, None] - pay[:, :, None]


def winning(q: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    """Chance that each bid wins, and that all others bid less.

    Args:
        q: Shape: (G, N, m).
        below: Chance that a bidder bids less. Shape: (G, N, m).

    Returns:
        Shape of both: (G, N, m).
    """
    players = q.shape[1]
    if players == 2:
        other, less = q.flip(1), below.flip(1)
        return less + other / 2, less
    # Coefficient r of the product: r of the others tie, the rest bid less.
    poly = q.new_zeros(*q.shape, players)
    poly[..., 0] = 1
    for j in range(players):
        shifted = torch.cat([torch.zeros_like(poly[..., :1]), poly[..., :-1]], dim=-1)
        grown = below[:, j, None, :, None] * poly + q[:, j, None, :, None] * shifted
        others = torch.arange(players, device=q.device).view(1, -1, 1, 1) != j
        poly = torch.where(others, grown, poly)
    share = 1 / torch.arange(1, players + 1, device=q.device, dtype=q.dtype)
    return poly @ share, poly[..., 0]


def _without_self(x: Tensor) -> Tensor:
    """Product over the other bidders. Shape: (G, N, m)."""
    players = x.shape[1]
    found = torch.ones_like(x)
    for j in range(players):
        others = torch.arange(players, device=x.device).view(1, -1, 1) != j
        found = torch.where(others, found * x[:, j : j + 1], found)
    return found


def best_response_gain(games: Games, strategy: Tensor) -> Tensor:
    """What a best response would add, mean over types. Shape: (G, N)."""
    u = payoffs(games, strategy)
    best = u.masked_fill(~games.mask[:, None], -torch.inf).amax(-1)
    now = (strategy * u).sum(-1)
    return (games.prior.to(u) * (best - now)).sum(-1)


def utility_loss(games: Games, strategy: Tensor) -> Tensor:
    """The largest gain of any bidder from a best response. Shape: (G,)."""
    return best_response_gain(games, strategy).amax(-1)
