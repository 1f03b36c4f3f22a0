"""Capacity and theory of the Sinkhorn memory, and where it fails.

``python -m benchmarks.studies.sinkhorn_memory settings|capacity|theory --seeds 0 1 2 3 4``

``settings``: libraries from easy to hard, with Hopfield on coordinates and no flow at all on the
same queries. ``capacity``: how often queries are recovered, for dimensions and numbers of patterns,
and a plot. ``theory``: (a) how far from a pattern queries keep to it, (b) how fast the energy
converges, (c) how near the end is for rising beta. Capacity is (d). Everything is in the units of
the standardised cost, with eps 0.1 and beta 100 throughout: nothing is tuned here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.runner import RESULTS
from zoo.atomic import atomic_path, write_json
from zoo.datamodules.measures.clouds import Damage, gaussian_clouds
from zoo.layers.sinkhorn import sinkhorn_divergence
from zoo.measures import Measure, pad_samples
from zoo.sinkhorn_memory import Dynamics, Patterns, euclidean_hopfield, shk_retrieve
from zoo.sinkhorn_memory.calibration import recovered
from zoo.sinkhorn_memory.memory import Memory

FLOW = Dynamics(eps=0.1, beta=100.0)
DAMAGE = Damage(noise=0.3, shift=0.2, drop=0.25, reweigh=True)
SETTINGS = (
    (12, 16, 4, 2.0),
    (12, 16, 8, 1.0),
    (24, 16, 4, 1.5),
    (64, 24, 4, 2.0),
    (64, 16, 2, 1.0),
)
DIMS, COUNTS = (2, 4, 8, 16), (16, 64, 256, 1024)
SEP = 1.0  # of the capacity study: centres as near as the clouds are wide
QUERIES = 24  # of each cell of the capacity study
HARSH = Damage(noise=0.4, shift=0.3, drop=0.0, reweigh=False)
LEVELS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # of the damage, relative to DAMAGE


def library(
    count: int, points: int, dim: int, sep: float, seed: int, damage: Damage, queries: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries x, a and patterns y, b in standardised coordinates; query k is of pattern k."""
    rng = np.random.default_rng(seed)
    stored = gaussian_clouds(count, points, dim, sep, rng)
    asked = [damage(one, rng) for one in stored[:queries]]
    (y, b), (x, a) = _batch(stored), _batch(asked)
    memory = Memory(0, 0, dim, learn=False)
    memory.store(y, b, [one.label for one in stored])
    return memory.standardize(x, a), a, memory.points, memory.weights


def _batch(measures: Sequence[Measure]) -> tuple[Tensor, Tensor]:
    batch = pad_samples([one.sample() for one in measures])
    return batch["points"], batch["weights"]


def to_target(x: Tensor, a: Tensor, y: Tensor, b: Tensor) -> Tensor:
    """Divergence of query k from pattern k. Shape: (Q,)."""
    count = len(x)
    return sinkhorn_divergence(x, a, y[:count], b[:count], FLOW.eps).clamp_min(0)


def settings(seeds: Sequence[int]) -> list[str]:
    """One line for each library: right labels and divergence at the end, of three competitors."""
    lines = [
        "| K, n, d, sep | nearest, no flow: right | memory: right / S end / recovered | "
        "Hopfield on coordinates: right / S end | S start | steps that raise E |",
        "| --- " * 6 + "|",
    ]
    for case in SETTINGS:
        rows = []
        for seed in seeds:
            x, a, y, b = library(*case, seed, DAMAGE, None)
            truth = torch.arange(len(x))
            patterns = Patterns.prepare(y, b, FLOW.eps)
            start = to_target(x, a, y, b)
            first = shk_retrieve(x, a, patterns, replace(FLOW, max_steps=0))
            found = shk_retrieve(x, a, patterns, FLOW)
            end, good = recovered(
                found.points, found.weights, start, found.pattern_prob, patterns, truth, FLOW.eps
            )
            points, weights, prob = euclidean_hopfield(x, a, y, b, FLOW.beta)
            rows.append(
                [
                    (first.pattern_prob.argmax(1) == truth).float().mean().item(),
                    (found.pattern_prob.argmax(1) == truth).float().mean().item(),
                    end.mean().item(),
                    good.float().mean().item(),
                    (prob.argmax(1) == truth).float().mean().item(),
                    to_target(points, weights, y, b).mean().item(),
                    start.mean().item(),
                    (found.energy.diff(dim=1) > 1e-6).sum().item(),
                ]
            )
        near, right, s_end, rate, other, s_other, s_start, rises = map(
            statistics.mean, zip(*rows, strict=True)
        )
        lines.append(
            f"| {', '.join(f'{v:g}' for v in case)} | {near:.2f} | {right:.2f} / {s_end:.4f} / "
            f"{rate:.2f} | {other:.2f} / {s_other:.4f} | {s_start:.3f} | {rises:g} |"
        )
    return lines


