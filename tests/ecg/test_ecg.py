"""Records, splits, strips, R peaks and pictures."""

import os
from pathlib import Path

import numpy as np
import pytest
import wfdb

from tests.deep_arrhythmia.case import write_record
from zoo.datamodules.ecg_segments.sources import (
    SAMPLE_NEW,
    SAMPLE_TEST,
    SAMPLE_TRAIN,
    SAMPLES,
    mitdb_splits,
)
from zoo.ecg.beats import AAMI, CLASSES, DS1, DS2, PACED, check_splits, patient_of, to_classes
from zoo.ecg.peaks import RPeakTool, match
from zoo.ecg.records import read_record, write_beats
from zoo.ecg.render import render_ecg
from zoo.ecg.strip import FS, cuts, normalise, prepare, rr_context, take
from zoo.errors import ZooError

MITDB = os.environ.get("ZOO_MITDB")
#: Beats of N, S, V and F in thousands, of the 22 records each (de Chazal et al., table of data).
COUNTS = {"DS1": (45.8, 0.94, 3.8, 0.41), "DS2": (44.2, 1.84, 3.2, 0.39)}


def test_aami_classes_of_the_symbols():
    expected = {"N": "NLRejBn", "S": "AaJS", "V": "VEr", "F": "F", "Q": "/fQ?"}
    for name, symbols in expected.items():
        assert [CLASSES[k] for k in to_classes(list(symbols))] == [name] * len(symbols)
    assert (to_classes(list('+~|"[]!x')) == -1).all()
    assert set(AAMI) == set("".join(expected.values()))


def test_splits_are_disjoint_by_patient():
    assert len(DS1) == len(DS2) == 22
    assert not set(DS1) & set(DS2)
    assert not (set(DS1) | set(DS2)) & set(PACED)
    splits = mitdb_splits(same_person=False)
    people = {split: {patient_of(r) for r in records} for split, records in splits.items()}
    assert not people["train"] & people["val"]
    assert not people["train"] & people["test"]
    assert not people["val"] & people["test"]
    check_splits(splits)
    assert set(splits["train"]) | set(splits["val"]) == set(DS1) - {"201"}
    assert splits["test"] == DS2
    sample = {"train": (*SAMPLE_TRAIN, SAMPLE_NEW), "test": SAMPLE_TEST}
    check_splits(sample)


def test_201_and_202_are_one_person():
    assert patient_of("201") == patient_of("202")
    published = mitdb_splits(same_person=True)
    with pytest.raises(ZooError, match="201 and 202, one person, are in both the train and the t"):
        check_splits(published)


@pytest.mark.skipif(MITDB is None, reason="ZOO_MITDB names no folder with the whole mitdb 1.0.0")
@pytest.mark.parametrize(("name", "records"), [("DS1", DS1), ("DS2", DS2)])
def test_beats_of_the_whole_database(name, records):
    found = np.zeros(5)
    for record in records:
        symbols = wfdb.rdann(str(Path(MITDB) / record), "atr").symbol
        classes = to_classes(symbols)
        found += np.bincount(classes[classes >= 0], minlength=5)
    assert found[:4] / 1000 == pytest.approx(COUNTS[name], rel=0.02)


@pytest.mark.parametrize("name", [*SAMPLE_TRAIN, SAMPLE_NEW, *SAMPLE_TEST])
def test_xqrs_finds_the_beats_of_the_real_excerpts(name):
    record = read_record(SAMPLES / name, annotated=True)
    strip = prepare(record)
    found = RPeakTool("xqrs")(strip.signal[0], FS)
    reference = strip.from_original(record.peaks)
    right = int((match(found, reference, FS) >= 0).sum())
    assert right / len(reference) >= 0.98
    assert right / len(found) >= 0.98
    # The field's own count.
    by_wfdb = wfdb.processing.compare_annotations(reference, found, int(0.15 * FS))
    assert by_wfdb.tp == pytest.approx(right, abs=2)


def test_neurokit_finds_them_too():
    pytest.importorskip("neurokit2")
    record = read_record(SAMPLES / "119_00_10", annotated=True)
    strip = prepare(record)
    found = RPeakTool("neurokit")(strip.signal[0, : 60 * FS], FS)
    reference = strip.from_original(record.peaks)
    reference = reference[reference < 60 * FS]
    right = (match(found, reference, FS) >= 0).sum()
    assert right >= 0.95 * max(len(found), len(reference))


