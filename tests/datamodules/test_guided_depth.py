import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning import seed_everything
from PIL import Image
from skimage.data import stereo_motorcycle
from torch.utils.data import DataLoader

from zoo.datamodules import GuidedDepthDataModule
from zoo.datamodules.guided_depth import datamodule, degradation
from zoo.datamodules.guided_depth.readers import SAMPLES, Frame
from zoo.datamodules.guided_depth.scene import Scene, Scenes
from zoo.errors import ZooError

from . import layouts

SMALL = {"scale": 8, "crop": 32, "eval_repeats": 1}
SENSOR = SMALL | {"scale": 1, "degradation": "real"}


def ready(stage: str, **options) -> GuidedDepthDataModule:
    module = GuidedDepthDataModule(**options)
    module.setup(stage)
    return module


@pytest.fixture(scope="module")
def embedded() -> GuidedDepthDataModule:
    module = ready("fit", crop=64, samples_per_epoch=40)
    module.setup("test")
    return module


# The embedded scenes


def check_sample(sample, scale=8):
    lr, guide, depth, mask = (sample[key] for key in ("lr_depth", "guide", "depth", "mask"))
    height, width = depth.shape[1:]
    assert lr.shape == (1, height // scale, width // scale)
    assert guide.shape == (3, height, width)
    assert mask.shape == depth.shape == (1, height, width)
    assert lr.shape[1] * scale == height
    assert {lr.dtype, guide.dtype, depth.dtype} == {torch.float32}
    assert mask.dtype == torch.bool
    assert 0 <= guide.min() < guide.max() <= 1
    assert mask.any()
    assert (depth > 0).all()
    assert torch.isfinite(lr).all()


def test_training_sample(embedded):
    train = embedded.datasets["train"]
    assert len(train) == 40
    for index in range(5):
        sample = train[index]
        check_sample(sample)
        assert sample["depth"].shape == (1, 64, 64)
        assert set(sample) == {
            *("lr_depth", "guide", "depth", "mask", "name", "index", "report_scale")
        }
        assert sample["lr_depth"].min() > 1.0  # metres
        assert sample["depth"].max() < 4.0
        assert sample["index"] == index


@pytest.mark.parametrize(("split", "name"), [("val", "Laundry"), ("test", "Motorcycle")])
def test_whole_images(embedded, split, name):
    dataset = embedded.datasets[split]
    assert len(dataset) == 3
    for index in range(3):
        sample = dataset[index]
        check_sample(sample)
        assert sample["name"] == name
        assert sample["report_scale"] == 100
        assert sample["blur"].shape == sample["depth"].shape
        assert 0 <= sample["blur"].min() < sample["blur"].max() <= 5


def test_no_scene_is_in_two_splits(embedded):
    names = {
        split: {scene.name for scene in dataset.scenes.kept}
        for split, dataset in embedded.datasets.items()
    }
    assert names == {
        "train": {"Art", "Books", "Cones", "Dolls", "Teddy"},
        "val": {"Laundry"},
        "test": {"Motorcycle"},
    }


def test_depth_of_laundry_is_in_metres(embedded):
    grey = np.array(Image.open(SAMPLES / "Laundry" / "disp1.png"))[:368, :440]
    sample = embedded.datasets["val"][0]
    known = grey > 0
    np.testing.assert_array_equal(sample["mask"][0], known)
    wanted = 3.740 * 160 / (grey[known].astype(float) + 230)
    np.testing.assert_allclose(sample["depth"][0].numpy()[known], wanted, rtol=1e-6)


def test_depth_of_motorcycle_is_in_metres(embedded):
    disparity = stereo_motorcycle()[2][:496, :736]
    sample = embedded.datasets["test"][0]
    known = np.isfinite(disparity)
    np.testing.assert_array_equal(sample["mask"][0], known)
    wanted = 0.994978 * 193.001 / (disparity[known].astype(float) + 31.086)
    np.testing.assert_allclose(sample["depth"][0].numpy()[known], wanted, rtol=1e-5)


def test_bicubic_degradation_is_the_published_protocol():
    sample = ready("validate", degradation="bicubic").datasets["val"][0]
    height, width = sample["depth"].shape[1:]
    truth = Image.fromarray(sample["depth"][0].numpy())
    wanted = truth.resize((width // 8, height // 8), Image.BICUBIC)
    np.testing.assert_allclose(sample["lr_depth"][0], np.asarray(wanted), atol=1e-5)
    assert "blur" not in sample


def test_eval_repeats_are_for_random_degradations():
    assert len(ready("validate", degradation="bicubic", eval_repeats=4).datasets["val"]) == 1
    assert len(ready("validate", degradation="noisy", eval_repeats=4).datasets["val"]) == 4


def test_real_size_options_are_plain_data():
    module = GuidedDepthDataModule(seed=3, num_workers=0, batch_size=2)
    assert json.dumps([module.dataset, module.scale, module.seed, module.crop])


# Randomness


def test_evaluation_is_the_same_each_time_and_follows_the_seed(embedded):
    dataset = embedded.datasets["val"]
    torch.manual_seed(99)
    first = dataset[1]["lr_depth"]
    torch.manual_seed(0)
    assert torch.equal(first, dataset[1]["lr_depth"])
    assert torch.equal(first, ready("validate").datasets["val"][1]["lr_depth"])
    assert not torch.equal(first, dataset[0]["lr_depth"])
    assert not torch.equal(first, ready("validate", seed=1).datasets["val"][1]["lr_depth"])


def test_training_follows_seed_everything(embedded):
    train = embedded.datasets["train"]
    draws = []
    for seed in (0, 0, 1):
        seed_everything(seed, verbose=False)
        draws.append([train[0]["lr_depth"], train[0]["lr_depth"]])
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])
    assert not torch.equal(draws[0][0], draws[2][0])
    assert not torch.equal(draws[0][0], draws[0][1])  # the same index, a new crop


def test_ranks_in_the_same_state_draw_different_crops(embedded):
    scenes = embedded.datasets["train"].scenes.kept[:1]
    one = datamodule.TrainingCrops(scenes, "spatially_varying", 8, 64, 40)
    crops = []
    for index in (0, 1):
        torch.manual_seed(0)
        crops.append(one[index]["depth"])
    assert not torch.equal(*crops)


def test_workers_and_epochs_draw_different_crops():
    scene = Scene.from_frame(Frame("ramp", *ramp(64, 64)), 8)
    same = [scene] * 4  # whatever differs between samples comes from the random numbers
    crops = datamodule.TrainingCrops(same, "spatially_varying", 8, 32, 4)
    loader = DataLoader(crops, batch_size=1, num_workers=2)
    torch.manual_seed(0)
    epochs = [[float(batch["lr_depth"].sum()) for batch in loader] for _ in range(2)]
    assert len({*epochs[0], *epochs[1]}) == 8


# Augmentation


def ramp(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A guide that shows its own depth, which grows to the right and much faster downwards."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    depth = 1 + 0.002 * x + 0.02 * y + 0.3 * ((x // 8 + y // 8) % 2)
    return np.repeat(depth[:, :, None] / 5, 3, axis=2), depth


@pytest.mark.parametrize("kind", ["bicubic", "real"])
def test_all_maps_are_turned_alike(kind):
    guide, depth = ramp(96, 120)
    hole = depth.copy()
    hole[5::16, 3::16] = 0
    scale = 1 if kind == "real" else 8
    scenes = Scenes([Frame("ramp", guide, hole, depth if kind == "real" else None)], scale)
    crops = datamodule.TrainingCrops(scenes, kind, scale, 32, 64)
    turns = set()
    for index in range(64):
        sample = crops[index]
        check_sample(sample, scale)
        shown, truth = sample["guide"][0].flatten(), sample["depth"][0].flatten()
        known = sample["mask"][0].flatten()
        assert torch.corrcoef(torch.stack([shown[known], truth[known]]))[0, 1] > 0.9999
        lr = sample["lr_depth"][0]
        if kind == "real":
            assert torch.equal(lr[sample["mask"][0]], sample["depth"][sample["mask"]])
        else:
            shrunk = degradation.bicubic_depth(sample["depth"][0], 8)
            torch.testing.assert_close(lr, shrunk, atol=1e-5, rtol=0)
        down, right = (float(truth.view(32, 32).diff(dim=d).mean()) for d in (0, 1))
        turns.add((down > 0, right > 0, abs(down) > abs(right)))
    # Depth grows downwards, except where a map was turned: eight ways, and two without quarters.
    assert len(turns) == (2 if kind == "real" else 8)


def test_jitter_changes_colour_by_at_most_a_tenth_each():
    guide = torch.rand(3, 16, 16, generator=degradation.generator(0)) * 0.5 + 0.2
    grey = torch.tensordot(torch.tensor(datamodule.LUMA), guide, dims=1)
    rng = degradation.generator(1)
    expected = 1 + 0.1 * (2 * torch.rand(3, generator=degradation.generator(1)) - 1)
    brightness, contrast, saturation = expected
    wanted = guide * brightness
    wanted = (grey * brightness).mean() + contrast * (wanted - (grey * brightness).mean())
    luma = torch.tensordot(torch.tensor(datamodule.LUMA), wanted, dims=1)
    wanted = luma + saturation * (wanted - luma)
    torch.testing.assert_close(datamodule.jitter(guide, rng), wanted)
    assert (expected != 1).all()
    many = [datamodule.jitter(torch.full((3, 4, 4), 0.5), rng).mean() for _ in range(50)]
    assert 0.45 <= min(many) < 0.46
    assert 0.54 < max(many) <= 0.55


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


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "nyuv2"}, "dataset='nyuv2' is unknown.*Did you mean 'nyu'"),
        ({"degradation": "bicubc"}, "degradation='bicubc' is unknown.*Did you mean 'bicubic'"),
        ({"depth_unit": "cm"}, "depth_unit='cm' is unknown"),
        ({"root": "/data"}, "takes no root"),
        ({"scale": 0}, "scale=0 must be at least 1"),
        ({"scale": 1}, "nothing to restore at scale=1"),
        ({"crop": 60}, "crop=60 must be a multiple of scale=8"),
        ({"eval_repeats": 0}, "eval_repeats=0 must be at least 1"),
        ({"samples_per_epoch": 0}, "samples_per_epoch=0 must be at least 1"),
        ({"degradation": "real"}, "which 'middlebury_mini' lacks"),
        ({"dataset": "rgbdd", "degradation": "real"}, "scale=8 must be 1"),
        ({"dataset": "nyu", "degradation": "noisy", "scale": 1}, "nothing to restore"),
    ],
)
def test_options_are_checked_at_once(options, message):
    with pytest.raises(ZooError, match=message):
        GuidedDepthDataModule(**options)


