"""ECGs made of Gaussian waves, with ectopic beats whose class, place and width are known.

After P. McSharry et al., "A dynamical model for generating synthetic electrocardiogram signals",
IEEE Trans. Biomed. Eng. 50(3), 2003: each wave is a Gaussian, and the heart rate follows breathing.
Ectopic beats have the timing and shape that textbooks give them; all numbers here are choices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoo.ecg.beats import CLASSES
from zoo.ecg.records import Record

FS = 360  # Hz, as MIT-BIH, so that records are resampled like real ones
N, S, V, F = (CLASSES.index(c) for c in "NSVF")
SPLIT_KEYS = {"train": 0, "val": 1, "test": 2}
BLOCK_SHARE = 0.2  # of patients, whose normal beats are as wide as ventricular ones
INTERPOLATED = 0.15  # of ventricular beats, which leave the rhythm as it is


@dataclass(frozen=True)
class Truth:
    """What the generator knows.

    Attributes:
        record: Signal, R peaks and classes.
        times: Of the R peaks, seconds. Shape: (n,).
        qrs_width: Seconds. Shape: (n,).
    """

    record: Record
    times: NDArray[np.float64]
    qrs_width: NDArray[np.float64]


def synthetic_record(seed: int, split: str, patient: int, seconds: float, leads: int = 1) -> Truth:
    """One patient's record.

    Args:
        seed: Of the data.
        split: "train", "val" or "test".
        patient: Number within the split.
        seconds: Length.
        leads: 1 or 2.
    """
    rng = np.random.default_rng([seed, SPLIT_KEYS[split], patient])
    times, kinds = _rhythm(rng, seconds)
    waves, width = _morphology(rng, times, kinds)
    length = int(seconds * FS)
    clean = _draw(waves, length)
    if leads == 2:
        turned = waves.copy()
        turned[..., 2] *= rng.uniform(-0.8, 0.8, (1, waves.shape[1]))  # another axis
        clean = np.stack([clean, _draw(turned, length)])
    signal = np.atleast_2d(clean) + np.stack([_noise(rng, length) for _ in range(leads)])
    record = Record(
        f"{split}{patient:02d}",
        signal.astype(np.float32),
        float(FS),
        ("MLII", "V1")[:leads],
        np.rint(times * FS).astype(np.int64),
        kinds,
    )
    return Truth(record, times, width)


def _rhythm(
    rng: np.random.Generator, seconds: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """R peaks in seconds, and classes."""
    rr, breath = rng.uniform(0.62, 1.0), rng.uniform(0.2, 0.33)
    depth, jitter = rng.uniform(0.01, 0.05), rng.uniform(0.008, 0.025)
    share_s, share_v, share_f = rng.uniform(0, 0.13), rng.uniform(0, 0.16), rng.uniform(0, 0.07)
    t, times, kinds = 0.5, [0.5], [N]
    while t < seconds - 1.5:
        here = rr * (1 + depth * np.sin(2 * np.pi * breath * t) + jitter * rng.standard_normal())
        draw = rng.random()
        if draw < share_s:  # early; it resets the sinus node, so the pause is not compensatory
            steps = [(here * (1 - rng.uniform(0.25, 0.4)), S), (here * rng.uniform(1.0, 1.12), N)]
        elif draw < share_s + share_v:
            if rng.random() < INTERPOLATED:  # between two normal beats, which come on time
                early = here * rng.uniform(0.45, 0.55)
                steps = [(early, V), (max(here - early, 0.28), N)]
            else:  # early, with a full compensatory pause
                early = here * (1 - rng.uniform(0.2, 0.45))
                steps = [(early, V), (2 * here - early, N)]
        elif draw < share_s + share_v + share_f:
            steps = [(here * (1 - rng.uniform(0, 0.06)), F)]
        else:
            steps = [(here, N)]
        for step, kind in steps:
            t += step
            times.append(t)
            kinds.append(kind)
    return np.array(times), np.array(kinds, dtype=np.int64)


def _morphology(
    rng: np.random.Generator, times: NDArray[np.float64], kinds: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Waves as (centre in s, sigma in s, millivolts), and QRS widths. Shapes: (n, K, 3), (n,)."""
    count = len(times)
    block = rng.random() < BLOCK_SHARE
    narrow = rng.uniform(0.13, 0.15) if block else rng.uniform(0.07, 0.11)
    broad = rng.uniform(0.13, 0.19)
    axis = rng.choice([1.0, -1.0], p=[0.85, 0.15]) * rng.uniform(0.6, 1.6)
    ectopic_axis = rng.choice([1.0, -1.0]) * rng.uniform(0.9, 2.2)
    q, s = rng.uniform(0.02, 0.15), rng.uniform(0.05, 0.4)
    p, t_wave = rng.uniform(0.07, 0.2), rng.uniform(0.12, 0.4)
    second = rng.uniform(0.4, 0.8)  # of the notched complex of a bundle branch block
    vary = 1 + 0.06 * rng.standard_normal(count)

    normal_width = narrow * (1 + 0.03 * rng.standard_normal(count))
    ventricular_width = broad * (1 + 0.05 * rng.standard_normal(count))
    mixture = np.select([kinds == V, kinds == F], [1.0, rng.uniform(0.35, 0.65, count)], 0.0)
    width = np.where(mixture == 1, ventricular_width, np.where(mixture == 0, normal_width, 0.0))
    width = np.where(kinds == F, np.maximum(normal_width, ventricular_width), width)

    # (position, sigma) as shares of the width: position +- 2.4 sigma reaches half the width.
    shape = [(-0.28, 0.09, -q), (0.0, 0.115, 1.0), (0.28, 0.09, -s)]
    if block:
        shape = [(-0.3, 0.083, -q), (0.0, 0.15, 1.0), (0.26, 0.1, second)]
    wide = [(-0.32, 0.075, -0.1), (0.0, 0.18, 1.0), (0.27, 0.096, -0.35)]
    waves = []
    for (at, sigma, height), (v_at, v_sigma, v_height) in zip(shape, wide, strict=True):
        weight = (1 - mixture) * axis * height * vary
        waves.append((at * normal_width, sigma * normal_width, weight))
        weight = mixture * ectopic_axis * v_height * vary
        waves.append((v_at * ventricular_width, v_sigma * ventricular_width, weight))

    # P: smaller, turned or buried in S; none in V. It varies in normal beats as well.
    changed = np.where(rng.random(count) < 0.4, 0.0, rng.uniform(-0.7, 0.9, count))
    factor = np.where(kinds == S, changed, rng.uniform(0.35, 1.2, count)) * (1 - mixture)
    lag = rng.uniform(0.14, 0.19) + 0.01 * rng.standard_normal(count)
    waves.append((-lag, np.full(count, 0.022), p * factor))
    # T: later and longer at slow rates; against the complex in V.
    before = np.diff(times, prepend=times[0] - 0.8).clip(0.4, 1.2)
    late = (0.28 + 0.02 * rng.standard_normal()) * np.sqrt(before)
    height = (1 - mixture) * t_wave * (-1 if block else 1) * np.sign(axis) - mixture * (
        0.32 * ectopic_axis
    )
    waves.append((late + 0.04 * mixture, 0.045 + 0.02 * mixture, height * vary))
    stacked = np.stack([np.stack(np.broadcast_arrays(*w), axis=-1) for w in waves], axis=1)
    stacked[..., 0] += times[:, None]
    return stacked, width


