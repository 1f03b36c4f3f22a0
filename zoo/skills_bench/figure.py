"""Pictures: what skills do to each task, and how forecasts compare with what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from zoo.agents.metrics import bootstrap_means
from zoo.skills_bench.statistics import nan_mean

if TYPE_CHECKING:
    from zoo.skills_bench.report import Report

AGENTS = "x+^vs*"  # markers of agents, in turn


def paired_differences(report: Report, condition: str = "curated") -> Figure:
    """Each task's rate without and with skills, an arrow between; and the lifts.

    The band of a task is a 95 % interval of its difference, by resampling its trials.
    """
    others = list(report.lifts)
    shown = condition if condition in others else (others[0] if others else "none")
    before = 100 * nan_mean(report.outcomes["none"].reshape(len(report.tasks), -1), 1)
    after = 100 * nan_mean(report.outcomes[shown].reshape(len(report.tasks), -1), 1)
    order = np.argsort(np.nan_to_num(after - before))
    figure = Figure(figsize=(10, 1.5 + 0.26 * len(order)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 1.4))
    domains = sorted(set(report.domains))
    colours = {d: mpl.colormaps["tab10"](i % 10) for i, d in enumerate(domains)}
    significant = report.fell[shown].significant if shown in report.fell else ()
    for row, i in enumerate(order):
        colour = colours[report.domains[i]]
        difference = (report.outcomes[shown][i] - report.outcomes["none"][i]).ravel()
        difference = difference[~np.isnan(difference)]
        if len(difference):
            means = 100 * bootstrap_means(difference, np.zeros(len(difference), int), 2000)
            low, high = np.quantile(means, [0.025, 0.975])
            left.plot([low, high], [row, row], color=colour, linewidth=4, alpha=0.3)
        left.plot([after[i] - before[i]], [row], "o", color=colour, markersize=5)
        star = " *" if report.tasks[i] in significant else ""
        left.text(103, row, f"{before[i]:.0f} → {after[i]:.0f}{star}", va="center", fontsize=7)
    left.set_yticks(range(len(order)), [report.tasks[i] for i in order], fontsize=7)
    left.axvline(0, color="0.6", linewidth=1)
    left.set_xlim(-100, 130)
    left.set_xticks([-100, -50, 0, 50, 100])
    left.set_xlabel(f"{shown} minus none, points (* significantly worse)")
    for domain in domains:
        left.plot([], [], "o", color=colours[domain], label=domain, markersize=5)
    left.legend(fontsize=6, loc="upper left", framealpha=0.9)
    for row, name in enumerate(others):
        lift = report.lifts[name]
        right.plot([lift.low, lift.high], [row, row], color="C0", linewidth=5, alpha=0.3)
        right.plot([lift.value], [row], "o", color="C0")
        for i, (agent, value) in enumerate(report.by_agent[name].items()):
            label = agent if row == 0 else None
            right.plot([value], [row + 0.08], AGENTS[i % len(AGENTS)], color="0.4", label=label)
    right.axvline(0, color="0.6", linewidth=1)
    right.set_yticks(range(len(others)), others)
    right.set_ylim(-0.6, len(others) - 0.2)
    right.set_xlabel("lift, points (95 %)")
    if others:
        right.legend(fontsize=6, title="agents", title_fontsize=6)
    return figure


def forecast(rates: Tensor, observed: Tensor, trials: Tensor) -> Figure:
    """Forecast pass rates against observed ones. Shapes: (B, 2) each; without and with skills."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    for k, (axes, name) in enumerate(
        zip(figure.subplots(1, 2, sharey=True), ("without skills", "with skills"), strict=True)
    ):
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        size = 6 + 4 * trials[:, k].sqrt()
        axes.scatter(rates[:, k], observed[:, k], s=size, alpha=0.5)
        axes.set_title(name)
        axes.set_xlabel("forecast")
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
    figure.axes[0].set_ylabel("observed pass rate")
    return figure
