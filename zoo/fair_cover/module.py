"""Fair covering as a LightningModule: what it solves, what it compares with, what it learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanMetric, Metric, MetricCollection

from zoo.cover_files import CoverInstance, read_instance
from zoo.errors import ZooError, check_choice
from zoo.fair_cover.baselines import BASELINES, solve_baseline
from zoo.fair_cover.network import CoverNet, unit
from zoo.fair_cover.program import BACKENDS, Bools, Relaxation, Residual, cover_program, relax
from zoo.fair_cover.result import CoverSolution
from zoo.fair_cover.rounding import draw, hard_elements
from zoo.fair_cover.solver import CoverSolver, check_options, is_feasible, solution
from zoo.solvers import LinearProgram, Solution, dual_bound, solve_pdhg

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.float64]"
DUAL_WEIGHT = 0.1  # of the groups' multipliers in the loss
TEST_THETA = 3  # stream of random numbers


class FairCover(CoverSolver):
    """Choose sets at least cost, so that groups and single elements are covered fairly.

    Every realisation covers k_c members of each group c, groups may overlap; and element j is
    covered with a chance of p_j at least. What ``fit`` trains is a network that guesses the
    relaxation; everything else works without training.

    Args:
        tau: Factor of the relaxation's shares in a round of sampling.
        trials: Roundings with one threshold, of which the cheapest is kept.
        resolve: "lp" solves the relaxation of what is left after each round; "none" solves no
            linear program at all: the network's guess is rounded, repaired and pruned. Then the
            bound is what the guessed multipliers prove.
        individual: "common", one threshold for all promises; or "independent", one for each.
        kc: Strengthen relaxations by rows with truncated coefficients where they are violated.
        lp_backend: "highs", "pdhg" (first order, on the device), or "auto" by size.
        rounding: "independent" by sets, or "dependent" by pairs.
        prune: Delete sets that are not needed.
        max_rounds: Of sampling; ``None`` for the analysis's ln(n l) / tau + 2.
        predictor_width: Of the network; 0 for none.
        predictor_rounds: Of its messages.
        compare: Baselines of the test: "greedy", "iv", "iv_prune", "ilp".
        ilp_seconds: Limit of integer programming.
        solver_seed: Of the draws.

    Source: the abstract; its paper was not found. See the modules of this package for what is ours.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_fast_ratio", "min")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.Adam",
        "init_args": {"lr": 1e-3},
    }

    def __init__(
        self,
        tau: float = 1.0,
        trials: int = 8,
        resolve: str = "lp",
        individual: str = "common",
        kc: bool = False,
        lp_backend: str = "auto",
        rounding: str = "independent",
        prune: bool = True,
        max_rounds: int | None = None,
        predictor_width: int = 64,
        predictor_rounds: int = 3,
        compare: Sequence[str] = ("greedy", "iv", "iv_prune"),
        ilp_seconds: float = 10.0,
        solver_seed: int = 0,
    ) -> None:
        super().__init__()
        compare = list(compare)
        check_options(tau, trials, resolve, individual, rounding, max_rounds)
        check_choice("lp_backend", lp_backend, BACKENDS)
        for name in compare:
            check_choice("compare", name, BASELINES)
        if resolve == "none" and predictor_width < 1:
            raise ZooError("resolve='none' rounds the network's guess: it needs a predictor_width.")
        self.save_hyperparameters()
        self.tau, self.trials, self.resolve, self.individual = tau, trials, resolve, individual
        self.kc, self.lp_backend, self.rounding, self.prune = kc, lp_backend, rounding, prune
        self.max_rounds, self.solver_seed = max_rounds, solver_seed
        self.compare, self.ilp_seconds = compare, ilp_seconds
        self.predictor: CoverNet | None = None
        self.automatic_optimization = predictor_width > 0  # else there is nothing to optimise
        if predictor_width > 0:
            self.predictor = CoverNet(predictor_width, predictor_rounds)
        self._solved: dict[tuple[int, bytes], tuple[Tensor, Tensor]] = {}
        fast: dict[str, Metric | MetricCollection] = {
            name: MeanMetric() for name in ("fast_ratio", "fast_feasible", "share_error")
        }
        names = ["ratio", "ratio_lb", "feasible", "least_slack", "rounds", "programs", "completed"]
        names += ["ratio_single", "ratio_direct", "price_of_fairness"]
        names += [f"{kind}_{b}" for b in compare for kind in ("ratio", "feasible")]
        self.measure(MetricCollection(fast), **{name: MeanMetric() for name in names})

    # -- the network -------------------------------------------------------------------------

    def forward(
        self, edges: Tensor, cost: Tensor, least: Tensor, group_edges: Tensor, need: Tensor
    ) -> dict[str, Tensor]:
        """The relaxation of one instance, guessed by the network, or solved if there is none.

        Args:
            edges: Element and set of each membership. Shape: (2, E), long.
            cost: Of the sets, > 0. Shape: (M,).
            least: Lower bound of each element's cover, 0..1. Shape: (n,).
            group_edges: Group and element of each membership. Shape: (2, F), long.
            need: Members of each group that must be covered. Shape: (l,), long.

        Returns:
            ``x``, shares of the sets in 0..1, (M,), and ``duals``, multipliers of the groups in the
            unit of costs, (l,); float32.
        """
        if self.predictor is not None:
            logits, logs = self.predictor(edges, cost, least, group_edges, need)
            duals = logs.float().clamp(0, 20).expm1() * unit(edges, cost)
            return {"x": logits.float().sigmoid(), "duals": duals}
        instance = instance_of(edges, cost, least, group_edges, need)
        (found,) = relax([Residual.whole(instance, instance.promise)], self.lp_backend, self.kc)
        return {
            "x": torch.from_numpy(found.x).float().to(cost.device),
            "duals": torch.from_numpy(found.duals).float().to(cost.device),
        }

    def guess(self, instance: CoverInstance, hard: Bools) -> Relaxation:
        """The network's guess with the bound that its multipliers prove."""
        assert self.predictor is not None
        tensors = {k: v.to(self.device) for k, v in tensors_of(instance).items()}
        tensors["least"] = torch.from_numpy(hard.astype(np.float32)).to(self.device)
        with torch.inference_mode():
            out = self(**tensors)
        x, duals = (out[key].double().cpu().numpy() for key in ("x", "duals"))
        program = cover_program(Residual.whole(instance, hard.astype(np.float64)))
        primal, multipliers = program.point(x, duals)
        multipliers = dual_point(program.program, len(program.sets), multipliers)
        bound = max(0.0, dual_bound(program.program, multipliers))
        found = Solution(primal, multipliers, float(x @ instance.cost), bound, 0, 0.0)
        return Relaxation(x, duals, bound, found)

    def relaxation(self, instance: CoverInstance, hard: Bools) -> Relaxation:
        """Solved; guessed if no linear program is to be solved; warm-started where that is used."""
        if self.resolve == "none":
            return self.guess(instance, hard)
        if self.lp_backend == "pdhg" and self.predictor is not None and not self.kc:
            guess = self.guess(instance, hard)
            program = cover_program(Residual.whole(instance, hard.astype(np.float64)))
            start = [(guess.solution.x, guess.solution.y)]
            (found,) = solve_pdhg([program.program], device=self.device, start=start)
            return program.unpack(found)
        return super().relaxation(instance, hard)

    def fast(self, instance: CoverInstance, hard: Bools, guess: Relaxation, number: int) -> Bools:
        """The cheapest of the trials from the network's guess, no linear program. Shape: (M,)."""
        seeds = np.random.SeedSequence([self.solver_seed, TEST_THETA, number]).spawn(self.trials)
        drawn = draw(instance, hard, guess, seeds, self.tau, "none", limit=1)
        best: Bools = drawn.chosen[(drawn.chosen @ instance.cost).argmin()]
        return best

    # -- training ----------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        """None without a network: then ``fit`` only reports."""
        return None if self.predictor is None else super().configure_optimizers()

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor | None:
        """Cross-entropy with the shares of the relaxation, and Huber's loss of log multipliers.

        Each instance comes with a threshold drawn anew: what is hard is part of the input.
        """
        if self.predictor is None:
            return None
        least, shares, duals = [], [], []
        for instance, number in split(batch):
            hard = hard_elements(instance, 1 - torch.rand(()).item())
            x, own = self._target(instance, number, hard)
            scale = instance.cost.sum() / max(1, instance.membership.nnz)
            least.append(torch.from_numpy(hard.astype(np.float32)))
            shares.append(x)
            duals.append((own / scale).log1p())
        logits, logs = self.predictor(
            batch["edges"],
            batch["cost"],
            torch.cat(least).to(self.device),
            batch["group_edges"],
            batch["need"],
        )
        loss = F.binary_cross_entropy_with_logits(logits, torch.cat(shares).to(logits))
        loss = loss + DUAL_WEIGHT * F.huber_loss(logs, torch.cat(duals).to(logs))
        self.log("train_loss", loss, prog_bar=True, batch_size=len(shares))
        return loss

    def _target(self, instance: CoverInstance, number: int, hard: Bools) -> tuple[Tensor, Tensor]:
        """The relaxation's solution, kept: an instance has few different sets of hard elements."""
        key = number, hard.tobytes()
        if key not in self._solved:
            (found,) = relax([Residual.whole(instance, hard.astype(np.float64))], "auto")
            self._solved[key] = (
                torch.from_numpy(found.x).float(),
                torch.from_numpy(found.duals).float(),
            )
        return self._solved[key]

    def on_fit_end(self) -> None:
        """Forgets the solved relaxations."""
        self._solved.clear()

    # -- evaluation --------------------------------------------------------------------------

    def validation_step(  # type: ignore[override]
        self, batch: Mapping[str, Any], batch_idx: int
    ) -> list[CoverSolution]:
        """How good choices without a linear program are; without a network, those with one."""
        solutions = []
        for instance, number in split(batch):
            theta = 1 - np.random.default_rng([self.solver_seed, TEST_THETA, number]).random()
            hard = hard_elements(instance, theta)
            exact = CoverSolver.relaxation(self, instance, hard)
            self._update_fast(self.val_metrics, instance, hard, exact, number)
            solutions.append(self._solved_with(instance, hard, exact, theta, number))
        return solutions

    def test_step(  # type: ignore[override]
        self, batch: Mapping[str, Any], batch_idx: int
    ) -> list[CoverSolution]:
        """The method, its ablations and the baselines with the same hard elements."""
        solutions = []
        for instance, number in split(batch):
            generator = np.random.default_rng([self.solver_seed, TEST_THETA, number])
            theta = 1 - generator.random()
            hard = hard_elements(instance, theta)
            exact = CoverSolver.relaxation(self, instance, hard)
            found = self._solved_with(instance, hard, exact, theta, number)
            bound = max(exact.bound, 1e-9)
            ratios = {"": found.cost / bound}
            single = np.random.SeedSequence([self.solver_seed, TEST_THETA, number, 1])
            drawn = self.round(instance, hard, exact, single, 1)
            ratios["single"] = float(drawn.chosen[0] @ instance.cost) / bound
            plain = relax([Residual.whole(instance, instance.promise)], self.lp_backend, self.kc)[0]
            direct = self.round(instance, hard, plain, single, 1)
            ratios["direct"] = float(direct.chosen[0] @ instance.cost) / bound
            for name in self.compare:
                chosen = solve_baseline(name, instance, hard, exact, generator, self.ilp_seconds)
                if chosen is not None:
                    ratios[name] = float(chosen @ instance.cost) / bound
                    self._note(f"feasible_{name}", is_feasible(instance, hard, chosen))
            for name, ratio in ratios.items():
                self._note(f"ratio_{name}".rstrip("_"), ratio)
            self._note("ratio_lb", found.cost / max(plain.bound, 1e-9))
            chosen = np.zeros(len(instance.cost), dtype=bool)
            chosen[found.selected] = True
            self._note("feasible", is_feasible(instance, hard, chosen))
            self._note("least_slack", found.slack.min(initial=0))
            for name in ("rounds", "programs", "completed"):
                self._note(name, getattr(found, name))
            self._note("price_of_fairness", self.price_of_fairness(instance, [1.0])[0])
            self._update_fast(self.test_metrics, instance, hard, exact, number)
            solutions.append(found)
        return solutions

    def _solved_with(
        self, instance: CoverInstance, hard: Bools, exact: Relaxation, theta: float, number: int
    ) -> CoverSolution:
        """The method's choice for given hard elements."""
        start = self.relaxation(instance, hard) if self.resolve == "none" else exact
        seed = np.random.SeedSequence([self.solver_seed, TEST_THETA, number])
        drawn = self.round(instance, hard, start, seed, self.trials)
        best = int((drawn.chosen @ instance.cost).argmin())
        return solution(instance, drawn, best, exact.bound, theta, 0.0)

    def _update_fast(
        self,
        metrics: MetricCollection,
        instance: CoverInstance,
        hard: Bools,
        exact: Relaxation,
        number: int,
    ) -> None:
        prefix = "val_" if metrics is self.val_metrics else "test_"
        if self.predictor is None:
            error = 0.0
            seed = np.random.SeedSequence([self.solver_seed, TEST_THETA, number])
            chosen = self.round(instance, hard, exact, seed, 1).chosen[0]
        else:
            guess = self.guess(instance, hard)
            chosen = self.fast(instance, hard, guess, number)
            error = float(np.abs(guess.x - exact.x).mean())
        feasible = float(is_feasible(instance, hard, chosen))
        ratio = float(chosen @ instance.cost) / max(exact.bound, 1e-9)
        values = {"fast_ratio": ratio, "fast_feasible": feasible, "share_error": error}
        for name, metric in metrics.items(keep_base=True):
            if name.removeprefix(prefix) in values:
                metric.update(values[name.removeprefix(prefix)])

    def _note(self, name: str, value: float) -> None:
        self.test_metrics[f"test_{name}"].update(float(value))

    # -- use ---------------------------------------------------------------------------------

    def predict(self, instance: CoverInstance | str | Path, number: int = 0) -> CoverSolution:
        """One realisation of the random choice for an instance.

        Args:
            instance: A :class:`~zoo.cover_files.CoverInstance`, a folder of tables, or a file, see
                :func:`zoo.cover_files.read_instance`.
            number: Of the draw.

        Raises:
            ZooError: If it cannot be read or solved.
        """
        if not isinstance(instance, CoverInstance):
            instance = read_instance(instance)
        with self.evaluating():
            return self.solve(instance, number=number)

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """A solution of each instance."""
        found = [self.solve(instance, number=number) for instance, number in split(batch)]
        return [{"name": s.instance.name, "solution": s} for s in found]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.csv``, ``<name>_groups.csv``, and ``<name>.json``, the certificate."""
        found: CoverSolution = prediction["solution"]
        return found.save(path)

    def exportable(self) -> NoReturn:
        """Says why there is no graph to export."""
        raise ZooError(
            "FairCover is not exported: it is an algorithm around linear programs; export "
            "model.predictor, and round its shares in your own program."
        )

    def example_inputs(self) -> dict[str, Tensor]:
        """Four sets of a ring of six elements, two groups."""
        elements, sets = [0, 1, 2, 2, 3, 4, 4, 5, 0, 1, 3, 5], [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
        return {
            "edges": torch.tensor([elements, sets]),
            "cost": torch.tensor([1.0, 1.0, 1.2, 2.0]),
            "least": torch.tensor([0.0, 1.0, 0.0, 0.0, 0.3, 0.0]),
            "group_edges": torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 2, 2, 3, 5]]),
            "need": torch.tensor([2, 2]),
        }

    def figures(self, batch: Mapping[str, Any], outputs: Any) -> dict[str, Figure]:
        """The first instance: a map of the choice, cover by group, and the price of fairness."""
        from zoo.fair_cover.figure import draw as draw_solution

        return draw_solution(self, outputs[0])


def instance_of(
    edges: Tensor,
    cost: Tensor,
    least: Tensor,
    group_edges: Tensor,
    need: Tensor,
    name: str = "instance",
    set_places: Tensor | None = None,
    element_places: Tensor | None = None,
) -> CoverInstance:
    """An instance from tensors; ``least`` is its promise, places of length 0 are none."""
    sizes = len(least), len(cost)
    arrays = [x.detach().cpu().numpy() for x in (edges, group_edges)]
    a, g = (
        csr_array((np.ones(pairs.shape[1], np.int32), (pairs[0], pairs[1])), shape=shape)
        for pairs, shape in zip(arrays, (sizes, (len(need), sizes[0])), strict=True)
    )
    places = [
        None if x is None or not len(x) else x.cpu().numpy() for x in (set_places, element_places)
    ]
    return CoverInstance(
        a,
        cost.detach().double().cpu().numpy(),
        g,
        need.detach().long().cpu().numpy(),
        least.detach().double().cpu().numpy(),
        name=name,
        set_places=places[0],
        element_places=places[1],
    )


def tensors_of(instance: CoverInstance) -> dict[str, Tensor]:
    """The arguments of ``forward``, ``least`` being the promise."""
    a, g = instance.membership.tocoo(), instance.groups.tocoo()
    return {
        "edges": torch.from_numpy(np.stack([a.row, a.col])).long(),
        "cost": torch.from_numpy(instance.cost),
        "least": torch.from_numpy(instance.promise),
        "group_edges": torch.from_numpy(np.stack([g.row, g.col])).long(),
        "need": torch.from_numpy(instance.need).long(),
    }


def split(batch: Mapping[str, Any]) -> list[tuple[CoverInstance, int]]:
    """The instances of a batch, which stand side by side in its tensors, with their numbers."""
    found = []
    lengths = batch["lengths"].tolist()  # of each: n, M, l, E, F, places of sets, of elements
    first = [0] * 7
    for number, (length, index) in enumerate(zip(lengths, batch["index"].tolist(), strict=True)):
        n, m, groups, e, f, s, t = (
            slice(start, start + size) for start, size in zip(first, length, strict=True)
        )
        shift = torch.tensor([[n.start], [m.start]], device=batch["edges"].device)
        group_shift = torch.tensor([[groups.start], [n.start]], device=shift.device)
        instance = instance_of(
            batch["edges"][:, e] - shift,
            batch["cost"][m],
            batch["least"][n],
            batch["group_edges"][:, f] - group_shift,
            batch["need"][groups],
            batch["name"][number],
            batch["set_places"][s],
            batch["element_places"][t],
        )
        found.append((instance, index))
        first = [start + size for start, size in zip(first, length, strict=True)]
    return found


def dual_point(program: LinearProgram, sets: int, multipliers: Array) -> Array:
    """Multipliers of all rows for given ones of the groups: what elements are worth.

    An element is worth the multipliers of its groups, but no more than the cheapest of its sets can
    pay when each pays all of its members alike: then no set is worth more than it costs. A hard
    element is worth all that can be paid. That, or the plain worth, whichever proves more.

    Args:
        program: Of :func:`~zoo.fair_cover.program.cover_program`.
        sets: Columns that are sets.
        multipliers: Of the rows after those of the elements. Shape: (R,).
    """
    count = len(program.cost) - sets
    a = csr_array(program.rows[:count, :sets]).tocoo()
    g = program.rows[count:, sets:]
    worth = g.T @ multipliers[count:]
    size = np.bincount(a.col, minlength=sets)
    price = np.full(count, np.inf)
    np.minimum.at(price, a.row, program.cost[a.col] / size[a.col])
    hard = program.lower[sets:] >= 1
    candidates = [
        np.concatenate([np.where(np.isfinite(own), own, 0), multipliers[count:]])
        for own in (np.where(hard, price, np.minimum(price, worth)), worth)
    ]
    return max(candidates, key=lambda y: dual_bound(program, y))
