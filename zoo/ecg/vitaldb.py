"""Cases of the VitalDB Arrhythmia Database: waveforms and beat labels, both as CSV.

Reference:
    "VitalDB Arrhythmia Database", PhysioNet, version 1.0.0, and "VitalDB, a high-fidelity
    multi-parameter vital signs database in surgical patients", H.-C. Lee et al., Scientific Data 9,
    2022.
The layout is taken from the databases' descriptions and was not tried on their files. So columns
are found by their names, in any order, upper or lower case, and others are ignored:

- ``CASE.csv``: ``time`` (or ``time_second``, ``seconds``), evenly spaced seconds, and one column a
  lead in millivolts with "ECG" in its name ("SNUADC/ECG_II" is lead ECG_II). Empty where the
  monitor had nothing.
- ``Annotation_file_CASE.csv``: ``time_second`` of each R peak, on the same clock, and
  ``beat_type``, one letter: N becomes class N, S S, V V, and U, unclassifiable, Q; F is not among
  them. It is empty in rows that tell of no beat. ``bad_signal_quality``, if it is there, is true
  or false. The rhythm's columns are not read.
- ``clinical_data.csv``, if it is there: ``caseid`` and ``subjectid``, of which a person may have
  several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.ecg.beats import CLASSES
from zoo.ecg.records import EXTRA, Record
from zoo.errors import ZooError, missing_extra

PREFIX = "Annotation_file_"
PERSONS = "clinical_data.csv"
#: Beat types to classes of EC57: normal, supraventricular, ventricular, and unclassifiable to Q.
#: There is no fusion beat (F) among them.
BEAT_TYPES = {"N": "N", "S": "S", "V": "V", "U": "Q"}
TIME = ("time", "time_second", "seconds")
TRUE, FALSE = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no", "")
BAD_S = (0.35, 0.55)  # before and after R: what is no ECG around a beat of bad signal quality
AROUND_S = 1.0  # of signal kept before the first and after the last labelled beat
JITTER = 0.5  # of a step, by which a time may be off an even clock


def vitaldb_cases(root: Path) -> list[str]:
    """Names of the cases that have an annotation file, sorted."""
    return sorted(path.stem.removeprefix(PREFIX) for path in root.glob(f"{PREFIX}*.csv"))


def vitaldb_persons(root: Path, cases: Iterable[str]) -> dict[str, str]:
    """The person of each case: ``subjectid`` of the clinical data, else each case is one.

    Raises:
        ZooError: If the clinical data lack a column or a case.
    """
    file = root / PERSONS
    if not file.is_file():
        return {case: case for case in cases}
    table = _table(file)
    case_ids, persons = (_text(table[_column(file, table, [n])]) for n in ("caseid", "subjectid"))
    known = dict(zip(case_ids, persons, strict=True))
    cases = list(cases)
    unknown = [case for case in cases if not known.get(case)]
    if unknown:
        raise ZooError(f"{file} has no subjectid of case {unknown[0]}.")
    return {case: f"subject {known[case]}" for case in cases}


def read_vitaldb(root: Path, case: str) -> Record:
    """Reads one case with its beats.

    The signal is NaN, which leaves its segments out, where nothing was labelled (before the first
    and after the last beat) and around beats of bad signal quality. These beats are left out.

    Raises:
        ZooError: If a file or a column is missing, times are no even clock, a beat type is none of
            N, S, V and U, or a beat lies outside of the waveform.
    """
    waves, notes = root / f"{case}.csv", root / f"{PREFIX}{case}.csv"
    table = _table(waves)
    times = _numbers(waves, table, _column(waves, table, TIME))
    leads = [name for name in table.columns if "ecg" in name.lower()]
    if not leads:
        raise ZooError(
            f"{waves} has no column with 'ECG' in its name, but {', '.join(table.columns)}."
        )
    fs = _rate(waves, times)
    signal = np.stack([_numbers(waves, table, name) for name in leads]).astype(np.float32)
    at, labels, bad = _beats(notes)
    peaks = np.rint((at - times[0]) * fs).astype(np.int64)
    outside = (peaks < 0) | (peaks >= len(times))
    if outside.any():
        raise ZooError(
            f"{notes} has a beat at {at[outside][0]:g} s, outside of the waveform from "
            f"{times[0]:g} to {times[-1]:g} s."
        )
    around = round(AROUND_S * fs)
    usable = np.zeros(len(times), np.bool_)
    if len(peaks):
        usable[max(peaks[0] - around, 0) : peaks[-1] + around + 1] = True
    for peak in peaks[bad]:
        usable[max(peak - round(BAD_S[0] * fs), 0) : peak + round(BAD_S[1] * fs) + 1] = False
    signal[:, ~usable] = np.nan
    names = tuple(name.rpartition("/")[2].strip() for name in leads)
    return Record(case, signal, fs, names, peaks[~bad], labels[~bad])


def _beats(file: Path) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """Seconds, classes and bad quality of the beats, in the order of time."""
    table = _table(file)
    time, kind = (_column(file, table, [name]) for name in ("time_second", "beat_type"))
    quality = [name for name in table.columns if name.lower() == "bad_signal_quality"]
    types = _text(table[kind])
    rows = [i for i, letter in enumerate(types) if letter]
    unknown = sorted({types[i] for i in rows} - set(BEAT_TYPES))
    if unknown:
        raise ZooError(
            f"{file} has beat_type '{unknown[0]}': expected {', '.join(BEAT_TYPES)}, or none."
        )
    at = _numbers(file, table, time)[rows]
    if not np.isfinite(at).all():
        raise ZooError(f"{file} has a beat without time_second.")
    marks = [m.lower() for m in _text(table[quality[0]])] if quality else [""] * len(types)
    odd = sorted(set(marks) - {*TRUE, *FALSE})
    if odd:
        raise ZooError(f"{file} has bad_signal_quality '{odd[0]}': expected true or false.")
    labels = np.array([CLASSES.index(BEAT_TYPES[types[i]]) for i in rows], np.int64)
    bad = np.array([marks[i] in TRUE for i in rows], np.bool_)
    order = np.argsort(at, kind="stable")
    return at[order], labels[order], bad[order]


def _rate(file: Path, times: NDArray[np.float64]) -> float:
    """Samples a second of an even clock."""
    step = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
    even = times[0] + step * np.arange(len(times))
    if not step > 0 or not (np.abs(times - even) <= JITTER * step).all():
        raise ZooError(f"{file}: its times must rise in even steps, without gaps.")
    return round(1 / step, 3)


def _table(file: Path) -> Any:
    """A pandas data frame of the file's texts."""
    try:
        import pandas as pd
    except ImportError as error:
        raise missing_extra("pandas", EXTRA) from error
    if not file.is_file():
        raise ZooError(f"{file} is missing: expected CASE.csv and {PREFIX}CASE.csv in one folder.")
    try:
        table = pd.read_csv(file, low_memory=False)
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise ZooError(f"{file} is no CSV table: {error}") from error
    table.columns = [str(name).strip() for name in table.columns]
    if len(table) == 0:
        raise ZooError(f"{file} has no row.")
    return table


def _column(file: Path, table: Any, names: Sequence[str]) -> str:
    """The first column of one of these names."""
    found = {name.lower(): name for name in reversed(list(table.columns))}
    for name in names:
        if name in found:
            return str(found[name])
    raise ZooError(f"{file} has no column {' or '.join(names)}, but {', '.join(table.columns)}.")


def _numbers(file: Path, table: Any, name: str) -> NDArray[np.float64]:
    try:
        return np.asarray(table[name].to_numpy(dtype=np.float64))
    except ValueError as error:
        raise ZooError(f"{file}: column {name} must hold numbers: {error}") from error


def _text(column: Any) -> list[str]:
    """Without blanks; empty where nothing is, and whole numbers without a point."""
    texts = ("" if value != value else str(value).strip() for value in column.tolist())
    return [text.removesuffix(".0") for text in texts]