@pytest.mark.parametrize(
    ("dataset", "tree"),
    [
        ("nyu", "nyu_depth_v2_labeled.mat"),
        ("middlebury", "view1.png"),
        ("lu", r"RGB/\*.png  Depth/\*.png"),
        ("rgbdd", "<id>_{RGB.jpg,HR_gt.png,LR_fill_depth.png}"),
        ("tofdsr", "TOFDC_split/{Train,Test}/{RGB,GT,LR_Filled}"),
    ],
)
def test_wrong_folder_prints_the_expected_tree(tmp_path, dataset, tree):
    for root in (None, str(tmp_path), str(tmp_path / "absent")):
        with pytest.raises(ZooError, match=tree):
            ready("test", dataset=dataset, root=root)


def test_crop_larger_than_the_image(tmp_path):
    with pytest.raises(ZooError, match=r"crop=64 does not fit into nyu_.*48x64"):
        ready("fit", dataset="nyu", root=str(layouts.write_nyu_npy(tmp_path)), crop=64)


def broken(tmp_path, dataset, write, breaks, options=SMALL):
    """Writes a miniature, breaks it, and returns the message of setting up all its splits."""
    breaks(write(tmp_path))
    with pytest.raises(ZooError) as error:
        ready("test", dataset=dataset, root=str(tmp_path), **options)
    return str(error.value)