def test_peaks_are_remembered_by_content(tmp_path):
    signal = prepare(read_record(SAMPLES / "100")).signal[0, : 20 * FS]
    tool = RPeakTool("xqrs", tmp_path)
    first = tool(signal, FS)
    assert np.array_equal(tool(signal.copy(), FS), first)
    assert tool.detections == 1
    again = RPeakTool("xqrs", tmp_path)
    assert np.array_equal(again(signal, FS), first)
    assert again.detections == 0
    again(-signal, FS)
    assert again.detections == 1


def test_matching_is_one_to_one():
    reference = np.array([100, 300, 500])
    found = np.array([95, 104, 299, 600])
    assert match(found, reference, 250).tolist() == [-1, 0, 1, -1]
    assert match(found, reference[:0], 250).tolist() == [-1] * 4
    assert match(np.array([100]), reference[:1], 250).tolist() == [0]


@pytest.mark.parametrize("length", [2500, 2600, 4500, 5100, 15000, 16499])
def test_each_sample_counts_in_one_segment(length):
    counted = np.zeros(length, int)
    for number, cut in enumerate(found := cuts(length, 2500, 250)):
        assert 0 <= cut.start <= cut.low < cut.high <= cut.start + 2500 <= length
        if number:
            assert cut.low - cut.start >= 250
        if number + 1 < len(found):
            assert cut.start + 2500 - cut.high >= 250
        counted[cut.low : cut.high] += 1
    assert (counted == 1).all()


def test_resampling_moves_annotations_with_the_signal():
    record = read_record(SAMPLES / "100", annotated=True)
    strip = prepare(record)
    peaks = strip.from_original(record.peaks)[5:200]
    around = np.abs(strip.signal[0][peaks[:, None] + np.arange(-20, 21)])
    assert np.abs(np.median(around.argmax(axis=1) - 20)) <= 1
    back = strip.to_original(strip.from_original(record.peaks))
    assert np.abs(back - record.peaks).max() <= 1


def test_rr_context_is_that_of_the_record():
    peaks = np.cumsum([0, 200, 250, 100, 300])
    context = rr_context(peaks, 250)
    assert context[3, 0] == pytest.approx(0.4)
    assert context[3, 1:4].tolist() == pytest.approx([1.0, 0.8, np.nan], nan_ok=True)
    assert context[3, -1] == pytest.approx(1.2)
    assert np.isnan(context[0, 0])
    assert np.isnan(context[-1, -1])


def test_a_segment_has_room_for_the_beats_that_it_classifies():
    strip = prepare(read_record(SAMPLES / "200_00_10"))
    peaks = np.arange(50, strip.signal.shape[1], 52)  # 288 a minute
    rr = rr_context(peaks, FS)
    for cut in cuts(strip.signal.shape[1], 2500, 250)[1:-1]:
        segment = take(strip, peaks, rr, cut, 2500, max_beats=39)
        own = (peaks >= cut.low) & (peaks < cut.high)
        assert segment.scored.sum() == own.sum()


def test_normalised_segments():
    rng = np.random.default_rng(0)
    x = normalise((3 + 7 * rng.standard_normal((2, 1000))).astype(np.float32))
    assert np.median(x, axis=1) == pytest.approx([0, 0], abs=1e-5)
    assert np.percentile(np.abs(x), 98, axis=1) == pytest.approx([1, 1], abs=1e-3)


def test_picture_shows_the_signal_at_its_place():
    signal = np.zeros((1, 2500), np.float32)
    signal[0, 1250] = 2.0
    picture = render_ecg(signal, np.array([1250]), FS, 96, 250).astype(int)
    assert picture.shape == (3, 96, 250)
    ink = picture.sum(axis=0) < 300
    assert set(np.nonzero(ink[20:40].any(axis=0))[0]) <= {124, 125}  # the spike
    assert ink[46:50].any(axis=0).all()  # the line at 0 mV
    assert not ink[60:].any()
    upper = np.nonzero(ink[8:, 125])[0][0] + 8
    assert upper == pytest.approx(48 - 2.0 / 3.0 * 48, abs=1.5)
    assert np.array_equal(picture, render_ecg(signal, np.array([1250]), FS, 96, 250))


