"""Fair covering's parts in seconds, beside what a planner would pick instead.

python -m benchmarks.speed.fair_cover planners   # rounding, greedy, older rounding, ILP
python -m benchmarks.speed.fair_cover pdhg       # 64 programs at once against one by one
python -m benchmarks.speed.fair_cover trials     # 1000 roundings of a large district at once
python -m benchmarks.speed.fair_cover large      # 200,000 people, 20,000 sites, 50 groups
python -m benchmarks.speed.fair_cover audit      # 2000 draws against every promise
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import Any

import numpy as np
import torch

from benchmarks.speed.timing import in_turns
from zoo import FairCover
from zoo.cover_files import CoverInstance
from zoo.datamodules.cover.generators import district, outbreak
from zoo.fair_cover.baselines import solve_baseline
from zoo.fair_cover.program import Bools, Relaxation, Residual, cover_program, relax
from zoo.fair_cover.rounding import draw
from zoo.solvers import solve_highs, solve_pdhg


def _prepared(instance: CoverInstance, theta: float) -> tuple[Bools, Relaxation]:
    hard = instance.promise >= theta
    return hard, relax([Residual.whole(instance, hard.astype(np.float64))])[0]


def planners() -> None:
    """Whole solves of the same hard elements, linear programs included."""
    for size, seeds in (((300, 100, 6), 6), ((1000, 300, 10), 4)):
        totals: dict[str, list[float]] = {}
        for seed in range(seeds):
            instance = district(*size, 900_000 + seed)
            theta = 1 - np.random.default_rng(seed).random()
            hard = instance.promise >= theta

            def rounding(trials: int, instance: Any = instance, hard: Any = hard) -> Any:
                left = Residual.whole(instance, hard.astype(np.float64))
                seeds = np.random.SeedSequence(0).spawn(trials)
                return draw(instance, hard, relax([left])[0], seeds)

            def other(name: str, instance: Any = instance, hard: Any = hard) -> Any:
                left = Residual.whole(instance, hard.astype(np.float64))
                first = relax([left])[0] if name.startswith("iv") else None
                rng = np.random.default_rng(0)
                return solve_baseline(name, instance, hard, first, rng, 10.0)  # type: ignore[arg-type]

            found = in_turns(
                {
                    "rounding, 1 trial": lambda f=rounding: f(1),
                    "rounding, 8 trials": lambda f=rounding: f(8),
                    "greedy + prune": lambda f=other: f("greedy"),
                    "Inamdar-Varadarajan + prune": lambda f=other: f("iv_prune"),
                    "integer programming (10 s limit)": lambda f=other: f("ilp"),
                },
                rounds=1,
                warm_up=0,
            )
            for name, seconds in found.items():
                totals.setdefault(name, []).append(seconds)
        for name, values in totals.items():
            sys.stdout.write(f"{size} {name:<34}{np.mean(values):8.3f} s (max {max(values):.2f})\n")


def pdhg() -> None:
    """Batched against looped, on 64 small districts."""
    programs = []
    for seed in range(64):
        instance = district(100, 40, 4, seed)
        programs.append(cover_program(Residual.whole(instance, instance.promise)).program)
    found = in_turns(
        {
            "64 at once": lambda: solve_pdhg(programs),
            "one by one": lambda: [solve_pdhg([p]) for p in programs],
            "HiGHS, one by one": lambda: [solve_highs(p) for p in programs],
        },
        rounds=1,
    )
    for name, seconds in found.items():
        sys.stdout.write(f"{name:<24}{seconds:8.2f} s\n")


def trials() -> None:
    """1000 roundings, completed and pruned, without solving again."""
    instance = district(3000, 800, 20, 0)
    hard, relaxation = _prepared(instance, 0.5)
    began = time.perf_counter()
    drawn = draw(instance, hard, relaxation, np.random.SeedSequence(0).spawn(1000), resolve="none")
    seconds = time.perf_counter() - began
    ratio = float((drawn.chosen @ instance.cost).min()) / relaxation.bound
    sys.stdout.write(f"1000 trials {seconds:.2f} s, the best {ratio:.3f} of the bound\n")


def large() -> None:
    """The largest size: one relaxation of first order, eight roundings."""
    began = time.perf_counter()
    instance = district(200_000, 20_000, 50, 0)
    sys.stdout.write(
        f"generated in {time.perf_counter() - began:.1f} s, {instance.membership.nnz} memberships\n"
    )
    hard = instance.promise >= 0.5
    left = Residual.whole(instance, hard.astype(np.float64))
    began = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    (found,) = relax([left], "pdhg", device=device)
    sys.stdout.write(
        f"relaxation by PDHG on {device}: {time.perf_counter() - began:.1f} s, "
        f"{found.solution.iterations} iterations, value {found.solution.value:.1f}, "
        f"bound {found.bound:.1f}\n"
    )
    began = time.perf_counter()
    drawn = draw(instance, hard, found, np.random.SeedSequence(0).spawn(8), resolve="none")
    cost = float((drawn.chosen @ instance.cost).min())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sys.stdout.write(
        f"8 trials {time.perf_counter() - began:.1f} s, cost {cost:.1f}, {cost / found.bound:.3f} "
        f"of the bound; peak {peak:.2f} GiB\n"
    )


def audit() -> None:
    """Policies of 2000 draws, against every promise with 99 % confidence."""
    for make in (district, outbreak):
        instance = make(300, 100, 6, 0)
        model = FairCover(predictor_width=0, trials=1)
        began = time.perf_counter()
        policy = model.policy(instance, 2000)
        found = model.audit(instance, policy)
        sys.stdout.write(
            f"{instance.name}: {time.perf_counter() - began:.1f} s, worst gap "
            f"{found.worst_individual_gap:.4f}, refuted promises {len(found.broken)}, groups met "
            f"in {found.groups_met:.4f}, mean cost {policy.mean_cost:.3f} against LP(p, k) "
            f"{model.lower_bound(instance):.3f}\n"
        )


def main() -> None:
    """Measures what the argument names, and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.fair_cover")
    parts = {f.__name__: f for f in (planners, pdhg, trials, large, audit)}
    parser.add_argument("what", choices=list(parts))
    parts[parser.parse_args().what]()


if __name__ == "__main__":
    main()
