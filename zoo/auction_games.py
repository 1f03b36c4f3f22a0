"""Discretised auctions with private values: what they are, and the files that they come from.

Notation:
    N     bidders; bidder k has one of n types, its value v_1 < ... < v_n, with chances p_k
    b_a   bids, b_1 < ... < b_m; overbidding (b > v) is ruled out unless asked for
    F     distribution of values that a prior discretises: p_i = F(v_i) - F(v_(i-1))
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.stats import gaussian_kde

from zoo.errors import ZooError, check_choice

PAYMENTS = ("first", "all_pay", "second")
GRID = 2001  # points of the quadrature of an equilibrium
Array = NDArray[np.float64]


@dataclass(frozen=True)
class AuctionGame:
    """An auction of one good.

    Attributes:
        values: Of the types, rising. Shape: (n,).
        bids: Rising, not negative. Shape: (m,).
        prior: Chance of each bidder's types. Shape: (N, n).
        payment: "first" price, "second" price, or "all_pay".
        allow_overbid: Whether bids above one's value are allowed.
        name: Of the game.
        alpha: Of the prior F(v) = v^alpha that was discretised; ``None`` for another one.
    """

    values: Array
    bids: Array
    prior: Array
    payment: str = "first"
    allow_overbid: bool = False
    name: str = "auction"
    alpha: float | None = None

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Which bids each type may make. Shape: (n, m)."""
        if self.allow_overbid:
            return np.ones((len(self.values), len(self.bids)), dtype=bool)
        return self.bids[None] <= self.values[:, None] + 1e-12

    @property
    def symmetric(self) -> bool:
        """Whether all bidders have one prior."""
        return bool(np.allclose(self.prior, self.prior[:1], atol=1e-12))

    def check(self) -> AuctionGame:
        """The game itself, if it is one.

        Raises:
            ZooError: For grids that do not rise, a prior that is none, or a type without a bid.
        """
        check_choice("payment", self.payment, PAYMENTS)
        for name, grid in (("values", self.values), ("bids", self.bids)):
            if len(grid) < 1 or not np.isfinite(grid).all() or (np.diff(grid) <= 0).any():
                raise ZooError(
                    f"{self.name}: {name} must be finite and rise, without duplicates; found "
                    f"{', '.join(f'{x:g}' for x in grid[:6])} ..."
                )
            if grid[0] < 0:
                raise ZooError(f"{self.name}: {name} begin at {grid[0]:g}: expected 0 or more.")
        if self.prior.ndim != 2 or self.prior.shape[1] != len(self.values):
            raise ZooError(
                f"{self.name}: the prior has the shape {self.prior.shape}: expected (bidders, "
                f"{len(self.values)}), a chance for each value."
            )
        if len(self.prior) < 2:
            raise ZooError(f"{self.name} has {len(self.prior)} bidder: expected 2 or more.")
        off = abs(self.prior.sum(axis=1) - 1) > 1e-6
        bad = np.flatnonzero((self.prior < 0).any(axis=1) | off)
        if len(bad):
            raise ZooError(
                f"{self.name}: the prior of bidder {bad[0]} sums to {self.prior[bad[0]].sum():g}, "
                f"its least chance is {self.prior[bad[0]].min():g}: expected 1, and none negative."
            )
        empty = np.flatnonzero(~self.mask.any(axis=1))
        if len(empty):
            raise ZooError(
                f"{self.name}: the value {self.values[empty[0]]:g} has no bid that is not above it."
            )
        return self

    @classmethod
    def power(
        cls, alpha: float, n: int, m: int | None = None, bidders: int = 2, payment: str = "first"
    ) -> AuctionGame:
        """Values i / n with F(v) = v^alpha, bids (a - 1) / m.

        Args:
            alpha: Above 1 the prior is convex: high values are likelier.
            n: Types.
            m: Bids; ``None`` for n.
            bidders: N.
            payment: See :class:`AuctionGame`.
        """
        m = n if m is None else m
        edges = (np.arange(n + 1) / n) ** alpha
        return cls(
            np.arange(1, n + 1) / n,
            np.arange(m) / m,
            np.repeat(np.diff(edges)[None], bidders, axis=0),
            payment,
            name=f"power{alpha:g}_n{n}" + (f"_N{bidders}" if bidders != 2 else ""),
            alpha=alpha,
        ).check()

    @classmethod
    def of_cdf(
        cls,
        cdf: Callable[[Array], Array],
        n: int,
        m: int | None = None,
        bidders: int = 2,
        name: str = "auction",
        payment: str = "first",
    ) -> AuctionGame:
        """The same grids with another distribution of values in [0, 1].

        Args:
            cdf: F.
            n: Types.
            m: Bids; ``None`` for n.
            bidders: N.
            name: Of the game.
            payment: See :class:`AuctionGame`.
        """
        m = n if m is None else m
        edges = np.clip(cdf(np.arange(n + 1) / n), 0, 1)
        edges[0], edges[-1] = 0, 1
        prior = np.repeat(np.diff(edges)[None], bidders, axis=0)
        values = np.arange(1, n + 1) / n
        return cls(values, np.arange(m) / m, prior, payment, name=name).check()

    @classmethod
    def first_price(
        cls,
        values: str | Path | Sequence[float],
        n_types: int = 10,
        n_bids: int = 10,
        n_bidders: int = 2,
        cap: float | None = None,
        reserve: float = 0.0,
    ) -> AuctionGame:
        """An auction whose prior is that of observed valuations.

        Args:
            values: A file with the header ``value`` and optionally ``bidder``, one observation a
                line; or the valuations. With bidders each has a prior of its own.
            n_types: n, equally wide bins.
            n_bids: m.
            n_bidders: N, where no bidders are named.
            cap: Value that becomes 1; ``None`` for the largest one.
            reserve: Value that becomes 0; lower ones do not take part.

        Raises:
            ZooError: If the file is broken; it names the line.
        """
        if isinstance(values, str | Path):
            observed, who = _read_values(Path(values).expanduser())
            name = Path(values).resolve().parent.name
        else:
            observed, who = np.asarray(values, dtype=np.float64), None
            name = "valuations"
        top = float(observed.max()) if cap is None else cap
        if top <= reserve:
            raise ZooError(f"{name}: cap={top:g} must lie above reserve={reserve:g}.")
        scaled = (observed - reserve) / (top - reserve)
        kept = scaled > 0
        if not kept.any():
            raise ZooError(f"{name} has no value above the reserve {reserve:g}.")
        bins = np.clip(np.ceil(scaled * n_types - 1e-9).astype(int) - 1, 0, n_types - 1)
        names = sorted(set(who[kept])) if who is not None else [""] * n_bidders
        prior = []
        for bidder in names:
            chosen = kept if who is None else kept & (who == bidder)
            counts = np.bincount(bins[chosen], minlength=n_types).astype(np.float64)
            prior.append(counts / counts.sum())
        grid = np.arange(1, n_types + 1) / n_types
        return cls(grid, np.arange(n_bids) / n_bids, np.stack(prior), name=name).check()

    @classmethod
    def from_bids(cls, path: str | Path, n_types: int = 10, n_bids: int = 10) -> AuctionGame:
        """An auction whose valuations are inferred from bids in first-price auctions.

        v = b + G(b) / ((N - 1) g(b)), with G the distribution of bids and g its density by a
        Gaussian kernel: what a bid must be worth to whoever best-responds to the others. Source: E.
        Guerre, I. Perrigne, Q. Vuong, Econometrica 2000.

        Args:
            path: Columns ``auction``, ``bidder``, ``bid``.
            n_types: n.
            n_bids: m.

        Raises:
            ZooError: If the file is broken, or auctions differ in their number of bidders.
        """
        path = Path(path).expanduser()
        auctions: dict[str, int] = {}
        bids = []
        for where, row in _rows(path, ("auction", "bidder", "bid")):
            auctions[row["auction"]] = auctions.get(row["auction"], 0) + 1
            bids.append(_number(row["bid"], where))
        counts = set(auctions.values())
        if len(counts) != 1 or min(counts) < 2:
            raise ZooError(
                f"{path} has auctions of {', '.join(map(str, sorted(counts)))} bidders: expected "
                "one number, 2 or more; split the file."
            )
        (bidders,) = counts
        values = invert_bids(np.array(bids), bidders)
        return cls.first_price(values.tolist(), n_types, n_bids, bidders)

    def equilibrium(self) -> Array | None:
        """Bids of the continuous game's equilibrium at the values, where it is known. Shape: (n,).

        First price: v - int_0^v F^(N-1) / F(v)^(N-1); all-pay: int_0^v x dF^(N-1); second price: v.
        ``None`` for bidders with different priors.
        """
        if self.payment == "second":
            truthful: Array = self.values.copy()
            return truthful
        if not self.symmetric:
            return None
        rivals, v = len(self.prior) - 1, self.values
        if self.alpha is not None and self.payment == "first":
            return np.asarray(v * (self.alpha * rivals / (self.alpha * rivals + 1)))
        fine = np.linspace(0, v[-1], GRID)
        power = self.cdf(fine) ** rivals
        steps = np.diff(fine)
        area = np.r_[0, np.cumsum(steps * (power[1:] + power[:-1]) / 2)]
        at = np.interp(v, fine, area)
        here = np.interp(v, fine, power)
        bids: Array = v - at / np.maximum(here, 1e-12) if self.payment == "first" else v * here - at
        return bids

    def cdf(self, x: Array) -> Array:
        """F of the first bidder, between the values linear unless it is a power."""
        if self.alpha is not None:
            return np.asarray(np.clip(x / self.values[-1], 0, 1) ** self.alpha)
        return np.interp(x, np.r_[0, self.values], np.r_[0, np.cumsum(self.prior[0])])


