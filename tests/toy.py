"""The smallest method and data module: what the shared mechanisms are tested on."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset
from torchmetrics import MeanMetric, MetricCollection

from zoo.atomic import write_json
from zoo.base import ZooModule
from zoo.datamodules import ZooDataModule
from zoo.stages import Stage


@dataclass
class Shape:
    width: int = 4
    depth: int = 1


class MeanSquare(MeanMetric):
    """Mean of squared errors, fed with predictions and targets."""

    def update(self, pred, target):
        super().update((pred - target).square().mean(dim=-1))


class Toy(ZooModule):
    """Two linear maps in a row: ``encoder``, then ``head``, with dropout between them."""

    monitor = ("val_mse", "min")

    def __init__(
        self,
        width: int = 4,
        stages: list[dict] | None = None,
        shape: Shape | None = None,
        backbone: bool = False,
        pretrained: bool = False,
        scale: object = 1.0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.training_stages = tuple(Stage(**stage) for stage in stages or [])
        self.encoder = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, 1)
        self.backbone = nn.Linear(1, 1).requires_grad_(False) if backbone else None
        self.fetched = self.fetch_weights(pretrained)
        self.measure(MetricCollection({"mse": MeanSquare()}))

    def frozen_modules(self):
        return ("backbone",) if self.backbone is not None else ()

    def forward(self, x):
        y = self.head(self.dropout(self.encoder(x)))
        return {"y": self.backbone(y) if self.backbone is not None else y}

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = (self(x)["y"] - y).square().mean()
        self.log("train_loss", loss, batch_size=len(x))
        return loss

    def validation_step(self, batch, batch_idx):
        out = self(batch[0])
        self.val_metrics.update(out["y"], batch[1])
        return out

    def test_step(self, batch, batch_idx):
        out = self(batch[0])
        self.test_metrics.update(out["y"], batch[1])
        return out

    def predict_step(self, batch, batch_idx):
        return [{"name": f"{batch_idx}_{i}", "y": y} for i, y in enumerate(self(batch[0])["y"])]

    def write_prediction(self, prediction, path: Path):
        path = path.with_name(path.name + ".json")
        write_json(path, float(prediction["y"]))
        return [path]

    def example_inputs(self):
        return {"x": torch.linspace(-1, 1, 6).view(2, 3)}


class ToyDataModule(ZooDataModule):
    """A noisy linear function."""

    def __init__(self, samples: int = 20, **kwargs) -> None:
        super().__init__(**kwargs)
        self.samples = samples

    def build(self, split):
        generator = torch.Generator().manual_seed(self.seed + len(split))
        x = torch.randn(self.samples, 3, generator=generator)
        y = x.sum(dim=1, keepdim=True) + 0.1 * torch.randn(self.samples, 1, generator=generator)
        return TensorDataset(x, y)


def batch_size(batch) -> int:
    """For Lightning's ThroughputMonitor."""
    return len(batch[0])


class CountingDataModule(ToyDataModule):
    """Leaves a file for each time that it prepared its data."""

    def prepare_data(self) -> None:
        tempfile.mkstemp(prefix="prepared-", dir=".")


class TwoLoaders(ToyDataModule):
    """Two validation sets."""

    def val_dataloader(self):
        return [super().val_dataloader(), super().val_dataloader()]