def capacity(seeds: Sequence[int]) -> list[str]:
    """Share of queries with the right label and a tenth of their divergence at the end."""
    rates = {
        dim: [statistics.mean(_success(count, dim, seed) for seed in seeds) for count in COUNTS]
        for dim in DIMS
    }
    write_json(RESULTS / "sinkhorn_memory_capacity.json", {"K": COUNTS, "rate": rates})
    figure = Figure(figsize=(5.5, 4), layout="constrained")
    axis = figure.subplots()
    for dim, values in rates.items():
        axis.plot(COUNTS, values, marker="o", label=f"d = {dim}")
    axis.axhline(0.95, color="0.6", lw=0.8, ls="--")
    axis.set(xscale="log", xlabel="stored patterns K", ylabel="success rate", ylim=(0, 1.03))
    axis.legend()
    axis.grid(alpha=0.3)
    with atomic_path(RESULTS / "sinkhorn_memory_capacity.png") as path:
        figure.savefig(path, dpi=90)
    lines = [f"| d | {' | '.join(f'K = {k}' for k in COUNTS)} |", "| --- " * 5 + "|"]
    lines += [f"| {dim} | {' | '.join(f'{v:.2f}' for v in vs)} |" for dim, vs in rates.items()]
    return lines


def _success(count: int, dim: int, seed: int) -> float:
    """Of 24 queries: right label, and at most a tenth of the divergence left."""
    x, a, y, b = library(count, 8, dim, SEP, seed, HARSH, min(QUERIES, count))
    patterns = Patterns.prepare(y, b, FLOW.eps)
    found = shk_retrieve(x, a, patterns, replace(FLOW, max_steps=25))
    right = found.pattern_prob.argmax(1) == torch.arange(len(x))
    near = to_target(found.points, found.weights, y, b) <= 0.1 * to_target(x, a, y, b)
    return (right & near).float().mean().item()


def theory(seeds: Sequence[int]) -> list[str]:
    """Lines for basins, convergence and closeness."""
    lines, starts, kept, slopes = [], [], [], []
    separations = []
    for seed in seeds:
        for level in LEVELS:
            damage = Damage(0.3 * level, 0.2 * level, 0.25, reweigh=True)
            x, a, y, b = library(24, 16, 4, 2.0, seed, damage, None)
            patterns = Patterns.prepare(y, b, FLOW.eps)
            found = shk_retrieve(x, a, patterns, FLOW)
            right = found.pattern_prob.argmax(1) == torch.arange(len(x))
            starts.append(to_target(x, a, y, b))
            kept.append(right)
            if level == 1.0:
                slopes += _slopes(found.energy[right], found.steps[right])
        between = shk_retrieve(y, b, patterns, replace(FLOW, max_steps=0)).divergence
        separations.append((between + torch.eye(len(y)) * 1e9).min().item())
    start, right = torch.cat(starts), torch.cat(kept)
    lost = start[~right]
    radius = lost.min().item() if len(lost) else start.max().item()
    share = (start < radius).float().mean().item()
    lines.append(
        f"(a) separation Delta {min(separations):.3f} to {max(separations):.3f}; every query with "
        f"S < {radius:.3f} keeps its pattern ({share:.0%} of {len(start)}); beyond it "
        f"{right[start >= radius].float().mean():.0%} do."
    )
    lines.append(
        f"(b) log of the energy above its end falls by {-statistics.median(slopes):.3f} a step "
        f"(median of {len(slopes)} queries; quartiles "
        f"{-np.quantile(slopes, 0.75):.3f} to {-np.quantile(slopes, 0.25):.3f})."
    )
    for beta in (5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0):
        ends = []
        for seed in seeds:  # from the patterns themselves, so that only beta keeps them away
            _, _, y, b = library(24, 16, 4, 2.0, seed, DAMAGE, None)
            patterns = Patterns.prepare(y, b, FLOW.eps)
            found = shk_retrieve(y, b, patterns, replace(FLOW, beta=beta))
            ends.append(to_target(found.points, found.weights, y, b).mean().item())
        lines.append(f"(c) beta {beta:g}: mean S from the pattern {statistics.mean(ends):.2e}")
    return lines


def _slopes(energy: Tensor, steps: Tensor) -> list[float]:
    """Slope of log(E_t - E_end) over the first half of each query's steps."""
    found = []
    for trace, last in zip(energy, steps.tolist(), strict=True):
        half = max(3, last // 2)
        if last >= 6:
            above = (trace[:half] - trace[last]).clamp_min(1e-9).log()
            found.append(float(np.polyfit(np.arange(half), above.numpy(), 1)[0]))
    return found


def main() -> None:
    """Runs what is asked for and prints it in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.sinkhorn_memory")
    parser.add_argument("what", choices=["settings", "capacity", "theory"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options = parser.parse_args()
    start = time.process_time()
    lines = {"settings": settings, "capacity": capacity, "theory": theory}[options.what](
        options.seeds
    )
    seconds = time.process_time() - start
    seeds = " ".join(map(str, options.seeds))
    command = f"python -m benchmarks.studies.sinkhorn_memory {options.what} --seeds {seeds}"
    sys.stdout.write("\n".join([*lines, "", f"`{command}`, {seconds:.0f} s of CPU time"]) + "\n")


if __name__ == "__main__":
    main()