def test_missing_file_of_a_pair_is_named(tmp_path):
    path = tmp_path / "models/models_test/20200004/20200004_HR_gt.png"
    message = broken(tmp_path, "rgbdd", layouts.write_rgbdd, lambda _: path.unlink())
    assert str(path) in message
    assert "is missing" in message


def test_sensor_map_is_needed_only_where_it_is_used(tmp_path):
    path = tmp_path / "models/models_test/20200004/20200004_LR_fill_depth.png"
    message = broken(tmp_path, "rgbdd", layouts.write_rgbdd, lambda _: path.unlink(), SENSOR)
    assert str(path) in message
    ready("test", dataset="rgbdd", root=str(tmp_path), **SMALL)


def test_image_without_its_map_is_named(tmp_path):
    path = tmp_path / "Depth" / "02_depth.png"
    message = broken(
        tmp_path, "lu", layouts.write_grey_pairs, lambda _: path.rename(path.with_stem("03_depth"))
    )
    assert "03_depth.png is a depth map without exactly one guide" in message


def test_scene_without_disparity_is_named(tmp_path):
    path = tmp_path / "Venus" / "disp2.png"
    message = broken(
        tmp_path, "middlebury", layouts.write_middlebury_scenes, lambda _: path.unlink()
    )
    assert f"{path} is missing" in message


def test_offset_that_is_no_number(tmp_path):
    def breaks(root):
        (root / "Moebius" / "dmin.txt").write_text("two hundred")

    message = broken(tmp_path, "middlebury", layouts.write_middlebury_scenes, breaks)
    assert "dmin.txt holds 'two hundred'" in message


