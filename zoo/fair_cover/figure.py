"""Pictures of a choice: where it is, whom it covers, and what fairness costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from zoo.fair_cover.result import CoverSolution

if TYPE_CHECKING:
    from zoo.fair_cover.solver import CoverSolver

LEVELS = [0.25, 0.5, 0.75, 1.0]  # of the needs and promises that are asked for
CURVE_SETS = 2000  # instances with more of them are not solved again for a picture


def draw(model: CoverSolver, found: CoverSolution) -> dict[str, Figure]:
    """All that the instance allows."""
    figures = {"groups": _groups(found)}
    if found.instance.element_places is not None:
        figures["map"] = _map(found)
    if len(found.instance.cost) <= CURVE_SETS:
        figures["price"] = _price(model, found)
    return figures


def _map(found: CoverSolution) -> Figure:
    """Elements by whether they are covered, and the chosen sets."""
    instance = found.instance
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    home = instance.element_places
    assert home is not None
    for covered, colour, label in ((True, "tab:blue", "covered"), (False, "0.7", "not covered")):
        chosen = home[found.covered == covered]
        axes.scatter(
            chosen[:, 0], chosen[:, 1], s=6 + 1500 / (100 + len(home)), c=colour, label=label
        )
    site = instance.set_places
    if site is not None:
        axes.scatter(
            site[:, 0],
            site[:, 1],
            s=14,
            marker="^",
            facecolors="none",
            edgecolors="0.6",
            label="site",
        )
        taken = site[found.selected]
        axes.scatter(taken[:, 0], taken[:, 1], s=60, marker="^", c="tab:red", label="chosen site")
    if not np.isnan(found.theta):  # else each element had a threshold of its own
        hard = home[instance.promise >= found.theta]
        axes.scatter(
            hard[:, 0], hard[:, 1], s=40, facecolors="none", edgecolors="k", lw=0.6, label="hard"
        )
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.set_title(
        f"{instance.name}: {len(found.selected)} sets, cost {found.cost:.2f}, "
        f"at most {found.ratio:.3f} of the least"
    )
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def _groups(found: CoverSolution) -> Figure:
    """Covered share of each group, beside what it needs."""
    instance = found.instance
    size = np.maximum(1, np.diff(instance.groups.indptr))
    figure = Figure(figsize=(1.5 + 0.5 * len(size), 3.5), layout="constrained")
    axes = figure.subplots()
    place = np.arange(len(size))
    axes.bar(place, found.group_counts / size, color="tab:blue", label="covered")
    axes.hlines(instance.need / size, place - 0.4, place + 0.4, color="k", label="needed")
    axes.set_xticks(place, [instance.group_name(int(i)) for i in place], rotation=45, ha="right")
    axes.set(ylabel="share of the group", ylim=(0, 1))
    axes.legend(frameon=False, loc="lower right")
    return figure


def _price(model: CoverSolver, found: CoverSolution) -> Figure:
    """Cost against how much of the other groups' needs and of the promises is asked for."""
    figure = Figure(figsize=(4.5, 3.5), layout="constrained")
    axes = figure.subplots()
    price = model.price_of_fairness(found.instance, LEVELS)
    axes.plot([0, *LEVELS], [1, *price], marker="o")
    axes.set(
        xlabel="share of needs and promises that is asked for",
        ylabel="cost / cost of covering the first group alone",
    )
    axes.grid(alpha=0.3)
    return figure
