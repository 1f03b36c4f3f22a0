"""An ECG segment as a picture on ECG paper, fast and always the same to the bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Side lengths of a 5 mm box at the standard 25 mm/s and 10 mm/mV.
BOX_S, BOX_MV = 0.2, 0.5
RANGE_MV = 3.0  # shown above and below the median
PAPER, MINOR, MAJOR, INK = (255, 250, 246), (252, 226, 220), (244, 178, 168), (24, 24, 40)
MINOR_PX = 3.0  # millimetre lines closer than this would be a grey area
HALF_PEN = 0.6  # pixels
GLYPHS = (
    "111101101101111 010110010010111 111001111100111 111001111001111 101101111001001 "
    "111100111001111 111100111101111 111001010010010 111101111101111 111101111001111"
)  # digits, three columns and five rows each
DIGITS = np.array([[c == "1" for c in glyph] for glyph in GLYPHS.split()]).reshape(10, 5, 3)


def render_ecg(
    signal: NDArray[np.float32],
    peaks: NDArray[np.int64],
    fs: int,
    height: int = 224,
    width: int = 224,
) -> NDArray[np.uint8]:
    """Draws a segment.

    Time runs over the whole width. The boxes of the paper are 0.2 s and 0.5 mV, as 5 mm are at
    25 mm/s and 10 mm/mV; they are square only at a width to height of 5:3 for 10 s. Of a column the
    ink covers what the trace passes through in it, with partial pixels at its ends. Two leads stand
    one above the other. Beats have a tick and their number in the segment, never a label.

    Args:
        signal: Millivolts. Shape: (C, T).
        peaks: Of the beats that are numbered, samples. Shape: (n,).
        fs: Samples a second.
        height: Pixels.
        width: Pixels, at most T.

    Returns:
        RGB. Shape: (3, height, width).
    """
    leads, length = signal.shape
    panel = height // leads
    picture = np.empty((height, width, 3), np.float32)
    picture[:] = _paper(height, width, length / fs, panel)
    edges = np.arange(width + 1) * length // width
    ink = np.zeros((height, width), np.float32)
    for lead, trace in enumerate(signal):
        centred = np.nan_to_num(trace - np.nanmedian(trace))
        y = panel / 2 - centred * (panel / 2 / RANGE_MV)
        y = y.clip(1, panel - 2)
        # A column's part of the polyline includes the first point of the next column.
        after = y[np.minimum(edges[1:], length - 1)]
        top = np.minimum(np.minimum.reduceat(y, edges[:-1]), after)
        bottom = np.maximum(np.maximum.reduceat(y, edges[:-1]), after)
        rows = np.arange(panel, dtype=np.float32)[:, None]
        upper = np.maximum(rows, top + 0.5 - HALF_PEN)
        lower = np.minimum(rows + 1, bottom + 0.5 + HALF_PEN)
        ink[lead * panel : (lead + 1) * panel] = (lower - upper).clip(0, 1)
    picture += ink[..., None] * (np.array(INK, np.float32) - picture)
    pixels = picture.round().astype(np.uint8)
    for number, column in enumerate((peaks * width // length).tolist(), start=1):
        pixels[0:4, column] = INK
        _number(pixels, number, column)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _paper(height: int, width: int, seconds: float, panel: int) -> NDArray[np.float32]:
    """Paper with its lines. Shape: (height, width, 3)."""
    paper = np.empty((height, width, 3), np.float32)
    paper[:] = PAPER
    px_s, px_mv = width / seconds, panel / 2 / RANGE_MV
    for step, colour in ((0.2, MINOR), (1.0, MAJOR)):
        across, down = BOX_S * step * px_s, BOX_MV * step * px_mv
        if across >= MINOR_PX:
            paper[:, np.arange(0, width, across).astype(int)] = colour
        if down >= MINOR_PX:
            from_middle = np.arange(0, panel / 2, down)
            rows = panel / 2 + np.concatenate([from_middle, -from_middle])
            for start in range(0, height - panel + 1, panel):
                paper[start + rows.astype(int).clip(0, panel - 1)] = colour
    return paper


def _number(pixels: NDArray[np.uint8], number: int, column: int) -> None:
    """A beat's number right of its tick, as far as there is room."""
    for place, digit in enumerate(str(number)):
        left = column + 2 + 4 * place
        if left + 3 <= pixels.shape[1]:
            pixels[1:6, left : left + 3][DIGITS[int(digit)]] = INK
