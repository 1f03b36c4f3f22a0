"""Tool 2: what a cardiologist measures of rhythm and shape, for all beats of a batch at once.

It has no learned weights. What is not measurable is NaN.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

MEASURES = (
    "pre_rr",  # s, to the beat before
    "post_rr",  # s, to the beat after
    "pre_relative",  # pre_rr over the mean of the ten intervals before it
    "post_relative",  # post_rr over the same
    "pre_post",  # pre_rr over post_rr
    "pause",  # pre_rr + post_rr over two median intervals: about 1 if the pause compensates
    "rmssd",  # s, of the segment
    "qrs_width",  # s
    "r_amplitude",  # mV, signed
    "qrs_area",  # mV s, signed
    "area_relative",  # its magnitude over the segment's median
    "t_concordance",  # T over R amplitude, negative if T points away from the QRS area
    "p_amplitude",  # mV, signed
    "pr_interval",  # s, from the P wave's peak to the QRS onset
    "shape",  # correlation with the segment's median beat, +-250 ms
    "qrs_shape",  # the same, +-80 ms
)
INDEX = {name: i for i, name in enumerate(MEASURES)}

BEFORE, AFTER = 0.45, 0.65  # s of signal around a beat
QRS_REACH = 0.12  # s around R in which the complex begins and ends
# Of the steepest slope; less is no part of the complex. At a tenth, widths of generated
# beats come out 12 ms short (median); at this share, 1 ms.
SLOPE_SHARE = 0.07
QUIET = 0.02  # s of gentle slope that end it
P_FROM, P_TO = 0.24, 0.08  # s before R
P_HALF = 0.05  # s, of a P wave's half
P_SMOOTH = 0.032  # s of a moving average
P_MIN = 0.05  # mV, below which there is no P wave to time
T_FROM, T_TO = 0.1, 0.42  # s after R
SHAPE, QRS_SHAPE = 0.25, 0.08  # s around R


class MeasureTool:
    """Measures beats, and counts how many segments it was asked to.

    Attributes:
        calls: Segments measured so far.
    """

    def __init__(self) -> None:
        self.calls = 0

    def __call__(
        self,
        strip: NDArray[np.float32],
        peaks: NDArray[np.int64],
        mask: NDArray[np.bool_],
        rr: NDArray[np.float32],
        fs: int,
    ) -> NDArray[np.float32]:
        """Measures all beats of some segments.

        Args:
            strip: The first lead in millivolts with the same margin on both sides of the segment,
                NaN beyond the record. Shape: (B, T + 2 margins).
            peaks: R peaks in the segment. Shape: (B, n).
            mask: Which of them are there. Shape: (B, n).
            rr: See :func:`zoo.ecg.strip.rr_context`. Shape: (B, n, 12).
            fs: Samples a second; the margin is one second.

        Returns:
            The columns of ``MEASURES``; NaN in padding. Shape: (B, n, 16).
        """
        self.calls += len(strip)
        found = np.full((*mask.shape, len(MEASURES)), np.nan, np.float32)
        if not mask.any():
            return found
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)  # all-NaN rows stay NaN
            found[..., :7] = _rhythm(rr, mask)
            found[mask, 7:] = _shape(strip, peaks, mask, fs)
        found[~mask] = np.nan
        return found


def _rhythm(rr: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The seven measures of timing. Shape: (B, n, 7)."""
    rr = np.where(mask[..., None], rr, np.nan)
    pre, post = rr[..., 0], rr[..., -1]
    mean = np.nanmean(rr[..., 1:-1], axis=-1)
    median = np.nanmedian(rr[..., :-1], axis=-1)
    rmssd = np.sqrt(np.nanmean(np.diff(pre, axis=1) ** 2, axis=1, keepdims=True))
    return np.stack(
        [
            pre,
            post,
            pre / mean,
            post / mean,
            pre / post,
            (pre + post) / (2 * median),
            np.broadcast_to(rmssd, pre.shape),
        ],
        axis=-1,
    )


