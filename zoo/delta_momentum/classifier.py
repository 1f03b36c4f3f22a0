"""DeltaImageClassifier: the delta rule's momentum on images, with perceptron, ResNet and ViT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from zoo.atomic import write_json
from zoo.base import ZooModule
from zoo.errors import ZooError, did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARCHITECTURES = ("mlp", "resnet18", "vit_tiny_patch4_32")


def build_network(
    arch: str, num_classes: int, in_channels: int, image_size: int, hidden: Sequence[int]
) -> nn.Module:
    """A classifier from (B, C, S, S) to logits (B, K), initialised at random.

    Args:
        arch: "mlp"; "resnet18", whose stem is a 3 x 3 convolution without pooling, as usual for
            32 pixels; or "vit_tiny_patch4_32", timm's ViT-Tiny with patches of 4 pixels.
        num_classes: K.
        in_channels: C.
        image_size: S.
        hidden: Widths of the perceptron's layers.
    """
    if arch == "mlp":
        widths = [in_channels * image_size**2, *hidden]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))
    import timm

    if arch == "resnet18":
        resnet = timm.create_model("resnet18", num_classes=num_classes, in_chans=in_channels)
        resnet.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
        resnet.maxpool = nn.Identity()
        return resnet
    return timm.create_model(
        "vit_tiny_patch16_224",
        num_classes=num_classes,
        in_chans=in_channels,
        img_size=image_size,
        patch_size=4,
    )


class DeltaImageClassifier(ZooModule):
    """An image classifier; which optimiser trains it is the config's affair.

    Args:
        arch: "mlp", "resnet18" or "vit_tiny_patch4_32".
        num_classes: K.
        in_channels: C.
        image_size: S, pixels.
        hidden: Widths of the perceptron's layers.
        mean: Of each channel over the training images, in 0..1.
        std: The same, of the deviation.

    Raises:
        ZooError: For an unknown architecture, or numbers that do not fit each other.
    """

    mean: Tensor
    std: Tensor
    monitor: ClassVar[tuple[str, str]] = ("val_loss", "min")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "zoo.optim.DeltaSGD",
        "init_args": {"lr": 1.0},
    }

    def __init__(
        self,
        arch: str = "mlp",
        num_classes: int = 10,
        in_channels: int = 1,
        image_size: int = 8,
        hidden: list[int] | None = None,
        mean: list[float] | None = None,
        std: list[float] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if arch not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise ZooError(
                f"arch={arch!r} is unknown: there are {known}.{did_you_mean(arch, ARCHITECTURES)}"
            )
        if arch.startswith("vit") and image_size % 4:
            raise ZooError(f"image_size={image_size} must be a multiple of the patches' 4 pixels.")
        mean, std = mean or [0.5] * in_channels, std or [0.5] * in_channels
        if not len(mean) == len(std) == in_channels or min(std) <= 0:
            raise ZooError(
                f"mean={mean} and std={std} must have in_channels={in_channels} numbers each, and "
                "deviations must be positive."
            )
        self.in_channels, self.image_size = in_channels, image_size
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)
        widths = [128, 128] if hidden is None else hidden
        self.network = build_network(arch, num_classes, in_channels, image_size, widths)
        self.measure(
            MetricCollection({"accuracy": MulticlassAccuracy(num_classes, average="micro")})
        )
        self.val_loss, self.test_loss = MeanMetric(), MeanMetric()

    def forward(self, images: Tensor) -> Tensor:
        """Class scores.

        Args:
            images: In 0..1. Shape: (B, C, S, S).

        Returns:
            Logits. Shape: (B, K).
        """
        logits: Tensor = self.network((images - self.mean) / self.std)
        return logits

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Mean cross-entropy."""
        loss = F.cross_entropy(self(batch["image"]), batch["label"])
        self.log("train_loss", loss, prog_bar=True, batch_size=len(batch["label"]))
        return loss

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Updates the metrics; returns the logits."""
        return self._evaluate(batch, self.val_metrics, self.val_loss)

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Updates the metrics; returns the logits."""
        return self._evaluate(batch, self.test_metrics, self.test_loss)

    def _evaluate(
        self, batch: Mapping[str, Any], metrics: MetricCollection, loss: MeanMetric
    ) -> Tensor:
        logits: Tensor = self(batch["image"])
        metrics.update(logits, batch["label"])
        loss.update(F.cross_entropy(logits.float(), batch["label"], reduction="none"))
        return logits

    def on_validation_epoch_end(self) -> None:
        """Logs loss and accuracy."""
        super().on_validation_epoch_end()
        self.log("val_loss", self.val_loss, prog_bar=True)

    def on_test_epoch_end(self) -> None:
        """Logs loss and accuracy."""
        super().on_test_epoch_end()
        self.log("test_loss", self.test_loss)

    # -- use ---------------------------------------------------------------------------------

    def predict(self, image: str | Path | Image.Image | NDArray[np.uint8]) -> NDArray[np.float32]:
        """Class probabilities of one image, which is resized to the network's size.

        Args:
            image: Path, PIL image, or 8-bit array (H, W) or (H, W, 3).

        Returns:
            Shape: (K,).

        Raises:
            ZooError: If the file is no image.
        """
        from zoo.photo_files import read_small_image

        pixels = read_small_image(image, self.in_channels, self.image_size)
        with self.evaluating():
            logits = self(pixels[None].to(self.device))
        return logits[0].float().softmax(0).cpu().numpy()  # type: ignore[no-any-return]

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """Probabilities of each image, with its name."""
        shares = self(batch["image"]).float().softmax(1).cpu()
        return [
            {"name": name, "probabilities": share}
            for name, share in zip(batch["name"], shares, strict=True)
        ]

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.json``: the class and all probabilities."""
        shares = prediction["probabilities"]
        path = path.with_name(f"{path.name}.json")
        write_json(path, {"class": int(shares.argmax()), "probabilities": shares.tolist()})
        return [path]

    def example_inputs(self) -> dict[str, Tensor]:
        """Two ramps, one from the left and one from above."""
        ramp = torch.linspace(0, 1, self.image_size).expand(self.in_channels, self.image_size, -1)
        return {"images": torch.stack([ramp, ramp.transpose(1, 2)])}

    def figures(self, batch: Mapping[str, Any], outputs: Tensor) -> dict[str, Figure]:
        """The first images with what they were taken for."""
        from zoo.delta_momentum.figure import answers

        shares = outputs.float().softmax(1).cpu()
        return {"answers": answers(batch["image"].cpu(), shares, batch["label"].cpu())}
