"""Exposure brackets: from radiance to frames, and from weighted frames back to radiance.

Notation:
    H    radiance relative to the input's white, linear Rec.709
    f    the display curve, e_i the exposure offset of frame i in stops
    I_i  = f(clip(H 2^e_i, 0, 1)), so a frame with e > 0 is brighter, and fusing divides by 2^e
    w_i  weight of frame i at a pixel, shared by the colours; they sum to 1
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.display import decode, encode
from zoo.errors import ZooError

MAX_FRAMES = 25  # what Stable Video Diffusion's longest training clips had
LOWEST_CONTRAST = 1e-3  # display-encoded: below it contrast is noise
LOWEST_PRIOR = 1e-6  # of the triangle: a clipped frame is not ruled out, only unlikely
WELL_EXPOSED = (0.05, 0.95)  # display values of all channels
CLIPPED, DARK = 0.99, 0.02  # display values from, and up to, which light is lost
# Between these it becomes so: 255 alone is clipped, but JPEG moves values by a few of 255.
LOST = (0.98, 0.996)
GAIN_ERROR, FRAME_NOISE = 0.08, 0.01  # of a perturbed frame: relative gain, display-encoded noise


def check_evs(evs: Sequence[float]) -> None:
    """Raises a ZooError unless ``evs`` rise, hold 0, and are 2 to 25.

    Args:
        evs: Exposure offsets in stops.
    """
    if 0 not in evs:
        raise ZooError(f"evs={list(evs)} lacks 0, the exposure of the input itself.")
    if any(b <= a for a, b in pairwise(evs)):
        raise ZooError(f"evs={list(evs)} must rise from frame to frame.")
    if not 2 <= len(evs) <= MAX_FRAMES:
        raise ZooError(f"evs has {len(evs)} frames: expected 2 to {MAX_FRAMES}.")


def gains(evs: Sequence[float], like: Tensor) -> Tensor:
    """2^e_i of each frame. Shape: (N, 1, 1, 1)."""
    return torch.exp2(torch.tensor(evs, dtype=torch.float32, device=like.device)).view(-1, 1, 1, 1)


def expose(radiance: Tensor, evs: Sequence[float], curve: str = "srgb") -> Tensor:
    """The bracket of a scene: I_i = f(clip(H 2^e_i, 0, 1)).

    Args:
        radiance: Shape: (B, 3, H, W).
        evs: Exposure offsets in stops.
        curve: f, see :func:`zoo.display.encode`.

    Returns:
        Display-encoded frames in 0..1. Shape: (B, N, 3, H, W).
    """
    return encode(radiance.float()[:, None] * gains(evs, radiance), curve)


def well_exposed(image: Tensor) -> Tensor:
    """1 where all channels are well inside 0.05..0.95, falling to 0 within 0.05 of these ends.

    Args:
        image: Display-encoded, 0..1. Shape: (..., 3, H, W).

    Returns:
        Shape: (..., 1, H, W).
    """
    low, high = WELL_EXPOSED
    darkest, brightest = image.amin(dim=-3, keepdim=True), image.amax(dim=-3, keepdim=True)
    return ((darkest - low) / 0.05).clamp(0, 1) * ((high - brightest) / 0.05).clamp(0, 1)


def known(image: Tensor, evs: Sequence[float]) -> Tensor:
    """Where a frame's values follow from the input: 1, falling to 0 towards what it has lost.

    A darker frame (e <= 0) is known wherever the input is not clipped, its shadows too; a brighter
    one wherever the input is not dark, its clipped pixels too. Each colour for itself: a blue sky
    clips in blue alone. Only the rest must be generated.

    Args:
        image: Display-encoded, 0..1. Shape: (B, 3, H, W).
        evs: Exposure offsets in stops.

    Returns:
        Shape: (B, N, 3, H, W).
    """
    unclipped = ((LOST[1] - image) / (LOST[1] - LOST[0])).clamp(0, 1)
    lit = ((image - DARK) / 0.03).clamp(0, 1)
    return torch.stack([lit if e > 0 else unclipped for e in evs], dim=1)


def keep_input(
    frames: Tensor, image: Tensor, evs: Sequence[float], fidelity: float, curve: str = "srgb"
) -> Tensor:
    """Puts the input in the place of the frame e = 0, and blends it into the others.

    Where the input has lost nothing, the other frames are known but for its noise: there the
    re-exposed input has the weight ``fidelity``.

    Args:
        frames: Generated, display-encoded. Shape: (B, N, 3, H, W).
        image: The input, display-encoded. Shape: (B, 3, H, W).
        evs: Exposure offsets in stops, 0 among them.
        fidelity: 0 keeps the generated frames (but for e = 0), 1 the re-exposed input.
        curve: f.
    """
    exposed = expose(decode(image, curve), evs, curve)
    alpha = fidelity * known(image, evs)
    blended = frames + alpha * (exposed - frames)
    is_input = torch.tensor([e == 0 for e in evs], device=frames.device).view(1, -1, 1, 1, 1)
    return torch.where(is_input, image[:, None].to(frames.dtype), blended)


def triangle_prior(frames: Tensor) -> Tensor:
    """Logarithm of (1 - |2 m - 1|)^2 with m the mean of a frame's colours, at least log 1e-6.

    A frame with one channel at its end is wrong there however well its mean is exposed, and drags
    saturated colours towards grey. So the weight falls to nothing where the brightest channel goes
    from 0.9 to 1.

    Args:
        frames: Display-encoded, 0..1. Shape: (B, N, 3, H, W).

    Returns:
        Shape: (B, N, H, W).
    """
    values = frames.float()
    triangle = (1 - (2 * values.mean(dim=2) - 1).abs()).square()
    unclipped = ((1 - values.amax(dim=2)) / 0.1).clamp(max=1)
    return (triangle * unclipped).clamp_min(LOWEST_PRIOR).log()


def contrast_prior(frames: Tensor) -> Tensor:
    """Logarithm of the fourth power of local contrast: how focal stacks are merged since long.

    Contrast is the mean over 5x5 pixels of the magnitude of the grey picture's Laplacian.

    Args:
        frames: Display-encoded, 0..1. Shape: (B, N, 3, H, W).

    Returns:
        Shape: (B, N, H, W).
    """
    contrast = F.avg_pool2d(_laplacian(frames), 5, stride=1, padding=2, count_include_pad=False)
    return 4 * (contrast + LOWEST_CONTRAST).log()


def _laplacian(frames: Tensor) -> Tensor:
    """Magnitude of the Laplacian of the mean of the colours. Shape: (B, N, H, W)."""
    grey = F.pad(frames.float().mean(dim=2), (1, 1, 1, 1), mode="replicate")
    around = grey[..., :-2, 1:-1] + grey[..., 2:, 1:-1] + grey[..., 1:-1, :-2] + grey[..., 1:-1, 2:]
    return (around - 4 * grey[..., 1:-1, 1:-1]).abs()


def merge(frames: Tensor, weights: Tensor, evs: Sequence[float], curve: str = "srgb") -> Tensor:
    """H = sum_i w_i f^-1(I_i) 2^-e_i: never outside the range that the frames span.

    Args:
        frames: Display-encoded, 0..1. Shape: (B, N, 3, H, W).
        weights: Not negative, summing to 1 over the frames. Shape: (B, N, H, W).
        evs: Exposure offsets in stops; all 0 for frames that differ in focus, not exposure.
        curve: f.

    Returns:
        Shape: (B, 3, H, W), float32.
    """
    linear = decode(frames.float(), curve) / gains(evs, frames)
    return (weights.float()[:, :, None] * linear).sum(dim=1)


def mean_weights(frames: Tensor) -> Tensor:
    """The same for each frame. Shape: (B, N, H, W)."""
    return torch.full_like(frames[:, :, 0], 1 / frames.shape[1], dtype=torch.float32)


def mertens_weights(frames: Tensor) -> Tensor:
    """The weights of exposure fusion: contrast, saturation and exposure of each frame's pixel.

    T. Mertens, J. Kautz and F. Van Reeth (2007) blend display-encoded frames by them; here they
    merge radiance. Their product is raised by 1e-12, so that a pixel without contrast in any frame
    has the mean.

    Args:
        frames: Display-encoded, 0..1. Shape: (B, N, 3, H, W).

    Returns:
        Shape: (B, N, H, W).
    """
    values = frames.float()
    contrast = _laplacian(frames)
    saturation = values.std(dim=2, correction=0)
    exposure = torch.exp(-((values - 0.5).square() / (2 * 0.2**2)).sum(dim=2))
    weights = contrast * saturation * exposure + 1e-12
    return weights / weights.sum(dim=1, keepdim=True)


def debevec(frames: Tensor, evs: Sequence[float], curve: str = "srgb") -> Tensor:
    """Merging as P. Debevec and J. Malik (1997) do: the mean of log radiance, by channel.

    Weights are triangles on each channel's value; a pixel that all frames clip falls back on the
    least bad of them.

    Args:
        frames: Display-encoded, 0..1. Shape: (B, N, 3, H, W).
        evs: Exposure offsets in stops.
        curve: f.
    """
    values = frames.float()
    weights = (1 - (2 * values - 1).abs()).clamp_min(LOWEST_PRIOR)
    weights = weights / weights.sum(dim=1, keepdim=True)
    log = (decode(values, curve) / gains(evs, frames)).clamp_min(2.0**-16).log2()
    return torch.exp2((weights * log).sum(dim=1))


def perturb(
    frames: Tensor,
    share: float = 0.75,
    generator: torch.Generator | None = None,
    gain_error: float = GAIN_ERROR,
) -> Tensor:
    """What a generator does to a true bracket: gains that drift over each frame, and noise.

    With noiseless frames of floats the darkest one alone would do, and the weights would learn
    nothing; so ``share`` of the samples get errors and the others are rounded to 8 bits.

    Args:
        frames: Display-encoded, 0..1. Shape: (B, N, 3, H, W).
        share: Part of the samples that is perturbed.
        generator: Source of it all, on the CPU; ``None`` for torch's own.
        gain_error: Deviation of the gains; 0 for frames that differ in focus, not exposure.
    """
    b, n, _, height, width = frames.shape

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(frames.device)

    gain = F.interpolate(draw(b, n, 4, 4), (height, width), mode="bilinear", align_corners=False)
    linear = decode(frames) * (1 + gain_error * gain[:, :, None]).clamp_min(0.1)
    noisy = encode(linear) + FRAME_NOISE * draw(*frames.shape)
    chosen = torch.rand(b, generator=generator).to(frames.device) < share
    rounded = torch.round(frames * 255) / 255
    return torch.where(chosen.view(-1, 1, 1, 1, 1), noisy.clamp(0, 1), rounded)
