"""Where the records of each split come from, and Tool 1 run over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zoo.ecg.beats import CLASSES, DS1, DS2, VALIDATION, check_splits
from zoo.ecg.peaks import RPeakTool, match
from zoo.ecg.records import LAYOUT, Record, read_record
from zoo.ecg.strip import Strip, prepare, rr_context
from zoo.errors import ZooError

from .synthetic import synthetic_record

SAMPLES = Path(__file__).parent.parent / "samples" / "ecg"
NO_BEAT = len(CLASSES)  # the label of a detection where the reference has no beat
UNKNOWN = -1  # the label of padding, and of beats that another segment classifies
HELD_OUT_EVERY = 5  # every fifth patient of training is kept for the confidence head

#: Of the excerpts. Two of the three DS1 patients train; the third is new to the backbone: its first
#: half trains the confidence head, its second half chooses temperatures and threshold.
SAMPLE_TRAIN, SAMPLE_NEW, SAMPLE_TEST = (
    ("106_10_20", "119_00_10"),
    "116_00_10",
    ("100", "105_00_10", "200_00_10"),
)


@dataclass(frozen=True)
class Recording:
    """A record ready to be cut.

    Attributes:
        strip: Its signal.
        peaks: Of Tool 1, in the strip. Shape: (n,).
        rr: Their context. Shape: (n, 12).
        labels: Class of each, ``NO_BEAT`` for false detections. Shape: (n,).
        missed: Reference beats without a detection, in the strip. Shape: (m,).
        missed_labels: Their classes. Shape: (m,).
        held_out: Whether only the confidence head trains on it.
    """

    strip: Strip
    peaks: NDArray[np.int64]
    rr: NDArray[np.float32]
    labels: NDArray[np.int64]
    missed: NDArray[np.int64]
    missed_labels: NDArray[np.int64]
    held_out: bool = False


def recording(record: Record, tool: RPeakTool, fs: int, held_out: bool = False) -> Recording:
    """Filters an annotated record and finds its peaks.

    Raises:
        ZooError: If the record has no annotated beats.
    """
    if record.peaks is None or record.labels is None or len(record.peaks) == 0:
        raise ZooError(f"{record.name} has no annotated beats: {LAYOUT}.")
    strip = prepare(record, fs)
    reference, first = np.unique(strip.from_original(record.peaks), return_index=True)
    classes = record.labels[first]
    peaks = tool(strip.signal[0], fs, reference)
    of = match(peaks, reference, fs)
    labels = np.where(of >= 0, classes[of], NO_BEAT)
    missed = np.setdiff1d(np.arange(len(reference)), of)
    return Recording(
        strip,
        peaks,
        rr_context(peaks, fs),
        labels.astype(np.int64),
        reference[missed],
        classes[missed],
        held_out,
    )


def part(whole: Recording, begin: float, end: float) -> Recording:
    """A share of a recording, from ``begin`` to ``end`` in 0..1."""
    length = whole.strip.signal.shape[1]
    low, high = int(begin * length), int(end * length)
    kept = (whole.peaks >= low) & (whole.peaks < high)
    missed = (whole.missed >= low) & (whole.missed < high)
    strip = replace(
        whole.strip,
        signal=whole.strip.signal[:, low:high],
        usable=whole.strip.usable[low:high],
        original_length=int((end - begin) * whole.strip.original_length),
    )
    peaks = whole.peaks[kept] - low
    return replace(
        whole,
        strip=strip,
        peaks=peaks,
        rr=rr_context(peaks, strip.fs),
        labels=whole.labels[kept],
        missed=whole.missed[missed] - low,
        missed_labels=whole.missed_labels[missed],
    )


def synthetic(
    split: str, patients: int, seconds: float, leads: int, seed: int, tool: RPeakTool, fs: int
) -> list[Recording]:
    """Generated patients; every fifth of training is held out."""
    found = []
    for patient in range(patients):
        record = synthetic_record(seed, split, patient, seconds, leads).record
        held = split == "train" and patient % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
        found.append(recording(record, tool, fs, held))
    return found


def sample(split: str, tool: RPeakTool, fs: int, seconds: float) -> list[Recording]:
    """The MIT-BIH excerpts that come with the package."""

    def read(name: str) -> Recording:
        record = read_record(SAMPLES / name, annotated=True, min_seconds=seconds)
        return recording(record, tool, fs)

    if split == "test":
        return [read(name) for name in SAMPLE_TEST]
    new = read(SAMPLE_NEW)
    if split == "val":
        return [part(new, 0.5, 1.0)]
    held = replace(part(new, 0.0, 0.5), held_out=True)
    return [*(read(name) for name in SAMPLE_TRAIN), held]


def mitdb_splits(same_person: bool) -> dict[str, tuple[str, ...]]:
    """The inter-patient split of MIT-BIH: DS1 without four patients, these four, DS2.

    De Chazal's DS1 has record 201 and his DS2 has 202, which are one person. So 201 does not train,
    unless ``same_person`` asks for the published lists.
    """
    left_out = () if same_person else ("201",)
    train = tuple(r for r in DS1 if r not in VALIDATION and r not in left_out)
    return {"train": train, "val": VALIDATION, "test": DS2}


def check_given(splits: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Splits that a user names, checked.

    Raises:
        ZooError: If one is missing or empty, or a patient is in two.
    """
    for split in ("train", "val", "test"):
        if not splits.get(split):
            raise ZooError(
                "splits must name the records of train, val and test, "
                f"as {{train: [...], val: [...], test: [...]}}; '{split}' is missing."
            )
    check_splits(splits)
    return {split: tuple(map(str, records)) for split, records in splits.items()}


def folder(
    read: Callable[[str], Record],
    split: str,
    patients: Mapping[str, str],
    tool: RPeakTool,
    fs: int,
) -> list[Recording]:
    """Records of a folder; every fifth patient of training is held out.

    Args:
        read: Gives the record of a name.
        split: Of these records.
        patients: The patient of each record.
        tool: Finds the peaks.
        fs: Of the strips.

    Raises:
        ZooError: If a file is missing or wrong, or training has too few patients.
    """
    people = sorted(set(patients.values()))
    if split == "train" and len(people) < 2:
        raise ZooError(
            "Training needs two patients at least: the confidence head learns from one that the "
            f"rest has not seen; found {', '.join(people)}."
        )
    held = set(people[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY] or people[-1:])
    return [
        recording(read(name), tool, fs, split == "train" and patient in held)
        for name, patient in patients.items()
    ]
