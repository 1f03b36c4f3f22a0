"""Pictures of a batch: what is right, and what the baselines expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor


def accuracy_by_skill(right: Tensor, skills: Tensor, names: Sequence[str]) -> Figure:
    """A bar for each skill that the batch has. Shapes: (B,) and (B,)."""
    count = torch.bincount(skills, minlength=len(names)).float()
    rate = torch.bincount(skills, right.float(), minlength=len(names)) / count.clamp_min(1)
    there = [k for k in range(len(names)) if count[k] > 0]
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.bar([f"{names[k]}\n{int(count[k])}" for k in there], [float(rate[k]) for k in there])
    axes.set_ylim(0, 1)
    axes.set_ylabel("accuracy")
    axes.set_xlabel("skill, number of prompts")
    return figure


def estimates(value: Tensor, baselines: Mapping[str, Tensor]) -> Figure:
    """Each baseline against the prompt's value. Shapes: (P,) and (P, n)."""
    figure = Figure(figsize=(3 * len(baselines), 3), layout="constrained")
    for axes, (name, found) in zip(
        figure.subplots(1, len(baselines), sharey=True), baselines.items(), strict=True
    ):
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        axes.scatter(value[:, None].expand_as(found).flatten(), found.flatten(), s=6, alpha=0.5)
        error = float((found - value[:, None]).square().mean())
        axes.set_title(f"{name}, MSE {error:.3f}")
        axes.set_xlabel("value (32 rollouts)")
        axes.set_xlim(-0.05, 1.05)
        axes.set_ylim(-0.05, 1.05)
    figure.axes[0].set_ylabel("baseline")
    return figure
