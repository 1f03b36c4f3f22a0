"""Pictures of what each sensor and each pair of sensors added to a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from torch import Tensor

from zoo.face_files import MODALITIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from zoo.sem_fas.result import FASResult

LIVE, SPOOF, PAIR_ALPHA = "#2a7f9e", "#c2553b", 0.55


def effects(result: FASResult) -> Figure:
    """One capture's effects as bars."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    _bars(figure.subplots(), result)
    figure.suptitle(_headline(result), fontsize=10)
    return figure


def captures(
    images: Mapping[str, Tensor], results: Sequence[FASResult], truths: Sequence[str]
) -> Figure:
    """Several captures, a row each: what the sensors saw, and what each of them added.

    Args:
        images: By modality, in 0..1. Shape of each: (N, C, H, W).
        results: Of the captures.
        truths: What each of them shows.
    """
    count = len(results)
    figure = Figure(figsize=(12, 2.3 * count), layout="constrained")
    axes = figure.subplots(count, 4, squeeze=False, width_ratios=[1, 1, 1, 3])
    for row, (result, truth) in enumerate(zip(results, truths, strict=True)):
        for axis, modality in zip(axes[row, :3], MODALITIES, strict=True):
            image = images[modality][row].permute(1, 2, 0).float().cpu().numpy()
            axis.imshow(image, cmap="gray", vmin=0, vmax=1)
            there = modality in result.sensors
            axis.set_title(modality if there else f"{modality} (missing)", fontsize=9)
            axis.set_xticks([])
            axis.set_yticks([])
        _bars(axes[row, 3], result, legend=row == count - 1)
        axes[row, 3].set_title(f"truth: {truth}; {_headline(result)}", fontsize=9)
    return figure


def _headline(result: FASResult) -> str:
    doubts = ", ".join(f"{name} {value:.2f}" for name, value in result.uncertainty.items())
    return f"{result.decision}, p_live {result.p_live:.2f} ({doubts})"


def _bars(axis: Axes, result: FASResult, legend: bool = True) -> None:
    values: dict[str, Any] = {**result.phi_main, **result.phi_pair}
    names = [name.replace("-", " with ") for name in values]
    bars = axis.barh(names, list(values.values()))
    for bar, (name, value) in zip(bars, values.items(), strict=True):
        bar.set_color(LIVE if value > 0 else SPOOF)
        bar.set_alpha(PAIR_ALPHA if "-" in name else 1.0)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.invert_yaxis()
    widest = max([0.3, *(abs(value) for value in values.values())])
    axis.set_xlim(-1.25 * widest, 1.25 * widest)
    axis.bar_label(bars, fmt="%+.2f", padding=3, fontsize=8)
    axis.tick_params(labelsize=8)
    if legend:
        axis.set_xlabel("spoof  <-  part of p_live - p_spoof  ->  live", fontsize=8)