def _draw(waves: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """The sum of the waves. Shape: (length,)."""
    centre, sigma, height = waves.reshape(-1, 3).T
    reach = int(4 * sigma.max() * FS)
    at = np.rint(centre * FS).astype(int)[:, None] + np.arange(-reach, reach + 1)
    values = height[:, None] * np.exp(-0.5 * ((at / FS - centre[:, None]) / sigma[:, None]) ** 2)
    inside = (at >= 0) & (at < length)
    return np.bincount(at[inside], values[inside], minlength=length).astype(np.float64)


def _noise(rng: np.random.Generator, length: int) -> NDArray[np.float64]:
    """Wander of the baseline, muscles, mains, and bursts of movement, millivolts."""
    t: NDArray[np.float64] = np.arange(length) / FS
    rates, phases = rng.uniform(0.05, 0.35, 3), rng.uniform(0, 2 * np.pi, 3)
    noise: NDArray[np.float64]
    noise = rng.uniform(0.02, 0.15) * np.sin(2 * np.pi * rates * t[:, None] + phases).sum(axis=1)
    noise += rng.uniform(0.01, 0.05) * rng.standard_normal(length)
    noise += rng.uniform(0, 0.04) * np.sin(2 * np.pi * 50 * t)
    for _ in range(rng.poisson(length / FS / 25)):
        begin = rng.uniform(0, length / FS)
        envelope = np.exp(-0.5 * ((t - begin) / rng.uniform(0.2, 0.8)) ** 2)
        noise += (
            envelope
            * rng.uniform(0.1, 0.5)
            * np.convolve(rng.standard_normal(length), np.ones(12) / 12**0.5, "same")
        )
    return noise
