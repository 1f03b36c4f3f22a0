"""Correlated play that no bidder regrets, as linear programs: BCE, BSCCE and BCCE.

Notation, two bidders, states s = (type i, bid a):
    sigma(s, t)      chance of bids a and c given types i and j; a bid tells nothing of the other's
                     type: sum_c sigma(a, c | i, j) is the same for all j
    M_i(a -> d)      sum_j p_j sum_c sigma(a, c | i, j) (u(v_i, b_d, b_c) - u(v_i, b_a, b_c)): what
                     type i would gain by bidding d whenever it bids a
    BCE              M_i(a -> d) <= 0
    BCCE             sum_a M_i(a -> d) <= 0: no gain from one bid always
    BSCCE            no gain from any map of bids that is the flow of a gradient field on the
                     simplex, P(a -> d) - P(d -> a) = g_d - g_a. That is what gradient ascent cannot
                     regret: along it a quadratic h with such a gradient grows by <grad h, u>, and h
                     is bounded. By duality: there is an antisymmetric circulation y with
                     M_i(a -> d) <= y_i(a, d) and sum_a y_i(a, d) = 0.

y = 0 gives BCE; summed over a, BSCCE gives BCCE; so BCE <= BSCCE <= BCCE. sigma of types and bids
is a relaxation of distributions over whole strategies, of polynomial size; time averages of play
lie in it, so bounds hold. The semicoarse class and its program are our derivation from arXiv
2502.20466; BCCE as in arXiv 2401.01185. All rows are built from index arrays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, hstack

from zoo.auction_games import AuctionGame
from zoo.errors import ZooError, check_choice
from zoo.solvers import LinearProgram, Solution, solve_highs

CONCEPTS = ("BCE", "BSCCE", "BCCE")
FUNCTIONS = ("expected_bid", "revenue", "welfare", "surplus")
MAX_VARIABLES = 60_000  # of a program; larger ones take hours
SIMPLEX = 3000  # variables from which interior points are faster

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PolytopeReport:
    """How far a set of outcomes reaches.

    Attributes:
        concept: "BCE", "BSCCE" or "BCCE".
        radius_w2: Largest Wasserstein-2 distance of the law of type and bid from the equilibrium of
            the continuous game.
        width: Largest less least value of each function that was asked for.
        worst: Bid distribution of each type at the largest distance. Shape: (n, m).
        variables: Of the program.
        build_seconds: To make it.
        solve_seconds: To solve all of them.
    """

    concept: str
    radius_w2: float
    width: dict[str, float]
    worst: Array
    variables: int
    build_seconds: float
    solve_seconds: float

    @property
    def diameter_inf(self) -> float:
        """Largest width of the mean bid of a type, if the types' were asked for."""
        found = [v for k, v in self.width.items() if k.startswith("mean_bid_")]
        return max(found, default=float("nan"))


@dataclass
class _Rows:
    """Rows of a sparse matrix in the making."""

    row: list[Ints] = field(default_factory=list)
    column: list[Ints] = field(default_factory=list)
    value: list[Array] = field(default_factory=list)
    least: list[Array] = field(default_factory=list)
    equal: list[NDArray[np.bool_]] = field(default_factory=list)
    count: int = 0

    def add(self, row: Ints, column: Ints, value: Array, least: Array, equal: bool) -> None:
        """Adds ``len(least)`` rows, numbered from 0."""
        self.row.append(row.ravel() + self.count)
        self.column.append(column.ravel())
        self.value.append(np.broadcast_to(value, row.shape).ravel())
        self.least.append(least)
        self.equal.append(np.full(len(least), equal))
        self.count += len(least)


