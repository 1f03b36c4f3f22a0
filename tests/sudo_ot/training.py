"""A path network trained without a trainer, once for each penalty."""

import math
from functools import cache

import torch

from zoo.sudo_ot import GrowthPenalty, PathNet

DELTA, RATIO = 1.5, 5.0
REACH = 0.95 * math.pi * DELTA
PENALTIES = {
    "quadratic": lambda: GrowthPenalty.quadratic(DELTA),
    "power 1.5": lambda: GrowthPenalty.power(DELTA, 1.5),
    "power 4": lambda: GrowthPenalty.power(DELTA, 4.0),
    "asymmetric": lambda: GrowthPenalty.asymmetric(DELTA),
    "entropic": lambda: GrowthPenalty.entropic(DELTA),
    "callable": lambda: GrowthPenalty(lambda g: DELTA**2 * (torch.cosh(g) - 1)),
}


@cache
def train_path(name, steps):
    """As the first stage of SUDO does, with its batch, optimiser, schedule and clipping."""
    torch.manual_seed(0)
    net = PathNet(REACH, RATIO)
    penalty = PENALTIES[name]()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        d, r = REACH * torch.rand(256), RATIO * (2 * torch.rand(256) - 1)
        optimizer.zero_grad()
        (net.cost(d, r, penalty) / (1 + r.exp())).mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    net.trained_for = penalty
    return net.requires_grad_(False)