def _shape(
    strip: NDArray[np.float32], peaks: NDArray[np.int64], mask: NDArray[np.bool_], fs: int
) -> NDArray[np.float32]:
    """The nine measures of shape, of the beats that are there. Shape: (N, 9)."""
    before, after = round(BEFORE * fs), round(AFTER * fs)
    rows = np.nonzero(mask)[0]
    begin = peaks[mask] + fs - before
    beats = sliding_window_view(strip, before + after + 1, axis=1)[rows, begin]  # (N, W)
    # The line between the complexes: the median of what precedes the QRS.
    level = np.nanmedian(beats[:, before - round(0.2 * fs) : before - round(0.06 * fs)], axis=1)
    beats = beats - level[:, None]

    onset, offset = _complex(beats, before, fs)
    at = np.arange(beats.shape[1])
    inside = (at >= onset[:, None]) & (at <= offset[:, None])
    area = np.where(inside, beats, 0).sum(axis=1) / fs
    area[np.isnan(onset)] = np.nan
    peak = beats[:, before]

    t_wave = beats[:, before + round(T_FROM * fs) : before + round(T_TO * fs)]
    t_from = np.arange(t_wave.shape[1]) + before + round(T_FROM * fs)
    t_wave = np.where(t_from > offset[:, None] + 0.04 * fs, t_wave, np.nan)
    t_wave = _extreme(t_wave)[0]

    p_peak, p_at = _bump(beats, onset, before, fs)
    interval = np.where(np.abs(p_peak) >= P_MIN, (onset - p_at) / fs, np.nan)

    return np.stack(
        [
            (offset - onset) / fs,
            peak,
            area,
            np.abs(area) / _of_segment(np.abs(area), mask),
            np.sign(area) * t_wave / np.abs(peak),
            p_peak,
            interval,
            _likeness(beats, before, round(SHAPE * fs), mask),
            _likeness(beats, before, round(QRS_SHAPE * fs), mask),
        ],
        axis=1,
    ).astype(np.float32)


def _complex(
    beats: NDArray[np.float32], centre: int, fs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First and last sample of the QRS complex; NaN if the signal is not all there. Shapes: (N,).

    Outwards from R, it ends where the slope stays below 7 % of the steepest for 20 ms.
    """
    reach, quiet = round(QRS_REACH * fs), max(round(QUIET * fs), 1)
    slope = np.abs(
        np.gradient(beats[:, centre - reach - quiet : centre + reach + quiet + 1], axis=1)
    )
    steepest = slope[:, quiet:-quiet].max(axis=1)
    gentle = slope < SLOPE_SHARE * steepest[:, None]
    right = gentle[:, reach + quiet :]
    left = gentle[:, reach + quiet :: -1]
    ends = []
    for side in (left, right):
        # Gentle from here for `quiet` samples, at distances 0..reach from R.
        windows = sliding_window_view(side, quiet, axis=1)[:, : reach + 1]
        runs: NDArray[np.bool_] = np.all(windows, axis=-1)
        away = runs.argmax(axis=1).astype(np.float64)
        away[~runs.any(axis=1)] = reach
        away[~np.isfinite(steepest)] = np.nan
        ends.append(away)
    return centre - ends[0], centre + ends[1]


def _bump(
    beats: NDArray[np.float32], onset: NDArray[np.float64], centre: int, fs: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The P wave: the largest short deflection before the complex, and its place. Shapes: (N,).

    It is measured from the line between 50 ms before and after it, which the slow end of an earlier
    T wave follows, and not beyond the onset of the complex.
    """
    reach = round(P_HALF * fs)
    beats = uniform_filter1d(beats, round(P_SMOOTH * fs), axis=1)  # muscles are as large as P waves
    at = np.arange(centre - round(P_FROM * fs), centre - round(P_TO * fs))
    right = np.minimum(at + reach, np.nan_to_num(onset)[:, None].astype(np.int64) - 1)
    rows = np.arange(len(beats))[:, None]
    left = beats[:, at - reach]
    line = left + (beats[rows, right.clip(0)] - left) * (reach / (reach + right - at))
    found, place = _extreme(np.where(right - at >= reach // 2, beats[:, at] - line, np.nan))
    return found, at[place]


def _extreme(values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The value of the largest magnitude in each row, NaN if there is none, and its place."""
    at = np.where(np.isnan(values), -1, np.abs(values)).argmax(axis=1)
    return values[np.arange(len(values)), at], at


def _of_segment(values: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The median of its segment for each beat. Shape: (N,) gives (N,)."""
    padded = np.full(mask.shape, np.nan, np.float32)
    padded[mask] = values
    return np.broadcast_to(np.nanmedian(padded, axis=1, keepdims=True), mask.shape)[mask]


def _likeness(
    beats: NDArray[np.float32], centre: int, reach: int, mask: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Correlation of each beat with the median beat of its segment. Shape: (N,)."""
    near = beats[:, centre - reach : centre + reach + 1]
    padded = np.full((*mask.shape, near.shape[1]), np.nan, np.float32)
    padded[mask] = near
    typical = np.nanmedian(padded, axis=1)[np.nonzero(mask)[0]]
    near = near - near.mean(axis=1, keepdims=True)
    typical = typical - typical.mean(axis=1, keepdims=True)
    norm = np.sqrt((near**2).sum(axis=1) * (typical**2).sum(axis=1))
    likeness: NDArray[np.float32] = (near * typical).sum(axis=1) / np.where(norm > 0, norm, np.nan)
    return likeness
