"""Databases by name: svdb and incartdb as WFDB, vitaldb as CSV, and their splits by patients."""

import numpy as np
import pytest
import wfdb

from zoo.datamodules import EcgSegmentsDataModule
from zoo.datamodules.ecg_segments.databases import database_patients, drawn_split
from zoo.ecg.beats import CLASSES
from zoo.ecg.strip import FS
from zoo.ecg.vitaldb import read_vitaldb
from zoo.errors import ZooError

SECONDS = 12
INCART = ("I", "II", "III", "AVR", "AVL", "AVF", "V1", "V2", "V3", "V4", "V5", "V6")
PART = "ignore:.* has .* of the .* records:UserWarning"
SPLITS = {"train", "val", "test"}


def spikes(fs, height=1.0):
    """Beats at 0.8 s, 1.6 s and so on: signal (T,), and samples."""
    at = np.rint(np.arange(0.8, SECONDS - 0.4, 0.8) * fs).astype(int)
    offset = (np.arange(SECONDS * fs)[:, None] - at) / fs
    return height * np.exp(-0.5 * (offset / 0.02) ** 2).sum(axis=1), at


def write_wfdb(folder, name, fs, leads, comments=()):
    """Lead number i has spikes of i + 1 tenths of a millivolt."""
    signal, at = spikes(fs)
    signals = signal[:, None] * (1 + np.arange(len(leads))) / 10
    wfdb.wrsamp(
        name, fs=fs, units=["mV"] * len(leads), sig_name=list(leads), p_signal=signals,
        fmt=["16"] * len(leads), comments=list(comments), write_dir=str(folder),
    )  # fmt: skip
    symbols = ["N", "S", "V"] * len(at)
    wfdb.wrann(name, "atr", at, symbols[: len(at)], fs=fs, write_dir=str(folder))


def names_by_split(folder, source, **options):
    data = EcgSegmentsDataModule(str(folder), source, image_size=[32, 64], seconds=5.0, **options)
    for stage in ("fit", "test"):
        data.setup(stage)
    return data, {s: [r.strip.name for r in data.datasets[s].recordings] for s in SPLITS}


@pytest.mark.filterwarnings(PART)
def test_svdb_is_split_by_its_records(tmp_path):
    for name in ("800", "801", "803", "805"):
        write_wfdb(tmp_path, name, 128, ("ECG1", "ECG2"))
    data, names = names_by_split(tmp_path, "svdb")
    assert names == {"train": ["800", "801"], "val": ["805"], "test": ["803"]}
    (tested,) = data.datasets["test"].recordings
    assert [r.held_out for r in data.datasets["train"].recordings] == [False, True]
    assert tested.strip.original_fs == 128
    _, at = spikes(128)
    assert tested.strip.to_original(tested.peaks).tolist() == at.tolist()
    tops = np.abs(tested.strip.signal[0][tested.peaks[1:-1, None] + np.arange(-20, 21)])
    assert np.abs(tops.argmax(axis=1) - 20).max() <= 1  # 128 to 250 Hz moves beats with the signal
    assert [CLASSES[k] for k in tested.labels[:4]] == ["N", "S", "V", "N"]
    assert (
        data.describe()["dataset"] == "MIT-BIH Supraventricular, by patients, R peaks: annotation"
    )
    assert not data.describe()["embedded"]


def test_a_draw_depends_on_the_patient_alone(tmp_path):
    """Worked out once; another result would move patients between training and test."""
    drawn = [drawn_split("incartdb", f"patient {k}") for k in range(1, 12)]
    short = {"train": "r", "val": "v", "test": "t"}
    assert "".join(short[split] for split in drawn) == "trrtvtrtrrt"
    records = [*range(800, 813), *range(820, 830), *range(840, 895)]
    counts = [[drawn_split("svdb", str(r)) for r in records].count(s) for s in short]
    assert counts == [47, 13, 18]


@pytest.mark.filterwarnings(PART)
def test_records_of_one_incart_patient_stay_together(tmp_path):
    # Patients 2 and 3 are drawn to training, 5 to validation and 1 to test.
    patients = {"I01": 1, "I02": 1, "I03": 2, "I04": 3, "I05": 2, "I11": 5, "I12": 1}
    for name, patient in patients.items():
        comments = ("<age>: 65 <sex>: F", f"patient {patient}", "PVCs, noise")
        write_wfdb(tmp_path, name, 257, INCART, comments)
    data, names = names_by_split(tmp_path, "incartdb", leads=2)
    assert names == {
        "train": ["I03", "I04", "I05"],
        "val": ["I11"],
        "test": ["I01", "I02", "I12"],
    }
    held = {r.strip.name for r in data.datasets["train"].recordings if r.held_out}
    assert held == {"I04"}  # a whole patient
    strip = data.datasets["test"].recordings[0].strip
    top = strip.signal.max(axis=1)
    assert top[1] / top[0] == pytest.approx(7 / 2, rel=0.05)  # V1 and II
    assert data.datasets["test"][0]["signal"].shape == (2, 5 * FS)


@pytest.mark.parametrize("comments", [("65 years",), ("patient 1", "same as patient 2")])
def test_an_incart_record_without_its_patient_is_refused(tmp_path, comments):
    write_wfdb(tmp_path, "I01", 257, INCART[:2], comments)
    with pytest.raises(ZooError, match=r"I01\.hea names [02] patients in its comments"):
        database_patients("incartdb", tmp_path)


