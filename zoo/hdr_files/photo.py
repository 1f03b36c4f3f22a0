"""A photograph as cameras and phones give it: display-encoded, turned as it was held, in sRGB."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps

from zoo.errors import ZooError

Array: TypeAlias = NDArray[np.float32]
Source: TypeAlias = str | os.PathLike[str] | NDArray[Any] | Image.Image

PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp")
HDR_FILES = (".exr", ".hdr", ".pic", ".rgbe", ".pfm")


def read_photo(source: Source, where: str = "The photograph") -> Array:
    """Reads a photograph.

    Orientation of the EXIF data is honoured; colours of another profile (Display P3, Adobe RGB)
    are brought to sRGB; alpha is left out; grey is repeated to three channels; 16 bits are taken
    as they are.

    Args:
        source: A path, an array or a PIL image. Integers are divided by the largest value of their
            type; floats must lie in 0..1.
        where: What an error calls a source in memory; a file is called by its path.

    Returns:
        Display-encoded RGB in 0..1. Shape: (H, W, 3).

    Raises:
        ZooError: If it is unreadable, HDR already, CMYK without a profile, or no image.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        where = str(path)
        if path.suffix.lower() in HDR_FILES:
            raise ZooError(f"{path} is an HDR image already: expected a photograph in 0..1.")
        if not path.is_file():
            raise ZooError(f"{path} does not exist or is not a file.")
        try:
            with Image.open(path) as image:
                pixels = _pixels(image, where)
        except ZooError:
            raise
        except (OSError, EOFError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise ZooError(f"{path} cannot be read, it may be truncated: {error}.") from error
    else:
        pixels = _pixels(source, where) if isinstance(source, Image.Image) else np.asarray(source)
    return _as_display(pixels, where)


def _pixels(image: Image.Image, where: str) -> NDArray[Any]:
    profile = image.info.get("icc_profile")
    image = ImageOps.exif_transpose(image)
    if image.mode in ("RGBA", "RGBX", "P", "PA", "RGBa", "1"):
        image = image.convert("RGB")
    elif image.mode in ("LA", "La"):
        image = image.convert("L")
    elif image.mode in ("YCbCr", "HSV", "LAB"):
        image = image.convert("RGB")
    if profile and image.mode in ("RGB", "CMYK"):
        image = _to_srgb(image, profile, where)
    if image.mode == "CMYK":
        raise ZooError(f"{where} is CMYK without a colour profile: save it as RGB.")
    if image.mode == "I":  # a 16-bit grey file, by older names
        return np.asarray(image).clip(0, 65535).astype(np.uint16)
    if image.mode == "F" or image.mode.startswith("I;16") or image.mode in ("L", "RGB"):
        return np.asarray(image)
    raise ZooError(f"{where} is in the mode {image.mode}: expected RGB or grey.")


def _to_srgb(image: Image.Image, profile: bytes, where: str) -> Image.Image:
    try:
        found = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        srgb = ImageCms.createProfile("sRGB")
        turned = ImageCms.profileToProfile(image, found, srgb, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError) as error:
        if image.mode == "RGB":  # a broken profile is no reason to refuse a picture
            return image
        raise ZooError(f"{where} has a colour profile that cannot be used: {error}.") from error
    assert turned is not None  # it is, unless asked to work in place
    return turned


def _as_display(pixels: NDArray[Any], where: str) -> Array:
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or pixels.size == 0:
        raise ZooError(f"{where} has the shape {pixels.shape}: expected (height, width, 3).")
    pixels = pixels[:, :, :3]
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8) * 255
    if pixels.dtype.kind in "iu":
        share: Array = pixels.astype(np.float32) / np.float32(np.iinfo(pixels.dtype).max)
        return share
    if pixels.dtype.kind != "f":
        raise ZooError(f"{where} holds {pixels.dtype} values: expected integers or floats.")
    image: Array = pixels.astype(np.float32)
    if not np.isfinite(image).all():
        raise ZooError(f"{where} has NaN or infinite values: expected a photograph in 0..1.")
    if image.min() < 0 or image.max() > 1:
        raise ZooError(
            f"{where} has values from {image.min():g} to {image.max():g}, so it is HDR already or "
            "not scaled: expected a photograph in 0..1."
        )
    return image
