"""Faces as height maps with albedo, and their shading: a whole batch at a time.

A face is an ellipsoid with a nose, two eye sockets and a mouth. Nothing in it comes from a person.
Coordinates run from -1 to 1 over the frame, x to the right and y downwards; height is towards the
camera, in the same unit.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

EYE_APART, EYE_HEIGHT = 0.24, -0.16  # from the middle of the face, for axes of 0.6 and 0.8
SKIN = (1.0, 0.78, 0.66)  # of red, green and blue under white light
LIPS = (0.72, 0.30, 0.28)


@dataclass(frozen=True)
class Faces:
    """A batch of faces without light.

    Attributes:
        height: Towards the camera, 0 off the face. Shape: (B, H, W).
        albedo: Share of red, green and blue that is reflected, in 0..1. Shape: (B, 3, H, W).
        head: Where the face is, bool. Shape: (B, H, W).
        eyes: How much a pixel belongs to an eye, in 0..1. Shape: (B, H, W).
    """

    height: Tensor
    albedo: Tensor
    head: Tensor
    eyes: Tensor

    @property
    def normals(self) -> Tensor:
        """Unit normals of the surface. Shape: (B, 3, H, W)."""
        return normals(self.height)


def uniform(rng: Generator, low: float, high: float, *shape: int) -> Tensor:
    """Numbers between ``low`` and ``high``."""
    return low + (high - low) * torch.rand(*shape, generator=rng)


def grid(size: int) -> tuple[Tensor, Tensor]:
    """X and y of the pixels' centres. Shape of each: (size, size)."""
    line = (torch.arange(size) + 0.5) * (2 / size) - 1
    y, x = torch.meshgrid(line, line, indexing="ij")
    return x, y


def smooth_noise(rng: Generator, count: int, channels: int, size: int, cells: int) -> Tensor:
    """Low-frequency noise of unit variance at the nodes. Shape: (count, channels, size, size)."""
    nodes = torch.randn(count, channels, cells, cells, generator=rng)
    return F.interpolate(nodes, size=(size, size), mode="bicubic", align_corners=False)


def blur(images: Tensor, sigma: float) -> Tensor:
    """Gaussian blur with mirrored borders. Shape: (B, C, H, W); ``sigma`` in pixels."""
    if sigma <= 0:
        return images
    radius = max(1, round(3 * sigma))
    offsets = torch.arange(-radius, radius + 1, dtype=images.dtype)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    kernel = (kernel / kernel.sum()).expand(images.shape[1], 1, -1)
    padded = F.pad(images, (radius,) * 4, mode="reflect")
    rows = F.conv2d(padded, kernel[:, :, None, :], groups=images.shape[1])
    return F.conv2d(rows, kernel[:, :, :, None], groups=images.shape[1])


def normals(height: Tensor) -> Tensor:
    """Unit normals of height maps. Shape: (B, H, W) gives (B, 3, H, W)."""
    step = 2 / height.shape[-1]
    dy, dx = torch.gradient(height, spacing=step, dim=(1, 2))
    return F.normalize(torch.stack([-dx, -dy, torch.ones_like(dx)], dim=1), dim=1)


def draw_faces(count: int, size: int, rng: Generator) -> Faces:
    """Draws faces of random shape, place, tone and texture.

    Args:
        count: B.
        size: H = W, pixels.
        rng: Source of everything random.
    """

    def each(low: float, high: float) -> Tensor:
        return uniform(rng, low, high, count, 1, 1)

    x, y = grid(size)
    wide, high, deep = each(0.5, 0.68), each(0.68, 0.88), each(0.55, 0.75)
    u, v = (x - each(-0.12, 0.12)) / wide, (y - each(-0.1, 0.1)) / high  # (B, H, W)
    radius = u.square() + v.square()
    head = radius < 1
    skull = deep * (1 - radius).clamp_min(0).sqrt()

    def bump(across: Tensor | float, down: float, a: float, b: float) -> Tensor:
        return torch.exp(-0.5 * (((u - across) / a).square() + ((v - down) / b).square()))

    apart = EYE_APART / 0.6 * each(0.9, 1.1)
    level = EYE_HEIGHT / 0.8
    sockets = bump(apart, level, 0.17, 0.11) + bump(-apart, level, 0.17, 0.11)
    mouth = bump(0.0, 0.52, 0.24, 0.07)
    nose = bump(0.0, 0.12, 0.11, 0.2)
    height = skull + each(0.16, 0.26) * nose - each(0.06, 0.12) * sockets - 0.03 * mouth
    eyes = (bump(apart, level, 0.11, 0.06) + bump(-apart, level, 0.11, 0.06)).clamp(0, 1)

    tone = uniform(rng, 0.3, 0.9, count, 1, 1, 1)
    hue = torch.tensor(SKIN).view(3, 1, 1) + 0.06 * torch.randn(count, 3, 1, 1, generator=rng)
    texture = 1 + 0.08 * smooth_noise(rng, count, 1, size, 6)
    albedo = (tone * hue * texture).clamp(0.02, 1)
    lips = torch.tensor(LIPS).view(3, 1, 1) * (0.5 + 0.5 * tone)
    albedo = torch.lerp(albedo, lips, (0.9 * mouth)[:, None])
    albedo = torch.lerp(albedo, torch.full_like(albedo, 0.07), (0.95 * eyes)[:, None])
    return Faces(height.clamp_min(0) * head, albedo, head, eyes * head)


def background(count: int, size: int, rng: Generator) -> Tensor:
    """Backdrops of one colour with soft shades. Shape: (count, 3, size, size)."""
    colour = uniform(rng, 0.2, 0.7, count, 1, 1, 1) + 0.06 * torch.randn(
        count, 3, 1, 1, generator=rng
    )
    return (colour + 0.08 * smooth_noise(rng, count, 1, size, 4)).clamp(0, 1)


def draw_lights(count: int, rng: Generator) -> Tensor:
    """Unit vectors towards lamps in front of the face. Shape: (count, 3)."""
    sideways = uniform(rng, -0.9, 0.9, count, 2)
    return F.normalize(torch.cat([sideways, torch.ones(count, 1)], dim=1), dim=1)


def shade(albedo: Tensor, normals: Tensor, lights: Tensor, ambient: float | Tensor) -> Tensor:
    """Lambert shading.

    Args:
        albedo: In 0..1. Shape: (B, 3, H, W).
        normals: Unit. Shape: (B, 3, H, W).
        lights: Unit vectors towards the lamp. Shape: (B, 3).
        ambient: Share of the light that comes from everywhere, in 0..1.

    Returns:
        Colours in 0..1. Shape: (B, 3, H, W).
    """
    lambert = torch.einsum("bchw,bc->bhw", normals, lights).clamp_min(0)[:, None]
    return albedo * (ambient + (1 - ambient) * lambert)


def compose(front: Tensor, back: Tensor, where: Tensor) -> Tensor:
    """``front`` where ``where`` is true, else ``back``. Shapes: (B, C, H, W) and (B, H, W)."""
    return torch.where(where[:, None], front, back)
