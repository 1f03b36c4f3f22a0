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

    matrix: csr_array  # K, on the CPU
    rows: Tensor  # the same, sparse CSR, (R, N)
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

    def only(self, kept: Tensor) -> _Scaled:
        """Some of the programs. Shape of ``kept``: (B,), bool."""
        row, column = kept[self.row_of], kept[self.column_of]
        matrix = csr_array(self.matrix[row.cpu().numpy()][:, column.cpu().numpy()])
        device, number = self.cost.device, kept.long().cumsum(0) - 1
        by_row = {k: getattr(self, k)[row] for k in ("least", "free", "row_scale")}
        by_column = {
            k: getattr(self, k)[column] for k in ("cost", "lower", "upper", "column_scale")
        }
        return _Scaled(
            matrix,
            _sparse(matrix, device),
            _sparse(csr_array(matrix.T), device),
            **by_row,
            **by_column,
            row_of=number[self.row_of[row]],
            column_of=number[self.column_of[column]],
            norm=self.norm[kept],
            count=int(kept.sum()),
        )

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
        points = _iterate(scaled, tolerance, max_iterations, start)
    seconds = (time.perf_counter() - began) / max(1, len(programs))
    found = []
    for program, (x, y, iterations) in zip(programs, points, strict=True):
        x = x.clip(program.lower, program.upper)
        value, bound = float(program.cost @ x), dual_bound(program, y)
        found.append(Solution(x, y, value, bound, iterations, seconds))
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
        scaled,
        _sparse(scaled, device),
        _sparse(csr_array(scaled.T), device),
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


def _sparse(a: csr_array, device: torch.device) -> Tensor:
    pointers, indices = (torch.as_tensor(x, device=device).long() for x in (a.indptr, a.indices))
    values = torch.as_tensor(a.data, dtype=torch.float64, device=device)
    with warnings.catch_warnings():  # that sparse tensors are in beta
        warnings.simplefilter("ignore")
        return torch.sparse_csr_tensor(
            pointers, indices, values, size=list(a.shape), check_invariants=False
        )


def _norms(p: _Scaled) -> Tensor:
    """Largest singular value of each program's matrix, by power iteration. Shape: (B,)."""
    sizes = torch.bincount(p.column_of, minlength=p.count)
    place = torch.arange(len(p.cost), device=p.cost.device) - (sizes.cumsum(0) - sizes)[p.column_of]
    v = 1 + 0.1 * torch.sin(place.double())  # of its own program alone, and along no symmetry
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
) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Primal and dual point of each program, and its iterations.

    Once half of the programs are done the others go on without them.
    """
    found: dict[int, tuple[np.ndarray, np.ndarray, int]] = {}
    numbers = torch.arange(p.count)
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
    lowest = torch.zeros_like(y).masked_fill(p.free, -torch.inf)
    tau, sigma = _steps(p, weight, done)
    for iteration in range(1, max_iterations + 1):
        before = x
        x = torch.addcmul(x, tau, grad - p.cost).clamp(p.lower, p.upper)
        y = torch.addcmul(y, sigma, p.least - p.rows @ (2 * x - before))
        y = torch.maximum(y, lowest)
        grad = p.columns @ y
        total_x += x
        total_y += y
        steps += 1
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
        last = bool(done.all()) or iteration == max_iterations
        if last or 2 * int(done.sum()) >= p.count:
            leaving = torch.ones_like(done) if last else done
            _store(found, p, numbers, leaving, x, y, iterations)
            if last:
                break
            kept = ~done
            row, column = kept[p.row_of], kept[p.column_of]
            x, anchor_x, total_x = x[column], anchor_x[column], total_x[column]
            y, anchor_y, total_y, lowest = y[row], anchor_y[row], total_y[row], lowest[row]
            weight, anchor_error, steps = weight[kept], anchor_error[kept], steps[kept]
            iterations, numbers = iterations[kept], numbers[kept.cpu()]
            p, done = p.only(kept), done[kept]
            grad = p.columns @ y
        tau, sigma = _steps(p, weight, done)
    return [found[i] for i in range(len(found))]


def _store(
    found: dict[int, tuple[np.ndarray, np.ndarray, int]],
    p: _Scaled,
    numbers: Tensor,
    leaving: Tensor,
    x: Tensor,
    y: Tensor,
    iterations: Tensor,
) -> None:
    """Notes the points of programs that are through, in their own scale."""
    widths, heights = (
        torch.bincount(of, minlength=p.count).tolist() for of in (p.column_of, p.row_of)
    )
    columns = torch.split((x * p.column_scale).cpu(), widths)
    rows = torch.split((y * p.row_scale).cpu(), heights)
    for i in leaving.nonzero()[:, 0].tolist():
        found[int(numbers[i])] = columns[i].numpy(), rows[i].numpy(), int(iterations[i])


def _steps(p: _Scaled, weight: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
    """Step sizes of each column and row; a program that is done stands still."""
    moving = (~done).to(weight.dtype)
    return (moving / (p.norm * weight))[p.column_of], (moving * weight / p.norm)[p.row_of]


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