def test_picture_has_no_label_and_two_leads():
    """What beats are called is no input of the renderer; two leads stand one above the other."""
    rng = np.random.default_rng(0)
    both = rng.standard_normal((2, 2500)).astype(np.float32)
    one = render_ecg(both[:1], np.array([], int), FS, 48, 224)
    two = render_ecg(both, np.array([], int), FS, 96, 224)
    assert np.array_equal(two[:, :48], one)


def test_written_beats_are_read_by_wfdb(tmp_path):
    path = write_beats(tmp_path / "out", "r_1", [10, 400, 900], ["N", "V", "S"], 360)
    read = wfdb.rdann(str(path.with_suffix("")), "atr")
    assert read.sample.tolist() == [10, 400, 900]
    assert read.symbol == ["N", "V", "S"]
    assert read.fs == 360
    assert [p.name for p in path.parent.iterdir()] == ["r_1.atr"]
    with pytest.raises(ZooError, match="letters, digits"):
        write_beats(tmp_path, "a b", [1], ["N"], 360)
    with pytest.raises(ZooError, match="no beat"):
        write_beats(tmp_path, "a", [], [], 360)


@pytest.mark.parametrize(
    ("write", "pattern"),
    [
        (lambda f: f / "none", "none.hea is missing: expected RECORD.hea and RECORD.dat"),
        (lambda f: write_record(f, "a", fs=50), "a has 50 samples a second: at least 100"),
        (lambda f: write_record(f, "a", seconds=4), "lasts 4.0 s: a segment of 10 s"),
        (lambda f: write_record(f, "a", beats=False), "a.atr is missing"),
        (lambda f: write_record(f, "a", late=9999), "beyond the signal's end at 4320"),
        (lambda f: np.zeros(5000), "give fs= in Hz"),
        (lambda f: np.zeros((5000, 2)), "give fs= in Hz|leads first"),
        (lambda f: f / "x.csv", "give fs= in Hz"),
        (lambda f: f / "x.edf", "x.edf is missing"),
    ],
)
def test_bad_records_are_one_sentence(tmp_path, write, pattern):
    with pytest.raises(ZooError, match=pattern):
        read_record(write(tmp_path), annotated=True, min_seconds=10)


def test_a_record_without_its_signal(tmp_path):
    (write_record(tmp_path, "a").with_suffix(".dat")).unlink()
    with pytest.raises(ZooError, match=r"a\.dat is missing: expected RECORD\.hea and RECORD\.dat"):
        read_record(tmp_path / "a")


@pytest.mark.parametrize("splits", [{"val": ["107"]}, {"train": ["217"]}, {"test": ["104"]}])
def test_paced_records_are_in_no_split(splits):
    with pytest.raises(ZooError, match="is paced"):
        check_splits(splits)


def test_unreadable_files(tmp_path):
    (tmp_path / "b.hea").write_text("rubbish")
    (tmp_path / "b.dat").write_bytes(b"123")
    with pytest.raises(ZooError, match="no WFDB record that can be read"):
        read_record(tmp_path / "b")
    (tmp_path / "b.edf").write_bytes(b"0" * 300)
    with pytest.raises(ZooError, match="no EDF file"):
        read_record(tmp_path / "b.edf")
    (tmp_path / "b.csv").write_text("II,V5\n1\n2\n")
    with pytest.raises(ZooError, match="row of lead names"):
        read_record(tmp_path / "b.csv", fs=250)


def test_leads(tmp_path):
    csv = tmp_path / "two.csv"
    csv.write_text("V5,MLII\n" + "1,2\n" * 300)
    assert read_record(csv, fs=250).leads == ("MLII",)
    assert read_record(csv, fs=250, count=2).leads == ("MLII", "V5")
    assert read_record(csv, "v5", fs=250).signal[0, 0] == 1
    with pytest.raises(ZooError, match=r"no lead 'V6', but V5, MLII\. Did you mean 'V5'\?"):
        read_record(csv, "V6", fs=250)
    with pytest.raises(ZooError, match="3 leads are needed"):
        read_record(csv, fs=250, count=3)


def test_gaps_are_marked_and_all_nan_is_refused():
    signal = prepare(read_record(SAMPLES / "100")).signal[0, : 30 * FS].copy()
    signal[1000:1100] = np.nan
    strip = prepare(read_record(signal, fs=FS))
    assert np.isfinite(strip.signal).all()
    assert np.array_equal(np.nonzero(~strip.usable)[0], np.arange(1000, 1100))
    with pytest.raises(ZooError, match="no sample but NaN"):
        prepare(read_record(np.full(5000, np.nan), fs=FS))
