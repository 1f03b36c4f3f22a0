"""What validation and test report: the method's errors, and those of other weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.image import StructuralSimilarityIndexMeasure

from zoo.display import decode, encode
from zoo.hdr_bracket import metrics as m
from zoo.hdr_bracket.bracket import (
    contrast_prior,
    debevec,
    mean_weights,
    mertens_weights,
    perturb,
    triangle_prior,
)
from zoo.hdr_bracket.perceptual import PreferredShare, perceptual_metrics
from zoo.metrics.pu21 import PU21PSNR, PU21SSIM

if TYPE_CHECKING:
    from zoo.hdr_bracket.module import HDRBracket

# Estimates that the test compares with the method's own: the input as it is; the same frames with
# other weights; and the weights on true frames with a generator's errors put on them.
FRAME_WEIGHTS = ("mean", "triangle", "debevec", "mertens")
TRUE_FOCUS = ("true", "true_contrast")
TRUE_WEIGHTS = ("true", "true_mean", "true_triangle")


class PictureSSIM(StructuralSimilarityIndexMeasure):
    """SSIM of display-encoded pictures; input and truth are linear."""

    def __init__(self) -> None:
        super().__init__(data_range=1.0)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Adds pictures of (B, 3, H, W)."""
        super().update(encode(preds.float()), encode(target.float()))


def measures(task: str) -> dict[str, Metric | MetricCollection]:
    """The errors of validation and test, by the names they are logged under."""
    if task != "hdr":
        return {
            "pu_psnr": PU21PSNR(),
            "psnr": m.PicturePSNR(),
            "ssim": PictureSSIM(),
            "sharpness": m.Sharpness(),
        }
    return {
        "pu_psnr": PU21PSNR(),
        "pu_ssim": PU21SSIM(),
        "log2_mae": m.Log2MAE(),
        "log2_rmse": m.Log2RMSE(),
        "log2_clipped": m.ClippedError(),
        "log2_dark": m.DarkError(),
        "log2_well_exposed": m.WellExposedError(),
        "reexposure": m.ReexposurePSNR(),
    }


def test_only(
    task: str, curve: str, learned: bool, bracket: bool, perceptual: list[str]
) -> dict[str, Metric]:
    """Further metrics of the test.

    Args:
        task: Of the method.
        curve: Display curve of the inputs.
        learned: Whether the weights are a network's.
        bracket: Whether there is a bracket to weigh otherwise.
        perceptual: Names of :data:`~zoo.hdr_bracket.perceptual.PERCEPTUAL`.
    """
    if task != "hdr":
        names = ("input", "mean", "contrast", *(TRUE_FOCUS if learned else ()))
        pairs: dict[str, Metric] = {f"psnr_{name}": m.PicturePSNR() for name in names}
        pairs |= {"ssim_input": PictureSSIM(), "sharpness_input": m.Sharpness()}
        pairs |= perceptual_metrics(perceptual, ["input", "mean"], hdr=False)
        return pairs | {"pu_psnr_input": PU21PSNR()}
    weights = FRAME_WEIGHTS if bracket else ()
    others = ("input", *weights, *(TRUE_WEIGHTS if learned else ()))
    found: dict[str, Metric] = {"pu_psnr_aligned": PU21PSNR(), "log2_mae_aligned": m.Log2MAE()}
    for other in others:
        found |= {f"pu_psnr_{other}": PU21PSNR(), f"log2_mae_{other}": m.Log2MAE()}
    found["improved_share"] = m.BetterThanInput(curve)
    found |= {"log2_clipped_input": m.ClippedError(), "log2_dark_input": m.DarkError()}
    found |= {"log2_well_exposed_input": m.WellExposedError()}
    found |= perceptual_metrics(perceptual, ["input", *weights], hdr=True)
    return found | ({"heaviest_frame": MeanMetric()} if bracket else {})


def compare(
    model: HDRBracket, batch: Mapping[str, Any], out: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The estimates of the test by name; "" is the method's own."""
    image, target, frames = batch["image"], batch["target"], out["frames"]
    estimates = {"": out["hdr"], "input": decode(image.float(), model.crf)}
    estimates["mean"] = model.merge(frames, mean_weights(frames))
    if model.task != "hdr":
        estimates["contrast"] = model.merge(frames, contrast_prior(frames).softmax(dim=1))
        if model.fusion is not None and "frames" in batch:
            stack = model.true_frames(batch)
            estimates["true"] = model.merge(stack, model.weights(stack))
            weights = contrast_prior(stack).softmax(dim=1)
            estimates["true_contrast"] = model.merge(stack, weights)
        return estimates
    estimates["aligned"] = m.align(out["hdr"], target, image)
    estimates["triangle"] = model.merge(frames, triangle_prior(frames).softmax(dim=1))
    estimates["debevec"] = debevec(frames, model.evs, model.crf)
    estimates["mertens"] = model.merge(frames, mertens_weights(frames))
    if model.fusion is not None:
        seeded = torch.Generator().manual_seed(int(batch["index"][0]))
        true = perturb(model.true_frames(batch), share=1.0, generator=seeded)
        estimates["true"] = model.merge(true, model.weights(true))
        estimates["true_mean"] = model.merge(true, mean_weights(true))
        estimates["true_triangle"] = model.merge(true, triangle_prior(true).softmax(dim=1))
    return estimates


def update(
    metrics: MetricCollection,
    prefix: str,
    estimates: Mapping[str, Tensor],
    batch: Mapping[str, Any],
    weights: Tensor,
) -> None:
    """Hands each metric the estimate whose name its own ends in; else the method's."""
    for name, metric in metrics.items(keep_base=True):
        plain = name.removeprefix(prefix)
        if plain == "heaviest_frame":
            metric.update(weights.mean(dim=(2, 3)).amax(dim=1))
            continue
        if plain.startswith("psnr_true") and "true" not in estimates:
            continue  # pairs have no stack
        ends = [key for key in estimates if key and plain.endswith(f"_{key}")]
        values = [estimates[max(ends, key=len, default="")], batch["target"]]
        if isinstance(metric, PreferredShare):
            values.insert(0, estimates[""])
        if isinstance(metric, m.HDRError | m.BetterThanInput):
            values.append(batch["image"])
        metric.update(*values)
