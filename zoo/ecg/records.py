"""Reads ECG records of the field's formats, and writes beat annotations that wfdb reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.ecg.beats import to_classes
from zoo.errors import ZooError, did_you_mean, missing_extra

MIN_FS = 100.0  # Hz; below it a QRS complex has fewer than ten samples
SUFFIXES = (".hea", ".edf", ".csv")
LAYOUT = "expected RECORD.hea and RECORD.dat (and RECORD.atr with the beats) in one folder"
PREFERRED = "MLII"
MICROVOLTS = {"uv": 1e-3, "µv": 1e-3, "μv": 1e-3, "mv": 1.0, "v": 1e3}
EXTRA = "ecg"

Source = str | Path | NDArray[Any]


@dataclass(frozen=True)
class Record:
    """One recording.

    Attributes:
        name: Of the record, without folder and suffix.
        signal: Millivolts; NaN where the recorder had nothing. Shape: (C, T).
        fs: Samples a second.
        leads: Names of the C leads.
        peaks: Annotated R peaks, or beats' fiducial points; ``None`` without annotations.
            Shape: (n,).
        labels: AAMI class index of each. Shape: (n,).
    """

    name: str
    signal: NDArray[np.float32]
    fs: float
    leads: tuple[str, ...]
    peaks: NDArray[np.int64] | None = None
    labels: NDArray[np.int64] | None = None


def import_wfdb() -> Any:
    """The package wfdb, or a sentence that says how to get it."""
    try:
        import wfdb
    except ImportError as error:
        raise missing_extra("wfdb", EXTRA) from error
    return wfdb


def read_record(
    source: Source,
    lead: str | Sequence[str] | None = None,
    fs: float | None = None,
    annotated: bool = False,
    min_seconds: float = 0.0,
    count: int = 1,
) -> Record:
    """Reads one record.

    Args:
        source: WFDB record (a path without suffix, or its ``.hea`` or ``.dat``), an EDF file, a CSV
            file with a column a lead in millivolts and names in its first row, or an array (T,) or
            (C, T) in millivolts.
        lead: Names of the leads to read; ``None`` for MLII where there is one, else the first, and
            then the others in order.
        fs: Samples a second: needed for arrays and CSV, else read from the file.
        annotated: Whether ``.atr`` must be there (WFDB only).
        min_seconds: Shorter records are refused.
        count: Of leads.

    Raises:
        ZooError: If a file is missing or unreadable, the lead is unknown, the sampling rate is
            below 100 Hz, the record is too short, or an annotation lies beyond its end.
    """
    if isinstance(source, np.ndarray):
        record = _from_array(source, fs)
    else:
        path = Path(source).expanduser()
        if path.suffix.lower() == ".edf":
            record = _from_edf(path)
        elif path.suffix.lower() == ".csv":
            record = _from_csv(path, fs)
        else:
            record = _from_wfdb(
                path.with_suffix("") if path.suffix in (".hea", ".dat") else path, annotated
            )
    return select(record, lead, min_seconds, count)


def select(
    record: Record,
    lead: str | Sequence[str] | None = None,
    min_seconds: float = 0.0,
    count: int = 1,
) -> Record:
    """The record with the leads that are asked for; arguments and errors as of `read_record`."""
    if record.fs < MIN_FS:
        raise ZooError(
            f"{record.name} has {record.fs:g} samples a second: at least 100 are needed."
        )
    seconds = record.signal.shape[1] / record.fs
    if seconds < min_seconds:
        raise ZooError(
            f"{record.name} lasts {seconds:.1f} s: a segment of {min_seconds:g} s does not fit."
        )
    return _choose(record, lead, count)


def write_beats(
    folder: str | Path, name: str, samples: Sequence[int], symbols: Sequence[str], fs: float
) -> Path:
    """Writes ``folder/name.atr``, whole or not at all; returns its path.

    Raises:
        ZooError: If the name has other characters than letters, digits, ``-`` and ``_``, which wfdb
            refuses, or there is no beat.
    """
    import tempfile

    wfdb = import_wfdb()
    if not name or not all(c.isascii() and (c.isalnum() or c in "-_") for c in name):
        raise ZooError(f"A WFDB record is named with letters, digits, - and _, not {name!r}.")
    if len(samples) == 0:
        raise ZooError(f"{name} has no beat: a WFDB annotation file cannot be empty.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch:
        wfdb.wrann(name, "atr", np.asarray(samples), symbol=list(symbols), fs=fs, write_dir=scratch)
        (Path(scratch) / f"{name}.atr").replace(folder / f"{name}.atr")
    return folder / f"{name}.atr"


def _from_wfdb(path: Path, annotated: bool) -> Record:
    wfdb = import_wfdb()
    for suffix in (".hea", ".dat", *([".atr"] if annotated else [])):
        file = path.with_name(path.name + suffix)
        if not file.is_file():
            raise ZooError(f"{file} is missing: {LAYOUT}.")
    try:
        read = wfdb.rdrecord(str(path))
        beats = path.with_name(path.name + ".atr")
        found = wfdb.rdann(str(path), "atr") if beats.is_file() else None
    except Exception as error:  # wfdb raises what its parsers stumble over
        raise ZooError(f"{path} is no WFDB record that can be read: {error}") from error
    scale = np.array([MICROVOLTS.get(str(u).lower(), 1.0) for u in read.units])
    signal = np.ascontiguousarray((read.p_signal * scale).T, dtype=np.float32)
    peaks = labels = None
    if found is not None:
        labels = to_classes(found.symbol)
        beat = labels >= 0
        peaks, labels = np.asarray(found.sample, np.int64)[beat], labels[beat]
        late = peaks[peaks >= signal.shape[1]]
        if len(late):
            raise ZooError(
                f"{path}.atr has a beat at sample {late[0]}, beyond the signal's end at "
                f"{signal.shape[1]}."
            )
    return Record(path.name, signal, float(read.fs), tuple(read.sig_name), peaks, labels)


def _from_edf(path: Path) -> Record:
    try:
        import pyedflib
    except ImportError as error:
        raise missing_extra("pyedflib", EXTRA) from error
    if not path.is_file():
        raise ZooError(f"{path} is missing.")
    try:
        with pyedflib.EdfReader(str(path)) as file:
            rates = file.getSampleFrequencies()
            same = [i for i, rate in enumerate(rates) if rate == max(rates)]
            scale = [
                MICROVOLTS.get(file.getPhysicalDimension(i).strip().lower(), 1.0) for i in same
            ]
            signal = np.stack([file.readSignal(i) * s for i, s in zip(same, scale, strict=True)])
            leads = tuple(file.getLabel(i).strip() for i in same)
    except OSError as error:
        raise ZooError(f"{path} is no EDF file that can be read: {error}") from error
    return Record(path.stem, signal.astype(np.float32), float(max(rates)), leads)


def _from_csv(path: Path, fs: float | None) -> Record:
    if fs is None:
        raise ZooError(f"{path.name} does not say its sampling rate: give fs= in Hz.")
    if not path.is_file():
        raise ZooError(f"{path} is missing.")
    try:
        with path.open(encoding="utf-8") as file:
            leads = tuple(name.strip() for name in file.readline().split(","))
            signal = np.genfromtxt(file, delimiter=",", dtype=np.float32, ndmin=2)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise ZooError(f"{path} is no CSV table of numbers: {error}") from error
    if signal.shape[1] != len(leads) or len(signal) == 0:
        raise ZooError(f"{path}: expected a row of lead names, then one row of numbers a sample.")
    return Record(path.stem, np.ascontiguousarray(signal.T), float(fs), leads)


def _from_array(source: NDArray[Any], fs: float | None) -> Record:
    if fs is None:
        raise ZooError("An array does not say its sampling rate: give fs= in Hz.")
    if source.ndim not in (1, 2) or source.size == 0 or not np.issubdtype(source.dtype, np.number):
        raise ZooError(
            f"An ECG is an array of numbers (T,) or (C, T), not {source.dtype} {source.shape}."
        )
    signal = np.atleast_2d(source).astype(np.float32)
    if signal.shape[0] > signal.shape[1]:
        raise ZooError(f"An ECG has leads first: (C, T), not {source.shape}.")
    leads = tuple(f"lead{i + 1}" for i in range(len(signal)))
    return Record("array", signal, float(fs), leads)


def _choose(record: Record, lead: str | Sequence[str] | None, count: int) -> Record:
    names = [name.lower() for name in record.leads]
    if lead is None:
        # A stable sort: the preferred one first, the others as they are.
        chosen = sorted(range(len(names)), key=lambda i: names[i] != PREFERRED.lower())[:count]
    else:
        chosen = []
        for wanted in [lead] if isinstance(lead, str) else lead:
            if wanted.lower() not in names:
                raise ZooError(
                    f"{record.name} has no lead '{wanted}', but {', '.join(record.leads)}."
                    f"{did_you_mean(wanted, record.leads)}"
                )
            chosen.append(names.index(wanted.lower()))
    if len(chosen) != count:
        raise ZooError(
            f"{record.name}: {count} leads are needed, found {len(chosen)} of "
            f"{', '.join(record.leads)}."
        )
    leads = tuple(record.leads[i] for i in chosen)
    return Record(record.name, record.signal[chosen], record.fs, leads, record.peaks, record.labels)
