"""Solves covering instances: one draw of the random choice, policies of many, and their audit."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from zoo.base import ZooModule
from zoo.cover_files import CoverInstance
from zoo.errors import ZooError, check_choice
from zoo.fair_cover.audit import Audit, Policy, audit
from zoo.fair_cover.program import Bools, Relaxation, Residual, relax
from zoo.fair_cover.result import CoverSolution
from zoo.fair_cover.rounding import Counter, Drawn, covered_counts, draw, hard_elements

DRAW, TRIALS, POLICY = 0, 1, 2  # streams of random numbers


class CoverSolver(ZooModule):
    """The algorithm, without what is trained; a subclass may guess relaxations.

    Attributes:
        tau: Factor of the shares in a round.
        trials: Roundings with one threshold, of which the cheapest is kept.
        resolve: "lp" or "none".
        individual: "common" threshold, or "independent" ones.
        kc: Whether to strengthen relaxations.
        lp_backend: See :func:`zoo.fair_cover.program.relax`.
        rounding: "independent" or "dependent".
        prune: Whether to delete sets that are not needed.
        max_rounds: ``None`` for the bound of the analysis.
        solver_seed: Of the draws, with the instance's number.
    """

    tau: float
    trials: int
    resolve: str
    individual: str
    kc: bool
    lp_backend: str
    rounding: str
    prune: bool
    max_rounds: int | None
    solver_seed: int

    def relaxation(self, instance: CoverInstance, hard: Bools) -> Relaxation:
        """Of the instance with the hard elements covered. Shape of ``hard``: (n,)."""
        left = Residual.whole(instance, hard.astype(np.float64))
        return relax([left], self.lp_backend, self.kc, self.device.type)[0]

    def lower_bound(self, instance: CoverInstance) -> float:
        """No random choice that keeps the promises has a lower expected cost: LP(p, k)."""
        left = Residual.whole(instance, instance.promise)
        return relax([left], self.lp_backend, self.kc, self.device.type)[0].bound

    def draw_hard(
        self, instance: CoverInstance, theta: float | None, rng: np.random.Generator
    ) -> tuple[Bools, float]:
        """The elements that this realisation must cover, and the threshold. Shape: (n,)."""
        if theta is not None and not 0 < theta <= 1:
            raise ZooError(f"theta={theta} must lie in (0, 1].")
        if self.individual == "independent":
            if theta is not None:
                raise ZooError("individual='independent' has no common theta to be given.")
            return instance.promise >= 1 - rng.random(len(instance.promise)), float("nan")
        theta = 1 - float(rng.random()) if theta is None else theta  # uniform in (0, 1]
        return hard_elements(instance, theta), theta

    def round(
        self,
        instance: CoverInstance,
        hard: Bools,
        relaxation: Relaxation,
        seed: np.random.SeedSequence,
        trials: int,
    ) -> Drawn:
        """Roundings of one relaxation."""
        return draw(
            instance,
            hard,
            relaxation,
            seed.spawn(trials),
            self.tau,
            self.resolve,
            self.lp_backend,
            self.kc,
            self.rounding == "dependent",
            self.max_rounds,
            self.prune,
        )

    def solve(
        self, instance: CoverInstance, theta: float | None = None, number: int = 0
    ) -> CoverSolution:
        """Draws a threshold, and the cheapest of ``trials`` choices that fit it.

        Args:
            instance: What to solve.
            theta: In (0, 1]; ``None`` draws it. Choosing among solutions of several thresholds
                would break the promises: deploy a :meth:`policy` instead.
            number: Of the draw; another one gives another realisation.

        Raises:
            ZooError: If the instance cannot be solved.
        """
        began = time.perf_counter()
        instance.check()
        rng = np.random.default_rng([self.solver_seed, DRAW, number])
        hard, theta = self.draw_hard(instance, theta, rng)
        relaxation = self.relaxation(instance, hard)
        seed = np.random.SeedSequence([self.solver_seed, TRIALS, number])
        drawn = self.round(instance, hard, relaxation, seed, self.trials)
        best = int((drawn.chosen @ instance.cost).argmin())
        return solution(instance, drawn, best, relaxation.bound, theta, time.perf_counter() - began)

    def policy(self, instance: CoverInstance, draws: int = 200) -> Policy:
        """Independent realisations: deploy one of them at random, and the promises are kept.

        Draws whose thresholds make the same elements hard share a relaxation.

        Args:
            instance: What to solve.
            draws: K.
        """
        if draws < 1:
            raise ZooError(f"draws={draws} must be at least 1.")
        instance.check()
        rng = np.random.default_rng([self.solver_seed, POLICY])
        made = [self.draw_hard(instance, None, rng) for _ in range(draws)]
        chosen = np.zeros((draws, len(instance.cost)), dtype=bool)
        same: dict[bytes, list[int]] = {}
        for k, (hard, _) in enumerate(made):
            same.setdefault(hard.tobytes(), []).append(k)
        for members in same.values():
            hard = made[members[0]][0]
            seed = np.random.SeedSequence([self.solver_seed, POLICY, members[0]])
            relaxation = self.relaxation(instance, hard)
            chosen[members] = self.round(instance, hard, relaxation, seed, len(members)).chosen
        return Policy(chosen, np.array([theta for _, theta in made]), chosen @ instance.cost)

    def audit(self, instance: CoverInstance, policy: Policy) -> Audit:
        """Whether a policy's draws keep the promises, see :func:`~zoo.fair_cover.audit.audit`."""
        return audit(instance, policy)

    def price_of_fairness(self, instance: CoverInstance, levels: list[float]) -> list[float]:
        """Cost over that of meeting the first group's need alone, without promises.

        Args:
            instance: Its first group is everybody.
            levels: Shares of the other groups' needs and of the promises that are asked for.
        """
        costs = []
        for level in [0.0, *levels]:
            need = np.floor(level * instance.need).astype(np.int64)
            need[:1] = instance.need[:1]
            asked = replace(instance, need=need, promise=level * instance.promise)
            theta = None if self.individual == "independent" else 0.5
            costs.append(self.solve(asked, theta).cost)
        return [cost / max(costs[0], 1e-12) for cost in costs[1:]]