def invert_bids(bids: Array, bidders: int) -> Array:
    """Valuations of bids in first-price auctions, see :meth:`AuctionGame.from_bids`.

    Args:
        bids: Shape: (B,).
        bidders: N.
    """
    if len(bids) < 10 or np.ptp(bids) == 0:
        raise ZooError(f"{len(bids)} bids, or all alike: expected ten or more different ones.")
    ordered = np.sort(bids)
    share = np.searchsorted(ordered, bids, side="right") / len(bids)
    density = gaussian_kde(bids, "silverman")(bids)
    values: Array = bids + share / ((bidders - 1) * np.maximum(density, 1e-9))
    return values


def read_game(path: str | Path) -> AuctionGame:
    """Reads a game: a folder with ``game.yaml``, ``values.csv`` or ``bids.csv``, or one of these.

    ``game.yaml`` has the keys ``values``, ``bids``, ``prior`` (one list, or one for each bidder),
    ``payment`` and ``n_bidders``; beside a ``values.csv`` only the last two, and ``n_types``,
    ``n_bids``, ``cap``, ``reserve``.

    Raises:
        ZooError: If it is missing or broken.
    """
    path = Path(path).expanduser()
    folder = path if path.is_dir() else path.parent
    if not path.exists():
        raise ZooError(f"{path} does not exist: expected a folder, or a .yaml or .csv file.")
    if path.is_dir():
        found = [path / n for n in ("values.csv", "bids.csv", "game.yaml") if (path / n).is_file()]
        if not found:
            raise ZooError(f"{path} has no game.yaml, values.csv or bids.csv.")
        path = found[0]
    options: dict[str, Any] = {}
    config = folder / "game.yaml" if path.suffix == ".csv" else path
    if config.is_file():
        try:
            options = yaml.safe_load(config.read_text(encoding="utf-8")) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ZooError(f"{config} is no YAML: {' '.join(str(error).split())[:120]}.") from error
        if not isinstance(options, dict):
            raise ZooError(f"{config} holds no keys: expected values, bids, prior, payment.")
    sizes = {k: options[k] for k in ("n_types", "n_bids") if k in options}
    if path.name == "bids.csv":
        return AuctionGame.from_bids(path, **sizes)
    if path.suffix == ".csv":
        more = {k: options[k] for k in ("n_bidders", "cap", "reserve") if k in options}
        return AuctionGame.first_price(path, **sizes, **more)
    missing = [k for k in ("values", "bids", "prior") if k not in options]
    if missing:
        raise ZooError(f"{path} has no key '{missing[0]}': expected values, bids and prior.")
    try:
        values, bids, prior = (
            np.asarray(options[k], dtype=np.float64) for k in ("values", "bids", "prior")
        )
    except (TypeError, ValueError) as error:
        raise ZooError(f"{path}: values, bids and prior must be lists: {error}.") from error
    if prior.ndim == 1:
        prior = np.repeat(prior[None], int(options.get("n_bidders", 2)), axis=0)
    payment = str(options.get("payment", "first"))
    return AuctionGame(values, bids, prior, payment, name=path.resolve().parent.name).check()


def _read_values(path: Path) -> tuple[Array, NDArray[np.str_] | None]:
    found, who = [], []
    for where, row in _rows(path, ("value",)):
        found.append(_number(row["value"], where))
        who.append(row.get("bidder") or "")
    if not found:
        raise ZooError(f"{path} has no values.")
    names = np.array(who)
    return np.array(found), names if (names != "").all() else None


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ZooError(f"{path} cannot be read: {error}.") from error
    reader = csv.DictReader(lines)
    missing = [c for c in columns if c not in (reader.fieldnames or [])]
    if missing:
        raise ZooError(f"{path} has no column '{missing[0]}': expected {', '.join(columns)}.")
    return [(f"{path}, line {line}", row) for line, row in enumerate(reader, start=2)]


def _number(text: str | None, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise ZooError(f"{where}: '{text}' is no number.") from None
    if not np.isfinite(value):
        raise ZooError(f"{where}: '{text}' is not finite.")
    return value
