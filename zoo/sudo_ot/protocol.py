"""What every model of moving and dividing cells here shares: scaling, simulation, test and use."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection, PearsonCorrCoef

from zoo.base import ZooModule
from zoo.cell_files import MAX_REP, Cells, Source, from_anndata, read_cells, read_h5ad
from zoo.errors import ZooError
from zoo.sudo_ot.metrics import wasserstein1
from zoo.sudo_ot.network import FlowFields, integrate
from zoo.sudo_ot.penalty import GrowthPenalty
from zoo.sudo_ot.result import Trajectories, add_columns, new_anndata, save_anndata

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.figure import Figure

DYING = -0.005  # a growth rate below it counts as death
ACTION_POINTS = 11  # of the trapezoidal rule in an interval
PREDICT_TIMES = 11  # at which a prediction shows its cells
SHOWN = 60  # trajectories in a figure, or somewhat more
BATCH = 65_536  # cells at once in use
UNNAMED = "X_cells"  # key of obsm for coordinates that have no name


@dataclass(frozen=True)
class Interval:
    """Two neighbouring snapshots.

    Attributes:
        start: Time of the first, in the user's unit.
        length: To the second.
        x: Cells of the first. Shape: (n, p).
        y: Cells of the second. Shape: (m, p).
        a: Masses of the first. Shape: (n,).
        b: Masses of the second. Shape: (m,).
    """

    start: float
    length: float
    x: Tensor
    y: Tensor
    a: Tensor
    b: Tensor


class CellTrajectories(ZooModule):
    """Base of SUDO and of the baseline it is compared with.

    A subclass sets itself up with :meth:`setup_fields` and implements ``training_step``, which
    calls :meth:`intervals` first. What is known of the data (centre, scale, times, the name of the
    coordinates) is stored with the weights.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_w1", "min")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": 5e-3},
    }
    mean: Tensor
    scale: Tensor
    span: Tensor
    rep_name: Tensor
    fitted: Tensor
    updates: Tensor

    def setup_fields(
        self, dim: int, hidden: int, layers: int, ema: float, penalty: GrowthPenalty
    ) -> None:
        """Builds the networks, their running average, buffers and metrics.

        Args:
            dim: p.
            hidden: Width.
            layers: Hidden layers of the velocity.
            ema: Of the running average of weights, which is what is evaluated and published.
            penalty: psi, for the action.
        """
        if dim < 1:
            raise ZooError(f"dim={dim} must be at least 1.")
        if not 0 <= ema < 1:
            raise ZooError(f"ema={ema}: expected 0 <= ema < 1.")
        self.dim, self.ema, self.penalty = dim, ema, penalty
        self.fields = FlowFields(dim, hidden, layers)
        self.averaged = copy.deepcopy(self.fields).requires_grad_(False)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("span", torch.tensor([0.0, 1.0, 1.0]))  # first, last, mean interval
        self.register_buffer("rep_name", torch.zeros(MAX_REP, dtype=torch.uint8))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))  # of the average
        # Each is updated with its own numbers, so they must not be taken for one group.
        names = ("w1", "tmv", "action")
        self.measure(MetricCollection({name: MeanMetric() for name in names}, compute_groups=False))
        self.growth_metrics = nn.ModuleDict(
            {
                f"{stage}_{name}": metric()
                for stage in ("val", "test")
                for name, metric in (
                    ("growth_pearson", PearsonCorrCoef),
                    ("growth_mae", MeanMetric),
                    ("spurious_death", MeanMetric),
                    ("interval_growth_pearson", PearsonCorrCoef),
                    ("interval_spurious_death", MeanMetric),
                    ("w1_held_out", MeanMetric),
                )
            }
        )

    def forward(self, t: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Velocity and growth, from the running average of the weights.

        Args:
            t: Time in the user's unit. Shape: (B,).
            x: Cells in the data's unit. Shape: (B, p).

        Returns:
            Velocity in data units per unit of time, (B, p); growth rate per unit of time, (B,).

        Raises:
            ZooError: If the cells have not p dimensions.
        """
        return self.flow(self.averaged, t, x)

    def flow(self, fields: nn.Module, t: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same from given networks; see :meth:`forward`."""
        self._check_dim(x)
        first, last, interval = self.span
        tau = 2 * (t - first) / (last - first) - 1
        v, g = fields(tau, (x - self.mean) / self.scale)
        return v * (self.scale / interval), g / interval

    def _check_dim(self, x: Tensor) -> None:
        if x.shape[-1] != self.dim:
            raise ZooError(
                f"The cells have {x.shape[-1]} dimensions, but this {type(self).__name__} has "
                f"dim={self.dim}."
            )

    @property
    def rep(self) -> str:
        """Name of the coordinates of training; empty before it, or if they came from a CSV file."""
        raw = bytes(self.rep_name.cpu().tolist())
        return raw.rstrip(b"\0").decode("utf-8", errors="replace")

    def _check_rep(self, rep: str) -> None:
        if self.rep and rep and rep != self.rep:  # a CSV file's have no name
            raise ZooError(
                f"This model was trained on the coordinates '{self.rep}', not on '{rep}'."
            )

    # -- training ----------------------------------------------------------------------------

    def intervals(self, batch: Mapping[str, Any]) -> list[Interval]:
        """The intervals between the snapshots of a batch; the first batch sets the scaling.

        Args:
            batch: ``x`` (N, p), ``time`` (N,), ``mass`` (N,) and the name ``rep``.

        Raises:
            ZooError: If the cells do not fit the model.
        """
        x, time, mass = batch["x"], batch["time"], batch["mass"]
        self._check_dim(x)
        self._check_rep(batch["rep"])
        times = time.unique()
        if not self.fitted:
            self.mean.copy_(x.mean(dim=0))
            self.scale.copy_(x.var(dim=0, correction=0).mean().sqrt().clamp_min(1e-6))
            mean_interval = (times[-1] - times[0]) / (len(times) - 1)
            self.span.copy_(torch.stack([times[0], times[-1], mean_interval]))
            name = batch["rep"].encode()[:MAX_REP].ljust(MAX_REP, b"\0")
            self.rep_name.copy_(torch.tensor(list(name), dtype=torch.uint8))
            self.fitted.fill_(True)
        found = []
        for start, end in pairwise(times):
            here, there = time == start, time == end
            length = float(end - start)
            sides = x[here], x[there], mass[here], mass[there]
            found.append(Interval(float(start), length, *sides))
        return found

    @torch.no_grad()
    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Updates the running average, faster at the beginning."""
        if not next(self.fields.parameters()).requires_grad:
            return
        self.updates += 1
        count = int(self.updates)
        keep = min(self.ema, (1 + count) / (10 + count))
        for average, now in zip(self.averaged.parameters(), self.fields.parameters(), strict=True):
            average.lerp_(now, 1 - keep)

    # -- evaluation --------------------------------------------------------------------------

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Moves the cells of the first snapshot to another one, and compares."""
        return self._evaluate(batch, "val")

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """The same on the test cells."""
        return self._evaluate(batch, "test")

    def _evaluate(self, batch: Mapping[str, Any], stage: str) -> dict[str, Any]:
        metrics = self.val_metrics if stage == "val" else self.test_metrics
        self._check_rep(batch["rep"])
        x0, y, mass = batch["x0"], batch["x"], batch["mass"]
        times = batch["times"][batch["times"] <= batch["time"]]
        places, log_w = self._move(x0, batch["times"][:1].expand(len(x0)), times)
        weight = batch["mass0"] * log_w[-1].exp()
        w1 = wasserstein1(places[-1], weight, y, mass)
        metrics["w1"].update(w1)
        metrics["tmv"].update((weight.sum() - mass.sum()).abs() / mass.sum())
        action, grown = self._next_interval(batch)
        metrics["action"].update(action)
        own: dict[str, tuple[Any, ...]] = {}
        if bool(batch["holds_out"]):  # of all snapshots or none, so that all ranks log the same
            own["w1_held_out"] = (w1, float(batch["held_out"]))
        if "growth" in batch:
            source = batch["source"]
            _, g = self(batch["source_time"].expand(len(source)), source)
            truth = batch["growth"]
            own["growth_pearson"] = (g, truth)
            own["growth_mae"] = ((g - truth).abs(),)
            own["spurious_death"] = (((g < DYING) & (truth >= 0)).float(),)
            # A cell that has far to go is lighter on its way, and loses mass at first: the mean
            # rate over the interval shows what it divides, the rate at its start does not.
            own["interval_growth_pearson"] = (grown, truth)
            own["interval_spurious_death"] = (((grown < DYING) & (truth >= 0)).float(),)
        for name, values in own.items():
            metric = cast("Any", self.growth_metrics[f"{stage}_{name}"])
            metric.update(*values)
            self.log(f"{stage}_{name}", metric, batch_size=1, on_step=False, on_epoch=True)
        return {"x": places, "logw": log_w, "times": times}

    def _move(self, x: Tensor, start: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        return integrate(self.forward, x, start, times, float(self.span[2]))

    def _next_interval(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """What the cells of the snapshot before do until this one.

        Returns:
            The action, a mean over the cells, in time that runs from 0 to 1; and the mean growth
            rate of each cell per unit of time. Shapes: () and (n,).
        """
        source, start = batch["source"], batch["source_time"]
        length = batch["time"] - start
        times = start + length * torch.linspace(0, 1, ACTION_POINTS, device=source.device)
        places, log_w = self._move(source, start.expand(len(source)), times)
        flat = places.flatten(0, 1)
        v, g = self(times.repeat_interleave(len(source)), flat)
        lagrangian = (v * length).square().sum(dim=1) / 2 + self.penalty(g * length)
        weighted = (log_w.exp() * lagrangian.view(log_w.shape)).mean(dim=1)
        action = torch.trapezoid(weighted, dx=1 / (ACTION_POINTS - 1))
        return action, log_w[-1] / length

    # -- use ---------------------------------------------------------------------------------

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """Trajectories of a file's cells, each from its own time to the last one of training.

        Returns:
            One entry: ``x`` (T, B, p), ``logw`` (T, B) and ``g`` (T, B) at ``predict_times`` (T,);
            ``velocity`` (B, p), ``growth_rate`` (B,) and ``fate_mass`` (B,) at the cells' times.
        """
        self._check_rep(batch["rep"])
        first = torch.minimum(batch["time"].min(), self.span[0])
        times = torch.linspace(float(first), float(self.span[1]), PREDICT_TIMES)
        times = times.to(batch["x"])
        places, log_w = self._move(batch["x"], batch["time"], times)
        cells = len(batch["x"])
        _, g = self(times.repeat_interleave(cells), places.flatten(0, 1))
        found = self._describe(batch["x"], batch["time"])
        kept = {key: batch[key] for key in ("name", "path", "rep", "time_key")}
        arrays = {"x": places, "logw": log_w, "g": g.view(log_w.shape), "predict_times": times}
        plain = {key: value.float().cpu() for key, value in {**arrays, **found}.items()}
        return [{**kept, "cells": batch["x"].cpu(), "time": batch["time"].cpu(), **plain}]

    def _describe(self, x: Tensor, time: Tensor) -> dict[str, Tensor]:
        """Velocity and growth of each cell at its own time, and its mass at the last one."""
        v, g = self(time, x)
        _, log_w = self._move(x, time, self.span[1:2].to(x))
        return {"velocity": v, "growth_rate": g, "fate_mass": log_w[-1].exp()}

    def _describe_all(self, cells: Cells) -> dict[str, Any]:
        self._check_rep(cells.rep)
        parts = []
        with self.evaluating():
            for i in range(0, len(cells.x), BATCH):
                x = torch.from_numpy(cells.x[i : i + BATCH]).to(self.device)
                time = torch.from_numpy(cells.time[i : i + BATCH]).to(x)
                parts.append(self._describe(x, time))
        return {
            key: torch.cat([part[key] for part in parts]).float().cpu().numpy() for key in parts[0]
        }

    def predict(self, cells: Source, time_key: str = "time", rep: str | None = None) -> AnnData:
        """Says of each cell how it moves, how fast it divides or dies, and what becomes of it.

        Args:
            cells: Path of an ``.h5ad`` or ``.csv`` file, or an AnnData, which is changed in place.
            time_key: Column of ``obs`` with the time.
            rep: Key of ``obsm``; ``None`` for that of training.

        Returns:
            The AnnData with ``obs["growth_rate"]``, per unit of time; ``obs["fate_mass"]``, into
            how much mass the cell grows until the last time of training; and
            ``obsm["velocity_sudo"]``, per unit of time. The order of its cells stays.

        Raises:
            ZooError: If the cells cannot be read, or do not fit the model.
        """
        if isinstance(cells, str | Path) and Path(cells).suffix.lower() == ".csv":
            table = read_cells(cells)
            adata = new_anndata(table.x, table.time, self.rep or UNNAMED, time_key)
            return add_columns(adata, self._describe_all(table))
        adata = read_h5ad(Path(cells).expanduser()) if isinstance(cells, str | Path) else cells
        where = str(cells) if isinstance(cells, str | Path) else "The AnnData"
        chosen = rep or self.rep or "X_pca"
        self._check_rep(chosen)
        table = from_anndata(adata, time_key, chosen, where)
        return add_columns(adata, self._describe_all(table))

    def annotate(self, adata: AnnData, time_key: str = "time", rep: str | None = None) -> AnnData:
        """:meth:`predict` of an AnnData."""
        return self.predict(adata, time_key, rep)

    @torch.inference_mode()
    def simulate(
        self,
        adata: Source,
        until: float,
        time_key: str = "time",
        rep: str | None = None,
        times: int = PREDICT_TIMES,
    ) -> Trajectories:
        """Moves cells from their own times on.

        Args:
            adata: An AnnData, or a path.
            until: The last time.
            time_key: Column of ``obs`` with the time.
            rep: Key of ``obsm``; ``None`` for that of training.
            times: At how many times to look, evenly spaced from the first cell's.

        Raises:
            ZooError: If the cells do not fit the model, or ``until`` lies before all of them.
        """
        cells = read_cells(adata, time_key, rep or self.rep or "X_pca")
        self._check_rep(cells.rep)
        first = float(cells.time.min())
        if until <= first:
            raise ZooError(f"until={until:g} is not after the first cells' time {first:g}.")
        when = torch.linspace(first, until, times, device=self.device)
        x = torch.from_numpy(cells.x).to(self.device)
        places, log_w = self._move(x, torch.from_numpy(cells.time).to(x), when)
        _, g = self(when.repeat_interleave(len(x)), places.flatten(0, 1))
        return Trajectories(
            np.linspace(first, until, times),
            *(v.float().cpu().numpy() for v in (places, log_w, g.view(log_w.shape))),
        )

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.h5ad``, the annotated cells, and ``<name>_trajectories.csv``."""
        source = Path(prediction["path"])
        if source.suffix.lower() == ".csv":
            x, time = prediction["cells"].numpy(), prediction["time"].double().numpy()
            adata = new_anndata(x, time, self.rep or UNNAMED, prediction["time_key"])
        else:
            adata = read_h5ad(source)
        names = ("velocity", "growth_rate", "fate_mass")
        add_columns(adata, {name: prediction[name].numpy() for name in names})
        found = Trajectories(
            prediction["predict_times"].double().numpy(),
            *(prediction[name].numpy() for name in ("x", "logw", "g")),
        )
        return [
            save_anndata(adata, path.with_name(f"{path.name}.h5ad")),
            found.save(path.with_name(f"{path.name}_trajectories.csv")),
        ]

    def example_inputs(self) -> dict[str, Tensor]:
        """Four cells around the centre, at times over the first interval."""
        x = torch.linspace(-1, 1, 4 * self.dim).view(4, self.dim)
        return {"t": torch.linspace(0, 1, 4), "x": x}

    def figures(self, batch: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Figure]:
        """Trajectories over the snapshots, growth of all cells, and mass over time."""
        from zoo.sudo_ot.figure import growth_map, mass_curve, trajectory_map

        cells, time, times = batch["cells"], batch["cell_time"], batch["times"]
        with torch.inference_mode():
            _, g = self(time, cells)
            start, x0 = times[:1], batch["x0"]
            shown = x0[:: max(1, len(x0) // SHOWN)]  # evenly: cells may be in the order of types
            fine = torch.linspace(float(times[0]), float(times[-1]), 41).to(cells)
            places, _ = self._move(shown, start.expand(len(shown)), fine)
            _, log_w = self._move(x0, start.expand(len(x0)), fine)
        mass = (batch["mass0"] * log_w.exp()).sum(dim=1)
        arrays = {"cells": cells, "time": time, "growth": g}
        plain = {key: value.float().cpu().numpy() for key, value in arrays.items()}
        name = self.rep or "x"
        return {
            "trajectories": trajectory_map(
                plain["cells"], plain["time"], places.cpu().numpy(), name
            ),
            "growth": growth_map(plain["cells"], plain["time"], plain["growth"], name),
            "mass": mass_curve(
                fine.cpu().numpy(),
                mass.cpu().numpy(),
                times.cpu().numpy(),
                batch["masses"].cpu().numpy(),
            ),
        }
