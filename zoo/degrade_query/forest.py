"""The baseline of the field: a random forest on fingerprints, with and without context."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MetricCollection

from zoo.base import ZooModule
from zoo.degrade_query.metrics import GroupAUROC, binary_metrics
from zoo.degrade_query.result import write_table
from zoo.degrade_query.vocabulary import Vocabulary
from zoo.errors import missing_extra
from zoo.molecules import FINGERPRINT_BITS
from zoo.proteins import unpack_names
from zoo.reproducible import global_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FingerprintForest(ZooModule):
    """scikit-learn's random forest, whose trees are stored and asked as tensors.

    It is grown once, at the first validation, from the labelled tuples that the first epoch showed;
    so a fit has one epoch.

    Args:
        context: Give it target and ligase too, one-hot.
        trees: How many.
        max_nodes: Of a tree; twice the labels of training are enough.
        max_proteins: As of DegradeQuery, and so is ``protein_dim``.
        protein_dim: See above.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_auroc", "max")

    feature: Tensor
    threshold: Tensor
    child: Tensor
    value: Tensor

    def __init__(
        self,
        context: bool = True,
        trees: int = 500,
        max_nodes: int = 2048,
        max_proteins: int = 512,
        protein_dim: int = 64,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.context = context
        self.vocabulary = Vocabulary(max_proteins, protein_dim)
        self.register_buffer("feature", torch.zeros(trees, max_nodes, dtype=torch.long))
        self.register_buffer("threshold", torch.zeros(trees, max_nodes))
        self.register_buffer("child", torch.zeros(trees, max_nodes, 2, dtype=torch.long))
        self.register_buffer("value", torch.full((trees, max_nodes), 0.5))
        # Lightning writes no checkpoint without optimiser steps, so this number takes them.
        self.steps = torch.nn.Parameter(torch.zeros(()))
        self._rows: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        self._depth = 64
        self.measure(
            MetricCollection(binary_metrics(), compute_groups=False),
            target_auroc=GroupAUROC(),
            several_auroc=GroupAUROC(least=2),
        )

    def forward(self, fp: Tensor, target: Tensor, e3: Tensor) -> dict[str, Tensor]:
        """``probability``: the trees' mean. Shapes: (B, 2215), (B,), (B,) to (B,)."""
        x = self._inputs(fp, target, e3)
        node = torch.zeros(len(x), len(self.feature), dtype=torch.long, device=x.device)  # (B, T)
        trees = torch.arange(len(self.feature), device=x.device)
        for _ in range(self._depth):
            right = x.gather(1, self.feature[trees, node]) > self.threshold[trees, node]
            following = self.child[trees, node, right.long()]
            if torch.equal(following, node):  # leaves lead to themselves
                break
            node = following
        return {"probability": self.value[trees, node].mean(dim=1)}

    def _inputs(self, fp: Tensor, target: Tensor, e3: Tensor) -> Tensor:
        if not self.context:
            return fp
        size = len(self.vocabulary.names)
        hot = [torch.nn.functional.one_hot(index, size).to(fp.dtype) for index in (target, e3)]
        return torch.cat([fp, *hot], dim=1)

    # -- training ----------------------------------------------------------------------------

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> None:
        """Collects the labelled tuples."""
        if not self.vocabulary.fitted:
            self.vocabulary.fit(batch["vocabulary"])
        part = batch["labelled"]
        x = self._inputs(part["fp"], part["target"], part["e3"])
        for row, label in zip(x, part["label"], strict=True):
            key = tuple(row.nonzero()[:, 0].tolist())
            self._rows[key] = row, label
        optimizer: Any = self.optimizers()
        self.manual_backward(0 * self.steps)
        optimizer.step()

    def on_validation_start(self) -> None:
        """Grows the trees once an epoch has shown the labels."""
        super().on_validation_start()
        if self._rows and not self.trainer.sanity_checking:
            self._grow()

    def _grow(self) -> None:
        try:
            from sklearn.ensemble import RandomForestClassifier
        except ImportError as error:
            raise missing_extra("scikit-learn", "chem") from error
        x = torch.stack([row for row, _ in self._rows.values()]).cpu().numpy()
        y = torch.stack([label for _, label in self._rows.values()]).cpu().numpy()
        forest = RandomForestClassifier(
            len(self.feature), class_weight="balanced", random_state=global_seed() or 0
        ).fit(x, y)
        for number, one in enumerate(forest.estimators_):
            tree = one.tree_
            count = tree.node_count
            leaf = tree.children_left < 0
            own = np.arange(count)
            children = np.stack([tree.children_left, tree.children_right], axis=1)
            children = np.where(leaf[:, None], own[:, None], children)
            share = tree.value[:, 0, 1] / tree.value[:, 0].sum(axis=1)
            feature = np.where(leaf, 0, tree.feature)
            self.child[number, :count] = torch.from_numpy(children)
            self.feature[number, :count] = torch.from_numpy(feature)
            self.threshold[number, :count] = torch.from_numpy(tree.threshold).float()
            self.value[number, :count] = torch.from_numpy(share).float()

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Tensor]:
        """Updates the metrics."""
        return self._evaluate(batch, self.val_metrics)

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Tensor]:
        """Updates the metrics."""
        return self._evaluate(batch, self.test_metrics)

    def _probability(self, batch: Mapping[str, Any]) -> Tensor:
        part, own = batch["tuples"], self.vocabulary.own(batch["vocabulary"])
        found: Tensor = self(part["fp"], own[part["target"]], own[part["e3"]])["probability"]
        return found

    def _evaluate(self, batch: Mapping[str, Any], metrics: MetricCollection) -> dict[str, Tensor]:
        probability, part = self._probability(batch), batch["tuples"]
        label, several = part["label"], part["several"]
        for name, metric in metrics.items(keep_base=True):
            if name.endswith("target_auroc"):
                metric.update(probability, label, part["target"])
            elif name.endswith("several_auroc"):
                metric.update(probability[several], label[several], several[several].long())
            else:
                metric.update(probability, label)
        return {"probability": probability}

    # -- use ---------------------------------------------------------------------------------

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """As DegradeQuery's; the forest has no compatibility, which is written as 0."""
        part, names = batch["tuples"], unpack_names(batch["vocabulary"]["names"])
        own = self.vocabulary.own(batch["vocabulary"])
        probability = self._probability(batch).cpu()
        return [
            {
                "name": batch["name"],
                "smiles": batch["smiles"],
                "target_uniprot": [names[i] for i in part["target"].tolist()],
                "e3_type": [names[i] for i in part["e3"].tolist()],
                "probability": probability,
                "compatibility": torch.zeros_like(probability),
                "labels_of_target": self.vocabulary.labels[own[part["target"]]].cpu(),
            }
        ]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.csv``."""
        return [write_table(prediction, path.with_name(f"{path.name}.csv"))]

    def example_inputs(self) -> dict[str, Tensor]:
        """Two random fingerprints."""
        generator = torch.Generator().manual_seed(0)
        return {
            "fp": (torch.rand(2, FINGERPRINT_BITS, generator=generator) < 0.05).float(),
            "target": torch.tensor([1, 2]),
            "e3": torch.tensor([3, 3]),
        }

    def figures(self, batch: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Figure]:
        """The ROC of the batch."""
        from zoo.degrade_query.figure import roc

        return {"roc": roc(outputs["probability"], batch["tuples"]["label"], {})}