class Polytope:
    """The linear constraints of one game and concept.

    Args:
        game: Of two bidders.
        concept: Of :data:`CONCEPTS`.
        symmetric: Tie sigma(s, t) = sigma(t, s), which halves the program; ``None``: if the game
            is symmetric.

    Raises:
        ZooError: For more than two bidders, or a program that is too large.
    """

    def __init__(self, game: AuctionGame, concept: str, symmetric: bool | None = None) -> None:
        began = time.perf_counter()
        check_choice("concept", concept, CONCEPTS)
        game.check()
        if len(game.prior) != 2:
            raise ZooError(
                f"{game.name} has {len(game.prior)} bidders: the linear programs are of two, since "
                "pairs do not determine the play of more."
            )
        self.game, self.concept = game, concept
        self.symmetric = game.symmetric if symmetric is None else symmetric
        if self.symmetric and not game.symmetric:
            raise ZooError(f"{game.name}: symmetric=True, but the bidders' priors differ.")
        self.types, self.actions = (x.astype(np.int64) for x in np.nonzero(game.mask))
        self.states = len(self.types)
        k = self.states
        pairs = k * (k + 1) // 2 if self.symmetric else k * k
        moves = sum(int(c) * (int(c) - 1) // 2 for c in game.mask.sum(axis=1))
        self.circulation = moves * (1 if self.symmetric else 2) if concept == "BSCCE" else 0
        self.variables = pairs + self.circulation
        if self.variables > MAX_VARIABLES:
            raise ZooError(
                f"{game.name}: the program would have {self.variables} variables: expected at most "
                f"{MAX_VARIABLES}, that is about {int((2 * MAX_VARIABLES) ** 0.25 * 1.2)} types "
                "and bids."
            )
        s, t = np.indices((k, k))
        if self.symmetric:
            low, high = np.minimum(s, t), np.maximum(s, t)
            self.index = low * k - low * (low - 1) // 2 + (high - low)
        else:
            self.index = s * k + t
        self._pairs = pairs
        self._build()
        self.build_seconds = time.perf_counter() - began

    def _build(self) -> None:
        game, n = self.game, len(self.game.values)
        rows = _Rows()
        players = (0,) if self.symmetric else (0, 1)
        # Chances of each pair of types sum to 1.
        cell = self.types[:, None] * n + self.types[None, :]
        rows.add(cell, self.index, np.ones(1), np.ones(n * n), True)
        for player in players:
            sigma = self.index if player == 0 else self.index.T  # own state, then the other's
            # No signalling: as with the other's first type, so with each.
            own = np.arange(self.states)[:, None]
            other = np.broadcast_to(self.types[None, :], sigma.shape)
            later = other > 0
            spread = own * (n - 1)
            row = np.broadcast_to(spread, sigma.shape)[later] + other[later] - 1
            rows.add(row, sigma[later], np.ones(1), np.zeros(0), True)
            first = np.broadcast_to(other == 0, sigma.shape)
            base, column = np.nonzero(first)
            row = (base[:, None] * (n - 1) + np.arange(n - 1)).ravel()
            repeated = np.repeat(sigma[base, column], n - 1)
            rows.add(row, repeated, -np.ones(1), np.zeros(self.states * (n - 1)), True)
            self._add_regrets(rows, sigma, player)
        matrix = coo_array(
            (np.concatenate(rows.value), (np.concatenate(rows.row), np.concatenate(rows.column))),
            shape=(rows.count, self.variables),
        )
        least, equal = np.concatenate(rows.least), np.concatenate(rows.equal)
        reach = float(game.values[-1] + game.bids[-1])  # no payoffs differ by more
        lower, upper = np.zeros(self.variables), np.ones(self.variables)
        lower[self._pairs :], upper[self._pairs :] = -reach, reach
        self.program = LinearProgram(
            np.zeros(self.variables), csr_array(matrix), least, lower, upper, equal
        )

    def _add_regrets(self, rows: _Rows, sigma: Ints, player: int) -> None:
        """M_i(a -> d) <= y_i(a, d), or its sum over a."""
        game = self.game
        gain = _gains(game)  # (n, m, m, m): type, own bid a, deviation d, other's bid c
        prior = game.prior[1 - player]
        allowed = game.mask[self.types]  # (K, m): deviations d of each own state
        # Triplets (own state s, deviation d, other's state t).
        s, d = np.nonzero(allowed)
        keep = d != self.actions[s]
        s, d = s[keep], d[keep]  # (D,)
        t = np.arange(self.states)
        value = (
            prior[self.types][None, :]
            * gain[self.types[s][:, None], self.actions[s][:, None], d[:, None], self.actions[t]]
        )  # (D, K)
        column = sigma[s]  # (D, K)
        if self.concept == "BCCE":
            number = self.types[s] * len(game.bids) + d
            _, row = np.unique(number, return_inverse=True)
            row = np.broadcast_to(row.reshape(-1)[:, None], column.shape)
            rows.add(row, column, -value, np.zeros(int(row.max(initial=-1)) + 1), False)
            return
        row = np.broadcast_to(np.arange(len(s))[:, None], column.shape)
        if self.concept == "BCE":
            rows.add(row, column, -value, np.zeros(len(s)), False)
            return
        # y of a type's pairs a < d; y(d, a) = -y(a, d).
        low, high = np.minimum(self.actions[s], d), np.maximum(self.actions[s], d)
        count = game.mask.sum(axis=1).astype(np.int64)
        offset = np.r_[0, np.cumsum(count * (count - 1) // 2)]
        width = count[self.types[s]]
        # Allowed bids are the lowest ones of a type, so a bid's number is its place among them.
        place = low * width - low * (low + 1) // 2 + (high - low - 1)
        y = self._pairs + offset[self.types[s]] + place
        y = y + (self.circulation // 2 if player == 1 else 0)
        sign = np.where(self.actions[s] < d, 1.0, -1.0)
        rows.add(row, column, -value, np.zeros(0), False)
        rows.add(np.arange(len(s)), y, sign, np.zeros(len(s)), False)
        # sum_a y(a, d) = 0 for each type and d.
        number = self.types[s] * len(game.bids) + d
        _, row = np.unique(number, return_inverse=True)
        row = row.reshape(-1)
        rows.add(row, y, sign, np.zeros(int(row.max(initial=-1)) + 1), True)

    # -- objectives --------------------------------------------------------------------------

    def objective(self, name: str) -> Array:
        """Coefficients of a function of the outcome, mean over the bidders. Shape: (variables,).

        Args:
            name: "w2", "expected_bid", "revenue", "welfare", "surplus", or "mean_bid_<type>".
        """
        game = self.game
        if name == "w2":
            target = game.equilibrium()
            if target is None:
                raise ZooError(f"{game.name}: the equilibrium of bidders who differ is not known.")
            return self._marginal((game.bids[None] - target[:, None]) ** 2 * game.prior[0][:, None])
        if name == "expected_bid":
            return self._marginal(np.outer(game.prior[0], game.bids))
        if name.startswith("mean_bid_"):
            which = np.zeros(len(game.values))
            which[int(name.removeprefix("mean_bid_"))] = 1
            return self._marginal(np.outer(which, game.bids))
        check_choice("function", name, (*FUNCTIONS, "w2", "mean_bid_<type>"))
        i, a = self.types[:, None], self.actions[:, None]
        j, c = self.types[None, :], self.actions[None, :]
        win = (a > c) + 0.5 * (a == c)
        chance = game.prior[0][i] * game.prior[1][j]
        welfare = win * game.values[i] + (1 - win) * game.values[j]
        surplus = _payoff(game, i, a, c)
        other = _payoff(game, j, c, a)
        revenue = welfare - surplus - other
        value = {"revenue": revenue, "welfare": welfare, "surplus": (surplus + other) / 2}[name]
        found = np.zeros(self.variables)
        np.add.at(found, self.index.ravel(), (chance * value).ravel())
        return found

    def _marginal(self, weight: Array) -> Array:
        """Sum weight(i, a) sigma_i(a), mean over the bidders. Shape: (n, m) to (variables,)."""
        found = np.zeros(self.variables)
        own = weight[self.types, self.actions]
        first = self.types == 0  # whatever the other's type is
        for sigma in (self.index, self.index.T):
            np.add.at(found, sigma[:, first], np.repeat(own[:, None] / 2, first.sum(), axis=1))
        return found

    def bid_distribution(self, x: Array) -> Array:
        """Bids of each type of the first bidder. Shape: (variables,) to (n, m)."""
        found = np.zeros(self.game.mask.shape)
        first = self.types == 0
        found[self.types, self.actions] = x[self.index[:, first]].sum(axis=1)
        return found

    def maximise(self, objective: Array) -> Solution:
        """The largest value of a function: that of the solution, negated.

        Raises:
            ZooError: If the solver does not end at an optimum.
        """
        p = self.program
        program = LinearProgram(-objective, p.rows, p.least, p.lower, p.upper, p.equal)
        method = "highs" if self.variables < SIMPLEX else "highs-ipm"
        return solve_highs(program, f"{self.game.name}, {self.concept}", method)

    def violation(self, joint: Array) -> float:
        """How far a joint distribution of play is from this set: its largest violated row.

        Args:
            joint: sigma; of BSCCE the best circulation is taken. Shape: (n, m, n, m).
        """
        full = joint[self.types, self.actions][:, self.types, self.actions]
        if self.symmetric:
            full = (full + full.T) / 2
        x = np.zeros(self._pairs)
        x[self.index.ravel()] = full.ravel()
        p = self.program
        fixed = p.rows[:, : self._pairs] @ x
        if not self.circulation:
            short = p.least - fixed
        else:  # the least e with rows + e >= least over circulations
            assert p.equal is not None
            y = p.rows[:, self._pairs :]
            own = np.diff(csr_array(y).indptr) > 0
            slack = coo_array(np.where(p.equal[own], 0.0, 1.0)[:, None])
            small = LinearProgram(
                np.r_[np.zeros(self.circulation), 1.0],
                csr_array(hstack([y[own], slack])),
                (p.least - fixed)[own],
                np.r_[p.lower[self._pairs :], 0.0],
                np.r_[p.upper[self._pairs :], 2 * float(p.upper[-1])],
                p.equal[own],
            )
            short = (p.least - fixed)[~own]
            equal = p.equal[~own]
            rest = np.where(equal, abs(short), np.maximum(short, 0)).max(initial=0)
            return float(max(rest, solve_highs(small, "The circulation").value))
        equal = p.equal if p.equal is not None else np.zeros(len(short), bool)
        return float(np.where(equal, abs(short), np.maximum(short, 0)).max(initial=0))


def measure(
    game: AuctionGame,
    concept: str,
    functions: Sequence[str] = ("expected_bid",),
    symmetric: bool | None = None,
) -> PolytopeReport:
    """Radius and widths of a set.

    Args:
        game: Of two bidders.
        concept: Of :data:`CONCEPTS`.
        functions: See :meth:`Polytope.objective`; each is two programs.
        symmetric: See :class:`Polytope`.
    """
    polytope = Polytope(game, concept, symmetric)
    began = time.perf_counter()
    far = polytope.maximise(polytope.objective("w2"))
    width = {}
    for name in functions:
        objective = polytope.objective(name)
        width[name] = -polytope.maximise(objective).value - polytope.maximise(-objective).value
    return PolytopeReport(
        concept,
        float(np.sqrt(max(0.0, -far.value))),
        width,
        polytope.bid_distribution(far.x),
        polytope.variables,
        polytope.build_seconds,
        time.perf_counter() - began,
    )


def _payoff(game: AuctionGame, type_: Ints, own: Ints, other: Ints) -> Array:
    """u(v, b, b') of two bidders, of any broadcastable indices."""
    v, b, c = game.values[type_], game.bids[own], game.bids[other]
    win = (own > other) + 0.5 * (own == other)
    if game.payment == "first":
        found = win * (v - b)
    elif game.payment == "all_pay":
        found = win * v - b
    else:
        found = win * (v - c)
    return np.asarray(found, dtype=np.float64)


def _gains(game: AuctionGame) -> Array:
    """u(v_i, b_d, b_c) - u(v_i, b_a, b_c). Shape: (n, m, m, m), by type, a, d, c."""
    n, m = game.mask.shape
    i, b, c = np.indices((n, m, m))
    u = _payoff(game, i, b, c)
    found: Array = u[:, None, :, :] - u[:, :, None, :]
    return found
