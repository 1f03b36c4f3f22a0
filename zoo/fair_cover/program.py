"""The linear relaxation of a covering instance, and what is left of it while sets are chosen.

Notation:
    x_S  share of set S; the chance that S is chosen
    z_j  share of element j that is covered; its chance of being covered
    k_c  members of group c that must be covered
    lo_j lower bound of z_j: the promise p_j, or 1 for the elements that this draw must cover

    LP(lo, k): min c'x  subject to  A x >= z,  G z >= k,  lo <= z <= 1,  0 <= x <= 1

With lo = p its value bounds the expected cost of every random solution that keeps the promises.
Rows and columns that cannot matter are left out: elements in no group that nobody must cover, sets
that hold no other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, hstack, vstack

from zoo.cover_files import CoverInstance
from zoo.errors import check_choice
from zoo.solvers import LinearProgram, Solution, solve_highs, solve_pdhg

BACKENDS = ("auto", "highs", "pdhg")
LARGE = 2_000_000  # nonzeros from which "auto" takes the method of first order
PDHG_TOLERANCE = 1e-4

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Residual:
    """What is still to be done: of the whole instance at first, less after each round.

    Attributes:
        instance: The instance.
        uncovered: Elements that no chosen set holds. Shape: (n,).
        least: lo_j. Shape: (n,).
        need: k_c less what is covered; 0 or less is met. Shape: (l,).
        available: Sets that are not chosen. Shape: (M,).
    """

    instance: CoverInstance
    uncovered: Bools
    least: Floats
    need: Ints
    available: Bools

    @classmethod
    def whole(cls, instance: CoverInstance, least: Floats) -> Residual:
        """Before anything is chosen."""
        n, m = instance.membership.shape
        return cls(
            instance,
            np.ones(n, dtype=bool),
            least.astype(np.float64),
            instance.need.astype(np.int64),
            np.ones(m, dtype=bool),
        )


@dataclass(frozen=True)
class Relaxation:
    """A solved relaxation.

    Attributes:
        x: Of all sets; 0 where one is not in the program. Shape: (M,).
        duals: Multipliers of all groups. Shape: (l,).
        bound: What the multipliers prove.
        solution: As the solver gave it, of the reduced program.
    """

    x: Floats
    duals: Floats
    bound: float
    solution: Solution


@dataclass(frozen=True)
class CoverProgram:
    """The reduced program, and which of the instance's sets, elements and groups are in it."""

    program: LinearProgram
    sets: Ints
    elements: Ints
    groups: Ints
    shape: tuple[int, int]  # sets and groups of the instance

    def unpack(self, solution: Solution) -> Relaxation:
        """In the instance's own numbering."""
        x, duals = np.zeros(self.shape[0]), np.zeros(self.shape[1])
        x[self.sets] = solution.x[: len(self.sets)].clip(0, 1)
        first = len(self.elements)
        duals[self.groups] = solution.y[first : first + len(self.groups)].clip(0)
        return Relaxation(x, duals, solution.bound, solution)

    def point(self, x: Floats, duals: Floats) -> tuple[Floats, Floats]:
        """A primal and dual point of the reduced program from guesses for sets and groups."""
        own = x[self.sets]
        count = len(self.elements)
        cover = self.program.rows[:count, : len(own)] @ own
        z = cover.clip(self.program.lower[len(own) :], 1)
        y = np.zeros(len(self.program.least))
        y[count : count + len(self.groups)] = duals[self.groups]
        return np.concatenate([own, z]), y


