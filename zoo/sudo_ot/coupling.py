"""Semi-couplings: how much mass of each cell sets out for each later cell, and how much arrives.

Between weighted points (x_i, a_i) and (y_j, b_j) one minimises the sum of g0_ij h(d_ij,
log(g1_ij / g0_ij)) where the rows of g0 sum to a and the columns of g1 to b (Chizat et al. 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from zoo.errors import ZooError, missing_extra
from zoo.reproducible import generator
from zoo.sudo_ot.cost import CostNet, CostTable

EXCLUDED = -1e4  # logit of a pair that is out of reach
LEARNING_RATE = 0.3
Sides = tuple[Tensor, Tensor, Tensor, Tensor]  # x, y, masses of x, masses of y
PATIENCE, CHANGE = 25, 1e-5  # stop when the cost changes less than this over as many iterations


@dataclass(frozen=True)
class Coupling:
    """A semi-coupling of two sets of points, or of one block of them.

    Attributes:
        rows: Numbers of the block's points in x. Shape: (n,).
        columns: Numbers of the block's points in y. Shape: (m,).
        log_g0: Logarithm of the mass that leaves i for j. Shape: (n, m).
        log_g1: Logarithm of the mass that arrives at j from i. Shape: (n, m).
        cost: The minimum that was found, in the unit of mass times squared distance.
    """

    rows: Tensor
    columns: Tensor
    log_g0: Tensor
    log_g1: Tensor
    cost: float

    def draw(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs in proportion to g0: a row by its mass, then a column within the row.

        So no table of n m entries is ever drawn from: ``torch.multinomial`` takes at most 2^24.

        Returns:
            Numbers in x, numbers in y, and log(g1 / g0). Shapes: (count,).
        """
        rows = torch.multinomial(self.log_g0.logsumexp(dim=1).exp(), count, replacement=True)
        chances = self.log_g0[rows]
        chances = (chances - chances.amax(dim=1, keepdim=True)).exp()
        columns = torch.multinomial(chances, 1)[:, 0]
        ratio = self.log_g1[rows, columns] - self.log_g0[rows, columns]
        return self.rows[rows], self.columns[columns], ratio


def semi_coupling(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    b: Tensor,
    cost: CostTable | CostNet,
    iterations: int = 200,
) -> Coupling:
    """Minimises over g0 = a softmax(U) by rows and g1 = b softmax(V) by columns, with Adam.

    Both constraints hold by construction. Pairs farther apart than the cost reaches are excluded,
    but each cell keeps its nearest neighbour.

    Args:
        x: Shape: (n, p).
        y: Shape: (m, p).
        a: Masses of x. Shape: (n,).
        b: Masses of y. Shape: (m,).
        cost: Of a pair.
        iterations: At most; it stops earlier once the cost stands still.
    """
    reach = cost.max_distance
    d = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    allowed = (d <= reach).scatter(1, d.argmin(dim=1, keepdim=True), True)
    allowed = allowed.scatter(0, d.argmin(dim=0, keepdim=True), True)
    start = torch.where(allowed, -4 * (3 * d.clamp(max=reach) / reach).square(), EXCLUDED)
    logits = [start.clone().requires_grad_(), start.requires_grad_()]
    rows = cost.rows(d)
    log_a, log_b = a.log()[:, None], b.log()[None]
    optimizer = torch.optim.Adam(logits, lr=LEARNING_RATE, fused=True)
    unit = float(a.mean())  # Adam's epsilon is for gradients of the order of 1
    history: list[float] = []
    value = math.inf
    for number in range(iterations + 1):
        with torch.no_grad():
            log_g0 = log_a + logits[0].log_softmax(dim=1)
            log_g1 = log_b + logits[1].log_softmax(dim=0)
            alpha, beta = cost.marginal(rows, log_g1 - log_g0)
            sent, arrived = log_g0.exp(), log_g1.exp()
            alpha, beta = alpha.mul_(sent), beta.mul_(arrived)
            value = float(alpha.sum() + beta.sum())
            history.append(value)
            still = number >= PATIENCE and (
                abs(history[-1 - PATIENCE] - value) < CHANGE * abs(value)
            )
            if number == iterations or still:
                break
            # The cost is 1-homogeneous: its derivatives are alpha and beta, through the softmax.
            shares = alpha.sum(dim=1, keepdim=True) / a[:, None]
            logits[0].grad = alpha.sub_(sent.mul_(shares)).div_(unit)
            shares = beta.sum(dim=0, keepdim=True) / b[None]
            logits[1].grad = beta.sub_(arrived.mul_(shares)).div_(unit)
            for group in optimizer.param_groups:
                group["lr"] = LEARNING_RATE * (1 + math.cos(math.pi * number / iterations)) / 2
        optimizer.step()
    i, j = (torch.arange(len(points), device=x.device) for points in (x, y))
    return Coupling(i, j, log_g0, log_g1, value)


