"""Radiance from a file of any HDR format, with one door for all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn
from numpy.typing import NDArray

from zoo.atomic import atomic_path
from zoo.errors import ZooError
from zoo.hdr_files.exr import read_exr, write_exr
from zoo.hdr_files.rgbe import read_rgbe, write_rgbe

Array: TypeAlias = NDArray[np.float32]

HDR_SUFFIXES = (".exr", ".hdr", ".pic", ".rgbe", ".npy")
MAX_NEGATIVE = 0.1  # a larger part of negative values is no rounding of a lossy compression
FEW_STOPS = 2.0  # a range up to this is that of no HDR image


def read_radiance(source: str | os.PathLike[str], repair: bool = False) -> Array:
    """Reads an HDR image: OpenEXR, Radiance, or .npy.

    Args:
        source: Path of the file.
        repair: Put 0 for NaN and the largest finite value for infinity, instead of refusing them.

    Returns:
        Linear Rec.709, finite, negative values put to 0. Shape: (H, W, 3).

    Raises:
        ZooError: If the file is unreadable or of 8 bits, or fails :func:`check_radiance`.
    """
    path = Path(source).expanduser()
    suffix = path.suffix.lower()
    if suffix not in HDR_SUFFIXES:
        raise ZooError(
            f"{path} is no HDR image: expected linear radiance in one of {', '.join(HDR_SUFFIXES)} "
            "(8-bit files have no light above their white)."
        )
    if not path.is_file():
        raise ZooError(f"{path} does not exist or is not a file.")
    if suffix == ".exr":
        image = read_exr(path)
    elif suffix == ".npy":
        image = _read_array(path)
    else:
        image = read_rgbe(path)
    bad = int((~np.isfinite(image)).sum())
    if bad and not repair:
        raise ZooError(
            f"{path} has {bad} values that are NaN or infinite: expected finite radiance "
            "(repair=True puts 0 and the largest finite value in their place)."
        )
    if bad:
        finite = image[np.isfinite(image)]
        top = float(finite.max()) if finite.size else 0.0
        image = np.nan_to_num(image, nan=0.0, posinf=top, neginf=0.0)
    check_radiance(image, str(path))
    return np.maximum(image, 0)


def check_radiance(image: NDArray[Any], where: str) -> None:
    """Raises a ZooError unless the image is radiance; warns if its range is that of a photograph.

    Args:
        image: Linear RGB. Shape: (H, W, 3).
        where: What the message calls it.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise ZooError(f"{where} has the shape {image.shape}: expected (height, width, 3).")
    negative = float((image < 0).mean())
    if negative > MAX_NEGATIVE:
        raise ZooError(f"{where} has {negative:.0%} negative values: expected radiance.")
    light = image.max(axis=2)
    lit = light[light > 0]
    if lit.size == 0:
        raise ZooError(f"{where} is black: expected some radiance above 0.")
    low, high = np.percentile(lit, (0.1, 99.9))
    stops = float(np.log2(high / low))
    if stops <= FEW_STOPS:
        rank_zero_warn(f"{where} spans {stops:.1f} stops: an HDR image spans more.")


def write_radiance(path: str | Path, radiance: Array) -> Path:
    """Writes radiance in the format of the suffix: .exr, .hdr or .npy.

    Args:
        path: Of the file.
        radiance: Linear Rec.709. Shape: (H, W, 3).

    Raises:
        ZooError: If the suffix is none of them.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".exr":
        return write_exr(path, radiance)
    if suffix in (".hdr", ".pic", ".rgbe"):
        return write_rgbe(path, radiance)
    if suffix != ".npy":
        raise ZooError(f"{path}: HDR images are written as .exr, .hdr or .npy, not '{suffix}'.")
    with atomic_path(path) as temporary:
        np.save(temporary, radiance.astype(np.float32))
    return path


def _read_array(path: Path) -> Array:
    try:
        image = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise ZooError(f"{path} cannot be read, it may be truncated: {error}.") from error
    if image.dtype.kind != "f":
        raise ZooError(f"{path} holds {image.dtype} values: expected floats, linear radiance.")
    floats: Array = image.astype(np.float32)
    return floats
