"""``shapes_world``: scenes of one shape, and edits of the scene itself, so that truth is exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

Scenes: TypeAlias = dict[str, Tensor]

SIDE = 32  # pixels
KINDS = ("circle", "square", "triangle")
COLOURS = {
    "red": (0.90, 0.15, 0.15),
    "green": (0.15, 0.75, 0.20),
    "blue": (0.20, 0.30, 0.95),
    "yellow": (0.95, 0.85, 0.15),
    "purple": (0.60, 0.20, 0.80),
    "cyan": (0.15, 0.80, 0.85),
}
BACKGROUNDS = {"navy": (0.08, 0.12, 0.40), "forest": (0.08, 0.35, 0.12), "plum": (0.42, 0.10, 0.32)}
INK, FRAME = (0.10, 0.08, 0.08), 0.05  # of hats, of borders
# Values of each field; a background of 0 is the scene's own gradient.
FIELDS = {
    "kind": len(KINDS),
    "colour": len(COLOURS),
    "hat": 2,
    "invert": 2,
    "blur": 2,
    "border": 2,
    "removed": 2,
    "background": 1 + len(BACKGROUNDS),
}
OBJECT = ("kind", "colour", "hat")  # edits of the shape: none of them shows once it is removed


@dataclass(frozen=True)
class SceneEdit:
    """One edit: a field of the scene gets a value."""

    name: str
    field: str
    value: int


EDITS = (
    *(SceneEdit(f"recolour_{name}", "colour", i) for i, name in enumerate(COLOURS)),
    SceneEdit("hat", "hat", 1),
    *(SceneEdit(f"kind_{name}", "kind", i) for i, name in enumerate(KINDS)),
    SceneEdit("invert", "invert", 1),
    SceneEdit("blur", "blur", 1),
    SceneEdit("border", "border", 1),
    SceneEdit("remove", "removed", 1),
    *(SceneEdit(f"background_{name}", "background", i + 1) for i, name in enumerate(BACKGROUNDS)),
)
TASKS = tuple(edit.name for edit in EDITS)
HELD_OUT = ("recolour_purple", "kind_triangle", "background_plum")
ATTRIBUTES = {
    "kind": 1 + len(KINDS),  # the last of kind and of colour: there is no shape
    "colour": 1 + len(COLOURS),
    "hat": 2,
    "texture": 2,
    "background": 1 + len(BACKGROUNDS),
    "invert": 2,
    "blur": 2,
    "border": 2,
}


def combinations() -> list[tuple[int, int]]:
    """All pairs of trained edits that change different fields, and of which both show."""
    seen = [i for i, edit in enumerate(EDITS) if edit.name not in HELD_OUT]
    return [(i, j) for i in seen for j in seen if i < j and _together(EDITS[i], EDITS[j])]


def _together(a: SceneEdit, b: SceneEdit) -> bool:
    fields = {a.field, b.field}
    return len(fields) == 2 and not ("removed" in fields and fields & set(OBJECT))


class ShapesWorld:
    """Random scenes, each with the edits that its pair is of.

    Args:
        edits: Number of each scene's first and second edit, -1 for none. Shape: (N, 2).
        rng: Draws the scenes.
    """

    def __init__(self, edits: Tensor, rng: torch.Generator) -> None:
        self.edits = edits
        self.scenes = self._draw(len(edits), rng)
        # An edit must change something: a scene that has the value already gets another one.
        for number, edit in enumerate(EDITS):
            asked = (edits == number).any(dim=1)
            size = FIELDS[edit.field]
            other = (edit.value + torch.randint(1, size, (len(edits),), generator=rng)) % size
            field = self.scenes[edit.field]
            self.scenes[edit.field] = torch.where(asked & (field == edit.value), other, field)

    @staticmethod
    def _draw(count: int, rng: torch.Generator) -> Scenes:
        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(count, *shape, generator=rng)

        def whole(size: int, chance: float = 1.0) -> Tensor:
            value = torch.randint(size, (count,), generator=rng)
            return value * (torch.rand(count, generator=rng) < chance)

        grey = uniform(0.4, 0.75, 1)
        return {
            "x": uniform(0.36, 0.64),
            "y": uniform(0.52, 0.66),
            "radius": uniform(0.21, 0.27),
            "angle": uniform(0, 2 * math.pi),
            "first": grey + uniform(-0.1, 0.1, 3),
            "second": grey + uniform(-0.25, 0.25, 1) + uniform(-0.1, 0.1, 3),
            "kind": whole(len(KINDS)),
            "colour": whole(len(COLOURS)),
            "texture": whole(2),
            "hat": whole(2),
            "background": whole(4, 0.4),
            "invert": torch.zeros(count, dtype=torch.long),
            "blur": whole(2, 0.2),
            "border": whole(2, 0.2),
            "removed": torch.zeros(count, dtype=torch.long),
        }

    def __len__(self) -> int:
        return len(self.edits)

    def before(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Pictures of scenes with their attributes: (B, 3, 32, 32) in 0..1 and (B, 8)."""
        scenes = {name: value[indices] for name, value in self.scenes.items()}
        return render(scenes), attributes(scenes)

    def after(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The same scenes, edited."""
        scenes = {name: value[indices] for name, value in self.scenes.items()}
        edits = self.edits[indices]
        for number, edit in enumerate(EDITS):
            asked = (edits == number).any(dim=1)
            scenes[edit.field] = torch.where(asked, edit.value, scenes[edit.field])
        return render(scenes), attributes(scenes)


def attributes(scenes: Scenes) -> Tensor:
    """What is to be seen in each scene, by :data:`ATTRIBUTES`; -1 if it has none.

    Returns:
        Shape: (B, 8), long.
    """
    gone = scenes["removed"] == 1
    missing = {"kind": len(KINDS), "colour": len(COLOURS), "hat": -1, "texture": -1}
    columns = [
        torch.where(gone, missing[name], scenes[name]) if name in missing else scenes[name]
        for name in ATTRIBUTES
    ]
    return torch.stack(columns, dim=1)


def render(scenes: Scenes) -> Tensor:
    """Draws scenes, with antialiased edges. Shape: (B, 3, 32, 32), in 0..1."""
    axis = (torch.arange(SIDE) + 0.5) / SIDE
    row, column = axis[:, None], axis[None, :]

    def field(name: str) -> Tensor:
        return scenes[name][:, None, None]

    ramp = (column - 0.5) * field("angle").cos() + (row - 0.5) * field("angle").sin() + 0.5
    ramp = ramp.clamp(0, 1)[:, None]
    own = scenes["first"][..., None, None] * (1 - ramp) + scenes["second"][..., None, None] * ramp
    named = torch.tensor([(0.0, 0.0, 0.0), *BACKGROUNDS.values()])[scenes["background"]]
    flat = (field("background") > 0)[:, None]
    image = torch.where(flat, named[..., None, None], own.clamp(0, 1))

    x, y, r = column - field("x"), row - field("y"), field("radius")
    shapes = torch.stack([_circle(x, y, r), _square(x, y, r), _triangle(x, y, r)])
    distance = shapes[scenes["kind"], torch.arange(len(image))]
    visible = (field("removed") == 0).float()
    stripes = 1 - 0.5 * field("texture") * (torch.sin(2 * math.pi * (x + y) * 5) > 0).float()
    paint = torch.tensor(list(COLOURS.values()))[scenes["colour"]][..., None, None]
    image = _over(image, paint * stripes[:, None], _cover(distance) * visible)
    hat = _triangle(x * 1.3, (y + 1.25 * r) * 1.3, 0.75 * r) / 1.3
    ink = torch.tensor(INK).view(1, 3, 1, 1)
    image = _over(image, ink, _cover(hat) * visible * field("hat"))

    image = torch.where((field("blur") == 1)[:, None], blur(image), image)
    image = torch.where((field("invert") == 1)[:, None], 1 - image, image)
    inside = torch.zeros(SIDE, SIDE)
    inside[2:-2, 2:-2] = 1
    framed = image * inside + FRAME * (1 - inside)
    return torch.where((field("border") == 1)[:, None], framed, image)


def blur(image: Tensor, sigma: float = 1.6, reach: int = 4) -> Tensor:
    """Gaussian blur, ``sigma`` in pixels. Shape: (B, 3, H, W)."""
    offsets = torch.arange(-reach, reach + 1, dtype=image.dtype, device=image.device)
    kernel = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).expand(3, 1, 1, -1)
    padded = F.pad(image, (reach,) * 4, mode="reflect")
    across = F.conv2d(padded, kernel, groups=3)
    return F.conv2d(across, kernel.transpose(2, 3), groups=3)


def _circle(x: Tensor, y: Tensor, r: Tensor) -> Tensor:
    return (x * x + y * y).sqrt() - r


def _square(x: Tensor, y: Tensor, r: Tensor) -> Tensor:
    return torch.maximum(x.abs().expand_as(x + y), y.abs().expand_as(x + y)) - 0.9 * r


def _triangle(x: Tensor, y: Tensor, r: Tensor) -> Tensor:
    """Upright; distance from the nearer of base and sides."""
    sides = (1.75 * x.abs() - 0.95 * (y + r)) / math.hypot(1.75, 0.95)
    return torch.maximum(sides, (y - 0.75 * r).expand_as(sides))


def _cover(distance: Tensor) -> Tensor:
    """Share of each pixel inside, from the distance to the edge. Shape: (B, H, W)."""
    return (0.5 - distance * SIDE).clamp(0, 1)


def _over(image: Tensor, paint: Tensor, cover: Tensor) -> Tensor:
    cover = cover[:, None]
    return image * (1 - cover) + paint * cover
