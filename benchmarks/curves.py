"""Validation curves of a study: means over the seeds, as a table for the card and as a picture."""

from __future__ import annotations

import statistics

from matplotlib.figure import Figure

from benchmarks.runner import Figures

POINTS = 8  # columns of the table


def mean_curves(figures: Figures) -> dict[str, dict[int, list[float]]]:
    """By arm with a curve, the values of all seeds by step."""
    found: dict[str, dict[int, list[float]]] = {}
    for arm in figures.claim.arms:
        for curve in figures.curves(arm.name).values():
            for step, value in curve:
                found.setdefault(arm.name, {}).setdefault(step, []).append(value)
    return found


def curve_tables(figures: Figures) -> str:
    """Markdown: one table for the arms that were measured after the same steps."""
    groups: dict[tuple[int, ...], dict[str, dict[int, list[float]]]] = {}
    for arm, curve in mean_curves(figures).items():
        groups.setdefault(tuple(sorted(curve)), {})[arm] = curve
    text = ""
    for steps, arms in groups.items():
        stride = max(1, len(steps) // POINTS)
        shown = [*steps[stride - 1 :: stride]]
        rows = [[f"{figures.claim.validation} after step", *map(str, shown)]]
        rows.append(["---"] * len(rows[0]))
        rows += [
            [arm, *(f"{statistics.mean(curve[step]):.3f}" for step in shown)]
            for arm, curve in arms.items()
        ]
        text += "".join(f"| {' | '.join(row)} |\n" for row in rows) + "\n"
    return text


def draw_curves(figures: Figures) -> Figure:
    """One panel for the arms of each length: lines are means, bands the range over the seeds."""
    curves = mean_curves(figures)
    ends = sorted({max(curve) for curve in curves.values()})
    figure = Figure(figsize=(6 * len(ends), 4.5), layout="constrained")
    axes = figure.subplots(1, len(ends), squeeze=False)[0]
    for axis, end in zip(axes, ends, strict=True):
        for arm, curve in curves.items():
            if max(curve) != end:
                continue
            steps = sorted(curve)
            label = f"{arm}, {figures.chosen[arm]}" if figures.chosen.get(arm) else arm
            (line,) = axis.plot(steps, [statistics.mean(curve[s]) for s in steps], label=label)
            low, high = ([bound(curve[s]) for s in steps] for bound in (min, max))
            axis.fill_between(steps, low, high, color=line.get_color(), alpha=0.15, lw=0)
        axis.set(xlabel="optimiser steps", ylabel=f"{figures.claim.validation} (validation)")
        axis.legend(fontsize=7)
        axis.grid(alpha=0.3)
    return figure
