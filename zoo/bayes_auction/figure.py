"""Pictures of auctions: bid functions beside the equilibrium, and the size of the sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from zoo.auction_games import AuctionGame

SHOWN = 6  # games


def bid_functions(games: Sequence[AuctionGame], strategies: Tensor) -> Figure:
    """Chances of the first bidder's bids by value, their mean, and the continuous equilibrium.

    Args:
        games: Of which the first six are shown.
        strategies: Shape: (G, N, n, m).
    """
    count = min(SHOWN, len(games))
    figure = Figure(figsize=(3.2 * min(3, count), 2.9 * ((count + 2) // 3)), layout="constrained")
    axes = figure.subplots((count + 2) // 3, min(3, count), squeeze=False).ravel()
    for axis, game, strategy in zip(axes, games, strategies.cpu(), strict=False):
        n, m = game.mask.shape
        chance = strategy[0, :n, :m].numpy()
        mesh = axis.pcolormesh(
            game.values, game.bids, chance.T, cmap="Blues", vmin=0, vmax=1, shading="nearest"
        )
        axis.plot(game.values, chance @ game.bids, "o-", ms=3, c="tab:red", label="mean bid")
        target = game.equilibrium()
        if target is not None:
            axis.plot(game.values, target, "k--", label="equilibrium")
        axis.set_title(game.name, fontsize=9)
        axis.set(xlabel="value", ylabel="bid")
    for axis in axes[count:]:
        axis.set_axis_off()
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.colorbar(mesh, ax=list(axes), label="chance of a bid", shrink=0.7)
    return figure


def radii(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Largest distance from equilibrium by the number of types, a line for each set and prior."""
    priors = sorted({row["game"].partition("_n")[0] for row in rows})
    count, wide = len(priors), min(4, len(priors))
    lines = (count + wide - 1) // wide
    figure = Figure(figsize=(3.2 * wide, 2.8 * lines), layout="constrained")
    axes = figure.subplots(lines, wide, squeeze=False, sharey=True).ravel()
    for axis, prior in zip(axes, priors, strict=False):
        chosen = [row for row in rows if row["game"].partition("_n")[0] == prior]
        for concept in dict.fromkeys(row["concept"] for row in chosen):
            line = sorted((r["types"], r["radius_w2"]) for r in chosen if r["concept"] == concept)
            axis.plot(*zip(*line, strict=True), "o-", ms=3, label=concept)
        axis.set_title(prior, fontsize=9)
        axis.set_xlabel("types and bids")
        axis.grid(alpha=0.3)
    for axis in axes[count:]:
        axis.set_axis_off()
    axes[0].set_ylim(0, 1.05 * max(row["radius_w2"] for row in rows))
    axes[0].set_ylabel("largest W2 distance")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
