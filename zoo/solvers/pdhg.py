"""Batches of linear programs by a restarted primal-dual hybrid gradient method, on any device.

Each step is two sparse products, so many programs side by side cost little more than one. The
matrix is scaled by ten sweeps of Ruiz and one of Pock and Chambolle; steps keep tau sigma |K|^2
below 1; every program restarts at its average or current iterate, whichever is nearer to optimal,
and weighs primal against dual steps anew at restarts. A solver of first order leaves a gap: what is
reported as a bound is what the multipliers prove, never the primal value.

Source: D. Applegate et al., PDLP, arXiv 2106.04756; without its presolve and feasibility polishing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import block_diag, csr_array
from torch import Tensor

from zoo.solvers.linear_program import LinearProgram, Solution, dual_bound

RUIZ_SWEEPS = 10
POWER_STEPS = 30  # of the estimate of |K|
CHECK_EVERY = 40  # iterations between looks at the errors
RESTART, LONG = 0.4, 0.36  # restart when errors fell to this share, or an epoch took this share


@dataclass
class _Scaled:
    """The programs side by side, scaled, on the device."""

    rows: Tensor  # sparse CSR, (R, N)
    columns: Tensor  # its transpose
    cost: Tensor
    least: Tensor
    lower: Tensor
    upper: Tensor
    free: Tensor  # rows of equations
    row_scale: Tensor
    column_scale: Tensor
    row_of: Tensor  # program of each row
    column_of: Tensor
    norm: Tensor  # of K, by program
    count: int

    def sum_rows(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.count).index_add_(0, self.row_of, values)

    def sum_columns(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.count).index_add_(0, self.column_of, values)


def solve_pdhg(
    programs: Sequence[LinearProgram],
    tolerance: float = 1e-4,
    max_iterations: int = 20_000,
    device: str | torch.device = "cpu",
    start: Sequence[tuple[np.ndarray, np.ndarray]] | None = None,
) -> list[Solution]:
    """Approximate optima of many programs at once.

    Args:
        programs: Of any sizes.
        tolerance: Of the relative errors: primal, dual, and gap.
        max_iterations: Of all programs together; whoever is not done by then is as good as it got.
        device: Where.
        start: Primal and dual point of each program to begin at; ``None`` for zeros.

    Returns:
        In order. ``x`` is in its box, but may violate rows by about the tolerance.
    """
    began = time.perf_counter()
    with torch.no_grad():
        scaled = _scale(programs, torch.device(device))
        x, y, iterations = _iterate(scaled, tolerance, max_iterations, start)
        x = (x * scaled.column_scale).cpu().numpy()
        y = (y * scaled.row_scale).cpu().numpy()
    seconds = (time.perf_counter() - began) / max(1, len(programs))
    found, column, row = [], 0, 0
    for number, program in enumerate(programs):
        part = x[column : column + len(program.cost)].clip(program.lower, program.upper)
        duals = y[row : row + len(program.least)]
        column, row = column + len(program.cost), row + len(program.least)
        value, bound = float(program.cost @ part), dual_bound(program, duals)
        found.append(Solution(part, duals, value, bound, int(iterations[number]), seconds))
    return found


def _scale(programs: Sequence[LinearProgram], device: torch.device) -> _Scaled:
    matrix = csr_array(block_diag([p.rows for p in programs], format="csr"))
    size = np.abs(matrix)
    row_scale, column_scale = np.ones(matrix.shape[0]), np.ones(matrix.shape[1])

    def shrink(rows: np.ndarray, columns: np.ndarray) -> None:
        nonlocal size, row_scale, column_scale
        rows, columns = (1 / np.sqrt(np.where(v > 0, v, 1.0)) for v in (rows, columns))
        size = csr_array(size.multiply(rows[:, None]).multiply(columns[None, :]))
        row_scale, column_scale = row_scale * rows, column_scale * columns

    for _ in range(RUIZ_SWEEPS):
        shrink(size.max(axis=1).toarray().ravel(), size.max(axis=0).toarray().ravel())
    shrink(np.asarray(size.sum(axis=1)).ravel(), np.asarray(size.sum(axis=0)).ravel())
    scaled = csr_array(matrix.multiply(row_scale[:, None]).multiply(column_scale[None, :]))

    def tensor(values: np.ndarray, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(values), dtype=dtype, device=device)

    def sparse(a: csr_array) -> Tensor:
        index = tensor(a.indptr, torch.int64), tensor(a.indices, torch.int64)
        with warnings.catch_warnings():  # that sparse tensors are in beta
            warnings.simplefilter("ignore")
            return torch.sparse_csr_tensor(*index, tensor(a.data), a.shape, check_invariants=False)

    lengths = [(len(p.least), len(p.cost)) for p in programs]
    numbers = np.arange(len(programs))
    joined = {
        name: np.concatenate([getattr(p, name) for p in programs])
        for name in ("cost", "least", "lower", "upper")
    }
    free = np.concatenate(
        [np.zeros(len(p.least), bool) if p.equal is None else p.equal for p in programs]
    )
    result = _Scaled(
        sparse(scaled),
        sparse(csr_array(scaled.T)),
        tensor(joined["cost"] * column_scale),
        tensor(joined["least"] * row_scale),
        tensor(joined["lower"] / column_scale),
        tensor(joined["upper"] / column_scale),
        tensor(free, torch.bool),
        tensor(row_scale),
        tensor(column_scale),
        tensor(np.repeat(numbers, [r for r, _ in lengths]), torch.int64),
        tensor(np.repeat(numbers, [n for _, n in lengths]), torch.int64),
        torch.ones(len(programs), dtype=torch.float64, device=device),
        len(programs),
    )
    result.norm = _norms(result)
    return result


def _norms(p: _Scaled) -> Tensor:
    """Largest singular value of each program's matrix, by power iteration. Shape: (B,)."""
    generator = torch.Generator().manual_seed(0)
    v = torch.rand(p.cost.shape, generator=generator, dtype=torch.float64).to(p.cost.device)
    norm = torch.ones(p.count, dtype=v.dtype, device=v.device)
    for _ in range(POWER_STEPS):
        v = p.columns @ (p.rows @ v)
        norm = p.sum_columns(v.square()).sqrt().clamp_min(1e-12)
        v = v / norm[p.column_of]
    return norm.sqrt().clamp_min(1e-6) * 1.02  # it converges from below


