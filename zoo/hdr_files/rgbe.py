"""Radiance's .hdr: a shared exponent for three 8-bit mantissas, run-length coded by scanlines."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from zoo.atomic import atomic_path
from zoo.errors import ZooError

Array: TypeAlias = NDArray[np.float32]
Bytes: TypeAlias = NDArray[np.uint8]

MIN_RUN_WIDTH, MAX_RUN_WIDTH = 8, 0x7FFF  # scanlines of other widths are not coded by component
SHORTEST_RUN = 4  # a shorter one costs more than its bytes


def read_rgbe(path: str | Path) -> Array:
    """Reads a file, flat or in the old or the new run-length coding, in any orientation.

    ``EXPOSURE`` and ``COLORCORR`` lines are divided out, so that radiance is the scene's.

    Returns:
        Linear RGB. Shape: (H, W, 3).

    Raises:
        ZooError: If it is no such file, is in XYZE, or ends too soon.
    """
    path = Path(path)
    data = path.read_bytes() if path.is_file() else b""
    if not data.startswith(b"#?"):
        what = "does not begin with '#?'" if data else "does not exist or is empty"
        raise ZooError(f"{path} is no Radiance file: it {what}.")
    header, _, rest = data.partition(b"\n\n")
    resolution, _, body = rest.partition(b"\n")
    scale = np.ones(3)
    for line in header.splitlines():
        key, _, value = line.decode("latin-1").partition("=")
        try:
            if key.strip() == "FORMAT" and value.strip() != "32-bit_rle_rgbe":
                raise ZooError(f"{path} is in {value.strip()}: expected 32-bit_rle_rgbe.")
            if key.strip() == "EXPOSURE":
                scale *= float(value)
            elif key.strip() == "COLORCORR":
                scale *= [float(v) for v in value.split()]
        except ValueError as error:
            if isinstance(error, ZooError):
                raise
            raise ZooError(f"{path} has the line '{key}={value}': expected numbers.") from error
    axes = resolution.decode("latin-1").split()
    if len(axes) != 4 or {axes[0][1:], axes[2][1:]} != {"X", "Y"}:
        raise ZooError(f"{path} has no resolution line such as '-Y 480 +X 640'.")
    try:
        lines, width = int(axes[1]), int(axes[3])
    except ValueError:
        raise ZooError(f"{path} has the resolution '{' '.join(axes)}': expected numbers.") from None
    if lines < 1 or width < 1:
        raise ZooError(f"{path} is {width}x{lines}: expected at least one pixel.")
    pixels = _decode(np.frombuffer(body, dtype=np.uint8), lines, width, path)
    radiance: Array = np.divide(from_rgbe(pixels), scale.astype(np.float32))
    return _turn(radiance, axes[0], axes[2])


def write_rgbe(path: str | Path, radiance: Array) -> Path:
    """Writes a file in the new run-length coding, or flat where widths forbid it.

    Args:
        path: Of the file.
        radiance: Linear RGB, not negative. Shape: (H, W, 3).
    """
    pixels = to_rgbe(radiance)
    height, width = pixels.shape[:2]
    head = f"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y {height} +X {width}\n".encode()
    if MIN_RUN_WIDTH <= width <= MAX_RUN_WIDTH:
        mark = bytes([2, 2, width >> 8, width & 255])
        coded = (mark + b"".join(_encode_line(part) for part in line.T) for line in pixels)
        body = b"".join(coded)
    else:
        body = pixels.tobytes()
    with atomic_path(path) as temporary:
        temporary.write_bytes(head + body)
    return Path(path)


def to_rgbe(radiance: Array) -> Bytes:
    """Mantissas and exponent of each pixel. Shape: (..., 3) to (..., 4)."""
    safe = np.clip(np.nan_to_num(radiance, posinf=1e38), 0, 1e38).astype(np.float32)
    top = safe.max(axis=-1)
    _, exponent = np.frexp(top)
    # A mantissa that would round up to 256 takes the next exponent.
    exponent += np.rint(top * np.exp2(8.0 - exponent)) > 255
    mantissas = np.rint(safe * np.exp2(8.0 - exponent)[..., None])
    coded = np.concatenate([mantissas, (exponent + 128.0)[..., None]], axis=-1)
    coded[(top < 1e-38) | (exponent < -127)] = 0
    return coded.astype(np.uint8)


def from_rgbe(pixels: Bytes) -> Array:
    """Radiance of mantissas and exponent; exponent 0 is black. Shape: (..., 4) to (..., 3)."""
    exponent = pixels[..., 3:].astype(np.int32)
    factor = np.where(exponent > 0, np.exp2(exponent - (128.0 + 8)), 0).astype(np.float32)
    radiance: Array = pixels[..., :3] * factor
    return radiance


def _decode(data: Bytes, lines: int, width: int, path: Path) -> Bytes:
    coded = MIN_RUN_WIDTH <= width <= MAX_RUN_WIDTH and _is_marked(data, 0, width)
    if not coded:
        return _decode_old(data, lines, width, path)
    pixels = np.empty((lines, 4, width), dtype=np.uint8)
    raw = data.tobytes()
    position = 0
    for row in range(lines):
        if not _is_marked(data, position, width):
            raise _truncated(path, row, lines)
        position += 4
        for part in range(4):
            position = _decode_run(raw, position, pixels[row, part])
            if position < 0:
                raise _truncated(path, row, lines)
    interleaved: NDArray[np.uint8] = pixels.transpose(0, 2, 1)
    return interleaved


def _is_marked(data: Bytes, position: int, width: int) -> bool:
    mark = data[position : position + 4].tolist()
    return len(mark) == 4 and mark[:2] == [2, 2] and (mark[2] << 8 | mark[3]) == width


def _decode_run(raw: bytes, position: int, line: Bytes) -> int:
    """Fills one component of a scanline, run by run; returns the next position, -1 if it fails."""
    parts: list[bytes] = []
    left = len(line)
    end = len(raw)
    while left > 0:
        if position + 1 >= end:
            return -1
        count = raw[position]
        if count > 128:
            count -= 128
            parts.append(raw[position + 1 : position + 2] * count)
            position += 2
        else:
            parts.append(raw[position + 1 : position + 1 + count])
            position += 1 + count
        left -= count
        if count == 0 or left < 0 or position > end:
            return -1
    line[:] = np.frombuffer(b"".join(parts), dtype=np.uint8)
    return position


def _decode_old(data: Bytes, lines: int, width: int, path: Path) -> Bytes:
    """Flat pixels, or the old coding: (1, 1, 1, n) repeats the pixel before it n times."""
    pixels = data[: len(data) - len(data) % 4].reshape(-1, 4)
    repeats = (pixels[:, :3] == 1).all(axis=1)
    wanted = lines * width
    if not repeats.any():
        if len(pixels) < wanted:
            raise _truncated(path, len(pixels) // width, lines)
        return pixels[:wanted].reshape(lines, width, 4)
    # Marks in a row are the digits of one number, the lowest first.
    index = np.arange(len(pixels))
    since = index - np.maximum.accumulate(np.where(repeats, 0, index))  # 0 for a pixel
    counts = np.where(repeats, pixels[:, 3].astype(np.int64) * 256 ** np.clip(since - 1, 0, 3), 1)
    source = np.maximum.accumulate(np.where(repeats, 0, index))
    used = int(np.searchsorted(np.cumsum(counts), wanted)) + 1
    spread = np.repeat(source[:used], counts[:used])
    if repeats[0] or len(spread) < wanted:
        raise _truncated(path, len(spread) // width, lines)
    decoded: NDArray[np.uint8] = pixels[spread[:wanted]].reshape(lines, width, 4)
    return decoded


def _truncated(path: Path, row: int, lines: int) -> ZooError:
    return ZooError(f"{path} is truncated or damaged in scanline {row} of {lines}.")


def _encode_line(values: Bytes) -> bytes:
    """Runs of at least four equal bytes as (128 + n, byte), all else as (n, n bytes)."""
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    lengths = np.diff(np.append(starts, len(values)))
    out = bytearray()
    raw = values.tobytes()
    plain = 0  # where the bytes that belong to no run begin
    for which in np.flatnonzero(lengths >= SHORTEST_RUN):
        start, length = int(starts[which]), int(lengths[which])
        _plain(out, raw[plain:start])
        plain = start + length
        while length:
            count = min(length, 127)
            out += bytes([128 + count, raw[start]])
            length -= count
    _plain(out, raw[plain:])
    return bytes(out)


def _plain(out: bytearray, data: bytes) -> None:
    for start in range(0, len(data), 128):
        part = data[start : start + 128]
        out.append(len(part))
        out += part


def _turn(image: Array, first: str, second: str) -> Array:
    """Brings scanlines of any orientation to rows from the top, pixels from the left."""
    if first[1] == "X":  # scanlines are columns
        image, first, second = image.transpose(1, 0, 2), second, first
    if first[0] == "+":
        image = image[::-1]
    if second[0] == "-":
        image = image[:, ::-1]
    return np.ascontiguousarray(image)
