"""From a record to segments: resampling, filter, and cuts in which each beat counts once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, resample_poly, sosfiltfilt

from zoo.ecg.records import Record
from zoo.errors import ZooError

FS = 250  # Hz
BAND = (0.5, 40.0)  # Hz, passed
EDGE_S = 1.0  # s at a segment's ends whose beats the neighbouring segment classifies
MARGIN_S = 1.0  # s of signal kept on both sides of a segment, for what is measured near its ends
PREVIOUS = 10  # RR intervals before a beat's own that its context is the mean of
MAX_BEATS = 32  # a segment; in the 8 s that count, 240 beats a minute
FLAT_MV = 0.02  # a segment whose range is below it has no ECG in it


@dataclass(frozen=True)
class Strip:
    """A record as the network and the tools take it.

    Attributes:
        name: Of the record.
        signal: Filtered, millivolts. Shape: (C, T).
        fs: 250 Hz, or as asked for.
        usable: False where a sample was NaN. Shape: (T,).
        original_fs: Of the record.
        original_length: Of the record, samples.
    """

    name: str
    signal: NDArray[np.float32]
    fs: int
    usable: NDArray[np.bool_]
    original_fs: float
    original_length: int

    def from_original(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in the strip of positions in the record."""
        moved: NDArray[np.int64] = np.rint(samples * (self.fs / self.original_fs)).astype(np.int64)
        return moved.clip(0, self.signal.shape[1] - 1)

    def to_original(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The inverse, up to rounding."""
        moved: NDArray[np.int64] = np.rint(samples * (self.original_fs / self.fs)).astype(np.int64)
        return moved.clip(0, self.original_length - 1)


def prepare(record: Record, fs: int = FS) -> Strip:
    """Resamples to ``fs`` and passes 0.5-40 Hz without a shift of phase.

    NaN samples are bridged by straight lines first, and marked.

    Raises:
        ZooError: If nothing but NaN is there.
    """
    signal = record.signal.astype(np.float64)
    missing: NDArray[np.bool_] = ~np.all(np.isfinite(signal), axis=0)
    if missing.all():
        raise ZooError(f"{record.name} has no sample but NaN.")
    if missing.any():
        at = np.arange(signal.shape[1])
        signal = np.stack([np.interp(at, at[~missing], lead[~missing]) for lead in signal])
    ratio = Fraction(fs / record.fs).limit_denominator(1000)
    if ratio != 1:
        signal = resample_poly(signal, ratio.numerator, ratio.denominator, axis=1, padtype="line")
    length = signal.shape[1]
    sos = butter(2, BAND, "bandpass", fs=fs, output="sos")
    filtered = sosfiltfilt(sos, signal, axis=1, padlen=min(3 * fs, length - 1))
    where = np.minimum((np.arange(length) * record.fs / fs).astype(np.int64), len(missing) - 1)
    return Strip(
        record.name,
        np.ascontiguousarray(filtered, dtype=np.float32),
        fs,
        ~missing[where],
        record.fs,
        record.signal.shape[1],
    )


@dataclass(frozen=True)
class Cut:
    """One segment of a strip, and the part of it whose beats it classifies.

    Attributes:
        start: Its first sample in the strip.
        low: First sample of the part that counts, in the strip.
        high: One past the last.
    """

    start: int
    low: int
    high: int


def cuts(length: int, size: int, edge: int) -> list[Cut]:
    """Overlapping segments whose counting parts tile the strip.

    Args:
        length: Of the strip, samples, at least ``size``.
        size: Of a segment.
        edge: Samples at both ends that a neighbour takes over, where there is one.
    """
    starts = list(range(0, length - size + 1, size - 2 * edge))
    if starts[-1] + size < length:
        starts.append(length - size)
    inner = [s + edge for s in starts[1:]]
    # The last segment may overlap more: it takes over where the last but one stops counting.
    if len(starts) > 1:
        inner[-1] = max(inner[-1], starts[-2] + size - edge)
    bounds = [0, *inner, length]
    return [Cut(s, bounds[i], bounds[i + 1]) for i, s in enumerate(starts)]


def usable_cuts(strip: Strip, found: list[Cut], size: int) -> Iterator[Cut]:
    """Leaves out segments that are flat or hold NaN."""
    for cut in found:
        part = strip.signal[0, cut.start : cut.start + size]
        if strip.usable[cut.start : cut.start + size].all() and np.ptp(part) >= FLAT_MV:
            yield cut


def normalise(segment: NDArray[np.float32]) -> NDArray[np.float32]:
    """Median 0 and 98th percentile of the magnitude 1, lead by lead. Shape: (C, T)."""
    centred = segment - np.median(segment, axis=1, keepdims=True)
    scale = np.percentile(np.abs(centred), 98, axis=1, keepdims=True)
    normal: NDArray[np.float32] = (centred / np.maximum(scale, 1e-3)).astype(np.float32)
    return normal


def rr_context(peaks: NDArray[np.int64], fs: int) -> NDArray[np.float32]:
    """RR intervals around each beat of a whole record, seconds; NaN where there is none.

    Computed on the record, so that the first beat of a segment has them as well.

    Args:
        peaks: Sorted. Shape: (n,).
        fs: Samples a second.

    Returns:
        The interval before the beat, the ten before that (latest first), and the one after it.
        Shape: (n, 12).
    """
    count = len(peaks)
    context = np.full((count, PREVIOUS + 2), np.nan, np.float32)
    if count < 2:
        return context
    intervals = np.diff(peaks).astype(np.float32) / fs  # intervals[i] ends at beat i + 1
    back = np.arange(count)[:, None] - 1 - np.arange(PREVIOUS + 1)
    context[:, :-1] = np.where(back >= 0, intervals[back.clip(0)], np.nan)
    context[:-1, -1] = intervals
    return context


@dataclass(frozen=True)
class Segment:
    """What is cut out of a strip, padded to the same number of beats.

    Attributes:
        signal: Normalised. Shape: (C, T).
        strip: Millivolts with a margin of a second on both sides, NaN beyond the record.
            Shape: (C, T + 2 margins).
        peaks: Positions in ``signal``; 0 in padding. Shape: (n,).
        mask: Which beats are there. Shape: (n,).
        rr: See :func:`rr_context`. Shape: (n, 12).
        index: Of each beat in the record; -1 in padding. Shape: (n,).
        scored: Which beats this segment classifies. Shape: (n,).
    """

    signal: NDArray[np.float32]
    strip: NDArray[np.float32]
    peaks: NDArray[np.int64]
    mask: NDArray[np.bool_]
    rr: NDArray[np.float32]
    index: NDArray[np.int64]
    scored: NDArray[np.bool_]


def take(
    strip: Strip,
    peaks: NDArray[np.int64],
    rr: NDArray[np.float32],
    cut: Cut,
    size: int,
    max_beats: int = MAX_BEATS,
) -> Segment:
    """Cuts one segment.

    Args:
        strip: Of the record.
        peaks: All of the record, sorted. Shape: (N,).
        rr: Their context. Shape: (N, 12).
        cut: Where.
        size: Samples.
        max_beats: Room for beats; if there are more, those at the ends are left out, which another
            segment classifies.
    """
    first, last = np.searchsorted(peaks, [cut.start, cut.start + size])
    while last - first > max_beats:
        if cut.low - peaks[first] > peaks[last - 1] - cut.high:
            first += 1
        else:
            last -= 1
    count = last - first
    margin = int(MARGIN_S * strip.fs)
    wide = np.full((len(strip.signal), size + 2 * margin), np.nan, np.float32)
    low, high = max(cut.start - margin, 0), min(cut.start + size + margin, strip.signal.shape[1])
    begin = low - cut.start + margin
    wide[:, begin : begin + high - low] = strip.signal[:, low:high]
    segment = Segment(
        signal=normalise(strip.signal[:, cut.start : cut.start + size]),
        strip=wide,
        peaks=np.zeros(max_beats, np.int64),
        mask=np.arange(max_beats) < count,
        rr=np.full((max_beats, PREVIOUS + 2), np.nan, np.float32),
        index=np.full(max_beats, -1, np.int64),
        scored=np.zeros(max_beats, np.bool_),
    )
    here = peaks[first:last]
    segment.peaks[:count] = here - cut.start
    segment.rr[:count] = rr[first:last]
    segment.index[:count] = np.arange(first, last)
    segment.scored[:count] = (here >= cut.low) & (here < cut.high)
    return segment
