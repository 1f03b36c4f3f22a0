"""The data module of segments, and its generator."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.deep_arrhythmia.case import FS as RECORD_FS
from tests.deep_arrhythmia.case import write_record
from zoo.datamodules import EcgSegmentsDataModule
from zoo.datamodules.ecg_segments.datamodule import Segments
from zoo.datamodules.ecg_segments.synthetic import F, N, S, V, synthetic_record
from zoo.ecg.beats import CLASSES
from zoo.errors import ZooError

SMALL = {"patients": [10, 2, 3], "segments": 3, "image_size": [32, 64]}


def ready(*stages, **options):
    data = EcgSegmentsDataModule(**options)
    for stage in stages:
        data.setup(stage)
    return data


@pytest.mark.parametrize("rpeaks", ["annotation", "xqrs"])
@pytest.mark.parametrize("source", ["synthetic", "mitdb_sample"])
def test_each_beat_is_scored_once(source, rpeaks):
    small = SMALL if source == "synthetic" else {"image_size": [32, 64]}
    dataset = ready("test", source=source, rpeaks=rpeaks, **small).datasets["test"]
    found = np.zeros(6, int)
    missed = np.zeros(5, int)
    for sample in (dataset[i] for i in range(len(dataset))):
        label = sample["label"]
        found += np.bincount(label[label >= 0], minlength=6)
        missed += sample["missed"].numpy()
    expected = sum(np.bincount(r.labels, minlength=6) for r in dataset.recordings)
    assert found.tolist() == expected.tolist()
    lost = sum(np.bincount(r.missed_labels, minlength=5) for r in dataset.recordings)
    assert missed.tolist() == lost.tolist()
    assert (rpeaks == "annotation") <= (lost.sum() == 0 and found[5] == 0)


def test_false_detections_have_their_own_label():
    data = ready("test", rpeaks="xqrs", **SMALL)
    reference = ready("test", **SMALL)
    for a, b in zip(
        data.datasets["test"].recordings, reference.datasets["test"].recordings, strict=True
    ):
        hits = (a.labels < len(CLASSES)).sum()
        assert hits + len(a.missed) == len(b.peaks)
        assert hits + (a.labels == len(CLASSES)).sum() == len(a.peaks)


def test_patients_of_the_splits_differ_and_some_are_held_out():
    data = ready("fit", "test", **SMALL)
    names = {s: {r.strip.name for r in d.recordings} for s, d in data.datasets.items()}
    assert not names["train"] & names["val"]
    assert not names["train"] & names["test"]
    assert [r.held_out for r in data.datasets["train"].recordings].count(True) == 2
    sample = ready("fit", source="mitdb_sample", image_size=[32, 64])
    train = sample.datasets["train"].recordings
    assert [r.strip.name for r in train if not r.held_out] == ["106_10_20", "119_00_10"]


def test_each_batch_has_held_out_patients():
    data = ready("fit", batch_size=8, **SMALL)
    batches = list(data.train_dataloader())
    assert len(batches) == 3
    assert {int(b["held_out"].sum()) for b in batches} == {2}


def test_training_segments_begin_elsewhere_each_time():
    dataset = ready("fit", **SMALL).datasets["train"]
    torch.manual_seed(0)
    first = dataset[0]
    second = dataset[0]
    assert not torch.equal(first["signal"], second["signal"])
    torch.manual_seed(0)
    assert torch.equal(dataset[0]["signal"], first["signal"])
    assert (first["label"] >= 0).sum() == first["mask"].sum()


def test_flat_segments_are_counted_and_left_out(tmp_path):
    clean = synthetic_record(0, "test", 1, 60.0).record.signal[0].copy()
    clean[10 * RECORD_FS : 31 * RECORD_FS] = 0.2
    for name in ("a", "b", "c", "d"):
        write_record(tmp_path, name, seconds=60.0, signal=clean)
    splits = {"train": ["a", "b"], "val": ["c"], "test": ["d"]}
    data = EcgSegmentsDataModule(str(tmp_path), "wfdb", splits, image_size=[32, 64])
    with pytest.warns(UserWarning, match="are flat or hold NaN") as caught:
        data.setup("fit")
    assert str(caught[0].message).startswith("2 segments of the train split")
    assert (
        len(data.datasets["train"]) == 10
    )  # of 12: a segment with a second of ECG in it is none that is flat
    starts = [data.datasets["train"][i]["signal"].abs().max() for i in range(10)]
    assert min(starts) > 0.1


def test_a_segment_without_rhythm_says_nothing(tmp_path):
    recording = ready("test", **SMALL).datasets["test"].recordings[0]
    one = {key: getattr(recording, key)[:1] for key in ("peaks", "rr", "labels")}
    few = replace(recording, **one)
    sample = Segments([few], 2500, [32, 64], training=False)[0]
    assert not sample["mask"].any()
    assert sample["missed"].sum() == 1


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"source": "mitbd"}, "source='mitbd' is unknown.*Did you mean 'mitdb'"),
        ({"source": "mitdb"}, "do not go together"),
        ({"rpeaks": "gqrs"}, "rpeaks='gqrs' is unknown"),
        ({"source": "wfdb", "root": "x"}, "splits goes with source='wfdb'"),
        ({"batch_size": 1}, "at least 2"),
        ({"seconds": 2.0}, "at least 5"),
        ({"patients": [1, 1, 1]}, "train at least 5"),
    ],
)
def test_options_are_checked(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        EcgSegmentsDataModule(**options)


def test_generated_beats_are_what_their_class_says():
    pre = {k: [] for k in (N, S, V, F)}
    for patient in range(30):
        truth = synthetic_record(0, "train", patient, 60.0)
        times, kinds = truth.times, truth.record.labels
        rr = np.diff(times, prepend=np.nan) / np.median(np.diff(times))
        for kind, values in pre.items():
            values.extend(rr[kinds == kind])
        assert (truth.qrs_width[kinds == V] > 0.11).all()
        assert np.all(np.diff(times) > 0.2)
    assert 0.55 < np.nanmedian(pre[S]) < 0.8
    assert np.nanmedian(pre[V]) < 0.8
    assert np.nanmedian(pre[F]) == pytest.approx(0.97, abs=0.05)
    assert min(map(len, pre.values())) > 50
    a, b = (synthetic_record(0, "train", 0, 20.0).record.signal for _ in range(2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, synthetic_record(1, "train", 0, 20.0).record.signal)
    assert synthetic_record(0, "train", 0, 20.0, leads=2).record.signal.shape == (2, 7200)
