"""What a solved auction comes back as."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zoo.atomic import write_json, write_text
from zoo.auction_games import AuctionGame

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EquilibriumReport:
    """Learned play of one auction.

    Attributes:
        game: The auction.
        strategy: Chance of each bid of each type, last step. Shape: (N, n, m).
        mean_bid: Of each type. Shape: (N, n).
        revenue: Expected, of the seller.
        welfare: Expected value of whoever gets the good.
        utility_loss: What a bidder gains at most by a best response to the last step's play.
        external_regret: Of the average play.
        semicoarse_regret: Against flows of gradient fields.
        swap_regret: Against any map of bids.
        w2_to_bne: Distance of the last step's law of type and bid from the continuous game's
            equilibrium; NaN where that is not known.
        steps: Of the learners.
    """

    game: AuctionGame
    strategy: Array
    mean_bid: Array
    revenue: float
    welfare: float
    utility_loss: float
    external_regret: float
    semicoarse_regret: float
    swap_regret: float
    w2_to_bne: float
    steps: int

    def save(self, path: str | Path) -> list[Path]:
        """Writes ``<path>.csv``, bids by type and bidder, and ``<path>.json``, the figures.

        Args:
            path: Without suffix.
        """
        path = Path(path)
        files = [path.with_name(f"{path.name}{end}") for end in (".csv", ".json")]
        target = self.game.equilibrium()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["bidder", "value", "chance", "mean_bid", "equilibrium"])
        for k in range(len(self.mean_bid)):
            for i, value in enumerate(self.game.values):
                known = "" if target is None else f"{target[i]:.6g}"
                chance = f"{self.game.prior[k, i]:.6g}"
                writer.writerow([k, f"{value:.6g}", chance, f"{self.mean_bid[k, i]:.6g}", known])
        write_text(files[0], text.getvalue())
        names = ("revenue", "welfare", "utility_loss", "external_regret", "semicoarse_regret")
        record = {name: getattr(self, name) for name in (*names, "swap_regret", "steps")}
        distance = None if np.isnan(self.w2_to_bne) else self.w2_to_bne
        write_json(files[1], {"game": self.game.name, **record, "w2_to_bne": distance})
        return files