def test_list_with_missing_columns_names_the_line(tmp_path):
    def breaks(root):
        path = root / "TOFDSR_Test.txt"
        path.write_text("rgb,gt,lr\n" + path.read_text() + "TOFDC_split/Test/RGB/0002.png\n")

    message = broken(tmp_path, "tofdsr", layouts.write_tofdsr, breaks)
    assert "TOFDSR_Test.txt, line 4: expected three paths" in message


def test_eight_bit_depth_in_a_metric_set(tmp_path):
    path = tmp_path / "models/models_test/20200003/20200003_HR_gt.png"
    message = broken(
        tmp_path,
        "rgbdd",
        layouts.write_rgbdd,
        lambda _: layouts.save((50 * layouts.depth_m(3)).astype(np.uint8), path),
    )
    assert f"{path} has 8-bit values" in message


def test_guide_of_another_size(tmp_path):
    path = tmp_path / "models/models_test/20200003/20200003_RGB.jpg"
    message = broken(
        tmp_path,
        "rgbdd",
        layouts.write_rgbdd,
        lambda _: layouts.save(layouts.guide_u8(0, 24), path),
    )
    assert "48x64" in message
    assert "24x64" in message


def test_depth_in_millimetres_passed_as_metres(tmp_path):
    def breaks(root):
        np.save(root / "test_depth.npy", 1000 * np.load(root / "test_depth.npy"))

    message = broken(tmp_path, "nyu", layouts.write_nyu_npy, breaks)
    assert "test_depth.npy, image 0 has a median depth of" in message
    assert "in millimetres" in message


def test_images_and_maps_of_different_number(tmp_path):
    def breaks(root):
        np.save(root / "test_depth.npy", np.load(root / "test_depth.npy")[:1])

    message = broken(tmp_path, "nyu", layouts.write_nyu_npy, breaks)
    assert "test_images_v2.npy (2, 48, 64, 3) and test_depth.npy (1, 48, 64)" in message


def test_normalised_depth_without_its_range(tmp_path):
    message = broken(
        tmp_path, "nyu", layouts.write_nyu_minmax, lambda r: (r / "test_minmax.npy").unlink()
    )
    assert "normalised to 0..1: expected test_minmax.npy" in message


