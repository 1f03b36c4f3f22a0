"""DeepArrhythmia in the contract's tests."""

import numpy as np
import wfdb

from tests.case import Case
from zoo.datamodules.ecg_segments.synthetic import synthetic_record

FS = 360


def write_record(folder, name, seconds=12.0, fs=FS, beats=True, signal=None, lead="MLII", late=0):
    """A record of the generator in WFDB's layout."""
    record = synthetic_record(0, "test", 1, seconds).record
    signal = record.signal[0] if signal is None else signal
    wfdb.wrsamp(
        name,
        fs=fs,
        units=["mV"],
        sig_name=[lead],
        p_signal=np.asarray(signal, np.float64)[:, None],
        fmt=["16"],
        write_dir=str(folder),
    )
    if beats:
        symbols = ["NSVF"[k] for k in record.labels]
        inside = record.peaks < len(signal)
        samples = record.peaks[inside] + np.arange(inside.sum()) // (inside.sum() - 1) * late
        wfdb.wrann(
            name, "atr", samples, [s for s, i in zip(symbols, inside, strict=True) if i],
            fs=fs, write_dir=str(folder),
        )  # fmt: skip
    return folder / name


def write_inputs(folder):
    """A WFDB record and an array as CSV would have it."""
    write_record(folder, "holter", beats=False)
    write_record(folder, "clinic", lead="V5", beats=False)
    return [str(folder / "*.hea")]


def bad_inputs(folder):
    """Records that are incomplete, too slow, short or flat, and splits that leak."""

    def made(name, **options):
        (folder / name).mkdir()
        write_record(folder / name, "r1", **options)
        return folder / name

    (made("headless") / "r1.dat").unlink()
    yield {"inputs": [str(folder / "headless")]}, r"r1.dat is missing: expected RECORD.hea"
    made("slow", fs=90)
    yield {"inputs": [str(folder / "slow")]}, "90 samples a second: at least 100"
    made("short", seconds=3.0)
    yield {"inputs": [str(folder / "short")]}, "lasts 3.0 s: a segment of 5 s does not fit"
    made("lead")
    yield {"inputs": [str(folder / "lead")], "lead": "MLI"}, "no lead 'MLI'.*Did you mean 'MLII'"
    yield {"source": "mitdb", "root": str(folder / "nowhere")}, "nowhere is no folder"
    yield {"source": "mitdb", "root": str(folder / "lead")}, r"101.hea is missing"
    wfdb_source = {"source": "wfdb", "root": str(folder)}

    def splits(train, val="v", test="t"):
        return {**wfdb_source, "splits": {"train": train, "val": [val], "test": [test]}}

    yield splits(["a", "v"]), "Record v is in both the train and the val split"
    yield splits(["202"], "201"), "one person, are in both"
    yield splits(["a", "102"]), "102 of the train split is paced"
    (made("bare", beats=False) / "r2").mkdir()
    yield splits(["bare/r1", "bare/r2"]), "r1.atr is missing"
    made("late", late=10_000)
    yield splits(["late/r1", "late/r2"]), "beyond the signal's end"
    (folder / "flat").mkdir()
    for name in ("r1", "r2"):
        write_record(folder / "flat", name, signal=np.full(12 * FS, 0.3))
    yield splits(["flat/r1", "flat/r2"]), "All .* segments of the train split are flat"


CASE = Case(
    model={
        "seconds": 5.0,
        "dim": 16,
        "layers": 1,
        "image_size": [32, 64],
        "steps": 2,
        "confidence_steps": 2,
    },
    data={
        "seconds": 5.0,
        "image_size": [32, 64],
        "patients": [5, 1, 2],
        "segments": 2,
        "batch_size": 5,
        "eval_batch_size": 2,
    },
    shapes={"logits": (2, 4, 5), "confidence": (2,)},
    write_inputs=write_inputs,
    predict=lambda folder: {"record": folder / "holter"},
    bad_inputs=bad_inputs,
    trainer={"check_val_every_n_epoch": 1},
)
