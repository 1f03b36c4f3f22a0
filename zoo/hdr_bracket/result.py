"""What a user gets for one photograph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from zoo.atomic import atomic_path
from zoo.display import encode, tone_map
from zoo.errors import ZooError
from zoo.hdr_files import HDR_SUFFIXES, write_radiance


@dataclass(frozen=True)
class HDRResult:
    """A linear image with the bracket that it was fused from.

    Attributes:
        hdr: Linear Rec.709, float32, 1 = the photograph's white; or, of the task "all_in_focus",
            the sharp picture in linear light. Shape: (H, W, 3).
        frames: The bracket, display-encoded, 0..1. Shape: (N, H, W, 3).
        weights: How much of each pixel came from which frame; sums to 1. Shape: (N, H, W).
        clipped: Where the photograph had lost light, in any channel. Shape: (H, W).
        labels: Of the frames: "ev-4", "ev+0"; or "focus0".
    """

    hdr: NDArray[np.float32]
    frames: NDArray[np.float32]
    weights: NDArray[np.float32]
    clipped: NDArray[np.bool_]
    labels: tuple[str, ...]

    def save(self, path: str | Path) -> Path:
        """Writes .exr (half floats), .hdr (Radiance), .npy, or a picture: .png, .jpg.

        A picture of an HDR image is tone-mapped; one of the task "all_in_focus" is not.

        Raises:
            ZooError: If the suffix is none of these.
        """
        path = Path(path)
        if path.suffix.lower() in HDR_SUFFIXES:
            return write_radiance(path, self.hdr)
        if path.suffix.lower() not in (".png", ".jpg", ".jpeg"):
            raise ZooError(f"{path}: expected one of {', '.join(HDR_SUFFIXES)}, .png, .jpg.")
        return _write_picture(path, self.preview())

    def preview(self) -> NDArray[np.uint8]:
        """The image for an ordinary screen. Shape: (H, W, 3)."""
        image = torch.from_numpy(self.hdr).permute(2, 0, 1)
        shown = encode(image) if self.labels[0].startswith("focus") else tone_map(image)
        return _bytes(shown.permute(1, 2, 0).numpy())

    def save_bracket(self, folder: str | Path, stem: str = "") -> list[Path]:
        """Writes each frame and each weight map as PNG.

        Args:
            folder: Created if need be.
            stem: Begins the file names, which end in the frame's label.

        Returns:
            The files.
        """
        folder, prefix = Path(folder), f"{stem}_" if stem else ""
        files = []
        for label, frame, weight in zip(self.labels, self.frames, self.weights, strict=True):
            files.append(_write_picture(folder / f"{prefix}{label}.png", _bytes(frame)))
            files.append(_write_picture(folder / f"{prefix}weight_{label}.png", _bytes(weight)))
        return files

    def scale_to_nits(self, peak: float = 100.0) -> NDArray[np.float32]:
        """Absolute luminance, with the photograph's white at ``peak`` nits. Shape: (H, W, 3)."""
        if not peak > 0:
            raise ZooError(f"peak={peak} nits must be above 0.")
        scaled: NDArray[np.float32] = self.hdr * np.float32(peak)
        return scaled


def _bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    rounded: NDArray[np.uint8] = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
    return rounded


def _write_picture(path: Path, pixels: NDArray[np.uint8]) -> Path:
    with atomic_path(path) as temporary:
        Image.fromarray(pixels).save(temporary)
    return path
