"""Tool 1: where the R peaks are."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zoo.atomic import atomic_path
from zoo.ecg.records import import_wfdb
from zoo.errors import ZooError, check_choice, missing_extra

METHODS = ("xqrs", "neurokit", "annotation")
SEARCH_S = 0.06  # s around a detection in which the peak itself is looked for
TOLERANCE_S = 0.15  # s between a detection and a beat that it counts as (EC57)
KEPT = 256  # results that are kept in memory


class RPeakTool:
    """Finds R peaks, and remembers what it found: detection dominates the time of long records.

    Args:
        method: "xqrs" of wfdb, "neurokit" of neurokit2, or "annotation" for the positions of the
            reference beats, which is the field's protocol but no detection.
        cache_dir: Folder that keeps results beyond this process; ``None`` for memory only.

    Raises:
        ZooError: If the method is unknown.
    """

    def __init__(self, method: str = "xqrs", cache_dir: str | Path | None = None) -> None:
        check_choice("rpeaks", method, METHODS)
        self.method = method
        self.cache_dir = Path(cache_dir).expanduser() if cache_dir else None
        self.detections = 0  # that were computed, not remembered
        self._found: OrderedDict[str, NDArray[np.int64]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(
        self,
        signal: NDArray[np.float32],
        fs: int,
        annotated: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Positions of the R peaks.

        Args:
            signal: One lead, filtered. Shape: (T,).
            fs: Samples a second.
            annotated: Reference positions, for the method "annotation". Shape: (n,).

        Returns:
            Sorted. Shape: (n,).

        Raises:
            ZooError: If "annotation" is asked of a record without annotations.
        """
        if self.method == "annotation":
            if annotated is None:
                raise ZooError(
                    "rpeaks='annotation', but the record has no annotated beats: 'xqrs'."
                )
            return np.unique(annotated)
        key = hashlib.sha256(np.ascontiguousarray(signal).tobytes())
        key.update(f"{self.method} {fs}".encode())
        return self._remember(key.hexdigest(), signal, fs)

    def _remember(self, key: str, signal: NDArray[np.float32], fs: int) -> NDArray[np.int64]:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        file = self.cache_dir / f"{key}.npy" if self.cache_dir else None
        peaks: NDArray[np.int64]
        if file is not None and file.is_file():
            peaks = np.load(file, allow_pickle=False)
        else:
            self.detections += 1
            detect = _xqrs if self.method == "xqrs" else _neurokit
            peaks = refine(signal, detect(signal, fs), round(SEARCH_S * fs))
            if file is not None:
                with atomic_path(file) as temporary:
                    np.save(temporary, peaks)
        with self._lock:
            self._found[key] = peaks
            if len(self._found) > KEPT:
                self._found.popitem(last=False)
        return peaks


def refine(signal: NDArray[np.float32], peaks: NDArray[np.int64], reach: int) -> NDArray[np.int64]:
    """Moves each detection to the largest deflection within ``reach`` samples. Shape: (n,).

    As ``wfdb.processing.correct_peaks`` does, for all peaks at once, and up or down alike.
    """
    if len(peaks) == 0:
        return peaks
    around = (peaks[:, None] + np.arange(-reach, reach + 1)).clip(0, len(signal) - 1)
    values = signal[around]
    best = np.abs(values - np.median(values, axis=1, keepdims=True)).argmax(axis=1)
    return np.unique(around[np.arange(len(peaks)), best])


def match(found: NDArray[np.int64], reference: NDArray[np.int64], fs: float) -> NDArray[np.int64]:
    """For each detection the reference beat that it is, or -1: within 150 ms, one to one.

    Args:
        found: Sorted. Shape: (n,).
        reference: Sorted. Shape: (m,).
        fs: Samples a second of both.

    Returns:
        Indices into ``reference``. Shape: (n,).
    """
    if len(found) == 0 or len(reference) == 0:
        return np.full(len(found), -1, np.int64)
    right = np.searchsorted(reference, found).clip(1, max(len(reference) - 1, 1))
    left = right - 1
    right = right.clip(0, len(reference) - 1)
    nearer = np.abs(reference[left] - found) <= np.abs(reference[right] - found)
    nearest = np.where(nearer, left, right)
    distance = np.abs(reference[nearest] - found)
    order = np.lexsort((distance, nearest))  # of several detections of a beat the nearest stays
    first = np.ones(len(order), np.bool_)
    first[1:] = nearest[order][1:] != nearest[order][:-1]
    chosen = np.zeros(len(found), np.bool_)
    chosen[order[first]] = True
    return np.where(chosen & (distance <= TOLERANCE_S * fs), nearest, -1)


def _xqrs(signal: NDArray[np.float32], fs: int) -> NDArray[np.int64]:
    import_wfdb()
    from wfdb.processing import xqrs_detect

    with np.errstate(all="ignore"):
        found = xqrs_detect(signal.astype(np.float64), fs, verbose=False)
    return np.asarray(found, np.int64).reshape(-1)


def _neurokit(signal: NDArray[np.float32], fs: int) -> NDArray[np.int64]:
    try:
        import neurokit2
    except ImportError as error:
        raise missing_extra("neurokit2", "peers") from error
    _, info = neurokit2.ecg_peaks(signal, sampling_rate=fs)
    return np.asarray(info["ECG_R_Peaks"], np.int64)
