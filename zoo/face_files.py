"""Colour, depth and infrared images of faces, from files or memory, checked at the door.

Data modules and methods read through the same functions, so both see the same values and refuse
the same input in the same words. Depth and infrared are scaled to 0..1 image by image, as in the
releases of the public benchmarks: neither millimetres nor a camera's gain survive it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.depth_files import Source, describe, read_pixels
from zoo.errors import ZooError, did_you_mean

#: The sensors, and the channels of each.
CHANNELS = {"rgb": 3, "depth": 1, "ir": 1}
MODALITIES = tuple(CHANNELS)
#: What a capture shows, by its number; "attack" is for data that do not say which.
KINDS = ("live", "print", "replay", "mask", "cut", "attack")
#: Faults to test novelty detection on, in their order within a sample; never trained on.
CORRUPTIONS = ("inverted_depth", "inverted_ir", "swapped", "frozen", "gain")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".npy")


def minmax(images: Tensor) -> Tensor:
    """Scales each image to 0..1; an image of one value becomes 0. Shape: (B, C, H, W)."""
    low = images.amin(dim=(1, 2, 3), keepdim=True)
    extent = images.amax(dim=(1, 2, 3), keepdim=True) - low
    return torch.where(extent > 0, (images - low) / extent.clamp_min(1e-12), 0.0)


def read_face(source: Source, modality: str, size: int) -> Tensor:
    """Reads one sensor's image of a face crop, of any size and of 8 or 16 bits.

    Args:
        source: A path, a PIL image or an array. Integers are divided by the largest value of their
            type; colour floats must lie in 0..1, those of depth and infrared in any range.
        modality: "rgb", "depth" or "ir".
        size: The image is resized to this side, in pixels.

    Returns:
        Values in 0..1. Shape: (3, size, size), or (1, size, size) of depth and infrared.

    Raises:
        ZooError: If the source is unreadable, has the wrong number of channels, a NaN, or colour
            out of range.
    """
    if modality not in CHANNELS:
        hint = did_you_mean(modality, CHANNELS)
        raise ZooError(f"modality {modality!r} is none of {', '.join(CHANNELS)}.{hint}")
    where = describe(source, f"The {modality} image")
    return to_face(read_pixels(source), modality, size, where)


def to_face(pixels: np.ndarray, modality: str, size: int, where: str) -> Tensor:
    """What :func:`read_face` does once a file is read; ``where`` is its name in messages."""
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or pixels.size == 0:
        raise ZooError(
            f"{where} has the shape {pixels.shape}: expected (height, width) or (height, width, 3)."
        )
    if pixels.dtype.kind in "iu":
        top = float(np.iinfo(pixels.dtype).max)
        values = torch.from_numpy(pixels.astype(np.float32) / np.float32(top))
    elif pixels.dtype.kind == "f":
        values = torch.from_numpy(pixels.astype(np.float32))
    else:
        raise ZooError(f"{where} holds {pixels.dtype} values: expected integers or floats.")
    if not bool(values.isfinite().all()):
        raise ZooError(_nan(where, modality))
    image = values[:, :, :3].permute(2, 0, 1)[None]  # (1, C, H, W)
    if modality == "rgb":
        if image.min() < 0 or image.max() > 1:
            raise ZooError(
                f"{where} has values from {image.min():g} to {image.max():g}: "
                "expected colour in 0..1 (or integers)."
            )
        image = image.expand(-1, 3, -1, -1)
    elif image.shape[1] == 3:  # the releases store depth and infrared as grey in three channels
        image = image.mean(dim=1, keepdim=True)
    if image.shape[-2:] != (size, size):
        image = F.interpolate(image, size=(size, size), mode="bilinear", antialias=True)
    return (image.clamp(0, 1) if modality == "rgb" else minmax(image))[0].contiguous()


def check_faces(images: Mapping[str, Tensor], mask: Tensor) -> None:
    """Raises a ZooError unless a batch of faces is as the methods take it.

    Args:
        images: By modality, float in 0..1. Shapes: (B, 3, H, W), (B, 1, H, W), (B, 1, H, W).
        mask: Which sensors are there, bool, at least one a sample. Shape: (B, 3).
    """
    size = tuple(images["rgb"].shape[-2:])
    count = len(images["rgb"])
    for name, image in images.items():
        wanted = (count, CHANNELS[name], *size)
        if image.is_complex() or not image.is_floating_point():
            raise ZooError(
                f"{name} is a tensor of {str(image.dtype).removeprefix('torch.')}: "
                "expected floating-point values in 0..1 (divide integers by their largest value)."
            )
        if tuple(image.shape) != wanted:
            raise ZooError(
                f"{name} has the shape {tuple(image.shape)}: expected {wanted}, "
                "as all modalities have one size."
            )
    if tuple(mask.shape) != (count, len(CHANNELS)) or mask.dtype != torch.bool:
        kind = str(mask.dtype).removeprefix("torch.")
        raise ZooError(
            f"mask has the shape {tuple(mask.shape)} and the type {kind}: "
            f"expected ({count}, {len(CHANNELS)}) of bool, in the order {', '.join(CHANNELS)}."
        )
    empty = (~mask.any(dim=1)).nonzero().flatten()
    if len(empty):
        raise ZooError(
            f"Sample {int(empty[0])} of the batch has no modality: "
            "at least one of rgb, depth and ir must be there."
        )
    for number, (name, image) in enumerate(images.items()):
        there = image[mask[:, number]]
        if not bool(there.isfinite().all()):
            raise ZooError(_nan(name, name))
        if there.numel() and (there.min() < 0 or there.max() > 1):
            raise ZooError(
                f"{name} has values from {there.min():g} to {there.max():g}: expected 0..1."
            )


def _nan(where: str, modality: str) -> str:
    if modality == "depth":
        return f"{where} has NaN or infinite depths: set holes to 0."
    return f"{where} has NaN or infinite values."
