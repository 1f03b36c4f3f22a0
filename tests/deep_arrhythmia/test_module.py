"""Annotating records of all formats, the two stages, and the real-scale networks."""

import csv

import numpy as np
import pyedflib
import pytest
import torch
import wfdb
from lightning import Trainer, seed_everything

from tests.deep_arrhythmia.case import CASE, write_record
from zoo import DeepArrhythmia
from zoo.cli.main import main
from zoo.datamodules import EcgSegmentsDataModule
from zoo.datamodules.ecg_segments.sources import SAMPLES
from zoo.datamodules.ecg_segments.synthetic import synthetic_record
from zoo.deep_arrhythmia import BoostingBaseline
from zoo.ecg.records import Record
from zoo.errors import ZooError

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return DeepArrhythmia(**CASE.model)


@pytest.mark.parametrize("name", ["100", "200_00_10"])
def test_real_records_are_annotated_and_written_for_wfdb(model, tmp_path, name):
    beats = model.annotate(SAMPLES / name)
    reference = wfdb.rdann(str(SAMPLES / name), "atr")
    assert len(beats) == pytest.approx((reference.sample > 0).sum(), rel=0.01)
    samples = beats["sample"]
    assert samples == sorted(set(samples))
    path = beats.to_wfdb(tmp_path, name)
    read = wfdb.rdann(str(path.with_suffix("")), "atr")
    assert read.sample.tolist() == samples
    assert read.symbol == beats["label"]
    assert sum(beats.counts.values()) == len(beats)
    assert set(beats[["sample", "label", "prob", "state", "report"]][0]) >= {"label", "report"}
    assert not beats.flagged
    assert beats.detector == "xqrs"


def test_formats_give_the_same_beats(model, tmp_path):
    record = synthetic_record(0, "test", 1, 20.0).record
    signal = record.signal[0].astype(np.float64).round(3)
    by_array = model.annotate(signal, fs=360)
    (tmp_path / "a.csv").write_text("MLII\n" + "\n".join(f"{v:.3f}" for v in signal))
    write_record(tmp_path, "w", signal=signal)
    header = {"label": "MLII", "dimension": "uV", "sample_frequency": 360}
    header |= {"physical_max": 8000.0, "physical_min": -8000.0}
    header |= {"digital_max": 32767, "digital_min": -32768}
    with pyedflib.EdfWriter(str(tmp_path / "e.edf"), 1) as file:
        file.setSignalHeaders([header])
        file.writeSamples([1000 * signal])
    others = {
        "csv": model.annotate(tmp_path / "a.csv", fs=360),
        "wfdb": model.annotate(tmp_path / "w"),
        "hea": model.annotate(str(tmp_path / "w.hea")),
        "edf": model.annotate(tmp_path / "e.edf"),
    }
    assert len(by_array) > 10
    for name, beats in others.items():
        assert np.allclose(beats["sample"], by_array["sample"], rtol=0, atol=2), name  # EDF rounds
        assert np.allclose(beats["prob"], by_array["prob"], atol=0.02), name
        assert beats.fs == 360


def test_segments_without_ecg_are_flagged(model):
    signal = synthetic_record(0, "test", 1, 40.0).record.signal[0].copy()
    signal[10 * 360 : 20 * 360] = 0.1
    signal[30 * 360 : 31 * 360] = np.nan
    beats = model.annotate(signal, fs=360)
    flags = {note.flag for note in beats.flagged}
    assert "flat or NaN" in flags
    assert 0 < len(beats.flagged) < len(beats.segments)
    times = np.array(beats["sample"]) / 360
    for note in beats.flagged:
        assert not ((times >= note.start) & (times < note.end)).any()


