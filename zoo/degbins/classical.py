"""Depth super-resolution without training: the input of the network, and two baselines.

Bicubic interpolation is that of PIL, as published protocols have it. PyTorch's own uses another
kernel (a = -0.75), and its antialiased one treats borders in a different way.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor
from torch.nn import functional as F

CUBIC_A = -0.5  # PIL's Catmull-Rom kernel
MIN_EXTENT = 0.1  # metres; keeps the noise of a flat scene from being blown up to full range


def cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keys' cubic convolution kernel with a = -0.5, zero beyond 2."""
    x = np.abs(x)
    inner = ((CUBIC_A + 2) * x - (CUBIC_A + 3)) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * CUBIC_A
    return np.where(x < 1, inner, np.where(x < 2, outer, 0.0))


@lru_cache(maxsize=64)
def bicubic_taps(size_in: int, size_out: int) -> tuple[Tensor, Tensor]:
    """Which samples an output is the weighted sum of, along one axis.

    Enlarging takes 4 of them; shrinking widens the kernel by the factor, which is PIL's antialias.
    At the borders the kernel is cut off and its weights renormalised.

    Args:
        size_in: Samples there are.
        size_out: Samples wanted.

    Returns:
        Indices, int64, and weights, float32, on the CPU. Shape of each: (size_out, taps).
    """
    ratio = size_in / size_out
    stretch = max(ratio, 1.0)
    center = (np.arange(size_out)[:, None] + 0.5) * ratio
    first = np.floor(center - 2 * stretch + 0.5)
    index = first + np.arange(int(np.ceil(4 * stretch)) + 1)
    weight = cubic((index + 0.5 - center) / stretch)
    weight[(index < 0) | (index >= size_in)] = 0
    weight /= weight.sum(axis=1, keepdims=True)
    used = (weight != 0).any(axis=0)
    index = index.clip(0, size_in - 1)
    return (
        torch.from_numpy(index[:, used].astype(np.int64)),
        torch.from_numpy(weight[:, used].astype(np.float32)),
    )


def bicubic_upsample(image: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
    """Resizes as ``PIL.Image.resize(..., BICUBIC)`` does with float images.

    Args:
        image: Without unknown pixels. Shape: (B, C, h, w).
        size: Height and width wanted; a smaller size is antialiased.

    Returns:
        float32. Shape: (B, C, H, W).
    """
    # A gather of few taps rather than a product with a matrix of weights: the latter would be
    # rounded by autocast, or to TF32, by millimetres of depth.
    image = image.float()
    for dim in (3, 2):  # rows first, as PIL
        size_in, size_out = image.shape[dim], size[dim - 2]
        if size_in != size_out:
            index, weight = (t.to(image.device) for t in bicubic_taps(size_in, size_out))
            shape = [size_out if d == dim else 1 for d in range(4)]
            image = sum(
                (
                    image.index_select(dim, index[:, k]) * weight[:, k].view(shape)
                    for k in range(index.shape[1])
                ),
                start=image.new_zeros(()),
            )
    return image


def known_depth(depth: Tensor) -> Tensor:
    """Where a depth map, with 0 or NaN for unknown, is known. Same shape, bool."""
    return depth.isfinite() & (depth > 0)


def fill_unknown(depth: Tensor) -> Tensor:
    """Gives unknown pixels the depth of the nearest known one.

    Args:
        depth: 0 or NaN where unknown. Shape: (B, 1, h, w).

    Returns:
        Known everywhere; an image without any known pixel becomes 0. Shape: (B, 1, h, w).
    """
    known = known_depth(depth)
    if bool(known.all()):
        return depth
    depth = depth.masked_fill(~known, 0)
    batch, _, height, width = depth.shape
    # One transform for the whole batch; no path to another image is shorter than one within.
    between = float(height + width)
    nearest = distance_transform_edt(
        (~known)[:, 0].cpu().numpy(),
        sampling=(between, 1.0, 1.0),
        return_distances=False,
        return_indices=True,
    )
    _, row, column = torch.from_numpy(nearest).to(depth.device).long()  # (B, h, w) each
    flat = (row * width + column).view(batch, -1)
    return depth.flatten(1).gather(1, flat).view_as(depth)


def depth_range(depth: Tensor) -> tuple[Tensor, Tensor]:
    """Offset and extent of the known depths of each image, which normalise it to 0..1.

    They come from the low-resolution input; taken from the truth they would leak it.

    Args:
        depth: Low-resolution depth in metres, 0 or NaN where unknown. Shape: (B, 1, h, w).

    Returns:
        Minimum, and maximum less minimum but at least 0.1 m. Shape of each: (B, 1, 1, 1).
    """
    known = known_depth(depth)
    inf = float("inf")
    low = depth.masked_fill(~known, inf).amin(dim=(1, 2, 3), keepdim=True)
    high = depth.masked_fill(~known, -inf).amax(dim=(1, 2, 3), keepdim=True)
    low = low.nan_to_num(posinf=0.0)
    return low, (high - low).clamp_min(MIN_EXTENT)


def box_mean(x: Tensor, radius: int) -> Tensor:
    """Mean over the square window of ``radius``, at borders over the part inside. Same shape."""
    side = 2 * radius + 1
    for kernel, padding in (((side, 1), (radius, 0)), ((1, side), (0, radius))):
        x = F.avg_pool2d(x, kernel, stride=1, padding=padding, count_include_pad=False)
    return x


def guided_filter(guide: Tensor, depth: Tensor, radius: int = 8, eps: float = 1e-4) -> Tensor:
    """Guided image filter: depth as a locally linear function of the guide's colours.

    Reference:
        "Guided Image Filtering", K. He, J. Sun, X. Tang, TPAMI 2013, eq. 19 to 21 (colour).

    Args:
        guide: Grey or colour image in 0..1. Shape: (B, C, H, W).
        depth: Shape: (B, 1, H, W).
        radius: Of the windows, pixels.
        eps: Regularisation, in squared units of the guide.

    Returns:
        Filtered depth. Shape: (B, 1, H, W).
    """
    channels = guide.shape[1]
    mean_i, mean_p = box_mean(guide, radius), box_mean(depth, radius)
    cov_ip = box_mean(guide * depth, radius) - mean_i * mean_p  # (B, C, H, W)
    products = (guide[:, :, None] * guide[:, None]).flatten(1, 2)  # (B, C*C, H, W)
    cov = box_mean(products, radius).unflatten(1, (channels, channels))
    cov = cov - mean_i[:, :, None] * mean_i[:, None]  # (B, C, C, H, W)
    ridge = eps * torch.eye(channels, device=guide.device)
    a = torch.linalg.solve(cov.permute(0, 3, 4, 1, 2) + ridge, cov_ip.permute(0, 2, 3, 1))
    a = a.permute(0, 3, 1, 2)  # (B, C, H, W)
    b = mean_p - (a * mean_i).sum(dim=1, keepdim=True)
    return (box_mean(a, radius) * guide).sum(dim=1, keepdim=True) + box_mean(b, radius)
