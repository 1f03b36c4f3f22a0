"""The beats of a record with their classes and the evidence, as a list and as a WFDB file."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zoo.atomic import atomic_path
from zoo.deep_arrhythmia.measures import MEASURES
from zoo.deep_arrhythmia.report import to_text
from zoo.ecg.beats import CLASSES, WRITTEN
from zoo.ecg.inputs import MIN_PEAKS
from zoo.ecg.records import write_beats
from zoo.ecg.strip import EDGE_S, Segment, Strip, cuts, rr_context, take, usable_cuts
from zoo.errors import ZooError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATES = ("minimal", "rich")
STRIP_S = 10.0  # of the figure


@dataclass(frozen=True)
class SegmentNote:
    """What was decided of one segment.

    Attributes:
        start: Of the part whose beats it classifies, seconds.
        end: Of the same.
        confidence: Of the minimal state, 0..1.
        state: 0 minimal, 1 rich.
        flag: Why nothing is said about it; empty if something is.
    """

    start: float
    end: float
    confidence: float = 0.0
    state: int = 0
    flag: str = field(default="")


class Beats(list[dict[str, Any]]):
    """One dict a beat, in order: see :class:`~zoo.deep_arrhythmia.DeepArrhythmia`.

    Attributes:
        record: Its name.
        fs: Samples a second of the record, which ``sample`` counts.
        segments: What was decided of each segment.
        detector: Where the R peaks come from.
    """

    def __init__(
        self,
        beats: Sequence[dict[str, Any]],
        record: str,
        fs: float,
        segments: Sequence[SegmentNote],
        detector: str,
        strip: NDArray[np.float32],
        strip_fs: int,
    ) -> None:
        super().__init__(beats)
        self.record, self.fs, self.segments, self.detector = record, fs, list(segments), detector
        self._strip, self._strip_fs = strip, strip_fs

    @property
    def strip_signal(self) -> tuple[NDArray[np.float32], int]:
        """The filtered lead in millivolts, shape (T,), and its samples a second."""
        return self._strip, self._strip_fs

    def __getitem__(self, key: Any) -> Any:
        """A beat by number, some by a slice, or a column or several by name."""
        if isinstance(key, str):
            return [beat[key] for beat in self]
        if isinstance(key, list):
            return [{name: beat[name] for name in key} for beat in self]
        return super().__getitem__(key)

    @property
    def counts(self) -> dict[str, int]:
        """Beats of each class."""
        found = Counter(beat["label"] for beat in self)
        return {name: found[name] for name in CLASSES}

    @property
    def share_rich(self) -> float:
        """Segments that needed Tools 2 and 3, of those with an ECG."""
        used = [note.state == 1 for note in self.segments if not note.flag]
        return sum(used) / len(used) if used else 0.0

    @property
    def flagged(self) -> list[SegmentNote]:
        """Segments that nothing is said about, and why."""
        return [note for note in self.segments if note.flag]

    def to_wfdb(self, folder: str | Path, name: str | None = None) -> Path:
        """Writes ``folder/name.atr``, which wfdb reads; returns its path.

        Raises:
            ZooError: If wfdb refuses the name, or there is no beat.
        """
        symbols = [WRITTEN[beat["label"]] for beat in self]
        samples = [beat["sample"] for beat in self]
        return write_beats(folder, name or self.record, samples, symbols, self.fs)

    def to_csv(self, path: str | Path) -> Path:
        """Writes one row a beat; measures that were not made or not possible are empty."""
        with atomic_path(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file)
            names = [f"p_{c}" for c in CLASSES]
            writer.writerow(
                [
                    *("sample", "time_s", "label", "prob", *names),
                    *("confidence", "state", "report", *MEASURES),
                ]
            )
            for beat in self:
                measured = beat["measures"] or {}
                numbers = [measured.get(name) for name in MEASURES]
                writer.writerow(
                    [beat["sample"], f"{beat['sample'] / self.fs:.4f}", beat["label"]]
                    + [f"{beat['prob']:.4f}", *(f"{p:.4f}" for p in beat["probs"].values())]
                    + [f"{beat['confidence']:.4f}", STATES[beat["state"]], beat["report"] or ""]
                    + ["" if v is None or np.isnan(v) else f"{v:.5g}" for v in numbers]
                )
        return Path(path)

    def save(self, path: Path) -> list[Path]:
        """Writes ``<path>.csv``, ``<path>.atr`` if there is a beat, and ``<path>.png``."""
        written = [self.to_csv(path.with_name(f"{path.name}.csv"))]
        if len(self):
            written.append(self.to_wfdb(path.parent, path.name))
        picture = path.with_name(f"{path.name}.png")
        with atomic_path(picture) as temporary:
            self.figure().savefig(temporary, dpi=100, format="png")
        return [*written, picture]

    def figure(self, start: float | None = None) -> Figure:
        """Ten seconds with the beats' classes, and each segment's confidence and state.

        Args:
            start: Seconds; ``None`` for where most beats are not normal.
        """
        from zoo.deep_arrhythmia.figure import strip

        return strip(self, self._busiest() if start is None else start)

    def _busiest(self) -> float:
        if not len(self):
            return 0.0
        times = np.array(self["sample"]) / self.fs
        odd = times[np.array([label != "N" for label in self["label"]])]
        if not len(odd):
            return 0.0
        inside = np.searchsorted(odd, odd + STRIP_S) - np.arange(len(odd))
        return float(max(odd[inside.argmax()] - 1, 0))


def cut_record(
    strip: Strip, peaks: NDArray[np.int64], size: int
) -> tuple[list[Segment], list[SegmentNote]]:
    """All segments of a record, flagged where nothing can be said.

    Args:
        strip: Of the record.
        peaks: Of Tool 1. Shape: (N,).
        size: Of a segment, samples.

    Raises:
        ZooError: If there is no ECG in any of them.
    """
    found = cuts(strip.signal.shape[1], size, int(EDGE_S * strip.fs))
    kept = set(usable_cuts(strip, found, size))
    if not kept:
        raise ZooError(f"{strip.name} is flat or NaN all over: there is no ECG in it.")
    rr = rr_context(peaks, strip.fs)
    segments, notes = [], []
    for cut in found:
        segment = take(strip, peaks, rr, cut, size)
        flag = "" if cut in kept else "flat or NaN"
        if not flag and segment.mask.sum() < MIN_PEAKS:
            flag = f"fewer than {MIN_PEAKS} R peaks"
        segments.append(segment)
        notes.append(SegmentNote(cut.low / strip.fs, cut.high / strip.fs, flag=flag))
    return segments, notes


def beats_of(
    segment: Segment, row: int, said: Mapping[str, Any], strip: Strip, peaks: NDArray[np.int64]
) -> list[dict[str, Any]]:
    """The beats that a segment classifies."""
    measured = said["rows"].get(row)
    own = np.nonzero(segment.scored)[0]
    samples = strip.to_original(peaks[segment.index[own]])
    found = []
    for place, sample in zip(own.tolist(), samples.tolist(), strict=True):
        probs = said["probs"][row, place].tolist()
        best = int(np.argmax(probs))
        beat = {
            "sample": sample,
            "label": CLASSES[best],
            "prob": probs[best],
            "probs": dict(zip(CLASSES, probs, strict=True)),
            "confidence": said["confidence"][row],
            "state": int(said["state"][row]),
            "measures": None,
            "report": None,
        }
        if measured is not None:
            numbers, codes = measured[0][place].tolist(), measured[1][place]
            beat["measures"] = dict(zip(MEASURES, numbers, strict=True))
            beat["report"] = to_text(codes, place + 1)
        found.append(beat)
    return found
