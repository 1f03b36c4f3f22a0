"""Depth maps and guide images from files or memory, in one unit and checked at the door.

Depth is float32 in metres, shape (h, w), and 0 where it is unknown. A guide is float32 RGB in 0..1,
shape (H, W, 3). Data modules and methods read through the same functions, so both refuse the same
input in the same words.
"""

import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps

from zoo.errors import ZooError, did_you_mean

Array: TypeAlias = NDArray[np.float32]
Source: TypeAlias = str | os.PathLike[str] | NDArray[Any] | Image.Image

UNITS = {"mm": 1e-3, "m": 1.0}  # metres per step of an integer depth file
MAX_MEDIAN = 100.0  # metres; a map beyond it is taken for millimetres
SUFFIXES = (".png", ".jpg", ".jpeg", ".npy", ".tif", ".tiff")

_ONE_CHANNEL = (
    "L",
    "I",
    "F",
    "I;16",
    "I;16L",
    "I;16B",
    "I;16N",
)  # PIL modes that keep their values


def read_depth(source: Source, unit: str = "mm", where: str = "The depth map") -> Array:
    """Reads a depth map.

    Args:
        source: A path (16-bit PNG, TIFF, .npy), an array or a PIL image with one channel.
        unit: "mm" or "m", the unit of integer values. Floating-point values are always metres.
        where: What an error calls a source in memory; a file is called by its path.

    Returns:
        Depth in metres, 0 where the source has 0, NaN or infinity. Shape: (h, w).

    Raises:
        ZooError: If the source is unreadable, has 8 bits or several channels, or fails
            `check_depth`.
    """
    check_unit(unit)
    where = describe(source, where)
    pixels = read_pixels(source)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim != 2:
        raise ZooError(
            f"{where} is not a depth map: expected one channel (height, width), "
            f"found the shape {pixels.shape}."
        )
    if pixels.dtype.itemsize == 1:
        raise ZooError(
            f"{where} has 8-bit values, too coarse for a metric depth: "
            "expected 16-bit integers or floating-point metres."
        )
    depth: Array
    if pixels.dtype.kind in "iu":
        depth = pixels.astype(np.float32) * np.float32(UNITS[unit])
    elif pixels.dtype.kind == "f":
        depth = np.nan_to_num(pixels.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    else:
        raise ZooError(f"{where} holds {pixels.dtype} values: expected integers or floats.")
    check_depth(depth, where)
    return depth


def read_image(source: Source, where: str = "The guide") -> Array:
    """Reads a guide image.

    Args:
        source: A path, an array or a PIL image. Integers are divided by the largest value of their
            type; floats must lie in 0..1. One channel is repeated to three, alpha is dropped.
        where: What an error calls a source in memory; a file is called by its path.

    Returns:
        RGB in 0..1. Shape: (H, W, 3).

    Raises:
        ZooError: If the source is unreadable or fails `check_guide`.
    """
    where = describe(source, where)
    pixels = read_pixels(source)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        pixels = pixels[:, :, :3]
    guide: Array
    if pixels.dtype.kind in "iu":
        guide = pixels.astype(np.float32) / np.float32(np.iinfo(pixels.dtype).max)
    elif pixels.dtype.kind == "f":
        guide = pixels.astype(np.float32)
    else:
        raise ZooError(f"{where} holds {pixels.dtype} values: expected integers or floats.")
    check_guide(guide, where)
    return guide


def read_pixels(source: Source) -> NDArray[Any]:
    """Reads the stored values as they are: (h, w) for one channel, (h, w, 3) for colour.

    Raises:
        ZooError: If the file is absent, truncated, or of no known format.
    """
    if isinstance(source, Image.Image):
        return _pil_pixels(source)
    if not isinstance(source, str | os.PathLike):
        return np.asarray(source)
    path = Path(source).expanduser()
    if not path.is_file():
        raise ZooError(f"{path} does not exist or is not a file.")
    try:
        if path.suffix.lower() == ".npy":
            array: NDArray[Any] = np.load(path, allow_pickle=False)
            return array
        with Image.open(path) as image:
            return _pil_pixels(image)
    except (OSError, EOFError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ZooError(f"{path} cannot be read, it may be truncated: {error}.") from error


def channels_and_size(path: Path) -> tuple[int, tuple[int, int]]:
    """Returns the number of channels and (height, width) of a file, from its header alone.

    Raises:
        ZooError: If the file is unreadable or not a picture.
    """
    try:
        if path.suffix.lower() == ".npy":
            shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
        else:
            with Image.open(path) as image:
                one = image.mode in (*_ONE_CHANNEL, "1", "LA")
                turned = image.getexif().get(ExifTags.Base.Orientation, 1) > 4
                size = image.size if turned else image.size[::-1]
                shape = (*size, 1 if one else 3)
    except (OSError, EOFError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ZooError(f"{path} cannot be read, it may be truncated: {error}.") from error
    if len(shape) not in (2, 3):
        raise ZooError(
            f"{path} has the shape {shape}: expected (height, width) or (height, width, 3)."
        )
    return (shape[2] if len(shape) == 3 else 1), (shape[0], shape[1])


def check_unit(unit: str) -> None:
    """Raises a ZooError unless ``unit`` is one of `UNITS`."""
    if unit not in UNITS:
        raise ZooError(
            f"depth_unit={unit!r} is unknown: expected 'mm' or 'm'.{did_you_mean(unit, UNITS)}"
        )


def check_depth(depth: Array, where: str) -> None:
    """Raises a ZooError unless ``depth`` is a map in metres with at least one known pixel.

    Args:
        depth: Metres, 0 or NaN where unknown. Shape: (h, w).
        where: What the message calls it; a file name if there is one.
    """
    if depth.ndim != 2:
        raise ZooError(f"{where} has the shape {depth.shape}: expected (height, width).")
    known = depth[np.isfinite(depth) & (depth != 0)]
    if known.size == 0:
        raise ZooError(
            f"{where} has no known pixel: expected some depth that is neither 0 nor NaN."
        )
    if known.min() < 0:
        raise ZooError(
            f"{where} has a negative depth ({known.min():g}): "
            "expected distances > 0, and 0 where the depth is unknown."
        )
    median = float(np.median(known))
    if median > MAX_MEDIAN:
        raise ZooError(
            f"{where} has a median depth of {median:.0f} m, so it is in millimetres: "
            "expected metres (depth_unit='mm' for integers, a division by 1000 for floats)."
        )


def check_guide(guide: Array, where: str) -> None:
    """Raises a ZooError unless ``guide`` is RGB in 0..1 without NaN. Shape: (H, W, 3)."""
    if guide.ndim != 3 or guide.shape[2] != 3 or guide.size == 0:
        raise ZooError(f"{where} has the shape {guide.shape}: expected (height, width, 3), RGB.")
    if not np.isfinite(guide).all():
        raise ZooError(f"{where} has NaN or infinite values: expected RGB in 0..1.")
    if guide.min() < 0 or guide.max() > 1:
        raise ZooError(
            f"{where} has values from {guide.min():g} to {guide.max():g}: "
            "expected RGB in 0..1 (or 8-bit integers)."
        )


def check_sizes(depth: tuple[int, ...], guide: tuple[int, ...], scale: int, where: str) -> None:
    """Raises a ZooError unless the guide is exactly ``scale`` times the depth map.

    Args:
        depth: Height and width of the low-resolution depth map.
        guide: Height and width of the guide.
        scale: The factor between them; 1 when the sensor's map has the size of the guide.
        where: What the message calls the pair; a file name if there is one.
    """
    wanted = (scale * depth[0], scale * depth[1])
    if tuple(guide) != wanted:
        raise ZooError(
            f"{where}: a depth map of {depth[0]}x{depth[1]} (height x width) and scale={scale} "
            f"need a guide of {wanted[0]}x{wanted[1]}, found {guide[0]}x{guide[1]}."
        )


def check_pair(depth: Array, guide: Array, scale: int, where: str) -> None:
    """All of `check_depth`, `check_guide` and `check_sizes` for one low-resolution pair."""
    check_depth(depth, where)
    check_guide(guide, where)
    check_sizes(depth.shape, guide.shape[:2], scale, where)


def describe(source: Source, otherwise: str) -> str:
    """Returns the path of ``source`` for a message, or ``otherwise`` if it lives in memory."""
    return str(source) if isinstance(source, str | os.PathLike) else otherwise


def _pil_pixels(image: Image.Image) -> NDArray[Any]:
    image = ImageOps.exif_transpose(image)  # phones store how the camera was held
    if image.mode in ("1", "LA"):
        image = image.convert("L")
    elif image.mode not in _ONE_CHANNEL:
        image = image.convert("RGB")
    return np.array(image)
