"""Captures of a domain: what its colour, depth and infrared sensors make of faces and attacks."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Generator, Tensor

from zoo.face_files import minmax

from . import attacks
from .attacks import Scene
from .domains import ATTACKS, DOMAINS, Domain
from .renderer import background, blur, draw_faces, smooth_noise, uniform

MAX_DEPTH = 1.6  # of the sensor's range, in the unit of heights
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Captures:
    """A batch of captures, each channel in 0..1.

    Attributes:
        rgb: Shape: (B, 3, H, W).
        depth: Near is bright, 0 where unknown; scaled to 0..1 image by image. Shape: (B, 1, H, W).
        ir: Scaled to 0..1 image by image. Shape: (B, 1, H, W).
        label: 1 for a live face, 0 for an attack, int64. Shape: (B,).
        kind: Index into :data:`zoo.face_files.KINDS`, int64. Shape: (B,).
    """

    rgb: Tensor
    depth: Tensor
    ir: Tensor
    label: Tensor
    kind: Tensor


@lru_cache(maxsize=16)
def capture(domain: str, split: str, count: int, size: int = 48, seed: int = 0) -> Captures:
    """Renders the captures of one domain and split, the same for the same arguments.

    Half of them are live; the rest follow the domain's mix of attacks. They come shuffled.

    Args:
        domain: Key of :data:`~.domains.DOMAINS`.
        split: "train", "val" or "test": faces of their own each.
        count: B.
        size: H = W, pixels.
        seed: Of everything random.
    """
    words = [seed, ord(domain), SPLITS.index(split)]
    state = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))
    rng = torch.Generator().manual_seed(state)
    habits = DOMAINS[domain]
    kind = _draw_kinds(count, habits, rng)
    label = (kind == 0).long()
    scene = _stage(kind, habits, size, rng)
    faulty = torch.rand(count, generator=rng) < habits.fault_rate
    which = torch.randint(3, (count,), generator=rng)
    channels: dict[str, Tensor] = {}
    for number, (name, image) in enumerate(_sense(scene, habits, rng).items()):
        image = torch.where(
            (faulty & (which == number)).view(-1, 1, 1, 1), _fault(image, rng), image
        )
        channels[name] = image.clamp(0, 1) if name == "rgb" else minmax(image)
    return Captures(**channels, label=label, kind=kind)


def _draw_kinds(count: int, habits: Domain, rng: Generator) -> Tensor:
    attackers = count // 2
    shares = torch.tensor(habits.mix).cumsum(0) * attackers
    positions = torch.arange(attackers) + 0.5
    kinds = 1 + torch.bucketize(positions, shares).clamp_max(len(ATTACKS) - 1)
    kinds = torch.cat([torch.zeros(count - attackers, dtype=torch.long), kinds])
    return kinds[torch.randperm(count, generator=rng)]


def _stage(kind: Tensor, habits: Domain, size: int, rng: Generator) -> Scene:
    """Draws all five kinds of every sample and keeps one: cheaper than a loop over samples."""
    count = len(kind)
    faces = draw_faces(count, size, rng)
    cue = habits.cue * (kind == 0).view(-1, 1, 1, 1)
    back = (background(count, size, rng) + cue).clamp(0, 1)
    elsewhere = background(count, size, rng)  # where the attacker's photograph was taken
    face = attacks.live(faces, back, habits.ambient, rng)
    photo = attacks.live(faces, elsewhere, habits.ambient, rng)
    scenes = (
        attacks.printed(photo, back, rng),
        attacks.replayed(photo, back, rng),
        attacks.masked(faces, back, habits.ambient, rng),
        attacks.cut(faces, photo, back, rng),
    )
    scene = face
    for number, other in enumerate(scenes, start=1):
        scene = other.where(kind == number, scene)
    return scene


def _sense(scene: Scene, habits: Domain, rng: Generator) -> dict[str, Tensor]:
    """The three images before faults. Shapes: (B, 3, H, W), (B, 1, H, W) and (B, 1, H, W)."""
    count, _, size, _ = scene.colour.shape

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=rng)

    cast = torch.tensor(habits.cast).view(3, 1, 1)
    colour = blur((scene.colour * cast).clamp(0, 1), habits.blur * size / 48)
    rgb = colour + 0.03 * noise(colour)

    height = scene.height[:, None]
    depth = height + habits.depth_noise * (1 + height) * noise(height)
    depth = depth.clamp(0.02, MAX_DEPTH)  # what is known is never 0
    fog = smooth_noise(rng, count, 1, size, 8) + 0.5 * noise(height)
    edge = torch.quantile(fog.flatten(1), habits.hole_rate, dim=1).view(-1, 1, 1, 1)
    depth = depth.masked_fill(fog < edge, 0)

    daylight = uniform(rng, 0, habits.sunlight, count, 1, 1, 1) * rgb.mean(dim=1, keepdim=True)
    infrared = habits.ir_gain * scene.infrared[:, None] + daylight
    infrared = (infrared + habits.ir_noise * noise(infrared)).clamp(0, MAX_DEPTH)
    return {"rgb": rgb.clamp(0, 1), "depth": depth, "ir": infrared}


def _fault(images: Tensor, rng: Generator) -> Tensor:
    """One of four faults a sample: half of the frame covered, gain / 4, gain x 2.5, noise."""
    count, _, height, width = images.shape
    rows, columns = torch.arange(height).view(-1, 1), torch.arange(width)
    halves = torch.stack(
        [
            (rows < height // 2).expand(height, width),
            (rows >= height // 2).expand(height, width),
            (columns < width // 2).expand(height, width),
            (columns >= width // 2).expand(height, width),
        ]
    )
    covered = halves[torch.randint(4, (count,), generator=rng)][:, None]
    noisy = images + 0.3 * torch.randn(images.shape, generator=rng)
    variants = torch.stack(
        [
            images.masked_fill(covered, 0),
            0.25 * images,
            (2.5 * images).clamp_max(1),
            noisy.clamp(0, MAX_DEPTH),
        ]
    )
    return variants[torch.randint(4, (count,), generator=rng), torch.arange(count)]
