"""Auctions' parts in seconds.

python -m benchmarks.speed.bayes_auction programs   # building and solving, by size
python -m benchmarks.speed.bayes_auction learners   # steps a second with 1, 64 and 1024 games
python -m benchmarks.speed.bayes_auction explicit   # against the game written out in full
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product

import numpy as np
import torch
from scipy.optimize import linprog

from zoo.auction_games import AuctionGame
from zoo.bayes_auction.dynamics import learn, random_strategies
from zoo.bayes_auction.module import games_of, tensors_of
from zoo.bayes_auction.polytope import Polytope, measure


def programs() -> None:
    """Radius and width of the expected bid, F = v^2."""
    for n in (6, 8, 10, 12):
        for concept in ("BCE", "BSCCE", "BCCE"):
            found = measure(AuctionGame.power(2.0, n), concept)
            share = found.build_seconds / (found.build_seconds + found.solve_seconds)
            sys.stdout.write(
                f"n = {n:<3}{concept:<6}{found.variables:6d} variables, built in "
                f"{found.build_seconds:.3f} s ({share:.1%}), three programs "
                f"{found.solve_seconds:.2f} s, radius {found.radius_w2:.3f}, width "
                f"{found.width['expected_bid']:.3f}\n"
            )


def learners() -> None:
    """Projected gradient ascent on 16 types and bids."""
    game = games_of(tensors_of(AuctionGame.power(2.0, 16))).double()
    for regrets in (False, True):
        seconds = {}
        for count, steps in ((1, 300), (64, 100), (1024, 30)):
            many = game.repeat(count)
            start = random_strategies(many, list(range(count)))
            learn(many, start, 3, regrets=regrets)
            began = time.perf_counter()
            learn(many, start, steps, regrets=regrets)
            seconds[count] = (time.perf_counter() - began) / steps
        rates = ", ".join(f"{count} games {1 / t:.1f}" for count, t in seconds.items())
        kind = "with" if regrets else "without"
        sys.stdout.write(
            f"{kind} regrets, steps/s: {rates}; 1024 games take {seconds[1024] / seconds[1]:.1f} "
            "times as long as one\n"
        )


def explicit() -> None:
    """BCCE against the same over whole strategies, whose number is exponential in n."""
    for n in (2, 3):
        game = AuctionGame.power(2.0, n)
        began = time.perf_counter()
        polytope = Polytope(game, "BCCE")
        ours = -polytope.maximise(polytope.objective("expected_bid")).value
        fast = time.perf_counter() - began
        began = time.perf_counter()
        theirs, size = _normal_form(game)
        slow = time.perf_counter() - began
        sys.stdout.write(
            f"n = {n}: ours {fast:.3f} s with {polytope.variables} variables, {ours:.4f}; normal "
            f"form {slow:.3f} s with {size} variables, {theirs:.4f}\n"
        )


def _normal_form(game: AuctionGame) -> tuple[float, int]:
    """Largest expected bid of any distribution over pure strategies that no type regrets."""
    pure = [np.array(s) for s in product(*(np.flatnonzero(row) for row in game.mask))]
    p, v, b = game.prior[0], game.values, game.bids
    size = len(pure)
    u, bid = np.zeros((size, size)), np.zeros((size, size))
    for x, y in product(range(size), repeat=2):
        a, c = pure[x][:, None], pure[y][None, :]
        win = (a > c) + 0.5 * (a == c)
        u[x, y] = (p[:, None] * p * win * (v[:, None] - b[a])).sum()
        bid[x, y] = (p @ b[pure[x]] + p @ b[pure[y]]) / 2
    number = {tuple(strategy): x for x, strategy in enumerate(pure)}
    rows = []
    for i, d in zip(*np.nonzero(game.mask), strict=True):  # type i bids d, whatever it was told
        other = [number[tuple(np.where(np.arange(len(v)) == i, d, s))] for s in pure]
        rows += [(u[other] - u).ravel(), (u[other] - u).T.ravel()]
    found = linprog(
        -bid.ravel(), np.stack(rows), np.zeros(len(rows)), np.ones((1, size * size)), [1.0]
    )
    return -found.fun, size * size


def main() -> None:
    """Measures what the argument names, and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.bayes_auction")
    parts = {f.__name__: f for f in (programs, learners, explicit)}
    parser.add_argument("what", choices=list(parts))
    torch.manual_seed(0)
    parts[parser.parse_args().what]()


if __name__ == "__main__":
    main()
