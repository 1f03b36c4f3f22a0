"""Sinkhorn memory beside geomloss and POT, in one run, and its time against K.

``python -m benchmarks.speed.sinkhorn_memory divergence|retrieve|patterns``
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.speed.timing import in_turns
from benchmarks.studies.sinkhorn_memory import DAMAGE, FLOW, library
from zoo.layers.sinkhorn import cost_matrix, sinkhorn_divergence
from zoo.sinkhorn_memory import Patterns, shk_retrieve

SCALING = 0.9  # of geomloss's annealing: its error is a few per mille, ours is below


def divergence() -> None:
    """All pairs of 24 queries and 24 patterns: seconds a divergence."""
    import geomloss
    import ot

    x, a, y, b = library(24, 24, 4, 2.0, 0, DAMAGE, None)
    q, k = (i.flatten() for i in torch.meshgrid(torch.arange(24), torch.arange(24), indexing="ij"))
    eps = FLOW.eps
    loss = geomloss.SamplesLoss(
        "sinkhorn", p=2, blur=eps**0.5, scaling=SCALING, debias=True, backend="tensorized"
    )

    def one_by_one() -> None:
        for i in range(24):  # a 24th of the pairs: POT has no batches of problems of its own
            args = x[0], a[0], y[i], b[i]
            terms = (args, (*args[:2], *args[:2]), (*args[2:], *args[2:]))
            for u, p, v, r in terms:
                ot.bregman.sinkhorn(
                    p.double().numpy(),
                    r.double().numpy(),
                    cost_matrix(u, v).double().numpy(),
                    eps,
                    method="sinkhorn_log",
                    numItermax=100,
                    stopThr=1e-5,
                    warn=False,
                )

    times = in_turns(
        {
            "ours": lambda: sinkhorn_divergence(x[:, None], a[:, None], y[None], b[None], eps),
            "geomloss": lambda: loss(a[q], x[q], b[k], y[k]),
            "POT": one_by_one,
        },
        rounds=3,
    )
    exact = sinkhorn_divergence(x[q], a[q], y[k], b[k], eps, 5000, 1e-7)
    ours = sinkhorn_divergence(x[q], a[q], y[k], b[k], eps)
    theirs = loss(a[q], x[q], b[k], y[k])
    counts = {"ours": 576, "geomloss": 576, "POT": 24}
    for name, seconds in times.items():
        sys.stdout.write(f"{name}: {1e3 * seconds / counts[name]:.3f} ms a divergence\n")
    for name, value in (("ours", ours), ("geomloss", theirs)):
        sys.stdout.write(f"{name}: at most {float((value - exact).abs().max()):.1e} off\n")


def naive(x: Tensor, a: Tensor, y: Tensor, b: Tensor, steps: int) -> None:
    """The same flow in calls of geomloss: its potentials of every pair at each step, all cold."""
    import geomloss

    eps = FLOW.eps
    loss = geomloss.SamplesLoss(
        "sinkhorn", p=2, blur=eps**0.5, scaling=SCALING, debias=True, backend="tensorized"
    )
    count, stored = len(x), len(y)
    q = torch.arange(count).repeat_interleave(stored)
    k = torch.arange(stored).repeat(count)
    x, log_a = x.clone(), a.log()
    for _ in range(steps):
        x_ = x.clone().requires_grad_()
        a_ = log_a.exp().requires_grad_()
        s = loss(a_[q], x_[q], b[k], y[k]).view(count, stored)
        value = -torch.logsumexp(-FLOW.beta * s, -1).sum() / FLOW.beta
        drift, phi = torch.autograd.grad(value, (x_, a_))
        weights = log_a.exp()
        x = x - FLOW.tau * drift / weights[..., None]
        phi = phi - (weights * phi).sum(-1, keepdim=True)
        log_a = (log_a - FLOW.eta * phi).log_softmax(-1)


def retrieve() -> None:
    """K = Q = 64, n = 24, d = 4: the case that took a naive prototype 173 s for 25 steps."""
    x, a, y, b = library(64, 24, 4, 2.0, 0, DAMAGE, None)
    patterns = Patterns.prepare(y, b, FLOW.eps)
    start, spent = time.perf_counter(), time.process_time()
    found = shk_retrieve(x, a, patterns, FLOW)
    wall, cpu = time.perf_counter() - start, time.process_time() - spent
    total = int(found.steps.max())
    sys.stdout.write(f"ours: {wall:.1f} s, {cpu:.1f} s of CPU time, for up to {total} steps\n")
    start, spent = time.perf_counter(), time.process_time()
    naive(x, a, y, b, 1)
    wall, cpu = time.perf_counter() - start, time.process_time() - spent
    sys.stdout.write(
        f"in calls of geomloss, without control: {wall:.1f} s, {cpu:.1f} s of CPU time a step, "
        f"{cpu * total:.0f} s for as many steps\n"
    )


def patterns() -> None:
    """Time against K, of 16 queries: the first look at all patterns, and 9 steps after it."""
    for count in (16, 64, 256, 1024):
        x, a, y, b = library(count, 16, 4, 2.0, 0, DAMAGE, 16)
        stored = Patterns.prepare(y, b, FLOW.eps)

        def spend(steps: int, given: tuple[Tensor, Tensor] = (x, a), p: Patterns = stored) -> float:
            start = time.process_time()
            shk_retrieve(*given, p, replace(FLOW, max_steps=steps))
            return time.process_time() - start

        spend(0)
        first, nine = spend(0), spend(9)
        sys.stdout.write(
            f"K = {count}: first look {first:.3f} s, then {(nine - first) / 9:.3f} s a step\n"
        )


def main() -> None:
    """Measures what the argument names, and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.sinkhorn_memory")
    parser.add_argument("what", choices=["divergence", "retrieve", "patterns"])
    what = parser.parse_args().what
    sys.stdout.write(f"{torch.get_num_threads()} threads\n")
    {"divergence": divergence, "retrieve": retrieve, "patterns": patterns}[what]()


if __name__ == "__main__":
    main()
