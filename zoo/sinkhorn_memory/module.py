"""Sinkhorn memory as a LightningModule: which stored distribution is this, and how is it clean?

Reference:
    "Dense associative memory on weighted point clouds" (arXiv 2603.20656, S. Mustafi and
    S. Mukherjee), of which only the abstract was at hand; see ``flow.py`` for what is derived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from zoo.atomic import atomic_path
from zoo.base import ZooModule
from zoo.distributed import gathered
from zoo.errors import ZooError, check_choice
from zoo.layers.sinkhorn import sinkhorn_divergence
from zoo.measures import Measure, check_dims, pad_samples, read_measure
from zoo.sinkhorn_memory.calibration import Queries, choose, count_recovered, make_grid, median_cost
from zoo.sinkhorn_memory.evaluation import Evaluation
from zoo.sinkhorn_memory.flow import Dynamics, Patterns, Retrieval, energy, shk_retrieve
from zoo.sinkhorn_memory.memory import Memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODES = ("store", "learn")


@dataclass(frozen=True)
class Recall:
    """What :meth:`SinkhornMemory.retrieve` found for a list of clouds.

    Attributes:
        label: Of the most probable pattern, for each query.
        points: Cleaned, in the user's unit, float32; as many as the query had. Shape: (n, d) each.
        weights: Sum to 1. Shape: (n,) each.
        pattern_prob: Of all patterns, in the order of ``labels``. Shape: (Q, K).
        divergence: Of the end to the most probable pattern, in units of the standardised cost.
            Shape: (Q,).
        energy: At the start and after each step. Shape: (Q, max_steps + 1).
        steps: Taken. Shape: (Q,).
        converged: Shape: (Q,), bool.
    """

    label: list[str]
    points: list[np.ndarray[Any, Any]]
    weights: list[np.ndarray[Any, Any]]
    pattern_prob: np.ndarray[Any, Any]
    divergence: np.ndarray[Any, Any]
    energy: np.ndarray[Any, Any]
    steps: np.ndarray[Any, Any]
    converged: np.ndarray[Any, Any]


class SinkhornMemory(ZooModule):
    """Dense associative memory for weighted point clouds, of any number of points each.

    In the mode "store", ``fit`` reads the training data once and keeps them; then it chooses beta
    and eps on the validation queries, by how many are recovered. There is no gradient: what this
    learns are beta and eps. In the mode "learn", K prototypes are trained to have a low mean
    energy over the training data, which is soft quantisation.

    Args:
        eps: Entropic regularisation in units of the standardised cost, of which two random points
            of the memory have about 1. Replaced by the calibration of "store".
        beta: Inverse temperature, in the inverse of the same unit. Replaced likewise.
        tau: Step of the points; 0 for a flow that only reweighs.
        eta: Step of the weights; 0 for a flow that only moves.
        max_steps: Of the flow.
        inner_iters: Of each Sinkhorn problem.
        mode: "store" or "learn".
        n_patterns: K. "store" replaces it and the next two by what is stored.
        support: m, the largest number of points of a pattern.
        dim: d.
        standardize: Centre and scale by all that is stored. Else costs are in the user's unit.
        calibrate: Choose beta and eps on the validation queries, in "store".
        active_threshold: Patterns of less probability are looked at every tenth step only.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_s_end", "min")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.Adam",
        "init_args": {"lr": 1e-2},
    }

    def __init__(
        self,
        eps: float = 0.1,
        beta: float = 50.0,
        tau: float = 1.0,
        eta: float = 0.5,
        max_steps: int = 50,
        inner_iters: int = 100,
        mode: str = "store",
        n_patterns: int | None = None,
        support: int | None = None,
        dim: int | None = None,
        standardize: bool = True,
        calibrate: bool = True,
        active_threshold: float = 1e-6,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        check_choice("mode", mode, MODES)
        learn = mode == "learn"
        for name, size in (("n_patterns", n_patterns), ("support", support), ("dim", dim)):
            if (size is None and learn) or (size is not None and size < 1):
                raise ZooError(f"{name}={size}: mode='{mode}' needs a number of at least 1.")
        self.constants = Dynamics(
            eps, beta, tau, eta, max_steps, inner_iters, active_threshold=active_threshold
        )
        # Parameters, as it is they that "store" chooses; no gradient ever reaches them.
        self.eps = nn.Parameter(torch.tensor(float(eps)), requires_grad=not learn)
        self.beta = nn.Parameter(torch.tensor(float(beta)), requires_grad=not learn)
        self.memory = Memory(n_patterns or 0, support or 0, dim or 0, learn)
        self.automatic_optimization = learn
        self.learn, self.standardize, self.calibrate = learn, standardize, calibrate
        self._incoming: dict[int, Measure] = {}
        self._prepared: tuple[float, Patterns] | None = None
        self.evaluation = Evaluation(identify=not learn)
        self.val_metrics = self.evaluation.metrics("val_")
        self.test_metrics = self.evaluation.metrics("test_", rivals=True)

    @property
    def labels(self) -> list[str]:
        """Of the stored patterns, in order."""
        return self.memory.names

    @property
    def dynamics(self) -> Dynamics:
        """The constants with the calibrated beta and eps."""
        args = {**vars(self.constants), "eps": self.eps.item(), "beta": self.beta.item()}
        return Dynamics(**args)

    @torch.no_grad()
    def patterns(self) -> Patterns:
        """The stored measures in standardised coordinates, with their self-terms.

        Raises:
            ZooError: If nothing is stored.
        """
        if not self.memory.filled:
            raise ZooError(
                f"Nothing is stored in this {type(self).__name__}: store clouds first, with "
                "store(...) or zoo fit."
            )
        eps, points = self.eps.item(), self.memory.points.detach()
        if self.learn:  # prototypes change at every step
            return Patterns.prepare(points, self.memory.weights, eps, self.constants.inner_iters)
        if self._prepared is None or self._prepared[0] != eps:
            self._prepared = (
                eps,
                Patterns.prepare(points, self.memory.weights, eps, self.constants.inner_iters),
            )
        return self._prepared[1]

    def forward(
        self, points: Tensor, weights: Tensor | None = None, mask: Tensor | None = None
    ) -> Retrieval:
        """Lets queries flow to what is stored.

        Args:
            points: In the user's unit. Shape: (Q, n, d).
            weights: Not negative; normalised here. ``None`` for equal ones. Shape: (Q, n).
            mask: False at padding. Shape: (Q, n), bool.

        Returns:
            Points in the user's unit; divergence and energy in units of the standardised cost. It
            computes in float32 or wider, also under autocast.

        Raises:
            ZooError: If nothing is stored, the dimension is another one, a number is not finite, a
                weight is negative, or a query has no weight.
        """
        patterns = self.patterns()
        points, weights = self.clean(points, weights, mask)
        x = self.memory.standardize(points, weights)
        found = shk_retrieve(x, weights, patterns, self.dynamics)
        return found._replace(points=self.memory.restore(found.points, found.weights))

    def clean(
        self, points: Tensor, weights: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Checked points and normalised weights, which are 0 at padding; see :meth:`forward`."""
        if points.ndim != 3 or points.shape[-1] != len(self.memory.mean):
            raise ZooError(
                f"Queries have the shape {tuple(points.shape)}: expected (Q, n, d) with "
                f"d={len(self.memory.mean)} as stored."
            )
        points = points.float() if points.dtype != torch.float64 else points
        weights = torch.ones_like(points[..., 0]) if weights is None else weights.to(points.dtype)
        if mask is not None:
            weights = torch.where(mask, weights, 0.0)
        total = weights.sum(-1, keepdim=True)
        real = weights > 0
        if not bool(points[real].isfinite().all() and weights.isfinite().all()):
            raise ZooError("A query has points or weights that are not finite.")
        if bool((weights < 0).any() or (total <= 0).any()):
            raise ZooError("Weights of queries must not be negative, and not all 0 in a row.")
        return points, weights / total

    # -- storing -----------------------------------------------------------------------------

    def store(
        self,
        clouds: Sequence[Any],
        weights: Sequence[Any] | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        """Replaces what is stored; beta and eps stay.

        Args:
            clouds: Arrays (m, d), of any m each.
            weights: Arrays (m,), not negative; ``None`` for equal ones.
            labels: ``None`` for their numbers.

        Raises:
            ZooError: If a cloud is none, dimensions differ, or this is in the mode "learn".
        """
        if self.learn:
            raise ZooError("mode='learn' has prototypes of its own; store clouds in mode='store'.")
        if not len(clouds):
            raise ZooError("There is no cloud to store.")
        names = [str(k) for k in range(len(clouds))] if labels is None else list(map(str, labels))
        if len(names) != len(clouds):
            raise ZooError(f"There are {len(names)} labels for {len(clouds)} clouds.")
        self._store(_measures(clouds, weights, names, "cloud"))

    def _store(self, measures: Sequence[Measure]) -> None:
        check_dims(measures, "What is to be stored")
        batch = pad_samples([one.sample() for one in measures])
        points, weights = batch["points"].to(self.device), batch["weights"].to(self.device)
        self.memory.store(points, weights, batch["label"], self.standardize)
        self._note_sizes()

    def _note_sizes(self) -> None:
        """Keeps the init arguments true to what is stored, so that a copy is built as large."""
        self._prepared = None
        if not self.learn:
            count, support, dim = self.memory.points.shape
            self.hparams.update(n_patterns=count or None, support=support or None, dim=dim or None)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Loads weights of any number of patterns in the mode "store"."""
        found = super().load_state_dict(state_dict, strict, assign)
        self._note_sizes()
        return found

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._prepared = None  # it is on the old device
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    # -- training ----------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Sets the prototypes to training data, the same on all ranks."""
        if not self.learn or bool(self.memory.fitted):
            return
        batch = next(iter(cast("Iterable[Any]", self.trainer.train_dataloader)))
        batch = self.transfer_batch_to_device(batch, self.device, 0)
        self.memory.initialise(batch["points"], batch["weights"], self.standardize)
        if dist.is_available() and dist.is_initialized():
            for tensor in (*self.memory.parameters(), *self.memory.buffers()):
                dist.broadcast(tensor.data, src=0)

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor | None:
        """Remembers the batch, or the mean energy of its measures at the prototypes."""
        if not self.learn:
            for row, index in enumerate(batch["index"]):
                real = batch["weights"][row] > 0
                points, weights = (batch[key][row][real].cpu() for key in ("points", "weights"))
                label = batch["label"][row]
                self._incoming[int(index)] = Measure(points.numpy(), weights.numpy(), label)
            cast("Any", self.optimizers()).step()  # without gradients: it counts the step
            return None
        points, weights = self.clean(batch["points"], batch["weights"], batch["mask"])
        x = self.memory.standardize(points, weights)
        eps, iters = self.eps.item(), self.constants.inner_iters
        divergence = sinkhorn_divergence(
            x[:, None], weights[:, None], self.memory.points, self.memory.weights, eps, iters
        )
        loss = energy(divergence, self.beta.item()).mean()
        self.log("train_loss", loss, prog_bar=True, batch_size=len(points))
        return loss

    def on_validation_start(self) -> None:
        """In the mode "store": keeps what training has read, and calibrates."""
        self._commit()
        super().on_validation_start()

    def on_train_epoch_end(self) -> None:
        """The same, for a fit without validation."""
        self._commit()

    @torch.inference_mode(False)  # what is stored outlives the validation in which it is
    @torch.no_grad()
    def _commit(self) -> None:
        """Stores what all ranks have read, in the order of the data, and ends the training."""
        fitting = self.trainer.state.fn == TrainerFn.FITTING
        if self.learn or not fitting or self.trainer.sanity_checking:
            return
        read = gathered(self._incoming)
        self._incoming = {}
        measures = {index: one for share in read for index, one in share.items()}
        if not measures:
            return
        self._store([measures[index] for index in sorted(measures)])
        if self.calibrate and self.trainer.val_dataloaders is not None:
            self._calibrate(self.trainer.val_dataloaders)
        self.trainer.should_stop = True

    def _calibrate(self, batches: Iterable[Mapping[str, Any]]) -> None:
        queries = []
        for given in batches:
            batch = self.transfer_batch_to_device(given, self.device, 0)
            points, weights = self.clean(batch["points"], batch["weights"], batch["mask"])
            points, target = self.memory.standardize(points, weights), self.targets(batch["label"])
            known = target >= 0
            queries.append(Queries(points[known], weights[known], target[known]))
        grid = make_grid(self.constants, median_cost(self.memory.points, self.memory.weights))
        counts = count_recovered(queries, self.memory.points, self.memory.weights, grid)
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(counts)
        best = choose(counts, grid)
        self.eps.fill_(best.eps)
        self.beta.fill_(best.beta)
        self._prepared = None
        rank_zero_info(
            f"Stored {len(self.memory.points)} patterns; beta={best.beta:g} and eps={best.eps:.3g} "
            "recover most validation queries."
        )

    def targets(self, labels: Sequence[str]) -> Tensor:
        """Index of the stored pattern of each label; -1 for an unknown one. Shape: (Q,)."""
        known = {name: k for k, name in enumerate(self.labels)}
        return torch.tensor([known.get(label, -1) for label in labels], device=self.device)

    # -- evaluation --------------------------------------------------------------------------

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Tensor] | None:
        """Retrieves, and compares with the clean measure; before anything is stored, nothing."""
        if self.trainer.sanity_checking and not self.memory.filled:
            return None
        found: Retrieval = self(batch["points"], batch["weights"], batch["mask"])
        self.evaluation.update(self.val_metrics, self, batch, found)
        return found._asdict()

    def on_validation_epoch_end(self) -> None:
        """Logs, unless there was nothing to measure."""
        if not (self.trainer.sanity_checking and not self.memory.filled):
            super().on_validation_epoch_end()

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Tensor]:
        """The same with exact W2, ablations and baselines on the same queries."""
        found: Retrieval = self(batch["points"], batch["weights"], batch["mask"])
        self.evaluation.update(self.test_metrics, self, batch, found)
        self.evaluation.compare(self.test_metrics, self, batch, found)
        return found._asdict()

    # -- use ---------------------------------------------------------------------------------

    def retrieve(self, clouds: Sequence[Any], weights: Sequence[Any] | None = None) -> Recall:
        """Cleans a list of clouds of any number of points each.

        Args:
            clouds: Arrays (n, d) in the unit of what is stored, or paths of ``.npz`` files.
            weights: Arrays (n,), not negative; ``None`` for equal ones, or those of the files.

        Raises:
            ZooError: If a cloud is none, or nothing is stored.
        """
        names = [f"query {k}" for k in range(len(clouds))]
        batch = pad_samples([m.sample() for m in _measures(clouds, weights, names, "query")])
        with self.evaluating():
            found = self(*(batch[key].to(self.device) for key in ("points", "weights", "mask")))
        best = found.pattern_prob.argmax(-1)
        real = [row.cpu() for row in batch["mask"]]

        def rows(values: Tensor) -> list[np.ndarray[Any, Any]]:
            return [v[r].numpy() for v, r in zip(values.cpu(), real, strict=True)]

        names = self.labels
        return Recall(
            [names[k] for k in best.tolist()],
            rows(found.points),
            rows(found.weights),
            found.pattern_prob.cpu().numpy(),
            found.divergence.gather(1, best[:, None])[:, 0].cpu().numpy(),
            found.energy.cpu().numpy(),
            found.steps.cpu().numpy(),
            found.converged.cpu().numpy(),
        )

    def predict(self, cloud: Any, weights: Any = None) -> dict[str, Any]:
        """Cleans one cloud.

        Args:
            cloud: An array (n, d), or the path of an ``.npz`` file with ``points`` and perhaps
                ``weights``.
            weights: Array (n,); ``None`` for equal ones, or those of the file.

        Returns:
            The first entry of each field of :class:`Recall`.
        """
        found = self.retrieve([cloud], None if weights is None else [weights])
        return {name: values[0] for name, values in vars(found).items()}

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """One entry a query: its name, and what :meth:`predict` returns."""
        found = self(batch["points"], batch["weights"], batch["mask"])
        names, best = self.labels, found.pattern_prob.argmax(-1)
        entries = []
        for row, name in enumerate(batch["name"]):
            real = batch["mask"][row]
            entries.append(
                {
                    "name": name,
                    "label": names[int(best[row])],
                    "points": found.points[row][real],
                    "weights": found.weights[row][real],
                    "pattern_prob": found.pattern_prob[row],
                    "divergence": found.divergence[row, best[row]],
                    "energy": found.energy[row],
                    "steps": found.steps[row],
                    "converged": found.converged[row],
                }
            )
        return entries

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.npz`` with the arrays of the prediction, ``id`` being the label."""
        path = path.with_name(path.name + ".npz")
        arrays = {
            "id" if key == "label" else key: value.cpu().numpy()
            if isinstance(value, Tensor)
            else np.asarray(value)
            for key, value in prediction.items()
            if key != "name"
        }
        with atomic_path(path) as temporary:
            np.savez(temporary, **arrays)  # type: ignore[arg-type]
        return [path]

    def example_inputs(self) -> dict[str, Tensor]:
        """The first two patterns, bent."""
        points = self.memory.restore(self.memory.points.detach(), self.memory.weights)[:2].clone()
        wave = torch.linspace(-1, 1, points[0].numel()).view(points.shape[1:]).to(points)
        weights = self.memory.weights.detach()[:2].clone()
        return {"points": points + 0.2 * self.memory.scale * wave, "weights": weights}

    def figures(
        self, batch: Mapping[str, Any], outputs: Mapping[str, Tensor] | None
    ) -> dict[str, Figure]:
        """Queries on their way, and their energies."""
        if outputs is None:
            return {}
        from zoo.sinkhorn_memory.figure import energy_curves, flow_panels

        return {
            "flow": flow_panels(batch, outputs, self.labels),
            "energy": energy_curves(outputs["energy"], outputs["steps"]),
        }


def _measures(
    clouds: Sequence[Any], weights: Sequence[Any] | None, labels: Sequence[str], what: str
) -> list[Measure]:
    if weights is not None and len(weights) != len(clouds):
        raise ZooError(f"There are weights for {len(weights)} of {len(clouds)} clouds.")
    found = []
    for k, (cloud, label) in enumerate(zip(clouds, labels, strict=True)):
        if isinstance(cloud, str | Path):
            found.append(read_measure(cloud))
            continue
        cloud = cloud.cpu().numpy() if isinstance(cloud, Tensor) else cloud
        given = None if weights is None else weights[k]
        given = given.cpu().numpy() if isinstance(given, Tensor) else given
        found.append(Measure.checked(cloud, given, label, f"{what} {k}"))
    return found