def test_parts_of_a_database_are_told(tmp_path):
    with pytest.raises(ZooError, match=r"no record of svdb: expected 800\.hea"):
        database_patients("svdb", tmp_path)
    write_wfdb(tmp_path, "800", 128, ("ECG1",))
    write_wfdb(tmp_path, "other", 128, ("ECG1",))
    with pytest.warns(UserWarning, match="has 1 of the 78 records of svdb"):
        assert database_patients("svdb", tmp_path) == {"800": "800"}
    data = EcgSegmentsDataModule(str(tmp_path), "svdb", image_size=[32, 64])
    with (
        pytest.warns(UserWarning, match="1 of the 78"),
        pytest.raises(ZooError, match=r"None of the 1 patients of svdb .* is in the test split"),
    ):
        data.setup("test")


def write_case(folder, case, fs=100, begin=3.0, wave=None, notes=None, labelled=None):
    """A case whose clock begins at ``begin`` seconds; beat 5 is of bad quality."""
    signal, at = spikes(fs)
    at = at[:labelled]
    if wave is None:
        time = begin + np.arange(len(signal)) / fs
        rows = [f"{t:.4f},{v:.4f},,{80}" for t, v in zip(time, signal, strict=True)]
        wave = "\n".join(["Time,SNUADC/ECG_II,SNUADC/ECG_V5,SNUADC/ART", *rows])
    if notes is None:
        lines = [
            f"{'NSVU'[i % 4]},AFIB/AFL,{begin + t / fs:.4f},{i == 5}" for i, t in enumerate(at)
        ]
        lines.append(f",VT,{begin + 1:.4f},False")  # tells of a rhythm, not of a beat
        notes = "\n".join(["beat_type,rhythm_classes,time_second,bad_signal_quality", *lines])
    (folder / f"{case}.csv").write_text(wave)
    (folder / f"Annotation_file_{case}.csv").write_text(notes)
    return at


def test_a_case_of_vitaldb(tmp_path):
    at = write_case(tmp_path, "17", labelled=10)
    record = read_vitaldb(tmp_path, "17")
    assert record.leads == ("ECG_II", "ECG_V5")
    assert record.fs == 100
    assert record.peaks.tolist() == np.delete(at, 5).tolist()
    expected = np.delete([CLASSES.index("NSVQ"[i % 4]) for i in range(len(at))], 5)
    assert record.labels.tolist() == expected.tolist()
    lead = record.signal[0]
    assert np.isnan(lead[at[5] - 35 : at[5] + 56]).all()
    assert np.isnan(lead[at[-1] + 101 :]).all()  # nothing is labelled there
    rest = np.r_[0 : at[5] - 35, at[5] + 56 : at[-1] + 101]
    assert np.isfinite(lead[rest]).all()
    assert np.isnan(record.signal[1]).all()
    assert lead[at[0]] == pytest.approx(1, abs=1e-3)


def test_vitaldb_is_split_by_persons(tmp_path):
    for case in ("1", "2", "3", "4"):
        write_case(tmp_path, case)
    with pytest.warns(UserWarning, match="hold NaN"):
        _, names = names_by_split(tmp_path, "vitaldb")
    assert names == {"train": ["2", "4"], "val": ["3"], "test": ["1"]}
    # Subjects 2 and 3 are drawn to training, 1 to validation and 6 to test.
    people = {"1": 2, "2": 3, "3": 1, "4": 6, "30": 2}
    write_case(tmp_path, "30")
    rows = "\n".join(f"{case},{person},M" for case, person in people.items())
    (tmp_path / "clinical_data.csv").write_text(f"caseid,subjectid,sex\n{rows}\n")
    with pytest.warns(UserWarning, match="hold NaN"):
        _, names = names_by_split(tmp_path, "vitaldb")
    assert names == {"train": ["1", "2", "30"], "val": ["3"], "test": ["4"]}
    write_case(tmp_path, "5")
    with pytest.raises(ZooError, match="has no subjectid of case 5"):
        database_patients("vitaldb", tmp_path)


WAVE = "time,ECG_II\n0,0\n0.01,1\n0.02,0\n"
NOTES = "time_second,beat_type\n0.01,N\n"


@pytest.mark.parametrize(
    ("wave", "notes", "pattern"),
    [
        (WAVE.replace("time", "t"), NOTES, "no column time or time_second or seconds, but t, ECG"),
        (WAVE.replace("ECG_II", "PLETH"), NOTES, "no column with 'ECG' in its name, but time, PLE"),
        (WAVE, NOTES.replace("beat_type", "beat"), "no column beat_type, but time_second, beat"),
        (WAVE, NOTES.replace("time_second", "sample"), "no column time_second, but sample"),
        (WAVE, NOTES.replace("N", "X"), "beat_type 'X': expected N, S, V, U"),
        (WAVE, NOTES.replace("0.01", "9"), "a beat at 9 s, outside of the waveform from 0 to 0.02"),
        (WAVE, NOTES.replace("0.01", ""), "a beat without time_second"),
        (WAVE.replace("0.02", "0.05"), NOTES, "must rise in even steps"),
        (WAVE.replace(",1", ",high"), NOTES, "column ECG_II must hold numbers"),
        ("time,ECG_II\n", NOTES, "has no row"),
        ("", NOTES, "is no CSV table"),
        (
            WAVE,
            "time_second,beat_type,bad_signal_quality\n0.01,N,perhaps\n",
            "bad_signal_quality 'perhaps': expected true or false",
        ),
    ],
)
def test_bad_cases_are_one_sentence(tmp_path, wave, notes, pattern):
    write_case(tmp_path, "7", wave=wave, notes=notes)
    with pytest.raises(ZooError, match=pattern):
        read_vitaldb(tmp_path, "7")


def test_missing_files_of_a_case(tmp_path):
    with pytest.raises(ZooError, match=r"7\.csv is missing: expected CASE\.csv and Annotation_f"):
        read_vitaldb(tmp_path, "7")
    with pytest.raises(ZooError, match=r"no record of vitaldb: expected CASE\.csv"):
        database_patients("vitaldb", tmp_path)
