"""What stands before the camera: a live face, a print, a screen, a mask, or a print with holes.

Each gives the same four maps, so a batch may hold all of them: colour, height, the infrared light
that comes back from the sensor's own lamp, and what of the colour image shines through in infrared.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .renderer import (
    Faces,
    blur,
    compose,
    draw_lights,
    grid,
    normals,
    shade,
    uniform,
)

COAXIAL = 1.2  # exponent of n_z: the lamp stands beside the infrared camera


@dataclass(frozen=True)
class Scene:
    """What a batch of sensors looks at.

    Attributes:
        colour: In 0..1. Shape: (B, 3, H, W).
        height: Towards the camera, 0 for the background. Shape: (B, H, W).
        infrared: Share of the infrared lamp's light that comes back. Shape: (B, H, W).
    """

    colour: Tensor
    height: Tensor
    infrared: Tensor

    def where(self, choose: Tensor, other: "Scene") -> "Scene":
        """This scene for the samples that ``choose`` names, else the other. Shape: (B,)."""
        flags = choose.view(-1, 1, 1)
        return Scene(
            torch.where(flags[:, None], self.colour, other.colour),
            torch.where(flags, self.height, other.height),
            torch.where(flags, self.infrared, other.infrared),
        )


def live(faces: Faces, back: Tensor, ambient: float, rng: Generator) -> Scene:
    """A living face: skin reflects near infrared alike in all tones, eyes do not."""
    count = len(back)
    surface = faces.normals
    lit = shade(faces.albedo, surface, draw_lights(count, rng), ambient)
    skin = uniform(rng, 0.65, 0.8, count, 1, 1) * (1 - 0.6 * faces.eyes)
    infrared = torch.where(faces.head, skin * _coaxial(surface), _far(count, rng))
    return Scene(compose(lit, back, faces.head), faces.height, infrared)


def printed(original: Scene, back: Tensor, rng: Generator) -> Scene:
    """A sheet, tilted and bent; ink hardly shows in infrared."""
    sheet, inside = _sheet(len(back), back.shape[-1], rng, bend=0.25)
    reprint = _reprint(original.colour, sheet, rng)
    paper = uniform(rng, 0.5, 0.8, len(back), 1, 1)
    pattern = 0.12 * (original.colour.mean(dim=1) - 0.5)
    infrared = torch.where(inside, paper * _coaxial(normals(sheet)) + pattern, _far(len(back), rng))
    return Scene(compose(reprint, back, inside), sheet * inside, infrared)


def replayed(original: Scene, back: Tensor, rng: Generator) -> Scene:
    """A screen: flat, bluish, with moire and glare, and dark in infrared."""
    count, size = len(back), back.shape[-1]
    x, y = grid(size)
    screen, inside = _sheet(count, size, rng, bend=0.0)
    angle, cycles = uniform(rng, 0, math.pi, count, 1, 1), uniform(rng, 9, 16, count, 1, 1)
    wave = torch.sin(math.pi * cycles * (x * angle.cos() + y * angle.sin()))
    spot = [uniform(rng, -0.6, 0.6, count, 1, 1) for _ in range(2)]
    glare = torch.exp(-((x - spot[0]).square() + (y - spot[1]).square()) / 0.08)
    blue = torch.tensor([0.88, 0.97, 1.12]).view(3, 1, 1)
    shown = original.colour * blue + (0.06 * wave + 0.35 * glare)[:, None]
    dark = uniform(rng, 0.08, 0.25, count, 1, 1)
    leak = 0.06 * original.colour.mean(dim=1)
    infrared = torch.where(inside, dark + leak, _far(count, rng))
    return Scene(compose(shown.clamp(0, 1), back, inside), screen * inside, infrared)


def masked(faces: Faces, back: Tensor, ambient: float, rng: Generator) -> Scene:
    """A mask of one material over a smoothed face: right in shape, shiny, alike in infrared."""
    count = len(back)
    smooth = blur(faces.height[:, None], 1.2 * back.shape[-1] / 48)[:, 0] * faces.head
    surface, lights = normals(smooth), draw_lights(count, rng)
    paint = faces.albedo.mean(dim=(2, 3), keepdim=True)
    albedo = torch.lerp(paint.expand_as(faces.albedo), faces.albedo, 0.45)
    half = torch.nn.functional.normalize(lights + torch.tensor([0.0, 0.0, 1.0]), dim=1)
    shine = torch.einsum("bchw,bc->bhw", surface, half).clamp_min(0) ** 25
    lit = (shade(albedo, surface, lights, ambient) + 0.3 * shine[:, None]).clamp(0, 1)
    material = uniform(rng, 0.5, 0.9, count, 1, 1)
    infrared = torch.where(faces.head, material * _coaxial(surface), _far(count, rng))
    return Scene(compose(lit, back, faces.head), smooth, infrared)


def cut(faces: Faces, original: Scene, back: Tensor, rng: Generator) -> Scene:
    """A curved print with holes, in which the attacker's own eyes show."""
    count, size = len(back), back.shape[-1]
    sheet, inside = _sheet(count, size, rng, bend=0.8)
    holes = faces.eyes > 0.25
    reprint = compose(original.colour, _reprint(original.colour, sheet, rng), holes)
    paper = uniform(rng, 0.5, 0.8, count, 1, 1)
    pattern = 0.12 * (original.colour.mean(dim=1) - 0.5)
    infrared = torch.where(inside, paper * _coaxial(normals(sheet)) + pattern, _far(count, rng))
    infrared = torch.where(holes, original.infrared, infrared)
    height = torch.where(holes, faces.height, sheet * inside)
    return Scene(compose(reprint, back, inside | holes), height, infrared)


def _coaxial(surface: Tensor) -> Tensor:
    return surface[:, 2].clamp_min(0) ** COAXIAL


def _far(count: int, rng: Generator) -> Tensor:
    """Little of the lamp's light comes back from the background."""
    return uniform(rng, 0.05, 0.2, count, 1, 1)


def _sheet(count: int, size: int, rng: Generator, bend: float) -> tuple[Tensor, Tensor]:
    """Height of a sheet that is held before the camera, and where it is. Shapes: (B, H, W)."""
    x, y = grid(size)

    def each(low: float, high: float) -> Tensor:
        return uniform(rng, low, high, count, 1, 1)

    inside = ((x - each(-0.08, 0.08)).abs() < each(0.72, 0.98)) & (
        (y - each(-0.08, 0.08)).abs() < each(0.82, 1.0)
    )
    tilt = each(-0.3, 0.3) * x + each(-0.3, 0.3) * y
    curve = bend * each(0.3, 1.0) * (1 - x.square())
    return (each(0.35, 0.6) + tilt + curve).clamp_min(0.02), inside


def _reprint(colour: Tensor, sheet: Tensor, rng: Generator) -> Tensor:
    """Flat contrast under a light of its own. Shape: (B, 3, H, W)."""
    count = len(colour)
    flat = 0.5 + uniform(rng, 0.6, 0.85, count, 1, 1, 1) * (colour - 0.5)
    return shade(flat, normals(sheet), draw_lights(count, rng), 0.6).clamp(0, 1)
