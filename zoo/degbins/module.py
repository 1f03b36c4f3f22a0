"""DegBins as a LightningModule: from low-resolution depth and a photograph to sharp depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchmetrics import MetricCollection

from zoo.atomic import atomic_path
from zoo.base import ZooModule
from zoo.degbins.backbone import PATCH
from zoo.degbins.classical import depth_range, fill_unknown, guided_filter
from zoo.degbins.head import DegBinsOutput
from zoo.degbins.loss import bin_cross_entropy, degradation_loss, reconstruction_loss
from zoo.degbins.metrics import RMSE, depth_metrics
from zoo.degbins.network import DegBinsNet
from zoo.depth_files import Source, check_sizes, read_depth, read_image
from zoo.errors import ZooError
from zoo.layers.resample import bicubic
from zoo.layers.tiling import tiled
from zoo.metrics import ImageRankCorrelation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OVERLAP = 64  # pixels that tiles of a large image share
MAX_WIDENING = 3.0  # of a training crop's range of depth


@dataclass(frozen=True)
class DepthPrediction:
    """Depth of one image.

    Attributes:
        depth: Metres, float32. Shape: (H, W).
        std: Standard deviation of the estimate in metres, float32; zero with the additive head.
            Shape: (H, W).
    """

    depth: NDArray[np.float32]
    std: NDArray[np.float32]

    def save(self, path: str | Path) -> Path:
        """Writes the depth as ``.npy`` in metres, or else as 16-bit PNG in millimetres.

        Raises:
            ZooError: If a depth exceeds the 65.535 m that such a PNG can hold.
        """
        path = Path(path)
        with atomic_path(path) as temporary:
            if path.suffix == ".npy":
                np.save(temporary, self.depth)
            else:
                millimetres = np.rint(self.depth * 1000).clip(min=0)
                if millimetres.max() > np.iinfo(np.uint16).max:
                    raise ZooError(
                        f"{path}: a 16-bit PNG holds depths to 65.535 m, but this one reaches "
                        f"{self.depth.max():.1f} m; save it as .npy."
                    )
                Image.fromarray(millimetres.astype(np.uint16)).save(temporary, format="PNG")
        return path


class DegBins(ZooModule):
    """Guided depth super-resolution by degradation-driven residual binning.

    Args:
        scale: Factor from the low-resolution depth to the guide; 1 for sensors whose map already
            has the guide's size.
        channels: C, full-resolution features. Real scale: 64.
        width: W, of the backbone. Real scale: 128.
        blocks: N, of the backbone. Real scale: 16.
        stages: S, refinements, each with finer bins.
        bins: K, a stage. Real scale: 16.
        range_init: Half-width of the first stage's bins, in relative depth (see the network).
        range_ratio: Factor of the half-width from stage to stage.
        range_kappa: The degradation scales half-widths by exp(-kappa) to exp(kappa).
        head: "bins", or "additive" for plain regression with as many parameters, the baseline.
        bin_widths: "uniform", or "adaptive" for widths predicted per pixel.
        deg_adapt: Condition ranges and probabilities on the degradation.
        guide: Use the photograph.
        embed_channels: E, of the degradation embedding; ``None`` for C. Real scale: 4C.
        attention: Channel attention in the backbone. Real scale: true.
        deg_weight: Weight of the degradation loss, which training alone uses.
        ce_weight: Weight of the cross-entropy of the bins. It speeds training up a lot: their mean
            alone passes little gradient on while probabilities are even.
        tile: Larger images are processed in tiles of this side.
        any_size: Accept guides of another size than ``scale`` times the depth's.

    Source: the paper's abstract; see :mod:`zoo.degbins.network` for what it leaves open.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_rmse", "min")
    optimizer_config: Mapping[str, Any] = {
        "class_path": "torch.optim.Adam",
        "init_args": {"lr": 1e-3},
    }

    def __init__(
        self,
        scale: int = 8,
        channels: int = 24,
        width: int = 48,
        blocks: int = 4,
        stages: int = 3,
        bins: int = 8,
        range_init: float = 0.3,
        range_ratio: float = 0.4,
        range_kappa: float = 1.5,
        head: str = "bins",
        bin_widths: str = "uniform",
        deg_adapt: bool = True,
        guide: bool = True,
        embed_channels: int | None = None,
        attention: bool = False,
        deg_weight: float = 0.1,
        ce_weight: float = 0.05,
        tile: int = 1024,
        any_size: bool = False,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.scale, self.tile, self.any_size = scale, tile, any_size
        self.deg_weight, self.ce_weight = deg_weight, ce_weight
        self.network = DegBinsNet(
            channels=channels,
            width=width,
            blocks=blocks,
            stages=stages,
            bins=bins,
            range_init=range_init,
            range_ratio=range_ratio,
            range_kappa=range_kappa,
            head=head,
            bin_widths=bin_widths,
            deg_adapt=deg_adapt,
            guide=guide,
            embed_channels=embed_channels,
            attention=attention,
            predict_kernels=deg_weight > 0,
        )
        self.measure(
            MetricCollection(depth_metrics()),
            rmse_bicubic=RMSE(),
            rmse_guided_filter=RMSE(),
            **{f"rmse_stage{s}": RMSE() for s in range(1, stages + 1)},
        )
        self.widening_vs_blur = ImageRankCorrelation()

    def forward(self, lr_depth: Tensor, guide: Tensor) -> dict[str, Any]:
        """Super-resolves a batch.

        Args:
            lr_depth: Metres, 0 or NaN where unknown. Shape: (B, 1, h, w).
            guide: Colour image in 0..1. Shape: (B, 3, H, W), H = scale * h, W = scale * w.

        Returns:
            ``depth`` and ``std`` in metres, (B, 1, H, W); ``widening``, by which factor the
            degradation widens the last stage's range of bins, (B, 1, H, W); ``stages``, the S
            estimates of depth from coarse to fine; and ``upsampled``, what they start from. With
            the additive head, which has no bins, ``std`` is 0 and ``widening`` 1.

        Raises:
            ZooError: If the sizes do not fit the scale.
        """
        if not self.any_size:
            check_sizes(lr_depth.shape[-2:], guide.shape[-2:], self.scale, "forward")
        d_up, low, extent = self._upsample(lr_depth, guide.shape[-2:])

        def run(d_up: Tensor, guide: Tensor) -> list[Tensor]:
            out = self.network(d_up, guide)
            std, widening = out.std, out.widening
            if std is None or widening is None:
                std, widening = d_up.new_zeros(d_up.shape), d_up.new_ones(d_up.shape)
            return [*(d_up + residual for residual in out.residuals), std, widening]

        # The outer quarter of the overlap is where a tile sees least of what surrounds it.
        *stages, std, widening = tiled(
            run, [d_up, guide], self.tile, OVERLAP, block=PATCH, unused=0.25
        )
        stages = [low + extent * stage for stage in stages]
        return {
            "depth": stages[-1],
            "std": extent * std,
            "widening": widening,
            "stages": stages,
            "upsampled": low + extent * d_up,
        }

    def _upsample(self, lr_depth: Tensor, size: torch.Size) -> tuple[Tensor, Tensor, Tensor]:
        """D_up in normalised depth, and the minimum and extent (at least 0.1 m) that undo it."""
        low, extent = depth_range(lr_depth)
        d_up = bicubic(fill_unknown(lr_depth), (size[0], size[1]))
        return (d_up - low) / extent, low, extent

    # -- training ----------------------------------------------------------------------------

    def training_step(self, batch: Mapping[str, Any], batch_idx: int) -> Tensor:
        """Reconstruction of every stage, degradation, and cross-entropy if wanted."""
        depth, mask = batch["depth"], batch["mask"]
        d_up, low, extent = self._upsample(batch["lr_depth"], depth.shape[-2:])
        # A crop shows a part of its image's range. In a wider range, its noise and its steps are as
        # small as they will be in whole images.
        wider = MAX_WIDENING ** torch.rand_like(extent)
        below = (wider - 1) * extent * torch.rand_like(extent)
        d_up = (d_up * extent + below) / (extent * wider)
        low, extent = low - below, extent * wider
        target = (depth - low) / extent
        out: DegBinsOutput = self.network(d_up, batch["guide"], return_aux=True)
        # Errors count in metres, so that the noise of flat crops does not outweigh true edges.
        weight = extent / extent.mean()
        stages = [weight * (d_up + residual) for residual in out.residuals]
        loss = reconstruction_loss(stages, weight * target, mask)
        if out.kernels is not None:
            blurred = degradation_loss(out.kernels, d_up + out.residuals[-1], d_up)
            loss = loss + self.deg_weight * blurred
        if self.ce_weight > 0 and out.bins:
            entropies = [bin_cross_entropy(bins, target - d_up, mask) for bins in out.bins]
            loss = loss + self.ce_weight * torch.stack(entropies).mean()
        self.log("train_loss", loss, prog_bar=True, batch_size=len(depth))
        return loss

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Updates the errors."""
        out: dict[str, Any] = self(batch["lr_depth"], batch["guide"])
        self.val_metrics.update(out["depth"], batch["depth"], batch["mask"], batch["report_scale"])
        return out

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> dict[str, Any]:
        """Updates the errors, those of each stage, and those of the baselines without training."""
        out: dict[str, Any] = self(batch["lr_depth"], batch["guide"])
        upsampled = out["upsampled"]
        filtered = guided_filter(batch["guide"], upsampled)
        estimates = {"bicubic": upsampled, "guided_filter": filtered}
        estimates |= {f"stage{s}": stage for s, stage in enumerate(out["stages"], start=1)}
        truth = batch["depth"], batch["mask"], batch["report_scale"]
        for name, metric in self.test_metrics.items(keep_base=True):
            estimate = estimates.get(name.removeprefix("test_rmse_"), out["depth"])
            metric.update(estimate, *truth)
        if "blur" in batch and self.hparams["head"] == "bins" and self.hparams["deg_adapt"]:
            self.widening_vs_blur.update(out["widening"], batch["blur"], batch["mask"])
            self.log("test_widening_vs_blur", self.widening_vs_blur, batch_size=len(upsampled))
        return out

    # -- use ---------------------------------------------------------------------------------

    def predict_step(self, batch: Mapping[str, Any], batch_idx: int) -> list[dict[str, Any]]:
        """Depth and standard deviation in metres on the CPU, with the name of each input."""
        out = self(batch["lr_depth"], batch["guide"])
        return [
            {"name": name, "depth": depth[0].float().cpu(), "std": std[0].float().cpu()}
            for name, depth, std in zip(batch["name"], out["depth"], out["std"], strict=True)
        ]

    def predict(self, rgb: Source, depth: Source, depth_unit: str = "mm") -> DepthPrediction:
        """Super-resolves one depth map with its photograph.

        Args:
            rgb: Path, PIL image or array of the photograph, (H, W, 3).
            depth: Path, PIL image or array of the low-resolution depth, (h, w), 0 = unknown.
            depth_unit: "mm" or "m", of integer depth; floating-point depth is in metres.

        Returns:
            Depth and its standard deviation in metres.

        Raises:
            ZooError: If an input is unreadable or the sizes do not fit the scale.
        """
        photo = torch.from_numpy(read_image(rgb)).permute(2, 0, 1)[None]
        low = torch.from_numpy(read_depth(depth, depth_unit))[None, None]
        with self.evaluating():
            out = self(low.to(self.device), photo.to(self.device))
        return DepthPrediction(
            out["depth"][0, 0].float().cpu().numpy(), out["std"][0, 0].float().cpu().numpy()
        )

    def write_prediction(self, prediction: Mapping[str, Any], path: Path) -> list[Path]:
        """Writes ``<name>.png`` in millimetres, 16 bits, and ``<name>.npy`` in metres."""
        result = DepthPrediction(prediction["depth"].numpy(), prediction["std"].numpy())
        return [result.save(path.with_name(f"{path.name}{s}")) for s in (".png", ".npy")]

    def exportable(self) -> Any:
        """What ``zoo export`` writes."""
        from zoo.degbins.export import exportable

        return exportable(self)

    def example_inputs(self) -> dict[str, Tensor]:
        """A ramp with a step in depth under a guide with the same edge."""
        side = 8
        ramp = torch.linspace(1, 2, side).expand(1, 1, side, side).clone()
        ramp[..., side // 2 :] += 1
        guide = torch.linspace(0, 1, side * self.scale).expand(1, 3, side * self.scale, -1).clone()
        guide[..., side * self.scale // 2 :] *= 0.5
        return {"lr_depth": ramp, "guide": guide}

    def figures(self, batch: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Figure]:
        """Guide, input, output, truth and both error maps of the first image."""
        from zoo.degbins.figure import comparison

        known = batch["mask"][0, 0].cpu()
        return {
            "depth": comparison(
                guide=batch["guide"][0].cpu(),
                lr_depth=batch["lr_depth"][0, 0].cpu(),
                bicubic=outputs["upsampled"][0, 0].cpu(),
                depth=outputs["depth"][0, 0].float().cpu(),
                std=outputs["std"][0, 0].float().cpu(),
                truth=batch["depth"][0, 0].cpu(),
                known=known,
                report_scale=float(batch["report_scale"][0]),
                title=f"{batch['name'][0]}, x{self.scale}",
            )
        }
