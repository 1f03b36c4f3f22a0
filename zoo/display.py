"""Between linear light and display-encoded values, and down to what a screen can show."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from zoo.errors import ZooError

LUMINANCE = (0.2126, 0.7152, 0.0722)  # of linear Rec.709 red, green and blue


def check_curve(curve: str) -> None:
    """Raises a ZooError unless ``curve`` is "srgb" or a power such as "power2.2"."""
    if curve != "srgb" and not re.fullmatch(r"power\d+(\.\d+)?", curve):
        raise ZooError(f"The curve {curve!r} is unknown: expected 'srgb' or, say, 'power2.2'.")


def encode(linear: Tensor, curve: str = "srgb") -> Tensor:
    """Display-encoded values of linear light, both in 0..1; what lies outside is clipped.

    Args:
        linear: Any shape.
        curve: "srgb" (IEC 61966-2-1), or "power2.2" for a plain power of 1 / 2.2.
    """
    x = linear.clamp(0, 1)
    if curve == "srgb":
        # The root has an infinite slope at 0, where the linear part applies: kept out of reach.
        return torch.where(
            x <= 0.0031308, 12.92 * x, 1.055 * x.clamp_min(1e-4) ** (1 / 2.4) - 0.055
        )
    return x.clamp_min(1e-8) ** (1 / _exponent(curve))


def decode(display: Tensor, curve: str = "srgb") -> Tensor:
    """Linear light of display-encoded values, both in 0..1: the inverse of :func:`encode`."""
    y = display.clamp(0, 1)
    if curve == "srgb":
        return torch.where(y <= 0.04045, y / 12.92, ((y + 0.055) / 1.055) ** 2.4)
    return y ** _exponent(curve)


def luminance(linear: Tensor, dim: int = -3) -> Tensor:
    """Relative luminance of linear Rec.709, the channels kept as one."""
    shape = [1] * linear.ndim
    shape[dim] = 3
    weights = linear.new_tensor(LUMINANCE).view(shape)
    return (linear * weights).sum(dim=dim, keepdim=True)


def tone_map(linear: Tensor, dim: int = -3) -> Tensor:
    """A picture of an HDR image for an ordinary screen, in 0..1: Reinhard's curve on luminance.

    Extended so that the brightest percentile of the image, not infinity, becomes white (eq. 4 of
    E. Reinhard et al., Photographic Tone Reproduction for Digital Images, 2002).

    Args:
        linear: Radiance relative to the input's white. Shape: (..., 3, H, W) with ``dim`` -3.
        dim: Of the colours.
    """
    light = luminance(linear, dim).clamp_min(1e-6)
    white = torch.quantile(_sparse(light), 0.99).clamp_min(1.0)
    scaled = light * (1 + light / white**2) / (1 + light)
    return encode(1.6 * linear.clamp_min(0) * scaled / light)  # 1.6: mid-grey stays about mid-grey


def _sparse(values: Tensor, limit: int = 1_000_000) -> Tensor:
    """At most ``limit`` of the values, evenly spread: torch's quantile takes no more than 2^24."""
    flat = values.flatten().float()
    return flat[:: max(1, flat.numel() // limit)]


def _exponent(curve: str) -> float:
    check_curve(curve)
    return float(curve.removeprefix("power"))
