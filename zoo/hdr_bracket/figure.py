"""Pictures of a result: the image with its errors, and the bracket with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from zoo.display import decode, encode, luminance
from zoo.hdr_bracket.loss import log2_radiance

if TYPE_CHECKING:
    from zoo.hdr_bracket.module import HDRBracket

LOWER = 3  # stops that the second row is darkened by, to show what is brighter than white


def draw(
    model: HDRBracket, batch: Mapping[str, Any], outputs: Mapping[str, Any]
) -> dict[str, Figure]:
    """Both figures of the first image of a batch."""
    image, target = (batch[key][0].float().cpu() for key in ("image", "target"))
    hdr, frames, weights = (outputs[key][0].float().cpu() for key in ("hdr", "frames", "weights"))
    name = str(batch["name"][0])
    linear = decode(image, model.crf)
    true = model.true_frames(batch)[0].float().cpu()
    figures = {}
    if model.task == "hdr":
        figures["hdr"] = _comparison(image, linear, hdr, target, name)
        labels = [f"{e:+g} EV" for e in model.evs]
    else:
        figures["all_in_focus"] = _sharpness(image, hdr, target, name)
        labels = [f"focus {i}" for i in range(len(model.evs))]
    if len(frames) > 1:
        figures["bracket"] = _bracket(frames, true, weights, labels, name)
    return figures


def _comparison(image: Tensor, linear: Tensor, hdr: Tensor, target: Tensor, name: str) -> Figure:
    """Input, result and truth at two exposures, and their errors in stops."""
    figure = Figure(figsize=(11, 10.5), layout="constrained")
    figure.suptitle(f"{name}: as exposed, {LOWER} stops darker, and error in stops")
    axes = figure.subplots(3, 3)
    columns = {"input, linearised": linear, "output": hdr, "truth": target}
    truth = log2_radiance(target)
    for column, (title, picture) in enumerate(columns.items()):
        shown = image if column == 0 else encode(picture)
        _picture(axes[0, column], shown, title)
        _picture(axes[1, column], encode(picture * 2.0**-LOWER), f"{title}, -{LOWER} EV")
        if column == 2:
            light = log2_radiance(luminance(picture))[0].numpy()
            map_ = axes[2, 2].imshow(light, cmap="viridis")
            axes[2, 2].set_title("log2 of true luminance (white = 0)")
        else:
            error = (log2_radiance(picture) - truth).mean(dim=0).numpy()
            mae = float((log2_radiance(picture) - truth).abs().mean())
            map_ = axes[2, column].imshow(error, cmap="RdBu_r", vmin=-3, vmax=3)
            axes[2, column].set_title(f"error of {title.split(',')[0]}: mean |.| {mae:.3f}")
        figure.colorbar(map_, ax=axes[2, column], shrink=0.8, label="stops")
    _bare(axes)
    return figure


def _sharpness(image: Tensor, result: Tensor, target: Tensor, name: str) -> Figure:
    figure = Figure(figsize=(12, 7.5), layout="constrained")
    figure.suptitle(name)
    axes = figure.subplots(2, 3)
    pictures = {"input": image, "output": encode(result), "truth, all in focus": encode(target)}
    for axis, (title, picture) in zip(axes[0], pictures.items(), strict=True):
        _picture(axis, picture, title)
    reference = encode(target)
    for axis, (title, picture) in zip(axes[1], list(pictures.items())[:2], strict=False):
        error = (picture - reference).abs().mean(dim=0)
        psnr = -10 * float((picture - reference).square().mean().clamp_min(1e-10).log10())
        map_ = axis.imshow(error.numpy(), cmap="magma", vmin=0, vmax=0.2)
        axis.set_title(f"error of {title}, {psnr:.2f} dB")
    figure.colorbar(map_, ax=axes[1], shrink=0.8, label="absolute difference of display values")
    axes[1, 2].axis("off")
    _bare(axes)
    return figure


def _bracket(frames: Tensor, true: Tensor, weights: Tensor, labels: list[str], name: str) -> Figure:
    """Generated frames, true frames, and the weights of the fusion."""
    count = len(labels)
    figure = Figure(figsize=(2.7 * count, 8.4), layout="constrained")
    figure.suptitle(f"{name}: the bracket, and where each part of the result comes from")
    axes = figure.subplots(3, count)
    for column, label in enumerate(labels):
        _picture(axes[0, column], frames[column], f"{label}, used")
        _picture(axes[1, column], true[column], f"{label}, true")
        weight = weights[column].numpy()
        map_ = axes[2, column].imshow(weight, cmap="viridis", vmin=0, vmax=1)
        axes[2, column].set_title(f"weight, mean {weight.mean():.2f}")
    figure.colorbar(map_, ax=axes[2], shrink=0.8, label="weight")
    _bare(axes)
    return figure


def _picture(axis: Any, image: Tensor, title: str) -> None:
    axis.imshow(image.clamp(0, 1).permute(1, 2, 0).numpy())
    axis.set_title(title)


def _bare(axes: Any) -> None:
    for axis in np.ravel(axes):
        axis.set_xticks([])
        axis.set_yticks([])