def test_truncated_array(tmp_path):
    def breaks(root):
        data = (root / "test_images_v2.npy").read_bytes()
        (root / "test_images_v2.npy").write_bytes(data[: len(data) // 2])

    message = broken(tmp_path, "nyu", layouts.write_nyu_npy, breaks)
    assert "test_images_v2.npy cannot be read, it may be truncated" in message


def test_truncated_mat_file(tmp_path):
    def breaks(root):
        data = (root / "nyu_depth_v2_labeled.mat").read_bytes()
        (root / "nyu_depth_v2_labeled.mat").write_bytes(data[: len(data) // 2])

    assert "no readable 'images'" in broken(tmp_path, "nyu", layouts.write_nyu_mat, breaks)


def test_old_mat_file(tmp_path):
    def breaks(root):
        (root / "nyu_depth_v2_labeled.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(999))

    assert "version 7.3 (HDF5)" in broken(tmp_path, "nyu", layouts.write_nyu_mat, breaks)


def test_mat_file_with_other_contents(tmp_path):
    import h5py

    def breaks(root):
        with h5py.File(root / "nyu_depth_v2_labeled.mat", "a") as file:
            del file["depths"]

    assert "no readable 'images' and 'depths'" in broken(
        tmp_path, "nyu", layouts.write_nyu_mat, breaks
    )


def test_mat_file_without_h5py(tmp_path, monkeypatch):
    layouts.write_nyu_mat(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ZooError, match=r"h5py: pip install .*\[depth\]"):
        ready("test", dataset="nyu", root=str(tmp_path))


def test_later_files_are_checked_when_read(tmp_path):
    layouts.write_rgbdd(tmp_path)
    path = tmp_path / "models/models_test/20200004/20200004_HR_gt.png"
    layouts.save(layouts.millimetres(0 * layouts.depth_m(4)), path)
    samples = ready("test", dataset="rgbdd", root=str(tmp_path), **SMALL).datasets["test"]
    check_sample(samples[0])
    with pytest.raises(ZooError, match=f"{path} has no known pixel"):
        samples[1]


# A user's own files


def write_pair(folder: Path, depth: str, guide: str, index: int = 0, scale: int = 8) -> None:
    small = layouts.depth_m(index, 48 // scale, 64 // scale)
    if depth.endswith(".npy"):
        (folder / depth).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / depth, small)
    else:
        layouts.save(layouts.millimetres(small), folder / depth)
    layouts.save(layouts.guide_u8(index), folder / guide)


def predicted(inputs: list[str] | str, **options) -> list[dict]:
    dataset = ready("predict", inputs=inputs, **options).datasets["predict"]
    return [dataset[i] for i in range(len(dataset))]


@pytest.mark.parametrize(
    ("files", "pattern", "names"),
    [
        ([("a_depth.png", "a_rgb.jpg"), ("b_lr.png", "b.png")], "*", ["a", "b"]),
        ([("a_lr_depth.npy", "a_color.png"), ("b_Depth.tif", "b_RGB.png")], "*", ["a", "b"]),
        ([("s/depth.png", "s/photo.jpg")], "s/*", ["s"]),
        ([("s/depth.png", "s/rgb.jpg"), ("t/depth.png", "t/rgb.jpg")], "*/*", ["s", "t"]),
        ([("s/0_depth.png", "s/photo.jpg"), ("t/depth.png", "t/0.jpg")], "*/*", ["s", "t"]),
        ([("s/0_lr.png", "s/0.jpg"), ("t/0_lr.png", "t/0.jpg")], "*/*", ["s_0", "t_0"]),
        ([("depth/0.png", "rgb/0.png"), ("depth/1.png", "rgb/1.png")], "*/*", ["0", "1"]),
    ],
)
def test_inputs_are_paired_by_name(tmp_path, files, pattern, names):
    for index, (depth, guide) in enumerate(files):
        write_pair(tmp_path, depth, guide, index)
    samples = predicted(str(tmp_path / pattern))
    assert [sample["name"] for sample in samples] == names
    for index, sample in enumerate(samples):
        assert set(sample) == {"lr_depth", "guide", "name", "index", "report_scale"}
        assert sample["index"] == index
        np.testing.assert_allclose(sample["lr_depth"][0], layouts.depth_m(index, 6, 8), atol=6e-4)
        assert sample["guide"].shape == (3, 48, 64)
        blue = 255 * float(sample["guide"][2].mean())
        assert blue == pytest.approx(15 * index, abs=5)  # of the same index as its depth


def test_inputs_in_metres(tmp_path):
    write_pair(tmp_path, "a_depth.png", "a.png")
    Image.fromarray(np.full((6, 8), 7, np.uint16)).save(tmp_path / "a_depth.png")
    assert predicted(str(tmp_path), depth_unit="m")[0]["lr_depth"].unique().tolist() == [7]


@pytest.mark.parametrize("extra", ["b_depth.png", "b_rgb.png"])
def test_input_without_partner_is_named(tmp_path, extra):
    write_pair(tmp_path, "a_depth.png", "a_rgb.png")
    write_pair(tmp_path, "b_depth.png", "b_rgb.png")
    (tmp_path / extra).unlink()
    left = {"b_depth.png": "b_rgb.png", "b_rgb.png": "b_depth.png"}[extra]
    with pytest.raises(ZooError, match=f"{left} is a .* without exactly one"):
        predicted(str(tmp_path))


def test_leftovers_in_a_folder_are_no_pair(tmp_path):
    write_pair(tmp_path, "a_depth.png", "a_rgb.png")
    write_pair(tmp_path, "b_depth.png", "c_rgb.png")
    with pytest.raises(ZooError, match=r"b_depth\.png is a depth map without exactly one guide"):
        predicted(str(tmp_path))


def test_input_with_two_partners(tmp_path):
    write_pair(tmp_path, "a_depth.png", "a_rgb.png")
    write_pair(tmp_path, "a_lr.png", "a_color.png")
    with pytest.raises(ZooError, match="without exactly one"):
        predicted(str(tmp_path))


def test_inputs_of_the_wrong_ratio(tmp_path):
    write_pair(tmp_path, "a_depth.png", "a_rgb.png")
    write_pair(tmp_path, "b_depth.png", "b_rgb.png", scale=4)
    with pytest.raises(ZooError, match=r"b_depth\.png: a depth map of 12x16.*guide of 96x128"):
        ready("predict", inputs=str(tmp_path))


def test_bad_values_stop_before_prediction(tmp_path):
    write_pair(tmp_path, "a_depth.npy", "a_rgb.png")
    np.save(tmp_path / "a_depth.npy", 1000 * layouts.depth_m(0, 6, 8))
    with pytest.raises(ZooError, match=r"a_depth\.npy has a median .* in millimetres"):
        ready("predict", inputs=str(tmp_path))
