"""What observers would say, by models of vision: JODs of ColorVideoVDP, and LPIPS.

They stand in for the abstract's preference study, which cannot be repeated. Both are slow and need
a package or weights of their own, so the test reports them only when asked to.

Reference:
    "ColorVideoVDP: A visual difference predictor for image, video and display distortions",
    R. K. Mantiuk et al., SIGGRAPH 2024. https://arxiv.org/abs/2401.11485
    "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", R. Zhang et al.,
    CVPR 2018. https://arxiv.org/abs/1801.03924
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.image import LearnedPerceptualImagePatchSimilarity

from zoo.display import encode
from zoo.errors import missing_extra
from zoo.metrics.image_mean import ImageMean

PERCEPTUAL = ("jod", "lpips")
DISPLAY = "standard_hdr_linear"  # of ColorVideoVDP: a 30-inch HDR screen of 1500 nits, linear input
WHITE = 100.0  # nits of radiance 1


class JOD(ImageMean):
    """Just-objectionable differences from the truth on an HDR screen: 10 is none, mean of images.

    Of two images one JOD apart, 75 % of observers prefer the better one.
    """

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Adds images of linear radiance. Shape of both: (B, 3, H, W)."""
        self.add(jods(pred, target))


class PreferredShare(ImageMean):
    """Share of the images that are nearer to the truth in JODs than a rival's; ties count half."""

    def update(self, pred: Tensor, rival: Tensor, target: Tensor) -> None:
        """Adds images of linear radiance. Shape of all: (B, 3, H, W)."""
        ours, theirs = jods(pred, target), jods(rival, target)
        self.add((ours > theirs).double() + 0.5 * (ours == theirs))


class LPIPS(ImageMean):
    """LPIPS with AlexNet of display-encoded images, mean of images; lower is better.

    The first update fetches AlexNet's weights; without a network they cannot be had, and the value
    is NaN, with a warning.

    Args:
        tone_map: Show H / (1 + H), for images beyond the range of a display.
    """

    higher_is_better = False

    def __init__(self, tone_map: bool = True) -> None:
        super().__init__()
        self.tone_map = tone_map

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Adds images of linear radiance. Shape of both: (B, 3, H, W)."""
        network = _lpips()
        if network is None:
            return
        network = network.to(target.device)
        pairs = zip(self._show(pred), self._show(target), strict=True)
        self.add(torch.stack([network(a[None], b[None]) for a, b in pairs]))

    def _show(self, radiance: Tensor) -> Tensor:
        h = radiance.float().clamp_min(0)
        return encode(h / (1 + h) if self.tone_map else h)

    def compute(self) -> Tensor:
        """The mean over images, NaN without one. Shape: ()."""
        return super().compute() if self.images else self.total.float() * torch.nan


def jods(pred: Tensor, target: Tensor) -> Tensor:
    """JODs of each image from its truth. Shape: (B, 3, H, W) twice to (B,)."""
    predictor = _color_video_vdp(str(target.device))
    nits = (WHITE * x.float().clamp_min(0) for x in (pred, target))
    scores = [predictor.predict(a, b, dim_order="CHW")[0] for a, b in zip(*nits, strict=True)]
    return torch.stack([score.reshape(()) for score in scores])


def check_perceptual(names: list[str]) -> None:
    """Raises a ZooError if one of these metrics needs a package that is not there."""
    if "jod" in names and find_spec("pycvvdp") is None:
        raise missing_extra("cvvdp", "peers")


def perceptual_metrics(names: list[str], others: list[str], hdr: bool) -> dict[str, Metric]:
    """The metrics of the test.

    Args:
        names: Of :data:`PERCEPTUAL`.
        others: Estimates to compare with.
        hdr: Whether images go beyond a display's range.
    """
    found: dict[str, Metric] = {}
    if "jod" in names:
        found |= {"jod": JOD()} | {f"jod_{other}": JOD() for other in others}
        found |= {f"preferred_to_{other}": PreferredShare() for other in others}
    if "lpips" in names:
        found |= {"lpips": LPIPS(hdr)} | {f"lpips_{other}": LPIPS(hdr) for other in others}
    return found


@lru_cache(maxsize=1)
def _color_video_vdp(device: str) -> Any:
    import pycvvdp

    return pycvvdp.cvvdp(display_name=DISPLAY, device=torch.device(device), quiet=True)


@lru_cache(maxsize=1)
def _lpips() -> LearnedPerceptualImagePatchSimilarity | None:
    try:
        return LearnedPerceptualImagePatchSimilarity("alex", normalize=True)
    except OSError as error:
        rank_zero_warn(f"LPIPS is left out: the weights of AlexNet cannot be had ({error}).")
        return None
