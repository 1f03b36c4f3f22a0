"""``photo_edits``: crops of a few real photographs, and ten deterministic edits of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations as choose
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.hdr_files import read_photo

SIDE = 32  # pixels of a sample
MOST, LEAST = 64, 32  # pixels of the photograph that a sample shows, before it is resized
SAMPLES = Path(__file__).parents[1] / "samples/edit_pairs"
# Photographs of each split. What has no suffix comes with scikit-image (public domain or CC0).
PHOTOS = {
    "train": ("china_0.png", "china_1.png", "flower_0.png", "flower_1.png", "coffee", "rocket"),
    "val": ("astronaut",),
    "test": ("chelsea", "hubble_deep_field"),
}
LONGEST = 256  # side that photographs are reduced to: a crop then shows more than texture
STYLES = 11  # the photograph as it is, or one of the ten edits


def hue_turn(x: Tensor) -> Tensor:
    """A third of the colour circle: red becomes green, green blue, blue red."""
    return x.roll(1, dims=1)


def posterise(x: Tensor) -> Tensor:
    """Three levels a channel."""
    return ((3 * x).floor().clamp(max=2)) / 2


def sepia(x: Tensor) -> Tensor:
    """Brown tones of the luminance."""
    grey = (x * x.new_tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    return (grey * x.new_tensor([1.20, 0.95, 0.70]).view(3, 1, 1)).clamp(0, 1)


def vignette(x: Tensor) -> Tensor:
    """Darker towards the corners."""
    axis = torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype, device=x.device)
    radius = axis[None, :] ** 2 + axis[:, None] ** 2
    return x * (1.05 - 0.55 * radius).clamp(0, 1)


def edge_sketch(x: Tensor) -> Tensor:
    """Dark lines on white where luminance changes."""
    grey = F.pad(x.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    across = grey[..., 1:-1, 2:] - grey[..., 1:-1, :-2]
    down = grey[..., 2:, 1:-1] - grey[..., :-2, 1:-1]
    return (1 - 3 * (across.abs() + down.abs())).clamp(0, 1).expand_as(x)


def fog(x: Tensor) -> Tensor:
    """A bright haze."""
    return 0.45 * x + 0.55 * 0.88


def night(x: Tensor) -> Tensor:
    """Dark and blue."""
    return x * x.new_tensor([0.25, 0.32, 0.60]).view(3, 1, 1)


def pixelate(x: Tensor) -> Tensor:
    """Blocks of four pixels."""
    return F.interpolate(F.avg_pool2d(x, 4), scale_factor=4, mode="nearest")


def warm(x: Tensor) -> Tensor:
    """Evening light."""
    return (x * x.new_tensor([1.20, 1.0, 0.65]).view(3, 1, 1)).clamp(0, 1)


def mirror(x: Tensor) -> Tensor:
    """Left becomes right."""
    return x.flip(-1)


EDITS: Mapping[str, Callable[[Tensor], Tensor]] = {
    edit.__name__: edit
    for edit in (
        hue_turn,
        posterise,
        sepia,
        vignette,
        edge_sketch,
        fog,
        night,
        pixelate,
        warm,
        mirror,
    )
}
TASKS = tuple(EDITS)
HELD_OUT = ("night", "warm")


def combinations() -> list[tuple[int, int]]:
    """All pairs of trained edits, the first done first."""
    return list(choose([i for i, name in enumerate(TASKS) if name not in HELD_OUT], 2))


class PhotoEdits:
    """Random crops of photographs, each with the edits that its pair is of.

    Args:
        split: Whose photographs.
        edits: Number of each crop's first and second edit, -1 for none. Shape: (N, 2).
        rng: Draws the crops.
    """

    def __init__(self, split: str, edits: Tensor, rng: torch.Generator) -> None:
        self.edits = edits
        self.photos = [_photograph(name) for name in PHOTOS[split]]
        self.photo = torch.randint(len(self.photos), (len(edits),), generator=rng)
        self.place = torch.rand(len(edits), 3, generator=rng)  # top, left, size
        # Six photographs are few: those of training are also seen turned, mirrored, in other light.
        self.look = torch.rand(len(edits), 5, generator=rng) if split == "train" else None

    def __len__(self) -> int:
        return len(self.edits)

    def before(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Crops with their attribute, the style: (B, 3, 32, 32) in 0..1 and (B, 1)."""
        image = torch.empty(len(indices), 3, SIDE, SIDE)
        for number, photo in enumerate(self.photos):  # over the photographs, not over samples
            mine = (self.photo[indices] == number).nonzero()[:, 0]
            if len(mine):
                image[mine] = _crop(photo, self.place[indices[mine]])
        if self.look is not None:
            image = vary(image, self.look[indices])
        return image, torch.zeros(len(indices), 1, dtype=torch.long)

    def after(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The same crops, edited."""
        image, _ = self.before(indices)
        edits = self.edits[indices]
        for column in edits.T:
            for number, edit in enumerate(EDITS.values()):
                mine = (column == number).nonzero()[:, 0]
                if len(mine):
                    image[mine] = edit(image[mine])
        # A mirrored photograph looks like one that is not; two edits have no style of their own.
        style = torch.where(edits[:, 0] == TASKS.index("mirror"), 0, edits[:, 0] + 1)
        return image, torch.where(edits[:, 1] >= 0, -1, style)[:, None]


def vary(image: Tensor, look: Tensor) -> Tensor:
    """Another photograph of about the same: turned, mirrored, in other light and colours.

    Args:
        image: Shape: (B, 3, S, S), in 0..1.
        look: 0..1 of each picture: turned or not, mirrored or not, exposure, contrast, saturation.
            Shape: (B, 5).

    Returns:
        Of the same shape, in 0..1.
    """
    turned, mirrored = (look[:, :2] < 0.5).unbind(dim=1)
    image = torch.where(turned.view(-1, 1, 1, 1), image.transpose(2, 3), image)
    image = torch.where(mirrored.view(-1, 1, 1, 1), image.flip(-1), image)
    exposure, contrast, saturation = (0.6 + 0.8 * look[:, 2:]).view(-1, 3, 1, 1, 1).unbind(dim=1)
    level = image.mean(dim=(1, 2, 3), keepdim=True)
    image = exposure * (level + contrast * (image - level))
    grey = image.mean(dim=1, keepdim=True)
    return (grey + saturation * (image - grey)).clamp(0, 1)


def _crop(photo: Tensor, place: Tensor) -> Tensor:
    """Square windows of LEAST to MOST pixels, reduced to SIDE. Shape: (3, h, w) and (B, 3)."""
    height, width = photo.shape[-2:]
    size = LEAST + (MOST - LEAST) * place[:, 2:]
    corner = place[:, :2] * (torch.tensor([height, width]) - size)  # top, left in pixels
    steps = (torch.arange(2 * SIDE) + 0.5) / (2 * SIDE)
    rows, columns = (corner[:, i : i + 1] + size * steps for i in (0, 1))  # (B, 2 SIDE)
    grid = torch.stack(
        [
            (2 * columns / width - 1)[:, None, :].expand(-1, 2 * SIDE, -1),
            (2 * rows / height - 1)[:, :, None].expand(-1, -1, 2 * SIDE),
        ],
        dim=-1,
    )
    seen = F.grid_sample(photo.expand(len(place), -1, -1, -1), grid, align_corners=False)
    return F.avg_pool2d(seen, 2)


@cache
def _photograph(name: str) -> Tensor:
    """Shape: (3, h, w), the longer side at most LONGEST."""
    if "." in name:
        pixels = read_photo(SAMPLES / name)
    else:
        from skimage import data

        pixels = read_photo(getattr(data, name)())
    photo = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    share = LONGEST / max(photo.shape[-2:])
    if share >= 1:
        return photo
    size = [round(side * share) for side in photo.shape[-2:]]
    small = F.interpolate(photo[None], size, mode="bilinear", antialias=True)[0]
    return small.clamp(0, 1)
