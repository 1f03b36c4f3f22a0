"""What a depth sensor loses: blur, resolution and noise, as pure functions of a generator.

The spatially varying degradation blends three Gaussian blurs by a smooth random map, samples the
result without antialiasing and multiplies it by noise whose strength varies just as smoothly.
"Noisy" follows DORNet (https://arxiv.org/abs/2410.11666, section 4). Depth is 0 where unknown.
"""

from functools import lru_cache
from typing import TypeAlias

import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch import Generator, Tensor

from zoo.layers import resample
from zoo.reproducible import generator as generator

Window: TypeAlias = tuple[slice, slice]  # rows and columns of a crop in its full-size image

DEGRADATIONS = ("spatially_varying", "bicubic", "noisy", "real")
RANDOM = ("spatially_varying", "noisy")  # the ones that differ from draw to draw

SIGMAS = (0.0, 2.0, 5.0)  # px at full size; the local blur lies between the first and the last
TRUNCATE = 4.0  # a Gaussian ends after so many sigmas
MAX_NOISE = 0.01  # largest local standard deviation of the multiplicative noise
GRID = 3  # a smooth random map is GRID x GRID uniform numbers, enlarged

NOISY_SIGMA = 3.6  # px at full size
NOISY_STD = 0.07  # of the full scale: 5 m, or 255 grey levels
MIN_DEPTH = 1e-3  # an undershoot of the bicubic kernel must not read as unknown


def fill_unknown(depth: Tensor) -> Tensor:
    """Fills each unknown pixel from the nearest known ones on its row: the farther of the two.

    A pixel is unknown because something in front hides it from the second camera, so it belongs to
    the background. Rows without a known pixel are filled from their columns afterwards.

    Args:
        depth: Any unit, larger is farther, 0 is unknown. Shape: (H, W).

    Returns:
        The same without zeros, unless there is no known pixel at all. Shape: (H, W).
    """
    filled = _fill_rows(depth)
    return _fill_rows(filled.T).T.contiguous() if bool((filled == 0).any()) else filled


def blur_levels(depth: Tensor, window: Window) -> Tensor:
    """Blurs ``depth`` with each of `SIGMAS`, and cuts out ``window``.

    Only the window and the margin that its blur can see are computed.

    Args:
        depth: Filled depth. Shape: (H, W).
        window: Rows and columns to return.

    Returns:
        One blurred copy a level. Shape: (len(SIGMAS), h, w).
    """
    margin = int(TRUNCATE * max(SIGMAS) + 0.5)
    (top, bottom, _), (left, right, _) = (
        edge.indices(size) for edge, size in zip(window, depth.shape, strict=True)
    )
    y, x = max(top - margin, 0), max(left - margin, 0)
    around = depth[y : bottom + margin, x : right + margin].numpy()
    levels = [
        torch.from_numpy(gaussian_filter(around, sigma, truncate=TRUNCATE))
        if sigma
        else torch.from_numpy(around)
        for sigma in SIGMAS
    ]
    return torch.stack(levels)[:, top - y : bottom - y, left - x : right - x]


def smooth_map(size: tuple[int, int], window: Window, rng: Generator) -> Tensor:
    """Draws a smooth random map over an image of ``size``, and cuts out ``window``.

    Args:
        size: Height and width of the full-size image.
        window: Rows and columns to return.
        rng: Source of the GRID x GRID uniform numbers that are enlarged bicubically.

    Returns:
        Values in 0..1. Shape: (h, w).
    """
    rows, cols = window
    grid = torch.rand(GRID, GRID, generator=rng)
    return (_enlarge(size[0])[rows] @ grid @ _enlarge(size[1])[cols].T).clamp_(0, 1)


