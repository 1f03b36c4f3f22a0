"""The embedded scenes, their randomness and augmentation."""

import json

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

from .samples import check_sample, ready


@pytest.fixture(scope="module")
def embedded() -> GuidedDepthDataModule:
    module = ready("fit", crop=64, samples_per_epoch=40)
    module.setup("test")
    return module


# The embedded scenes


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
