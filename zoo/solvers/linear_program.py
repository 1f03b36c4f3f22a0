"""Linear programs over a box, solved exactly by HiGHS, and bounds that any multipliers prove.

    minimise c'x  subject to  K x >= b (or = b),  lower <= x <= upper

Weak duality: for any y with y >= 0 in the rows of inequalities, b'y + sum_j min over the box of
(c - K'y)_j x_j is a lower bound on the value. So an inexact solver's multipliers still certify.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from zoo.errors import ZooError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LinearProgram:
    """A linear program over a box.

    Attributes:
        cost: c. Shape: (N,).
        rows: K. Shape: (R, N).
        least: b. Shape: (R,).
        lower: Shape: (N,), finite.
        upper: Shape: (N,), finite.
        equal: Rows that are equations; ``None`` if none is. Shape: (R,), bool.
    """

    cost: Array
    rows: csr_array
    least: Array
    lower: Array
    upper: Array
    equal: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Solution:
    """Of a linear program.

    Attributes:
        x: Primal. Shape: (N,).
        y: Multipliers of the rows. Shape: (R,).
        value: c'x.
        bound: What y proves: no feasible point costs less.
        iterations: Of the solver.
        seconds: Wall time.
    """

    x: Array
    y: Array
    value: float
    bound: float
    iterations: int
    seconds: float


def dual_bound(program: LinearProgram, y: Array) -> float:
    """The lower bound that multipliers prove, whatever they are.

    Args:
        program: The linear program.
        y: Negative entries in rows of inequalities are cut off. Shape: (R,).
    """
    free = np.zeros(len(y), dtype=bool) if program.equal is None else program.equal
    y = np.where(free, y, np.maximum(y, 0))
    reduced = program.cost - program.rows.T @ y
    box = np.minimum(reduced * program.lower, reduced * program.upper)
    return float(program.least @ y + box.sum())


def solve_highs(
    program: LinearProgram, what: str = "The linear program", method: str = "highs"
) -> Solution:
    """The optimum by HiGHS, single-threaded.

    Args:
        program: The linear program.
        what: How an error names it.
        method: "highs" lets it choose, "highs-ds" is its simplex, "highs-ipm" its interior points.

    Raises:
        ZooError: If it is infeasible or unbounded.
    """
    began = time.perf_counter()
    equal = program.equal if program.equal is not None else np.zeros(len(program.least), bool)
    inequalities, equations = np.flatnonzero(~equal), np.flatnonzero(equal)
    found = linprog(
        program.cost,
        A_ub=-program.rows[inequalities] if len(inequalities) else None,
        b_ub=-program.least[inequalities] if len(inequalities) else None,
        A_eq=program.rows[equations] if len(equations) else None,
        b_eq=program.least[equations] if len(equations) else None,
        bounds=np.stack([program.lower, program.upper], axis=1),
        method=method,
    )
    if found.status != 0:
        raise ZooError(f"{what} has no optimum: {found.message}")
    y = np.zeros(len(program.least))
    if len(inequalities):
        y[inequalities] = -found.ineqlin.marginals
    if len(equations):
        y[equations] = found.eqlin.marginals
    seconds = time.perf_counter() - began
    bound = min(dual_bound(program, y), float(found.fun))
    return Solution(found.x, y, float(found.fun), bound, int(found.nit), seconds)
