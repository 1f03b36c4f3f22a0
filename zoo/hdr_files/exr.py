"""OpenEXR: linear colours in any primaries, brought to Rec.709, and back to half floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zoo.atomic import atomic_path
from zoo.errors import ZooError, missing_extra

Array: TypeAlias = NDArray[np.float32]

# x and y of red, green, blue and white: ITU-R BT.709, which a file without the attribute has.
REC709 = (0.64, 0.33, 0.30, 0.60, 0.15, 0.06, 0.3127, 0.3290)
HALF_MAX = 65504.0
BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)


def read_exr(path: str | Path) -> Array:
    """Reads the first part of a file as linear Rec.709; nothing but the primaries is changed.

    Alpha is left out, without a division by it: photographs cover all of their pixels. Values may
    be negative (lossy compression, colours outside Rec.709) or not finite: see
    :func:`~zoo.hdr_files.radiance.read_radiance`.

    Returns:
        Shape: (H, W, 3), that of the data window.

    Raises:
        ZooError: If the file cannot be read, lacks R, G and B (and Y, which stands for all three),
            or names primaries that span no colours.
    """
    path = Path(path)
    openexr = _openexr()
    try:
        # As a context, or the first file's memory would wait for the second's.
        with openexr.File(str(path), separate_channels=True) as file:
            part = file.parts[0]
            pixels = {
                name: np.asarray(c.pixels) for name, c in part.channels.items() if name in "RGBY"
            }
            names, header = sorted(part.channels), dict(part.header)
    except Exception as error:  # the library's own kinds, RuntimeError and TypeError among them
        reason = " ".join(str(error).split())
        raise ZooError(
            f"{path} cannot be read as OpenEXR, it may be truncated: {reason}"
        ) from error
    if "Y" in pixels and not {"R", "G", "B"} & set(pixels):
        pixels = dict.fromkeys("RGB", pixels["Y"])
    missing = [name for name in "RGB" if name not in pixels]
    if missing:
        raise ZooError(
            f"{path} has no channel {', '.join(missing)}, but {', '.join(names) or 'none'}: "
            "expected R, G and B, or Y."
        )
    if len({pixels[name].shape for name in "RGB"}) > 1:
        raise ZooError(f"{path} has channels of different sizes: expected R, G and B alike.")
    image = np.stack([pixels[name].astype(np.float32) for name in "RGB"], axis=-1)
    chromaticities = tuple(float(v) for v in header.get("chromaticities") or REC709)
    if np.allclose(chromaticities, REC709, atol=1e-3):
        return image
    matrix = to_rec709(chromaticities, str(path)).astype(np.float32)
    converted: Array = image @ matrix.T
    return converted


def write_exr(path: str | Path, radiance: Array) -> Path:
    """Writes linear Rec.709 as half floats, ZIP-compressed; what exceeds 65504 becomes that.

    Args:
        path: Of the file.
        radiance: Shape: (H, W, 3).
    """
    openexr = _openexr()
    header: Mapping[str, Any] = {
        "compression": openexr.ZIP_COMPRESSION,
        "type": openexr.scanlineimage,
        "chromaticities": REC709,
    }
    half = np.clip(radiance, -HALF_MAX, HALF_MAX).astype(np.float16)
    with atomic_path(path) as temporary:
        openexr.File(dict(header), {"RGB": np.ascontiguousarray(half)}).write(str(temporary))
    return Path(path)


def to_rec709(chromaticities: Sequence[float], where: str) -> NDArray[np.float64]:
    """The matrix from linear RGB of other primaries to linear Rec.709.

    White goes to white, by Bradford's adaptation.

    Args:
        chromaticities: x and y of red, green, blue and white.
        where: What an error calls the image.

    Raises:
        ZooError: If the four points span no colour space.
    """
    ours, white = _to_xyz(chromaticities, where)
    theirs, target = _to_xyz(REC709, where)
    gains = (BRADFORD @ target) / (BRADFORD @ white)
    adapt = np.linalg.inv(BRADFORD) @ np.diag(gains) @ BRADFORD
    matrix: NDArray[np.float64] = np.linalg.inv(theirs) @ adapt @ ours
    return matrix


def _to_xyz(
    chromaticities: Sequence[float], where: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The matrix to CIE XYZ, and the white point there, of luminance 1."""
    xy = np.asarray(chromaticities, dtype=np.float64)
    usable = xy.shape == (8,) and np.isfinite(xy).all() and (np.abs(xy[1::2]) > 1e-9).all()
    if usable:
        x, y = xy[::2], xy[1::2]
        columns = np.stack([x / y, np.ones(4), (1 - x - y) / y])  # (3, 4): R, G, B, white
        primaries, white = columns[:, :3], columns[:, 3]
        if abs(np.linalg.det(primaries)) > 1e-6:
            return primaries * np.linalg.solve(primaries, white), white
    raise ZooError(
        f"{where} names the primaries {tuple(np.round(xy, 4).tolist())}, which span no colours: "
        "expected x and y of red, green, blue and white."
    )


def _openexr() -> Any:
    try:
        import OpenEXR
    except ImportError as error:
        raise missing_extra("OpenEXR", "hdr") from error
    return OpenEXR