def pot_coupling(x: Tensor, y: Tensor, a: Tensor, b: Tensor, delta: float) -> Coupling:
    """The same for the quadratic penalty, by POT's majorisation-minimisation in float64.

    WFR is 2 delta^2 times a transport problem with free marginals, whose cost is
    -log cos^2(min(d / (2 delta), pi / 2)) (Liero et al. 2018); its plan, times a over its first
    marginal and b over its second, is the semi-coupling.

    Args:
        x: Shape: (n, p).
        y: Shape: (m, p).
        a: Masses of x. Shape: (n,).
        b: Masses of y. Shape: (m,).
        delta: Length scale of the penalty.

    Raises:
        ZooError: If POT is not installed.
    """
    try:
        import ot
    except ImportError as error:
        raise missing_extra("POT", "cells") from error
    d = torch.cdist(x.double(), y.double()).cpu()
    cosine = (d / (2 * delta)).clamp(max=math.pi / 2).cos().clamp_min(1e-9)
    matrix = -2 * cosine.log()
    first, second = a.double().cpu(), b.double().cpu()
    plan = torch.from_numpy(
        ot.unbalanced.mm_unbalanced(
            *(v.numpy() for v in (first, second, matrix)),
            reg_m=1.0,
            div="kl",
            numItermax=5000,
            stopThr=1e-10,
        )
    )
    # A plan's zeros would lose the mass of cells that only die, or are only born.
    plan = plan.clamp_min(1e-12 * float(plan.max()))
    left, right = plan.sum(dim=1), plan.sum(dim=0)
    log_g0 = (plan * (first / left)[:, None]).log()
    log_g1 = (plan * (second / right)[None]).log()
    value = float((plan * matrix).sum())
    value += sum(
        float((got * (got / want).log() - got + want).sum())
        for got, want in ((left, first), (right, second))
    )
    i, j = (torch.arange(len(points), device=x.device) for points in (x, y))
    return Coupling(i, j, log_g0.to(x), log_g1.to(x), 2 * delta**2 * value)


def blocks(n: int, m: int, chunk_size: int, rng: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Random disjoint blocks that cover all rows and all columns, of at most ``chunk_size`` each.

    Args:
        n: Number of rows.
        m: Number of columns.
        chunk_size: Points of a block on its larger side.
        rng: Chooses who is with whom.
    """
    count = math.ceil(max(n, m) / chunk_size)
    if count == 1:
        return [(torch.arange(n), torch.arange(m))]
    if count > min(n, m):
        raise ZooError(
            f"chunk_size={chunk_size} makes {count} blocks of {n} and {m} cells: some would "
            "be empty."
        )
    parts = [torch.randperm(size, generator=rng).tensor_split(count) for size in (n, m)]
    return list(zip(*parts, strict=True))


def couple_in_blocks(
    intervals: Sequence[Sides],
    cost: CostTable | CostNet,
    iterations: int,
    chunk_size: int,
    delta: float | None = None,
) -> list[list[Coupling]]:
    """Semi-couplings of random blocks of each interval, dealt to the processes, shared by all.

    The blocks of all intervals are dealt in turn. Each process first computes its own and only then
    shares them, so that none waits while another computes.

    Args:
        intervals: Of each, x (n, p), y (m, p), and their masses (n,) and (m,).
        cost: Of a pair.
        iterations: Of each block.
        chunk_size: Points of a block on its larger side; with no more points there is one block.
        delta: Use POT with this length scale instead.

    Returns:
        The blocks of each interval, the same in all processes.
    """
    shared = dist.is_available() and dist.is_initialized()
    world, rank = (dist.get_world_size(), dist.get_rank()) if shared else (1, 0)
    tasks = [
        (number, rows.to(x.device), columns.to(x.device))
        for number, (x, y, _, _) in enumerate(intervals)
        for rows, columns in blocks(len(x), len(y), chunk_size, generator(number, len(x), len(y)))
    ]
    own = {}
    for task in range(rank, len(tasks), world):
        number, rows, columns = tasks[task]
        sides = _block(intervals[number], rows, columns)
        if delta is None:
            own[task] = semi_coupling(*sides, cost, iterations)
        else:
            own[task] = pot_coupling(*sides, delta)
    found: list[list[Coupling]] = [[] for _ in intervals]
    for task, (number, rows, columns) in enumerate(tasks):
        like = intervals[number][0]
        if task in own:
            one = own.pop(task)
            tables = [one.log_g0.contiguous(), one.log_g1.contiguous(), like.new_tensor(one.cost)]
        else:
            shape = len(rows), len(columns)
            tables = [like.new_empty(shape), like.new_empty(shape), like.new_empty(())]
        if world > 1:
            for table in tables:
                dist.broadcast(table, src=task % world)
        found[number].append(Coupling(rows, columns, tables[0], tables[1], float(tables[2])))
    return found


def _block(sides: Sides, rows: Tensor, columns: Tensor) -> Sides:
    """Some points of both sides, whose masses keep the ratio that the whole has.

    A block's chance excess of cells would else look like growth.
    """
    x, y, a, b = sides
    sent, arrived = a[rows], b[columns]
    arrived = arrived * (b.sum() / a.sum() * sent.sum() / arrived.sum())
    return x[rows], y[columns], sent, arrived
