"""What is measured of a retrieval, and what ablations and baselines make of the same queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torchmetrics import MeanMetric, Metric, MetricCollection

from zoo.errors import missing_extra
from zoo.layers.sinkhorn import sinkhorn_divergence
from zoo.sinkhorn_memory.baselines import euclidean_hopfield, moments_hopfield
from zoo.sinkhorn_memory.calibration import RECOVERED
from zoo.sinkhorn_memory.flow import Retrieval, shk_retrieve

if TYPE_CHECKING:
    from zoo.sinkhorn_memory.module import SinkhornMemory

RIVALS = ("nearest", "transport", "reaction", "euclid", "moments")
TOLERANCE = 1e-6  # of the energy, which is in float32, above which a rise counts


class Evaluation:
    """Metrics by name; all are means over the queries.

    ``s_start`` and ``s_end``: divergence of query and result from the clean measure, at the
    memory's eps, in units of the standardised cost. ``id_acc``: the most probable pattern is the
    right one. ``recovered``: it is, and s_end is at most 5 % of s_start. ``w2``: exact Wasserstein
    distance of the result from the clean measure, in the user's unit. ``violations``: steps that
    raised the energy. ``entropy``: of the pattern probabilities, in nats.

    Args:
        identify: Patterns have the labels of the queries; prototypes have not.
    """

    def __init__(self, identify: bool) -> None:
        self.identify = identify
        self.judged = ("id_acc", "recovered") if identify else ()

    def metrics(self, prefix: str, rivals: bool = False) -> MetricCollection:
        """One collection; with ``rivals``, also ``<metric>_<rival>`` and exact distances."""
        names = ["s_start", "s_end", "steps", "violations", "entropy", *self.judged]
        if rivals:
            names += [f"{m}_{r}" for r in RIVALS for m in ("s_end", *self.judged)]
            names += ["w2", "w2_euclid"]
        metrics: dict[str, Metric | MetricCollection] = {name: MeanMetric() for name in names}
        return MetricCollection(metrics, prefix=prefix, compute_groups=False)

    def update(
        self,
        metrics: MetricCollection,
        model: SinkhornMemory,
        batch: Mapping[str, Any],
        found: Retrieval,
    ) -> None:
        """Takes in a batch, with ``target_points`` (Q, m, d) and ``target_weights`` (Q, m)."""
        rises = (found.energy.diff(dim=1) > TOLERANCE).sum(1).float()
        prob = found.pattern_prob
        values = {
            "s_start": self._start(model, batch),
            "steps": found.steps.float(),
            "violations": rises,
            "entropy": torch.special.entr(prob).sum(-1),
        }
        points, weights = found.points, found.weights
        values |= self._judge(model, batch, points, weights, prob, values["s_start"])
        for name, value in values.items():
            metrics[name].update(value)

    def compare(
        self,
        metrics: MetricCollection,
        model: SinkhornMemory,
        batch: Mapping[str, Any],
        found: Retrieval,
    ) -> None:
        """Lets the rivals loose on the batch, and measures exact distances."""
        start = self._start(model, batch)
        results = self.rivals(model, batch)
        for name, (points, weights, prob) in results.items():
            judged = self._judge(model, batch, points, weights, prob, start)
            for metric, value in judged.items():
                metrics[f"{metric}_{name}"].update(value)
        target = batch["target_points"], batch["target_weights"]
        metrics["w2"].update(exact_w2(found.points, found.weights, *target))
        points, weights, _ = results["euclid"]
        metrics["w2_euclid"].update(exact_w2(points, weights, *target))

    def rivals(
        self, model: SinkhornMemory, batch: Mapping[str, Any]
    ) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        """Points in the user's unit, weights and probabilities of each rival."""
        x, a = model.clean(batch["points"], batch["weights"], batch["mask"])
        x, patterns = model.memory.standardize(x, a), model.patterns()
        y, b, flow = patterns.points, patterns.weights, model.dynamics
        changes = {"nearest": {"max_steps": 0}, "transport": {"eta": 0.0}, "reaction": {"tau": 0.0}}
        found: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        for name, change in changes.items():
            one = shk_retrieve(x, a, patterns, replace(flow, **change))  # type: ignore[arg-type]
            found[name] = one.points, one.weights, one.pattern_prob
        found["euclid"] = euclidean_hopfield(x, a, y, b, flow.beta)
        found["moments"] = moments_hopfield(x, a, y, b, flow.beta)
        return {
            name: (model.memory.restore(points, weights), weights, prob)
            for name, (points, weights, prob) in found.items()
        }

    def _start(self, model: SinkhornMemory, batch: Mapping[str, Any]) -> Tensor:
        x, a = model.clean(batch["points"], batch["weights"], batch["mask"])
        return self._divergence(model, batch, x, a)

    def _divergence(
        self, model: SinkhornMemory, batch: Mapping[str, Any], points: Tensor, weights: Tensor
    ) -> Tensor:
        """Of measures in the user's unit from the batch's clean ones. Shape: (Q,)."""
        y, b = model.clean(batch["target_points"], batch["target_weights"], None)
        x, y = model.memory.standardize(points, weights), model.memory.standardize(y, b)
        return sinkhorn_divergence(x, weights, y, b, model.eps.item()).clamp_min(0)

    def _judge(
        self,
        model: SinkhornMemory,
        batch: Mapping[str, Any],
        points: Tensor,
        weights: Tensor,
        prob: Tensor,
        start: Tensor,
    ) -> dict[str, Tensor]:
        end = self._divergence(model, batch, points, weights)
        if not self.identify:
            return {"s_end": end}
        right = prob.argmax(-1) == model.targets(batch["label"])
        good = right & (end <= RECOVERED * start)
        return {"s_end": end, "id_acc": right.float(), "recovered": good.float()}


def exact_w2(x: Tensor, a: Tensor, y: Tensor, b: Tensor) -> Tensor:
    """Wasserstein-2 distance of pairs of measures, by POT's exact solver.

    Args:
        x: Shape: (Q, n, d).
        a: Shape: (Q, n).
        y: Shape: (Q, m, d).
        b: Shape: (Q, m).

    Returns:
        In the unit of the points. Shape: (Q,).
    """
    try:
        import ot
    except ImportError as error:
        raise missing_extra("POT", "measures") from error
    found = []
    for points, weights, others, masses in zip(
        *(t.double().cpu().numpy() for t in (x, a, y, b)), strict=True
    ):
        cost = ot.dist(points, others)
        squared = ot.emd2(weights / weights.sum(), masses / masses.sum(), cost)
        found.append(max(float(squared), 0.0) ** 0.5)
    return torch.tensor(found, device=x.device)