def check_options(
    tau: float, trials: int, resolve: str, individual: str, rounding: str, max_rounds: int | None
) -> None:
    """Raises a ZooError for an option of the algorithm that is out of range."""
    check_choice("resolve", resolve, ("lp", "none"))
    check_choice("individual", individual, ("common", "independent"))
    check_choice("rounding", rounding, ("independent", "dependent"))
    if not tau > 0 or trials < 1 or (max_rounds is not None and max_rounds < 1):
        raise ZooError(
            f"tau={tau}, trials={trials}, max_rounds={max_rounds}: expected tau > 0 and counts of "
            "at least 1."
        )


def solution(
    instance: CoverInstance,
    drawn: Drawn,
    trial: int,
    bound: float,
    theta: float,
    seconds: float,
) -> CoverSolution:
    """One trial as a result."""
    chosen = drawn.chosen[trial]
    covered, counts = covered_counts(instance, chosen)
    cost = float(chosen @ instance.cost)
    return CoverSolution(
        instance,
        np.flatnonzero(chosen),
        cost,
        bound,
        cost / bound if bound > 1e-12 else (1.0 if cost <= 1e-12 else float("inf")),
        theta,
        int(drawn.rounds[trial]),
        1 + drawn.programs,
        bool(drawn.completed[trial]),
        covered,
        counts,
        seconds,
    )


def is_feasible(instance: CoverInstance, hard: Bools, chosen: Bools) -> bool:
    """Whether one choice covers the hard elements and meets every need."""
    return bool(Counter(instance, hard).feasible(chosen[None])[0])