def test_fewer_than_two_peaks_say_nothing(model, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(model.peak_tool, "method", "annotation")
    monkeypatch.setattr(
        "zoo.deep_arrhythmia.module.read_record",
        lambda *_: Record(
            "still",
            rng.standard_normal((1, 5000)).astype(np.float32),
            250.0,
            ("I",),
            np.array([600]),
        ),
    )
    beats = model.annotate("still")
    assert list(beats) == []
    assert {note.flag for note in beats.segments} == {"fewer than 2 R peaks"}
    with pytest.raises(ZooError, match="no beat"):
        beats.to_wfdb("out", "x")
    assert beats.figure().axes


@pytest.mark.parametrize(
    ("source", "options", "pattern"),
    [
        (np.zeros(5000), {"fs": 250}, "flat or NaN all over"),
        (np.zeros(5000), {}, "give fs="),
        (np.zeros(500), {"fs": 250}, "lasts 2.0 s"),
        (np.zeros(5000), {"fs": 60}, "60 samples a second"),
        ("nowhere/100", {}, "100.hea is missing"),
        (str(SAMPLES / "100"), {"lead": "V9"}, "no lead 'V9', but MLII"),
    ],
)
def test_what_cannot_be_annotated(model, source, options, pattern):
    with pytest.raises(ZooError, match=pattern):
        model.annotate(source, **options)


def test_annotated_peaks_are_used_only_if_asked_for(tmp_path):
    model = DeepArrhythmia(**CASE.model, rpeaks="annotation")
    record = write_record(tmp_path, "r", seconds=20.0)
    beats = model.annotate(record)
    assert beats.detector == "annotation"
    reference = wfdb.rdann(str(record), "atr").sample
    assert np.abs(np.array(beats["sample"]) - reference).max() <= 1
    (tmp_path / "r.atr").unlink()
    with pytest.raises(ZooError, match=r"r\.atr is missing"):
        model.annotate(record)


def test_table_has_a_row_a_beat(model, tmp_path):
    model.evidence = "rich"
    beats = model.annotate(synthetic_record(0, "test", 1, 20.0).record.signal[0], fs=360)
    with beats.to_csv(tmp_path / "b.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [int(row["sample"]) for row in read] == beats["sample"]
    assert {row["state"] for row in read} == {"rich"}
    assert all(row["report"].startswith("beat ") for row in read)
    assert float(read[3]["pre_rr"]) == pytest.approx(beats[3]["measures"]["pre_rr"], rel=1e-3)


def small_data(**options):
    return EcgSegmentsDataModule(**{**CASE.data, **options})


def test_second_stage_trains_the_head_alone():
    seed_everything(0)
    model, data = DeepArrhythmia(**{**CASE.model, "steps": 1}), small_data()
    trainer = Trainer(max_steps=1, limit_val_batches=0, **SILENT)
    with pytest.warns(UserWarning, match="in stage 'evidence'|begun at step"):
        trainer.fit(DeepArrhythmia(**{**CASE.model, "steps": 3}), small_data())
    model.training_stages = model.training_stages[:1]
    Trainer(max_steps=1, limit_val_batches=0, **SILENT).fit(model, data)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    torch.manual_seed(0)
    full = DeepArrhythmia(**{**CASE.model, "steps": 1, "confidence_steps": 3})
    seed_everything(0)
    full.load_state_dict(before)
    full.training_stages = full.training_stages[1:]
    Trainer(max_steps=3, limit_val_batches=0, max_epochs=9, **SILENT).fit(full, small_data())
    for key, value in full.state_dict().items():
        changed = not torch.equal(value, before[key])
        assert changed == key.startswith("confidence."), key


@pytest.mark.parametrize("stage", ["evidence", "confidence"])
def test_each_stage_sees_its_own_patients(stage, monkeypatch):
    seed_everything(0)
    model, data = DeepArrhythmia(**CASE.model), small_data()
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    model.stage_index = ["evidence", "confidence"].index(stage)
    model.log = lambda *_, **__: None
    seen = []
    monkeypatch.setattr(
        model, f"_{stage}_loss", lambda part: seen.append(part["held_out"]) or torch.zeros(())
    )
    model.training_step(batch, 0)
    assert seen[0].all() if stage == "confidence" else not seen[0].any()
    assert len(seen[0])
    batch["held_out"] = torch.full_like(batch["held_out"], stage == "evidence")
    assert model.training_step(batch, 0) == 0
    assert len(seen) == 1


def test_calibration_is_stored_with_the_weights(tmp_path):
    seed_everything(0)
    model = DeepArrhythmia(**CASE.model)
    Trainer(max_epochs=2, **SILENT).fit(model, small_data())
    assert (model.temperatures != 1).all()
    assert model.curve.any()
    assert (model.spread > 0).all()
    assert model.class_counts.sum() > 20
    assert model.measure_tool.calls > 0
    again = DeepArrhythmia(**CASE.model)
    again.load_state_dict(model.state_dict())
    assert again.threshold == model.threshold
    fixed = DeepArrhythmia(**CASE.model, tau=0.25)
    seed_everything(0)
    Trainer(max_epochs=2, **SILENT).fit(fixed, small_data())
    assert fixed.threshold == 0.25


def test_boosting_is_logged_beside_a_test():
    pytest.importorskip("sklearn")
    seed_everything(0)
    options = {**SILENT, "callbacks": [BoostingBaseline()]}
    data = small_data(patients=[10, 1, 3], segments=4)
    (found,) = Trainer(**options).test(DeepArrhythmia(**CASE.model), data, verbose=False)
    assert found["test_macro_f1_boosting"] > found["test_macro_f1"]  # the network is untrained
    assert found["test_f1_N_boosting"] > 0.8
    # Samples of the beat alone do not know the rhythm; both is what either has.
    assert 0 < found["test_macro_f1_boosting_alone"] < found["test_macro_f1_boosting"]
    assert found["test_macro_f1_boosting_both"] > found["test_macro_f1_boosting_alone"]
    assert found["test_f1_N_boosting_both"] > 0.8
    assert found["test_f1_S_boosting_both"] > found["test_f1_S_boosting_alone"]


@pytest.mark.parametrize("target", ["right", "no_gain"])
def test_both_targets_of_confidence(target):
    seed_everything(0)
    model = DeepArrhythmia(**CASE.model, confidence_target=target)
    Trainer(max_epochs=4, **SILENT).fit(model, small_data())
    assert model.stage.name == "confidence"


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"report": "words"}, "report='words' is unknown"),
        ({"rpeaks": "gqrs"}, "rpeaks='gqrs' is unknown"),
        ({"evidence": "poor"}, "evidence='poor' is unknown"),
        ({"dim": 30}, "multiple of 4"),
        ({"image_size": [30, 64]}, "multiple of 16"),
    ],
)
def test_options_are_checked(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        DeepArrhythmia(**{**CASE.model, **options})


@pytest.mark.slow
def test_real_scale_networks_take_a_step_with_random_weights(tmp_path):
    """ViT-small and a BERT of the size of Bio_ClinicalBERT, without a download."""
    options = ["--model.pretrained", "false", "--data.source", "synthetic", "--data.root", "null"]
    options += ["--data.patients", "[5, 1, 1]", "--data.segments", "1", "--data.batch_size", "2"]
    options += ["--data.num_workers", "0", "--data.eval_batch_size", "1"]
    options += ["--trainer.precision", "32-true", "--trainer.fast_dev_run", "true"]
    options += ["--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]
    main(["fit", "--config", "zoo/deep_arrhythmia/full.yaml", *options])
