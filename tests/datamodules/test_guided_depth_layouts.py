"""Every benchmark's own layout, on generated miniatures."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.datamodules import GuidedDepthDataModule
from zoo.datamodules.guided_depth.readers import Frame
from zoo.datamodules.guided_depth.scene import Scene
from zoo.errors import ZooError

from . import layouts
from .samples import SENSOR, SMALL, check_sample, ready

# The benchmarks' own layouts


@pytest.mark.parametrize(
    ("dataset", "write", "counts"),
    [
        ("nyu", layouts.write_nyu_mat, {"train": 3, "val": 1, "test": 2}),
        ("nyu", layouts.write_nyu_npy, {"train": 2, "val": 1, "test": 2}),
        ("rgbdd", layouts.write_rgbdd, {"train": 6, "val": 3, "test": 6}),
        ("tofdsr", layouts.write_tofdsr, {"train": 2, "val": 1, "test": 2}),
        ("middlebury", layouts.write_grey_pairs, {"test": 2}),
        ("middlebury", layouts.write_middlebury_scenes, {"test": 2}),
        ("lu", layouts.write_grey_pairs, {"test": 2}),
    ],
)
@pytest.mark.parametrize("kind", ["spatially_varying", "bicubic", "noisy"])
def test_layout(tmp_path, dataset, write, counts, kind):
    options = SMALL | {"dataset": dataset, "root": str(write(tmp_path)), "degradation": kind}
    module = GuidedDepthDataModule(**options)
    if "train" in counts:
        module.setup("fit")
    else:
        with pytest.raises(ZooError, match="for testing only and has no train split"):
            module.setup("fit")
    module.setup("test")
    assert {split: len(dataset) for split, dataset in module.datasets.items()} == counts
    for split, samples in module.datasets.items():
        names = set()
        for index in range(len(samples)):
            sample = samples[index]
            check_sample(sample)
            assert ("blur" in sample) == (kind == "spatially_varying" and split != "train")
            names.add(sample["name"])
        assert len(names) == counts[split]


@pytest.mark.parametrize(
    ("dataset", "write"),
    [
        ("nyu", layouts.write_nyu_mat),
        ("nyu", layouts.write_nyu_npy),
        ("rgbdd", layouts.write_rgbdd),
        ("middlebury_mini", None),
    ],
)
def test_datasets_reach_spawned_workers(tmp_path, dataset, write):
    root = str(write(tmp_path)) if write else None
    train = ready("fit", dataset=dataset, root=root, **SMALL).datasets["train"]
    copy = pickle.loads(pickle.dumps(train))
    torch.manual_seed(0)
    first = train[0]["lr_depth"]
    torch.manual_seed(0)
    assert torch.equal(first, copy[0]["lr_depth"])


@pytest.mark.parametrize(
    ("dataset", "write", "first_test", "tolerance"),
    [
        ("nyu", layouts.write_nyu_mat, 4, 0),
        ("nyu", layouts.write_nyu_npy, 3, 0),
        ("nyu", layouts.write_nyu_minmax, 3, 1e-5),
        ("rgbdd", layouts.write_rgbdd, 3, 6e-4),
    ],
)
def test_layout_gives_upright_images_in_metres(tmp_path, dataset, write, first_test, tolerance):
    root = str(write(tmp_path))
    sample = ready("test", dataset=dataset, root=root, **SMALL).datasets["test"][0]
    depth, guide = layouts.depth_m(first_test), layouts.guide_u8(first_test)
    known = depth > 0
    if write is not layouts.write_nyu_minmax:  # there a normalised 0 is the least depth
        np.testing.assert_array_equal(sample["mask"][0], known)
    np.testing.assert_allclose(sample["depth"][0].numpy()[known], depth[known], atol=tolerance)
    shown = 255 * sample["guide"].numpy().transpose(1, 2, 0)
    difference = np.abs(shown.mean(axis=2) - guide.mean(axis=2))
    assert np.median(difference) < 3  # JPEG; an image turned or of another index is far off
    assert sample["report_scale"] == 100


def test_grey_levels_stay_grey_levels(tmp_path):
    root = str(layouts.write_grey_pairs(tmp_path))
    sample = ready("test", dataset="lu", root=root, **SMALL).datasets["test"][1]
    grey = (50 * layouts.depth_m(1)).astype(np.uint8)
    known = sample["mask"][0].numpy()
    np.testing.assert_array_equal(known, grey > 0)
    np.testing.assert_array_equal(sample["depth"][0].numpy()[known], grey[known])
    assert sample["report_scale"] == 1
    assert sample["name"] == "02"


def test_grey_levels_are_filled_from_the_darker_side():
    grey = np.array([[200, 0, 50], [50, 0, 200]], np.float32)  # bright is near
    scene = Scene.from_frame(Frame("grey", np.zeros((2, 3, 3), np.float32), grey, metric=False), 1)
    assert scene.depth[:, 1].tolist() == [50, 50]
    assert not scene.mask[:, 1].any()


def test_scene_folders_are_in_metres(tmp_path):
    root = str(layouts.write_middlebury_scenes(tmp_path))
    module = ready("test", dataset="middlebury", root=root, **SMALL)
    for index, (name, offset) in enumerate((("Moebius", 230), ("Venus", 200))):
        sample = module.datasets["test"][index]
        assert sample["name"] == name
        assert sample["report_scale"] == 100
        grey = (50 * layouts.depth_m(index)).astype(np.uint8)
        known = sample["mask"][0].numpy()
        wanted = 3.740 * 160 / (grey[known].astype(float) + offset)
        np.testing.assert_allclose(sample["depth"][0].numpy()[known], wanted, rtol=1e-6)


def test_rgbdd_real_is_the_sensors_map_at_the_guides_size(tmp_path):
    root = str(layouts.write_rgbdd(tmp_path))
    module = ready("test", dataset="rgbdd", root=root, **SENSOR)
    sample = module.datasets["test"][0]
    check_sample(sample, scale=1)
    stored = layouts.millimetres(layouts.depth_m(3, 18, 24))
    lr = np.asarray(stored).astype(np.float32) / 1000
    known = np.asarray(sample["lr_depth"][0]) > 0
    hole = np.asarray(Image.fromarray(lr > 0).resize((64, 48), Image.NEAREST))
    np.testing.assert_array_equal(known, hole)
    enlarged = np.asarray(Image.fromarray(lr).resize((64, 48), Image.BICUBIC))
    inside = np.s_[16:]  # rows whose kernel does not reach the hole
    np.testing.assert_allclose(sample["lr_depth"][0][inside], enlarged[inside], atol=1e-5)
    beside = np.s_[:8, :16]  # the hole does not bleed into the wall beside it, at 2.5 m and more
    assert sample["lr_depth"][0][beside][known[beside]].min() > 2.4
    noisy = ready("test", dataset="rgbdd", root=root, **SENSOR | {"degradation": "noisy"})
    difference = noisy.datasets["test"][0]["lr_depth"] - sample["lr_depth"]
    assert difference.std() > 0.2


def test_real_training_crops(tmp_path):
    root = str(layouts.write_tofdsr(tmp_path))
    module = ready("fit", dataset="tofdsr", root=root, **SENSOR, samples_per_epoch=7)
    assert len(module.datasets["train"]) == 7
    for index in range(7):
        sample = module.datasets["train"][index]
        check_sample(sample, scale=1)
        assert sample["lr_depth"].shape == (1, 32, 32)


def test_tofdsr_counts_truth_up_to_five_metres(tmp_path):
    sample = ready(
        "test", dataset="tofdsr", root=str(layouts.write_tofdsr(tmp_path)), **SENSOR
    ).datasets["test"][0]
    depth = layouts.depth_m(0)
    np.testing.assert_array_equal(sample["mask"][0], (depth > 0) & (depth < depth.max()))


def test_order_does_not_follow_the_directory(tmp_path, monkeypatch):
    cases = [
        ("rgbdd", layouts.write_rgbdd),
        ("lu", layouts.write_grey_pairs),
        ("middlebury", layouts.write_middlebury_scenes),
        ("tofdsr", layouts.write_tofdsr),
    ]

    def names() -> list[list[str]]:
        found = []
        for dataset, _ in cases:
            test = ready("test", dataset=dataset, root=str(tmp_path / dataset), **SMALL)
            samples = test.datasets["test"]
            found.append([samples[i]["name"] for i in range(len(samples))])
        return found

    for dataset, write in cases:
        (tmp_path / dataset).mkdir()
        write(tmp_path / dataset)
    before = names()
    listing, matching = Path.iterdir, Path.glob
    monkeypatch.setattr(Path, "iterdir", lambda self: reversed(sorted(listing(self))))
    monkeypatch.setattr(Path, "glob", lambda self, p: reversed(sorted(matching(self, p))))
    assert names() == before == [sorted(group) for group in before]
