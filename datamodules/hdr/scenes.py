"""Scenes to photograph: embedded panoramas, HDR files, and pairs of photograph and radiance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from zoo.display import decode
from zoo.errors import ZooError
from zoo.hdr_files import read_photo, read_radiance

SAMPLES = Path(__file__).parent.parent / "samples" / "hdr"
SPLITS = {
    "train": (
        *("apartment", "bridge", "city", "courtyard", "dawn", "garden", "hotel"),
        *("lab", "landing", "night", "sky", "studio", "sunrise"),
    ),
    "val": ("forest", "workshop"),
    "test": ("esplanade", "lobby", "venice"),
}
ROWS = (48, 208)  # of an embedded panorama of 256: nearer to the poles it is stretched
FOV = (40.0, 90.0)  # degrees, of a perspective view
PITCH = 20.0  # degrees up or down at most


@dataclass(frozen=True)
class View:
    """One piece of a scene.

    Attributes:
        name: Of the scene, with a number where there are several.
        radiance: In any unit; of a pair, relative to the photograph's white. Shape: (3, H, W).
        image: The photograph of a pair, display-encoded. Shape: (3, H, W).
    """

    name: str
    radiance: Tensor
    image: Tensor | None = None


class Scenes(Protocol):
    """A sized collection of scenes with two ways to look at each."""

    def __len__(self) -> int: ...

    def crop(self, index: int, side: int, rng: Generator) -> View:
        """A random square piece of ``side`` pixels."""

    def views(self) -> int:
        """How many fixed views each scene has."""

    def view(self, index: int, number: int, side: int) -> View:
        """One of the fixed views, the same every time."""


class EmbeddedPanoramas:
    """The 18 panoramas of the package, in their own pixels, joined at 360 degrees."""

    def __init__(self, split: str, views: int) -> None:
        self.names = SPLITS[split]
        self.panoramas = [_embedded(name) for name in self.names]
        self.count = views

    def __len__(self) -> int:
        return len(self.names)

    def views(self) -> int:
        """How many fixed views each scene has."""
        return self.count

    def crop(self, index: int, side: int, rng: Generator) -> View:
        """A random square piece."""
        band = self.panoramas[index]
        check_crop(side, band, self.names[index])
        top = int(torch.randint(band.shape[1] - side + 1, (), generator=rng))
        left = int(torch.randint(band.shape[2], (), generator=rng))
        return self._cut(index, top, left, side, self.names[index])

    def view(self, index: int, number: int, side: int) -> View:
        """Views in the middle of the band, evenly spread around."""
        band = self.panoramas[index]
        check_crop(side, band, self.names[index])
        left = number * band.shape[2] // self.count
        top = (band.shape[1] - side) // 2
        return self._cut(index, top, left, side, f"{self.names[index]}_{number}")

    def _cut(self, index: int, top: int, left: int, side: int, name: str) -> View:
        band = self.panoramas[index]
        columns = torch.arange(left, left + side) % band.shape[2]
        return View(name, band[:, top : top + side][..., columns].clone())


class Panoramas:
    """Panoramas from files, seen through a perspective camera.

    Args:
        files: Equirectangular, twice as wide as high.
        views: Fixed views of each.
        repair: See :func:`zoo.hdr_files.read_radiance`.
    """

    def __init__(self, files: Sequence[Path], views: int, repair: bool) -> None:
        self.files, self.count, self.repair = list(files), views, repair

    def __len__(self) -> int:
        return len(self.files)

    def views(self) -> int:
        """How many fixed views each scene has."""
        return self.count

    def crop(self, index: int, side: int, rng: Generator) -> View:
        """A view in a random direction, 40 to 90 degrees wide."""
        draws = torch.rand(3, generator=rng).tolist()
        fov = FOV[0] + (FOV[1] - FOV[0]) * draws[2]
        panorama = self._read(index)
        return View(
            self.files[index].stem,
            perspective(panorama, 360 * draws[0], PITCH * (2 * draws[1] - 1), fov, side),
        )

    def view(self, index: int, number: int, side: int) -> View:
        """Views at the horizon, 65 degrees wide, evenly spread around."""
        yaw = 360 * number / self.count
        return View(
            f"{self.files[index].stem}_{number}", perspective(self._read(index), yaw, 0, 65, side)
        )

    def _read(self, index: int) -> Tensor:
        image = _read_file(self.files[index], self.repair)
        if image.shape[2] != 2 * image.shape[1]:
            raise ZooError(
                f"{self.files[index]} is {image.shape[1]}x{image.shape[2]} (height x width): "
                "expected a panorama twice as wide as high."
            )
        return image


class Files:
    """HDR images from files, as they are; with the photograph where there is one.

    Args:
        hdr: Files of radiance.
        photos: Of the same scenes, or ``None`` to simulate the camera.
        repair: See :func:`zoo.hdr_files.read_radiance`.
    """

    def __init__(
        self, hdr: Sequence[Path], photos: Sequence[Path] | None = None, repair: bool = False
    ) -> None:
        self.hdr, self.photos, self.repair = list(hdr), photos, repair

    def __len__(self) -> int:
        return len(self.hdr)

    def views(self) -> int:
        """One: the whole image."""
        return 1

    def crop(self, index: int, side: int, rng: Generator) -> View:
        """A random square piece."""
        whole = self.view(index, 0, 0)
        check_crop(side, whole.radiance, str(self.hdr[index]))
        top, left = (
            int(torch.randint(size - side + 1, (), generator=rng))
            for size in whole.radiance.shape[1:]
        )
        part = (slice(None), slice(top, top + side), slice(left, left + side))
        image = whole.image[part].clone() if whole.image is not None else None
        return View(whole.name, whole.radiance[part].clone(), image)

    def view(self, index: int, number: int, side: int) -> View:
        """The whole image, whatever ``side`` is."""
        radiance = _read_file(self.hdr[index], self.repair)
        name = self.hdr[index].stem
        if self.photos is None:
            return View(name, radiance)
        photo = torch.from_numpy(read_photo(self.photos[index]).copy()).permute(2, 0, 1)
        if photo.shape != radiance.shape:
            raise ZooError(
                f"{self.photos[index]} is {photo.shape[1]}x{photo.shape[2]} (height x width), "
                f"{self.hdr[index]} {radiance.shape[1]}x{radiance.shape[2]}: expected one size."
            )
        return View(name, to_white(radiance, photo, str(self.hdr[index])), photo)


def to_white(radiance: Tensor, photo: Tensor, where: str) -> Tensor:
    """Scales radiance to the photograph's white: by the median ratio where that is well exposed.

    Args:
        radiance: In any unit. Shape: (3, H, W).
        photo: Display-encoded. Shape: (3, H, W).
        where: What an error calls the pair.
    """
    use = ((photo > 0.05) & (photo < 0.95)).all(dim=0) & (radiance > 0).all(dim=0)
    if not bool(use.any()):
        raise ZooError(f"{where}: its photograph has no well-exposed pixel to scale it by.")
    ratio = decode(photo)[:, use] / radiance[:, use]
    return radiance * ratio.median()


def perspective(panorama: Tensor, yaw: float, pitch: float, fov: float, side: int) -> Tensor:
    """A square view of an equirectangular panorama, bilinearly sampled, joined at 360 degrees.

    Args:
        panorama: Shape: (3, H, 2 H).
        yaw: Degrees to the right of the panorama's middle.
        pitch: Degrees up.
        fov: Degrees across.
        side: Pixels.

    Returns:
        Shape: (3, side, side).
    """
    yaw, pitch, fov = (float(np.deg2rad(angle)) for angle in (yaw, pitch, fov))
    plane = (torch.arange(side) + 0.5) / side * 2 - 1
    y, x = torch.meshgrid(plane * np.tan(fov / 2), plane * np.tan(fov / 2), indexing="ij")
    # Turned up by the pitch, then to the right by the yaw; x right, y down, z ahead.
    up, ahead = y * np.cos(pitch) - np.sin(pitch), np.cos(pitch) + y * np.sin(pitch)
    longitude = torch.atan2(x, ahead) + yaw
    latitude = torch.atan2(up, torch.sqrt(x.square() + ahead.square()))
    height, width = panorama.shape[1:]
    column = ((longitude / (2 * np.pi) + 0.5) % 1) * width - 0.5 + 1
    row = (latitude / np.pi + 0.5) * height - 0.5
    joined = torch.cat([panorama[..., -1:], panorama, panorama[..., :1]], dim=-1)
    grid = torch.stack([column / (width + 1) * 2 - 1, row / (height - 1) * 2 - 1], dim=-1)
    return F.grid_sample(
        joined[None], grid[None].float(), padding_mode="border", align_corners=True
    )[0]


def check_crop(side: int, image: Tensor, where: str) -> None:
    """Raises a ZooError if a square of ``side`` pixels does not fit."""
    if side > min(image.shape[1:]):
        raise ZooError(
            f"A crop of {side} pixels does not fit into {where}, "
            f"which is {image.shape[1]}x{image.shape[2]}."
        )


def _read_file(path: Path, repair: bool) -> Tensor:
    return torch.from_numpy(read_radiance(path, repair)).permute(2, 0, 1).contiguous()


@cache
def _embedded(name: str) -> Tensor:
    band = read_radiance(SAMPLES / f"{name}.exr")[ROWS[0] : ROWS[1]]
    return torch.from_numpy(np.ascontiguousarray(band.transpose(2, 0, 1)))
