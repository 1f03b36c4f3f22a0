"""Equilibrium learning in auctions as a LightningModule."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MaxMetric, MeanMetric, Metric, MetricCollection

from zoo.atomic import write_text
from zoo.auction_games import AuctionGame, read_game
from zoo.base import ZooModule
from zoo.bayes_auction.dynamics import ALGOS, Run, learn, random_strategies
from zoo.bayes_auction.network import BidNetwork
from zoo.bayes_auction.payoff import (
    PAYMENT_CODES,
    Games,
    payoffs,
    utility_loss,
)
from zoo.bayes_auction.polytope import CONCEPTS, FUNCTIONS, PolytopeReport, measure
from zoo.bayes_auction.regret import external_regret, semicoarse_regret, swap_regret
from zoo.bayes_auction.result import EquilibriumReport
from zoo.distributed import gathered
from zoo.errors import ZooError, check_choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REGRET_STARTS = 4  # starts of each test game whose semicoarse regret is solved for


class BayesAuction(ZooModule):
    """Where gradient learners end up in an auction, and how far from equilibrium they can.

    ``fit`` trains a network that bids in any auction, by playing against itself. ``solve`` lets
    gradient learners play from there (or from random starts), and ``polytope`` bounds by linear
    programs whatever such learners, or learners without regret, can end up with.

    Args:
        algo: Learners of ``solve`` and the test: "pga", "hedge", "mirror_entropy", "adam_logits",
            "reinforce".
        eta0: Their first step.
        schedule: "sqrt", eta0 / sqrt(t), or "constant".
        gradient: "interim", each type for itself, or "ex_ante".
        steps: Of the learners.
        starts: Random starts of each test game.
        concepts: Sets whose size the test measures: "BCE", "BSCCE", "BCCE".
        lp_sizes: Numbers of types of test games that they are measured for.
        hidden: Width of the network.

    Source: the abstract; arXiv 2502.20466 (semicoarse equilibria) and 2401.01185 (linear programs
    of auctions). The semicoarse set of Bayesian games is our derivation, see ``polytope.py``.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_network_loss", "min")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.Adam",
        "init_args": {"lr": 1e-2},
    }

    def __init__(
        self,
        algo: str = "pga",
        eta0: float = 1.0,
        schedule: str = "sqrt",
        gradient: str = "interim",
        steps: int = 3000,
        starts: int = 64,
        concepts: Sequence[str] = CONCEPTS,
        lp_sizes: Sequence[int] = (3, 4, 5, 6, 8),
        hidden: int = 128,
    ) -> None:
        super().__init__()
        check_choice("algo", algo, ALGOS)
        check_choice("schedule", schedule, ("sqrt", "constant"))
        if gradient == "joint":
            raise NotImplementedError("Maps that mix types (scope 'joint') are not built.")
        check_choice("gradient", gradient, ("interim", "ex_ante"))
        concepts, lp_sizes = list(concepts), [int(size) for size in lp_sizes]
        for concept in concepts:
            check_choice("concepts", concept, CONCEPTS)
        if not eta0 > 0 or steps < 1 or starts < 1:
            raise ZooError(
                f"eta0={eta0}, steps={steps}, starts={starts}: expected a step above 0 and counts "
                "of at least 1."
            )
        self.save_hyperparameters()
        self.algo, self.eta0, self.schedule, self.gradient = algo, eta0, schedule, gradient
        self.steps, self.starts = steps, starts
        self.concepts, self.lp_sizes = concepts, lp_sizes
        self.network = BidNetwork(hidden)
        self._rows: list[dict[str, Any]] = []
        both: dict[str, Metric | MetricCollection] = {
            "network_loss": MeanMetric(),
            "utility_loss": MaxMetric(),
            "w2": MeanMetric(),
        }
        test: dict[str, Metric] = {
            **{name: MeanMetric() for name in ("network_w2", "utility_loss_mean", "w2_worst")},
            **{name: MaxMetric() for name in ("external_regret", "swap_regret")},
            "semicoarse_regret": MaxMetric(),
            **{f"radius_{concept}": MeanMetric() for concept in concepts if lp_sizes},
        }
        self.measure(MetricCollection(both), **test)

    # -- the network -------------------------------------------------------------------------

    def forward(
        self, values: Tensor, bids: Tensor, prior: Tensor, mask: Tensor, payment: Tensor
    ) -> Tensor:
        """The network's strategies.

        Args:
            values: Of the types, rising. Shape: (B, n).
            bids: Rising. Shape: (B, m).
            prior: Chances of each bidder's types; 0 for bidders that are padding. Shape: (B, N, n).
            mask: Bids that each type may make. Shape: (B, n, m), bool.
            payment: 0 first price, 1 all-pay, 2 second price. Shape: (B,), long.

        Returns:
            Chance of each bid of each type of each bidder, float32. Shape: (B, N, n, m).
        """
        out: Tensor = self.network(Games(values, bids, prior, mask, payment))
        return out

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Less expected utility against the others' play, which is held fixed."""
        games = games_of(batch)
        strategy = self.network(games)
        u = payoffs(games, strategy.detach())
        value = (strategy * u).sum(-1)  # (G, N, n)
        loss: Tensor = -(games.prior.to(value) * value).sum(dim=(1, 2)).mean()
        with torch.no_grad():
            gap = utility_loss(games, strategy.detach()).mean()
        # The level of utility says nothing of equilibrium; what a best response gains does.
        self.log("train_loss", gap, prog_bar=True, batch_size=len(u))
        return loss

    # -- evaluation --------------------------------------------------------------------------

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """The network's own loss, and that of learners that begin at it."""
        games = games_of(batch)
        start = self.network(games)
        run = self._learn(games.double(), start.double(), regrets=False)
        self._update(self.val_metrics, "network_loss", utility_loss(games, start))
        self._update(self.val_metrics, "utility_loss", utility_loss(games.double(), run.strategy))
        self._update(self.val_metrics, "w2", distance(batch, run.strategy))
        return run.strategy

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Learners from random starts: loss, distance and regrets; then the sets' sizes."""
        games = games_of(batch).double()
        network = self.network(games_of(batch)).double()
        self._update(self.test_metrics, "network_loss", utility_loss(games, network))
        self._update(self.test_metrics, "network_w2", distance(batch, network))
        many = games.repeat(self.starts)
        seeds = [
            1009 * int(index) + start
            for index in batch["index"].tolist()
            for start in range(self.starts)
        ]
        run = self._learn(many, random_strategies(many, seeds))
        loss = utility_loss(many, run.strategy).view(-1, self.starts)
        self._update(self.test_metrics, "utility_loss", loss.amax(1))
        self._update(self.test_metrics, "utility_loss_mean", loss.mean(1))
        keys = (*TENSORS, "equilibrium")
        repeated = {key: batch[key].repeat_interleave(self.starts, 0) for key in keys}
        far = distance(repeated, run.strategy).view(-1, self.starts)
        self._update(self.test_metrics, "w2", far.mean(1))
        self._update(self.test_metrics, "w2_worst", far.amax(1))
        assert run.swaps is not None
        self._update(self.test_metrics, "external_regret", external_regret(run.swaps, many.prior))
        self._update(self.test_metrics, "swap_regret", swap_regret(run.swaps, many.prior))
        few = (torch.arange(len(loss))[:, None] * self.starts + torch.arange(REGRET_STARTS)).ravel()
        few = few[: len(loss) * min(REGRET_STARTS, self.starts)].to(run.swaps.device)
        regret = semicoarse_regret(run.swaps[few], many.prior[few], many.mask[few])
        self._update(self.test_metrics, "semicoarse_regret", torch.from_numpy(regret))
        for game in split(batch):
            self._measure_sets(game)
        return run.strategy.view(-1, self.starts, *run.strategy.shape[1:])[:, 0]

    def _measure_sets(self, game: AuctionGame) -> None:
        if len(game.prior) != 2 or not game.symmetric or len(game.values) not in self.lp_sizes:
            return
        for concept in self.concepts:
            report = measure(game, concept)
            row = {
                "game": game.name,
                "types": len(game.values),
                "concept": concept,
                "radius_w2": report.radius_w2,
                "width_expected_bid": report.width["expected_bid"],
                "variables": report.variables,
                "build_seconds": report.build_seconds,
                "solve_seconds": report.solve_seconds,
            }
            self._rows.append(row)
            self._update(self.test_metrics, f"radius_{concept}", torch.tensor([report.radius_w2]))

    def on_test_epoch_end(self) -> None:
        """Writes ``polytopes.csv`` into the run folder, then logs."""
        rows = [row for part in gathered(self._rows) for row in part]
        if rows and self.trainer.is_global_zero and self.trainer.loggers:
            folder = Path(self.trainer.loggers[0].log_dir or self.trainer.default_root_dir)
            unique = {(row["game"], row["concept"]): row for row in rows}
            text = io.StringIO()
            writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(unique[key] for key in sorted(unique))
            write_text(folder / "polytopes.csv", text.getvalue())
        self._rows = []
        super().on_test_epoch_end()

    def _learn(self, games: Games, start: Tensor, regrets: bool = True) -> Run:
        options = self.algo, self.eta0, self.schedule, self.gradient
        with torch.inference_mode():
            return learn(games, start, self.steps, *options, regrets=regrets)

    def _update(self, metrics: MetricCollection, name: str, values: Tensor) -> None:
        prefix = "val_" if metrics is self.val_metrics else "test_"
        known = values[~values.isnan()]
        for key, metric in metrics.items(keep_base=True):
            if key.removeprefix(prefix) == name and len(known):
                metric.update(known.float().to(self.device))

    # -- use ---------------------------------------------------------------------------------

    def solve(
        self, game: AuctionGame, start: str = "network", seed: int = 0, tolerance: float = 1e-4
    ) -> EquilibriumReport:
        """Lets learners play one auction.

        Args:
            game: Of any number of bidders and any payment.
            start: "network" or "random".
            seed: Of a random start.
            tolerance: Stop once no best response gains more.
        """
        check_choice("start", start, ("network", "random"))
        game.check()
        batch = {k: v.to(self.device) for k, v in tensors_of(game).items()}
        games = games_of(batch)
        with torch.inference_mode():
            first = self.network(games) if start == "network" else random_strategies(games, [seed])
            double = games.double()
            run = learn(
                double,
                first.double(),
                self.steps,
                self.algo,
                self.eta0,
                self.schedule,
                self.gradient,
                tolerance=tolerance,
            )
            assert run.swaps is not None
            swaps, prior = run.swaps, double.prior
            strategy = run.strategy
            bids = double.bids[:, None, None]
            u = payoffs(double, strategy)
            surplus = (prior[..., None] * strategy * u).sum()
            welfare = _welfare(double, strategy)
            return EquilibriumReport(
                game,
                strategy[0].cpu().numpy(),
                (strategy * bids).sum(-1)[0].cpu().numpy(),
                float(welfare - surplus),
                float(welfare),
                float(utility_loss(double, strategy)),
                float(external_regret(swaps, prior)),
                float(semicoarse_regret(swaps, prior, double.mask)[0]),
                float(swap_regret(swaps, prior)),
                float(distance(batch, strategy)[0]),
                run.steps,
            )

    def polytope(
        self, game: AuctionGame, concept: str = "BSCCE", functions: Sequence[str] = FUNCTIONS
    ) -> PolytopeReport:
        """How far all outcomes of a kind of learner can lie from equilibrium, and from each other.

        Args:
            game: Of two bidders.
            concept: "BSCCE" for gradient learners, "BCCE" for any without external regret, "BCE"
                for any without swap regret.
            functions: Whose widths are computed; also "mean_bid_<type>".

        Raises:
            ZooError: For more than two bidders, or a game that is too large.
        """
        return measure(game, concept, functions)

    def predict(self, game: AuctionGame | str | Path) -> EquilibriumReport:
        """Solves an auction.

        Args:
            game: An :class:`~zoo.auction_games.AuctionGame`, or a folder or file, see
                :func:`zoo.auction_games.read_game`.

        Raises:
            ZooError: If it cannot be read.
        """
        if not isinstance(game, AuctionGame):
            game = read_game(game)
        with self.evaluating():
            return self.solve(game)

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """A report of each game."""
        return [{"name": game.name, "report": self.solve(game)} for game in split(batch)]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.csv``, bids by type, and ``<name>.json``, regrets and distances."""
        report: EquilibriumReport = prediction["report"]
        return report.save(path)

    def exportable(self) -> NoReturn:
        """Says why there is no graph to export."""
        raise ZooError(
            "BayesAuction is not exported: what it gives comes from iterated play and linear "
            "programs; export model.network for the first guess."
        )

    def example_inputs(self) -> dict[str, Tensor]:
        """Four values, four bids, two bidders."""
        game = AuctionGame.power(2.0, 4)
        found = tensors_of(game)
        return {key: found[key] for key in TENSORS}

    def figures(self, batch: Mapping[str, Any], outputs: Any) -> dict[str, Figure]:
        """Bid functions of the first games beside the equilibrium, and the sets' radius by size."""
        from zoo.bayes_auction.figure import bid_functions, radii

        found = {"bids": bid_functions(split(batch), outputs)}
        if self._rows:
            found["radius"] = radii(self._rows)
        return found


