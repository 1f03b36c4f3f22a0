"""What a camera loses of a scene: light beyond its range, noise, 8 bits and JPEG.

Radiance is exposed so that the photograph is f(clip(H)) but for what the camera does to it, so
H = 1 is the photograph's white.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor

from zoo.display import encode

CLIPPED_SHARE = (0.005, 0.2)  # of the pixels, drawn log-uniformly
MAX_DARK_SHARE = 0.2  # of the pixels, under DARK; a scene with more of them is exposed longer
DARK = 2 / 255  # display value
CAP = 256.0  # radiance: the sun's disk holds 10^4, which no bracket reaches
# Variance of shot noise per radiance, drawn log-uniformly. Up to 1e-2, a night shot without noise
# reduction, the error of every method is that of the noise: measured, a perfect restoration of the
# highlights gains 1 dB there. So photographs as phones deliver them are the default.
GAIN = (1e-5, 1e-3)
GAIN_NOISY = (1e-4, 1e-2)
READ = 1e-4  # deviation of read noise
WHITE_BALANCE = 0.05  # largest relative change of a channel
POWERS = (1.8, 2.6)  # of an unknown display curve
QUALITY = (70, 98)  # of JPEG


@dataclass(frozen=True)
class Camera:
    """Which of a camera's faults are simulated.

    Attributes:
        gain: Range of the shot noise's variance per radiance; ``None`` for no noise at all.
        jpeg: Chance of a JPEG compression.
        unknown_curve: Chance that the display curve is not sRGB's but a power of 1.8 to 2.6.
        white_balance: Change the scene's colours by up to 5 % (training alone).
    """

    gain: tuple[float, float] | None = GAIN
    jpeg: float = 0.5
    unknown_curve: float = 0.0
    white_balance: bool = False


CAMERAS = {
    "photo": Camera(),
    "clean": Camera(gain=None, jpeg=0.0),
    "noisy": Camera(gain=GAIN_NOISY),
    "any_curve": Camera(unknown_curve=0.3),
}


def expose_scene(radiance: Tensor, rng: Generator) -> Tensor:
    """Scales scenes as a light meter would, with 0.5 to 20 % of the pixels clipped.

    Args:
        radiance: In any unit. Shape: (B, 3, H, W).
        rng: Draws the clipped share of each.

    Returns:
        Relative to the photograph's white, at most 256. Shape: (B, 3, H, W).
    """
    low, high = np.log(CLIPPED_SHARE)
    share = torch.exp(low + (high - low) * torch.rand(len(radiance), generator=rng))
    brightest, darkest = (
        x.flatten(1).sort(dim=1).values for x in (radiance.amax(1), radiance.amin(1))
    )
    pixels = brightest.shape[1]
    at_white = _at(brightest, (1 - share) * pixels)
    # As much longer as needed to lift all but a fifth of the pixels out of the dark.
    in_dark = _at(darkest, torch.full_like(share, MAX_DARK_SHARE * pixels))
    threshold = ((DARK + 0.055) / 1.055) ** 2.4 if DARK > 0.04045 else DARK / 12.92
    white = torch.minimum(at_white, in_dark.clamp_min(1e-9) / threshold)
    # But a fifth of the pixels at most is clipped, whatever lies in the dark.
    white = torch.maximum(
        white, _at(brightest, torch.full_like(share, (1 - CLIPPED_SHARE[1]) * pixels))
    )
    return (radiance / white.clamp_min(1e-9).view(-1, 1, 1, 1)).clamp(0, CAP)


def _at(ordered: Tensor, position: Tensor) -> Tensor:
    index = position.long().clamp(0, ordered.shape[1] - 1)
    return ordered.gather(1, index[:, None])[:, 0]


def photograph(target: Tensor, camera: Camera, rng: Generator) -> tuple[Tensor, Tensor]:
    """Takes photographs of exposed scenes.

    Args:
        target: Radiance relative to the photograph's white. Shape: (B, 3, H, W).
        camera: Its faults.
        rng: Source of everything random.

    Returns:
        The photographs, display-encoded multiples of 1/255 in 0..1, and the radiance, whose colours
        change with the white balance. Shape of both: (B, 3, H, W).
    """
    count = len(target)
    if camera.white_balance:
        change = 1 + WHITE_BALANCE * (2 * torch.rand(count, 3, 1, 1, generator=rng) - 1)
        target = target * change
    light = target
    if camera.gain is not None:
        low, high = np.log(camera.gain)
        gain = torch.exp(low + (high - low) * torch.rand(count, 1, 1, 1, generator=rng))
        # Full wells hold no noise: it is that of the light up to the white.
        deviation = (gain * target.clamp(max=1) + READ**2).sqrt()
        light = target + deviation * torch.randn(target.shape, generator=rng)
    image = encode(light)
    other = torch.rand(count, generator=rng) < camera.unknown_curve
    power = POWERS[0] + (POWERS[1] - POWERS[0]) * torch.rand(count, 1, 1, 1, generator=rng)
    if bool(other.any()):
        image = torch.where(other.view(-1, 1, 1, 1), light.clamp(1e-8, 1) ** (1 / power), image)
    coded = (image * 255).round().byte()
    compressed = torch.rand(count, generator=rng) < camera.jpeg
    quality = torch.randint(QUALITY[0], QUALITY[1] + 1, (count,), generator=rng)
    for i in compressed.nonzero().flatten().tolist():  # a codec takes one picture at a time
        coded[i] = _through_jpeg(coded[i], int(quality[i]))
    return coded.float() / 255, target


def _through_jpeg(image: Tensor, quality: int) -> Tensor:
    buffer = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(buffer, "JPEG", quality=quality)
    decoded = np.array(Image.open(buffer))
    return torch.from_numpy(decoded).permute(2, 0, 1)
