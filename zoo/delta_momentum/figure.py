"""Pictures of results: what a language model found hard, and what a classifier took for what."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

COLUMNS = 48  # characters a line
WORST = 8.0  # bits at the end of the colour scale


def surprisal(pieces: Sequence[str], bits: Tensor) -> Figure:
    """A text with each token on the colour of the bits that it took.

    Args:
        pieces: The tokens' texts.
        bits: Of each token. Shape: (T,).
    """
    lines = math.ceil(len(pieces) / COLUMNS)
    figure = Figure(figsize=(12, 1 + 0.36 * lines), layout="constrained")
    axis = figure.subplots()
    colors = colormaps["YlOrRd"]
    for index, (piece, value) in enumerate(zip(pieces, bits.tolist(), strict=True)):
        row, column = divmod(index, COLUMNS)
        shade = colors(min(value / WORST, 1.0))
        axis.add_patch(Rectangle((column, row), 1, 1, color=shade))
        shown = {"\n": "⏎", " ": "·", "\t": "→"}.get(piece, piece)
        # A lone dollar sign would begin a formula.
        axis.text(
            column + 0.5,
            row + 0.5,
            shown[:3].replace("$", r"\$"),
            ha="center",
            va="center",
            family="monospace",
            fontsize=8,
        )
    axis.set(xlim=(0, COLUMNS), ylim=(lines, 0), xticks=[], yticks=[])
    axis.set_title(f"bits for each token, {float(bits.mean()):.2f} on average (red: {WORST:g})")
    return figure


def answers(images: Tensor, probabilities: Tensor, labels: Tensor) -> Figure:
    """The first images with what they were taken for, wrong ones in red.

    Args:
        images: In 0..1. Shape: (B, C, H, W).
        probabilities: Shape: (B, K).
        labels: Shape: (B,).
    """
    count = min(24, len(images))
    figure = Figure(figsize=(12, 1.9 * math.ceil(count / 8)), layout="constrained")
    axes = figure.subplots(math.ceil(count / 8), 8, squeeze=False).flat
    for axis in axes:
        axis.axis("off")
    best, classes = probabilities.max(dim=1)
    for axis, image, share, found, label in zip(
        axes, images[:count], best, classes, labels, strict=False
    ):
        axis.imshow(image.permute(1, 2, 0).squeeze(-1).clamp(0, 1).numpy(), cmap="gray")
        right = int(found) == int(label)
        title = f"{int(found)} ({float(share):.0%})" + ("" if right else f", is {int(label)}")
        axis.set_title(title, fontsize=9, color="black" if right else "red")
    return figure
