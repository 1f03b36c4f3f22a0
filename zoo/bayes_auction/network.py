"""Bid functions of any auction at once: what the hub's checkpoint holds.

Each bid of each type is scored by itself, from the distributions of values, the value and the bid,
so one network serves grids of any size and any number of bidders.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.bayes_auction.payoff import Games

CDF_POINTS = 16  # at which distributions of values are looked at
FEATURES = 2 * CDF_POINTS + 1 + 3 + 2 + 4


class BidNetwork(nn.Module):
    """Logits of every bid of every type.

    Args:
        hidden: Width of the three layers.
    """

    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, games: Games) -> Tensor:
        """Strategies. Shape: G games to (G, N, n, m), float32; rows sum to 1."""
        logits = self.layers(features(games))[..., 0]
        masked = logits.float().masked_fill(~games.mask[:, None], -torch.inf)
        out: Tensor = masked.softmax(-1)
        return out


def features(games: Games) -> Tensor:
    """What the network sees of each bid; values and bids in units of the highest value.

    Shape: G games to (G, N, n, m, 42).
    """
    prior, values, bids = games.prior.float(), games.values.float(), games.bids.float()
    top = values.amax(-1, keepdim=True)
    values, bids = values / top, bids / top
    points = torch.linspace(0, 1, CDF_POINTS + 1, device=values.device)[1:]
    at_most = (values[:, None] <= points[:, None] + 1e-6).float()  # (G, P, n)
    cdf = torch.einsum("gkn,gpn->gkp", prior, at_most)
    real = (prior.sum(-1, keepdim=True) > 0).float()
    players = real.sum(1, keepdim=True)
    rivals = ((cdf * real).sum(1, keepdim=True) - cdf * real) / (players - 1).clamp_min(1)
    g, k, n = prior.shape
    m = bids.shape[1]
    own = torch.cat([cdf, rivals, (players / 10).expand(g, k, 1)], dim=-1)[:, :, None, None]
    payment = nn.functional.one_hot(games.payment, 3).float()
    types = (games.mask.any(-1) & (prior.sum(1) > 0)).sum(-1, keepdim=True)
    size = torch.stack([1 / types[:, 0].float(), 1 / games.mask.any(1).sum(-1).float()], dim=-1)
    game = torch.cat([payment, size], dim=-1)[:, None, None, None]
    v, b = values[:, None, :, None], bids[:, None, None, :]
    v, b = v.expand(g, k, n, m), b.expand(g, k, n, m)
    bid = torch.stack([v, b, v - b, b / v.clamp_min(1e-6)], dim=-1)
    return torch.cat([own.expand(g, k, n, m, -1), game.expand(g, k, n, m, -1), bid], dim=-1)
