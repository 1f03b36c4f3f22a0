"""Auctions as batches: random priors to train on, the literature's to test on, or files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.special import betainc
from scipy.stats import truncnorm
from torch.utils.data import Dataset

from zoo.auction_games import PAYMENTS, AuctionGame, read_game
from zoo.errors import ZooError, check_choice

from ..base import ZooDataModule

SUFFIXES = (".yaml", ".csv")
FOLDER = ("game.yaml", "values.csv", "bids.csv")  # a folder with one of them is a game
FIRST = {"train": 0, "val": 1_000_000, "predict": 2_000_000}
Sample = dict[str, Any]


class GameList(Dataset[Sample]):
    """Games that are made when they are asked for, padded to one size.

    Args:
        make: One function a game.
        shape: Bidders, types and bids to pad to.
        first: Number of the first one.
    """

    def __init__(
        self, make: Sequence[Callable[[], AuctionGame]], shape: tuple[int, int, int], first: int
    ) -> None:
        self.make, self.shape, self.first = make, shape, first

    def __len__(self) -> int:
        return len(self.make)

    def __getitem__(self, index: int) -> Sample:
        return sample(self.make[index](), self.shape, self.first + index)


class AuctionGamesDataModule(ZooDataModule):
    """Data for learning in auctions.

    A batch is a dict of games padded to one size; padding has chance 0 and may only bid lowest:

    - ``values`` (B, n), ``bids`` (B, m), ``prior`` (B, N, n), float32, and ``values64``,
      ``bids64``, ``prior64``, the same in float64; ``mask`` (B, n, m), bool.
    - ``payment``: 0 first price, 1 all-pay, 2 second price. Shape: (B,), long.
    - ``equilibrium``: bids of the continuous game; -1 where unknown. Shape: (B, n), float64.
    - ``sizes``: bidders, types and bids without padding. Shape: (B, 3). ``alpha``: of a power; 0
      for others. ``index``, long, and ``name``, str.

    Training and validation games have mixtures of one to three beta distributions as priors. The
    test has the priors of the literature on every size: powers, beta(2, 2), a truncated normal
    distribution, and two points.

    Args:
        alphas: Exponents of the test's power priors.
        sizes: Numbers of types, and of as many bids.
        bidders: N of all games.
        payment: "first", "all_pay" or "second".
        n_train: Training games.
        n_val: Validation games.
        root: Folder of games to test on: sub-folders with ``game.yaml``, ``values.csv`` or
            ``bids.csv``. Training and validation stay generated.
        base: ``batch_size``, ``eval_batch_size``, ``num_workers``, ``seed`` and ``inputs``: see
            `ZooDataModule`.

    Raises:
        ZooError: For an option out of range, or a game that is broken.
    """

    def __init__(
        self,
        alphas: Sequence[float] = (0.5, 1.0, 2.0, 3.0),
        sizes: Sequence[int] = (3, 4, 5, 6, 8, 10, 12),
        bidders: int = 2,
        payment: str = "first",
        n_train: int = 5000,
        n_val: int = 64,
        root: str | None = None,
        **base: Any,
    ) -> None:
        super().__init__(root=root, **base)
        check_choice("payment", payment, PAYMENTS)
        alphas, sizes = [float(a) for a in alphas], [int(s) for s in sizes]
        if min(alphas, default=0) <= 0 or min(sizes, default=0) < 2 or bidders < 2:
            raise ZooError(
                f"alphas={alphas}, sizes={sizes}, bidders={bidders}: expected exponents above 0, "
                "sizes and bidders of 2 or more."
            )
        if min(n_train, n_val) < 1:
            raise ZooError("n_train and n_val must be at least 1.")
        self.alphas, self.sizes, self.bidders, self.payment = alphas, sizes, bidders, payment
        self.counts = {"train": n_train, "val": n_val}

    def describe(self) -> dict[str, Any]:
        """Priors, sizes and rules, beside what the base class tells."""
        own = {"alphas": self.alphas, "sizes": self.sizes, "bidders": self.bidders}
        return {**super().describe(), **own, "payment": self.payment}

    def build(self, split: str) -> Dataset[Any]:
        """Returns the games of ``split``; all files are read at once.

        Raises:
            ZooError: If a file is missing or broken.
        """
        if self.root is not None and not self.root.is_dir():
            raise ZooError(f"{self.root} is no folder: expected one with games.")
        if split in self.counts:
            shape = self.bidders, max(self.sizes), max(self.sizes)
            first = FIRST[split]
            numbers = range(first, first + self.counts[split])
            return GameList([lambda i=i: self._random(i) for i in numbers], shape, first)  # type: ignore[misc]
        if split == "predict":
            games = [read_game(path) for path in self.input_files(SUFFIXES, FOLDER)]
        elif self.root is not None:
            games = [read_game(p) for p in sorted(self.root.iterdir()) if p.is_dir()]
        else:
            games = self._literature()
        if not games:
            raise ZooError(f"{self.root} has no folders with games.")
        sizes = [(*g.prior.shape, len(g.bids)) for g in games]
        most = [max(size[i] for size in sizes) for i in range(3)]
        shape = most[0], most[1], most[2]
        first = FIRST.get(split, 3_000_000)
        return GameList([lambda g=g: g for g in games], shape, first)  # type: ignore[misc]

    def _random(self, number: int) -> AuctionGame:
        rng = np.random.default_rng([self.seed, number])
        weights = rng.dirichlet(np.ones(rng.integers(1, 4)))
        shapes = np.exp(rng.uniform(-0.7, 1.5, (len(weights), 2)))

        def cdf(x: np.ndarray) -> np.ndarray:
            parts = [w * betainc(a, b, x) for w, (a, b) in zip(weights, shapes, strict=True)]
            return np.asarray(np.sum(parts, axis=0))

        n = self.sizes[int(rng.integers(len(self.sizes)))]
        name = f"random{number}_n{n}"
        return AuctionGame.of_cdf(cdf, n, None, self.bidders, name, self.payment)

    def _literature(self) -> list[AuctionGame]:
        normal = truncnorm(-2.5, 2.5, 0.5, 0.2)
        others: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "beta22": lambda x: betainc(2, 2, x),
            "normal": normal.cdf,
            "twopoint": lambda x: np.where(x < 0.5, 0.02 * x, np.where(x < 1, 0.5 + 0.02 * x, 1.0)),
        }
        games = [
            AuctionGame.power(alpha, n, None, self.bidders, self.payment)
            for alpha in self.alphas
            for n in self.sizes
        ]
        return games + [
            AuctionGame.of_cdf(cdf, n, None, self.bidders, f"{name}_n{n}", self.payment)
            for name, cdf in others.items()
            for n in self.sizes
        ]


def sample(game: AuctionGame, shape: tuple[int, int, int], index: int) -> Sample:
    """The tensors of one game, padded; see :class:`AuctionGamesDataModule`."""
    bidders, n, m = *game.prior.shape, len(game.bids)
    values = np.pad(game.values, (0, shape[1] - n), constant_values=game.values[-1])
    bids = np.pad(game.bids, (0, shape[2] - m), constant_values=game.bids[-1])
    prior = np.pad(game.prior, ((0, shape[0] - bidders), (0, shape[1] - n)))
    mask = np.pad(game.mask, ((0, shape[1] - n), (0, shape[2] - m)))
    mask[n:, 0] = True  # a padded type bids the lowest, with chance 0
    found = game.equilibrium()
    target = np.full(shape[1], -1.0)
    target[:n] = -1 if found is None else found
    doubles = {"values": values, "bids": bids, "prior": prior}
    return {
        **{key: torch.from_numpy(x).float() for key, x in doubles.items()},
        **{f"{key}64": torch.from_numpy(x).double() for key, x in doubles.items()},
        "mask": torch.from_numpy(mask),
        "payment": torch.tensor(PAYMENTS.index(game.payment)),
        "equilibrium": torch.from_numpy(target),
        "sizes": torch.tensor([bidders, n, m]),
        "alpha": torch.tensor(game.alpha or 0.0, dtype=torch.float64),
        "index": torch.tensor(index),
        "name": game.name,
    }