def _iterate(
    p: _Scaled,
    tolerance: float,
    max_iterations: int,
    start: Sequence[tuple[np.ndarray, np.ndarray]] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    x, y = torch.zeros_like(p.cost), torch.zeros_like(p.least)
    if start is not None:
        first = [
            torch.as_tensor(np.concatenate(side), dtype=x.dtype)
            for side in zip(*start, strict=True)
        ]
        x, y = first[0].to(x.device) / p.column_scale, first[1].to(x.device) / p.row_scale
    x = x.clamp(p.lower, p.upper)
    # |c| / |b| balances the two sides at first, as PDLP does.
    sizes = p.sum_columns(p.cost.square()).sqrt(), p.sum_rows(p.least.square()).sqrt()
    weight = torch.where((sizes[0] > 0) & (sizes[1] > 0), sizes[0] / sizes[1].clamp_min(1e-12), 1.0)
    best = _errors(p, x, y)
    anchor_error, anchor_x, anchor_y = best.clone(), x.clone(), y.clone()
    total_x, total_y = torch.zeros_like(x), torch.zeros_like(y)
    steps = torch.zeros(p.count, dtype=x.dtype, device=x.device)
    done = best <= tolerance
    iterations = torch.zeros(p.count, dtype=torch.int64, device=x.device)
    grad = p.columns @ y
    for iteration in range(1, max_iterations + 1):
        moving = (~done).to(x.dtype)  # a program that is done stands still
        tau = (moving / (p.norm * weight))[p.column_of]
        sigma = (moving * weight / p.norm)[p.row_of]
        before = x
        x = (x - tau * (p.cost - grad)).clamp(p.lower, p.upper)
        y = y + sigma * (p.least - p.rows @ (2 * x - before))
        y = torch.where(p.free, y, y.clamp_min(0))
        grad = p.columns @ y
        total_x, total_y, steps = total_x + x, total_y + y, steps + 1
        if iteration % CHECK_EVERY and iteration < max_iterations:
            continue
        mean_x, mean_y = total_x / steps[p.column_of], total_y / steps[p.row_of]
        errors = torch.stack([_errors(p, x, y), _errors(p, mean_x, mean_y)])
        averaged = errors[1] < errors[0]
        error = errors.amin(dim=0)
        iterations = torch.where(done, iterations, iteration)
        finished = (error <= tolerance) & ~done
        again = ~done & (finished | (error <= RESTART * anchor_error) | (steps >= LONG * iteration))
        if bool(again.any()):
            column, row = (again & averaged)[p.column_of], (again & averaged)[p.row_of]
            x, y = torch.where(column, mean_x, x), torch.where(row, mean_y, y)
            moved_x = p.sum_columns((x - anchor_x).square()).sqrt()
            moved_y = p.sum_rows((y - anchor_y).square()).sqrt()
            known = again & (moved_x > 1e-10) & (moved_y > 1e-10)
            ratio = (moved_y / moved_x.clamp_min(1e-12)).clamp_min(1e-12)
            weight = torch.where(known, (0.5 * ratio.log() + 0.5 * weight.log()).exp(), weight)
            column, row = again[p.column_of], again[p.row_of]
            anchor_x, anchor_y = torch.where(column, x, anchor_x), torch.where(row, y, anchor_y)
            anchor_error = torch.where(again, error, anchor_error)
            total_x, total_y = total_x.masked_fill(column, 0), total_y.masked_fill(row, 0)
            steps = steps.masked_fill(again, 0)
            grad = p.columns @ y
        done = done | finished
        if bool(done.all()):
            break
    return x, y, iterations


def _errors(p: _Scaled, x: Tensor, y: Tensor) -> Tensor:
    """The largest of the relative errors of each program: primal, dual (as a gap). Shape: (B,).

    Over a box every y is dual feasible, what is wrong with it being in the gap.
    """
    short = p.least - p.rows @ x
    short = torch.where(p.free, short.abs(), short.clamp_min(0)) / p.row_scale
    size = p.sum_rows((p.least / p.row_scale).square()).sqrt()
    primal = p.sum_rows(short.square()).sqrt() / (1 + size)
    reduced = p.cost - p.columns @ y
    value = p.sum_columns(p.cost * x)
    box = torch.minimum(reduced * p.lower, reduced * p.upper)
    bound = p.sum_rows(p.least * y) + p.sum_columns(box)
    gap = (value - bound).abs() / (1 + value.abs() + bound.abs())
    return torch.maximum(primal, gap)