TENSORS = ("values", "bids", "prior", "mask", "payment")


def games_of(batch: Mapping[str, Any]) -> Games:
    """The games of a batch."""
    return Games(*(batch[key] for key in TENSORS))


def tensors_of(game: AuctionGame) -> dict[str, Tensor]:
    """A batch of one game."""
    target = game.equilibrium()
    known = np.full(len(game.values), -1.0) if target is None else target
    return {
        "values": torch.from_numpy(game.values)[None].float(),
        "bids": torch.from_numpy(game.bids)[None].float(),
        "prior": torch.from_numpy(game.prior)[None].float(),
        "mask": torch.from_numpy(game.mask)[None],
        "payment": torch.tensor([PAYMENT_CODES[game.payment]]),
        "equilibrium": torch.from_numpy(known)[None],
    }


def split(batch: Mapping[str, Any]) -> list[AuctionGame]:
    """The games of a batch without their padding."""
    names = list(PAYMENT_CODES)
    found = []
    for i, name in enumerate(batch["name"]):
        bidders, n, m = batch["sizes"][i].tolist()
        values, bids = batch["values64"][i][:n], batch["bids64"][i][:m]
        prior = batch["prior64"][i][:bidders, :n]
        alpha = float(batch["alpha"][i])
        overbid = bool(batch["mask"][i][0, m - 1]) and float(bids[-1]) > float(values[0])
        found.append(
            AuctionGame(
                values.cpu().numpy(),
                bids.cpu().numpy(),
                prior.cpu().numpy(),
                names[int(batch["payment"][i])],
                overbid,
                name,
                alpha or None,
            )
        )
    return found


def distance(batch: Mapping[str, Any], strategy: Tensor) -> Tensor:
    """W2 between the laws of type and bid of play and equilibrium, largest of the bidders.

    NaN where the equilibrium is not known. Shape: (G, N, n, m) to (G,).
    """
    target = batch["equilibrium"].to(strategy)  # -1 where it is not known
    gap = (batch["bids"].to(strategy)[:, None, None] - target[:, None, :, None]).square()
    prior = batch["prior"].to(strategy)
    unknown = ((target < 0)[:, None] & (prior > 0)).flatten(1).any(1)
    found = (prior * (strategy * gap).sum(-1)).sum(-1).amax(-1).sqrt()
    return torch.where(unknown, torch.nan, found)


def _welfare(games: Games, strategy: Tensor) -> Tensor:
    """Expected value of whoever gets the good: bids' payoffs with nothing to pay."""
    first = Games(
        games.values, games.bids * 0, games.prior, games.mask, torch.zeros_like(games.payment)
    )
    u = payoffs(first, strategy)  # with bids of 0 a first price is the value times the win
    return (games.prior[..., None] * strategy * u).sum()