def spatially_varying(
    levels: Tensor, blur: Tensor, noise: Tensor, scale: int, rng: Generator
) -> Tensor:
    """Degrades by a blur and a noise that change over the image.

    Args:
        levels: The depth after each blur of `SIGMAS`, from `blur_levels`. Shape: (3, H, W).
        blur: Position between the levels, 0 the first and 1 the last. Shape: (H, W).
        noise: Strength of the noise as a fraction of `MAX_NOISE`. Shape: (H, W).
        scale: Factor between H, W and the result; divides both.
        rng: Source of the noise.

    Returns:
        Low-resolution depth in the unit of ``levels``. Shape: (H / scale, W / scale).
    """
    low, middle, high = levels
    blurred = torch.where(
        blur < 0.5, torch.lerp(low, middle, 2 * blur), torch.lerp(middle, high, 2 * blur - 1)
    )
    lr = F.interpolate(blurred[None, None], scale_factor=1 / scale, mode="bicubic")[0, 0]
    strength = MAX_NOISE * noise[scale // 2 :: scale, scale // 2 :: scale]  # at LR pixel centres
    return (lr * (1 + strength * torch.randn(lr.shape, generator=rng))).clamp_(min=MIN_DEPTH)


def local_sigma(blur: Tensor) -> Tensor:
    """Standard deviation in pixels of the kernel that `spatially_varying` applies at each pixel.

    A blend of two Gaussians has the blend of their variances.

    Args:
        blur: Position between the levels, in 0..1. Any shape.
    """
    low, middle, high = (sigma**2 for sigma in SIGMAS)
    first = low + (middle - low) * 2 * blur
    second = middle + (high - middle) * (2 * blur - 1)
    return torch.where(blur < 0.5, first, second).sqrt()


def bicubic(image: Tensor, size: tuple[int, int]) -> Tensor:
    """The published protocol's resampling of one map (h, w). Shape: (H, W)."""
    return resample.bicubic(image[None, None], size)[0, 0]


def bicubic_depth(depth: Tensor, scale: int) -> Tensor:
    """Shrinks filled depth (H, W) by ``scale`` with `bicubic`. Shape: (H / scale, W / scale)."""
    height, width = depth.shape
    return bicubic(depth, (height // scale, width // scale)).clamp_(min=MIN_DEPTH)


def noisy(lr: Tensor, scale: int, full_scale: float, rng: Generator) -> Tensor:
    """DORNet's "noisy" variant: a blur of the upsampled map, then strong Gaussian noise.

    DORNet's networks take the upsampled map itself. Ours take a low-resolution one, so the blurred
    map is read at the low-resolution pixels and the noise is added there, at its full strength.

    Args:
        lr: Low-resolution depth, 0 where unknown. Shape: (h, w).
        scale: Factor to the guide's size, at which the blur is measured.
        full_scale: What the standard deviation refers to: 5 (metres) or 255 (grey levels).
        rng: Source of the noise.

    Returns:
        Depth within the range of the known ``lr``, 0 where ``lr`` is. Shape: (h, w).
    """
    height, width = lr.shape
    filled = fill_unknown(lr)
    enlarged = bicubic(filled, (height * scale, width * scale))
    blurred = torch.from_numpy(gaussian_filter(enlarged.numpy(), NOISY_SIGMA, truncate=TRUNCATE))
    read = F.interpolate(blurred[None, None], size=(height, width), mode="bicubic")[0, 0]
    noise = NOISY_STD * full_scale * torch.randn(lr.shape, generator=rng)
    return torch.where(lr > 0, (read + noise).clamp_(filled.min(), filled.max()), 0)


def _fill_rows(depth: Tensor) -> Tensor:
    known = depth > 0
    last = depth.shape[1] - 1
    columns = torch.arange(last + 1).expand_as(depth)
    left = torch.where(known, columns, 0).cummax(dim=1).values
    right = last - torch.where(known, last - columns, 0).flip(1).cummax(dim=1).values.flip(1)
    # Where nothing is known on one side, the index is that edge's, whose depth is 0: never larger.
    return torch.where(known, depth, torch.maximum(depth.gather(1, left), depth.gather(1, right)))


@lru_cache(maxsize=64)
def _enlarge(size: int) -> Tensor:
    """Weights of the bicubic enlargement of GRID numbers to ``size``. Shape: (size, GRID)."""
    return F.interpolate(torch.eye(GRID)[None, None], size=(size, GRID), mode="bicubic")[0, 0]