def cover_program(left: Residual, knapsack: Ints | None = None) -> CoverProgram:
    """LP(lo, k) of what is left.

    Args:
        left: What is still to be done.
        knapsack: Groups that get a row with truncated coefficients, sum_S min(|S and P_c|, k_c)
            x_S >= k_c: without it the gap is unbounded when one set covers far more than k_c.
    """
    instance = left.instance
    groups = np.flatnonzero(left.need > 0)
    wanted = left.uncovered & (left.least > 0)
    if len(groups):
        in_group = np.asarray(instance.groups[groups].sum(axis=0)).ravel() > 0
        wanted |= left.uncovered & in_group & instance.coverable
    elements = np.flatnonzero(wanted)
    a = instance.membership[elements]
    sets = np.flatnonzero((np.asarray(a.sum(axis=0)).ravel() > 0) & left.available)
    a = csr_array(a[:, sets], dtype=np.float64)
    g = csr_array(instance.groups[groups][:, elements], dtype=np.float64)
    need = left.need[groups].astype(np.float64)
    rows = [
        hstack([a, -diags_array(np.ones(len(elements)))], format="csr"),
        hstack([csr_array((len(groups), len(sets))), g], format="csr"),
    ]
    least = [np.zeros(len(elements)), need]
    if knapsack is not None and len(knapsack):
        chosen = np.flatnonzero(np.isin(groups, knapsack))
        sizes = csr_array(g[chosen] @ a)
        limit = np.repeat(need[chosen], np.diff(sizes.indptr))
        sizes.data = np.minimum(sizes.data, limit)
        rows.append(hstack([sizes, csr_array((len(chosen), len(elements)))], format="csr"))
        least.append(need[chosen])
    m, n = len(sets), len(elements)
    program = LinearProgram(
        np.concatenate([instance.cost[sets], np.zeros(n)]),
        csr_array(vstack(rows, format="csr")),
        np.concatenate(least),
        np.concatenate([np.zeros(m), left.least[elements]]),
        np.ones(m + n),
    )
    return CoverProgram(program, sets, elements, groups, (len(left.available), len(left.need)))


def violated_knapsacks(left: Residual, x: Floats) -> Ints:
    """Groups whose row with truncated coefficients x violates."""
    instance = left.instance
    groups = np.flatnonzero(left.need > 0)
    members = instance.groups[groups].multiply(left.uncovered[None, :].astype(np.int32))
    sizes = csr_array(csr_array(members) @ instance.membership).astype(np.float64)
    sizes.data = np.minimum(sizes.data, np.repeat(left.need[groups], np.diff(sizes.indptr)))
    found: Ints = groups[sizes @ x < left.need[groups] - 1e-6]
    return found


def relax(
    lefts: Sequence[Residual], backend: str = "auto", knapsack: bool = False, device: str = "cpu"
) -> list[Relaxation]:
    """Solves relaxations: one by one with HiGHS, all at once with the method of first order.

    Args:
        lefts: What is left of each.
        backend: "highs", "pdhg", or "auto" by size.
        knapsack: Add rows with truncated coefficients where they are violated, and solve again.
        device: Of the method of first order.

    Raises:
        ZooError: If a program is infeasible.
    """
    check_choice("lp_backend", backend, BACKENDS)
    programs = [cover_program(left) for left in lefts]
    found = _solve(programs, backend, device)
    if not knapsack:
        return found
    cuts = [violated_knapsacks(left, r.x) for left, r in zip(lefts, found, strict=True)]
    again = [i for i, groups in enumerate(cuts) if len(groups)]
    stronger = _solve([cover_program(lefts[i], cuts[i]) for i in again], backend, device)
    for i, relaxation in zip(again, stronger, strict=True):
        found[i] = relaxation
    return found


def _solve(programs: Sequence[CoverProgram], backend: str, device: str) -> list[Relaxation]:
    size = sum(p.program.rows.nnz for p in programs)
    if backend == "pdhg" or (backend == "auto" and size >= LARGE):
        solutions = solve_pdhg([p.program for p in programs], PDHG_TOLERANCE, device=device)
    else:
        solutions = [solve_highs(p.program, "The relaxation") for p in programs]
    return [p.unpack(s) for p, s in zip(programs, solutions, strict=True)]
