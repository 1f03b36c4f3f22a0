"""Reads pictures of the small fixed sizes that image classifiers take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from zoo.errors import ZooError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


def read_small_image(
    source: str | Path | Image.Image | NDArray[np.uint8], channels: int, size: int
) -> Tensor:
    """One picture in a network's size.

    Args:
        source: Path, PIL image, or 8-bit array (H, W) or (H, W, 3).
        channels: 1 for grey, 3 for colour.
        size: Pixels; another size is resampled.

    Returns:
        In 0..1. Shape: (channels, size, size).

    Raises:
        ZooError: If it is no such picture.
    """
    if channels not in (1, 3):
        raise ZooError(f"Pictures have 1 or 3 channels, not {channels}.")
    try:
        if isinstance(source, np.ndarray):
            image = Image.fromarray(source)
        elif isinstance(source, Image.Image):
            image = source
        else:
            with Image.open(source) as opened:
                image = opened.copy()
    except (OSError, UnidentifiedImageError, TypeError, ValueError) as error:
        what = source if isinstance(source, str | Path) else "The array"
        raise ZooError(f"{what} is no picture that can be read: {error}") from error
    image = image.convert("L" if channels == 1 else "RGB")
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BOX)
    pixels = torch.from_numpy(np.array(image)).float() / 255
    return pixels[None] if channels == 1 else pixels.permute(2, 0, 1).contiguous()
