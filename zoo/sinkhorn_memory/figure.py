"""Pictures of queries that flow to a memory, in the first two coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
PANELS = 4
AREA = 900.0  # square points of all markers of a cloud


def flow_panels(
    batch: Mapping[str, Any], found: Mapping[str, Tensor], labels: Sequence[str]
) -> Figure:
    """The first queries: open where they came, filled where they ended, crosses for the truth.

    Args:
        batch: As of the data module: ``points``, ``weights``, ``target_points``,
            ``target_weights`` and ``label``.
        found: Points, weights and pattern_prob of what they flowed to, in the user's unit.
        labels: Of the patterns.
    """
    count = min(PANELS, len(found["points"]))
    figure = Figure(figsize=(4 * count, 4.4), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for row, axis in enumerate(axes):
        start, end = _numpy(batch["points"][row]), _numpy(found["points"][row])
        before, after = _numpy(batch["weights"][row]), _numpy(found["weights"][row])
        real = before > 0
        start, end, before, after = start[real], end[real], before[real], after[real]
        for a, b in zip(start, end, strict=True):
            axis.plot(*_plane(np.stack([a, b])), color="0.7", lw=0.8, zorder=1)
        truth, mass = _numpy(batch["target_points"][row]), _numpy(batch["target_weights"][row])
        _dots(axis, truth, mass, marker="x", color="tab:orange", linewidths=1.5, label="stored")
        _dots(axis, start, before, facecolors="none", edgecolors="tab:blue", label="query")
        _dots(axis, end, after, color="tab:blue", alpha=0.8, linewidths=0, label="end")
        best = int(found["pattern_prob"][row].argmax())
        prob = float(found["pattern_prob"][row, best])
        axis.set_title(f"'{batch['label'][row]}' retrieved as '{labels[best]}' (p = {prob:.2f})")
        axis.set_aspect("equal", adjustable="datalim")
        axis.set_xlabel("coordinate 1")
        axis.set_ylabel("coordinate 2" if start.shape[1] > 1 else "")
    axes[0].legend(fontsize=8)
    return figure


def energy_curves(energy: Tensor, steps: Tensor) -> Figure:
    """Energy above its end over the steps of each query, on a logarithmic scale.

    Args:
        energy: Shape: (Q, T).
        steps: Shape: (Q,).
    """
    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axis = figure.subplots()
    for trace, last in zip(_numpy(energy), steps.tolist(), strict=True):
        above = trace[:last] - trace[last]
        axis.plot(np.arange(last), np.maximum(above, 1e-8), lw=0.8, alpha=0.6)
    axis.set(yscale="log", xlabel="step", ylabel="energy above that of the end")
    axis.grid(alpha=0.3)
    return figure


def _dots(axis: Axes, points: Array, weights: Array, **style: Any) -> None:
    axis.scatter(*_plane(points), s=AREA * weights, **style)


def _plane(points: Array) -> tuple[Array, Array]:
    second = points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))
    return points[:, 0], second


def _numpy(tensor: Tensor) -> Array:
    return tensor.detach().float().cpu().numpy()
