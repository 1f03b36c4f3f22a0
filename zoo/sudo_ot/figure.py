"""Pictures of cells that move and divide, in the first two coordinates."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

Array = NDArray[Any]


def trajectory_map(cells: Array, time: Array, places: Array, rep: str) -> Figure:
    """Snapshots in the colour of their time, with simulated trajectories above them.

    Args:
        cells: Shape: (N, p).
        time: Of each cell. Shape: (N,).
        places: Of the simulated cells. Shape: (T, B, p).
        rep: Name of the coordinates.
    """
    figure = Figure(figsize=(6.4, 5), layout="constrained")
    axis = figure.subplots()
    dots = axis.scatter(*_plane(cells), c=time, cmap="viridis", s=10, alpha=0.6, linewidths=0)
    first, second = (_plane(p) for p in (places[0], places[-1]))
    lines = np.stack([np.stack(_plane(p), axis=-1) for p in places], axis=1)  # (B, T, 2)
    axis.add_collection(LineCollection(list(lines), colors="black", linewidths=0.6, alpha=0.6))
    axis.scatter(*first, s=12, facecolors="white", edgecolors="black", linewidths=0.7)
    axis.scatter(*second, s=12, color="black")
    figure.colorbar(dots, label="time")
    _label(axis, cells, rep)
    axis.set_title("Trajectories from first (open) to last (filled), over the snapshots")
    return figure


def growth_map(cells: Array, time: Array, growth: Array, rep: str) -> Figure:
    """Growth rate of each cell, one panel a time, with one scale of colours.

    Args:
        cells: Shape: (N, p).
        time: Of each cell. Shape: (N,).
        growth: Rate of each cell per unit of time. Shape: (N,).
        rep: Name of the coordinates.
    """
    times = np.unique(time)
    figure = Figure(figsize=(2.6 * len(times) + 1, 3.2), layout="constrained")
    axes = figure.subplots(1, len(times), squeeze=False, sharex=True, sharey=True)[0]
    reach = max(float(np.quantile(np.abs(growth), 0.98)), 1e-6)
    norm = matplotlib.colors.Normalize(-reach, reach)
    for axis, at in zip(axes, times, strict=True):
        here = time == at
        dots = axis.scatter(
            *_plane(cells[here]), c=growth[here], cmap="RdBu_r", norm=norm, s=10, linewidths=0
        )
        axis.set_title(f"time {at:g}", fontsize=10)
        _label(axis, cells, rep)
        axis.label_outer()
    figure.colorbar(dots, ax=axes, label="growth rate per unit of time")
    return figure


def mass_curve(fine: Array, mass: Array, times: Array, masses: Array) -> Figure:
    """Predicted total mass over time, with what was measured.

    Args:
        fine: Times of the prediction. Shape: (T,).
        mass: Predicted. Shape: (T,).
        times: Of the snapshots. Shape: (K + 1,).
        masses: Measured. Shape: (K + 1,).
    """
    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.plot(fine, mass, color="#2a7f9e", label="simulated")
    axis.plot(times, masses, "o", color="black", label="measured")
    axis.set_ylim(0, 1.1 * max(float(mass.max()), float(masses.max())))
    axis.set_xlabel("time")
    axis.set_ylabel("total mass")
    axis.legend(frameon=False)
    return figure


def _plane(points: Array) -> tuple[Array, Array]:
    """The first two coordinates; of one-dimensional data the second is 0."""
    return points[:, 0], points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))


def _label(axis: Any, cells: Array, rep: str) -> None:
    axis.set_xlabel(f"{rep} 1")
    axis.set_ylabel(f"{rep} 2" if cells.shape[1] > 1 else "")
