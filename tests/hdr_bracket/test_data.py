"""Scenes and cameras: exposure, noise, views, splits, layouts, the thin lens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.datamodules import FocalStackDataModule, HDRDataModule
from zoo.datamodules.focal_stack.lens import disc, render
from zoo.datamodules.focal_stack.scenes import merge_by_contrast
from zoo.datamodules.hdr.camera import CAMERAS, CAP, expose_scene, photograph
from zoo.datamodules.hdr.scenes import SPLITS, perspective
from zoo.display import decode, encode
from zoo.errors import ZooError
from zoo.hdr_files import write_radiance
from zoo.reproducible import generator


def scenes(count=64, side=32):
    rng = torch.Generator().manual_seed(0)
    return torch.exp2(10 * torch.rand(count, 3, side, side, generator=rng) - 4)


def test_exposure_clips_a_share_of_the_pixels():
    exposed = expose_scene(scenes(), generator(0))
    clipped = (exposed.amax(dim=1) > 1).float().mean(dim=(1, 2))
    assert clipped.min() >= 0.004
    assert clipped.max() <= 0.205
    assert clipped.std() > 0.01
    assert exposed.max() <= CAP


def test_a_clean_camera_is_the_display_curve_in_eight_bits():
    target = expose_scene(scenes(2), generator(0))
    image, same = photograph(target, CAMERAS["clean"], generator(1))
    assert torch.equal(same, target)
    assert torch.allclose(image * 255, (image * 255).round(), atol=1e-4)
    assert (image - encode(target)).abs().max() <= 0.5 / 255 + 1e-6


def test_noise_grows_with_light():
    flat = torch.full((400, 3, 8, 8), 0.25)
    image, _ = photograph(flat, replace(CAMERAS["noisy"], jpeg=0.0), generator(0))
    spread = (decode(image) - 0.25).flatten(1).var(dim=1)
    # Gains from 1e-4 to 1e-2, drawn log-uniformly: their mean is 99e-4 / ln 100.
    assert float(spread.mean()) == pytest.approx(0.25 * 99e-4 / np.log(100), rel=0.15)


def test_no_panorama_is_in_two_splits():
    names = [name for split in SPLITS.values() for name in split]
    assert len(names) == len(set(names)) == 18


def test_training_crops_differ_by_epoch_and_views_do_not():
    data = HDRDataModule(crop=16, view=24, views=2, samples_per_epoch=8)
    data.setup("fit")
    torch.manual_seed(0)
    first, second = data.datasets["train"][0], data.datasets["train"][0]
    assert not torch.equal(first["image"], second["image"])
    a, b = data.datasets["val"][3], data.datasets["val"][3]
    assert torch.equal(a["image"], b["image"])
    assert len(data.datasets["val"]) == 4
    assert a["image"].shape == (3, 24, 24)


def test_perspective_looks_where_it_should():
    """A panorama that is its own longitude and latitude."""
    height, width = 64, 128
    longitude = (torch.arange(width) + 0.5) / width * 360 - 180
    latitude = (torch.arange(height) + 0.5) / height * 180 - 90
    panorama = torch.stack(
        [
            (torch.deg2rad(longitude)).sin().expand(height, width),
            torch.deg2rad(latitude)[:, None].sin().expand(height, width),
            torch.ones(height, width),
        ]
    )
    view = perspective(panorama, yaw=90, pitch=30, fov=60, side=33)
    assert float(view[0, 16, 16]) == pytest.approx(1, abs=0.01)
    assert float(view[1, 16, 16]) == pytest.approx(-np.sin(np.deg2rad(30)), abs=0.02)
    # Half of the field of view to the right, at the horizon.
    right = perspective(panorama, yaw=0, pitch=0, fov=60, side=33)[0, 16, -1]
    assert float(right) == pytest.approx(np.sin(np.deg2rad(29.5)), abs=0.02)
    behind = perspective(panorama, yaw=180, pitch=0, fov=60, side=33)  # across the seam
    assert behind[0, 16].abs().max() < 0.6
    assert behind[2] == pytest.approx(np.ones((33, 33)), abs=1e-5)


def write_pairs(root, count=10, size=(24, 20)):
    rng = np.random.default_rng(0)
    (root / "HDR_gt").mkdir(parents=True)
    (root / "LDR_in").mkdir()
    for i in range(count):
        image = np.exp2(rng.uniform(-6, 2, (*size, 3))).astype(np.float32)
        write_radiance(root / f"HDR_gt/{i:03d}.hdr", 7 * image)
        display = encode(torch.from_numpy(image)).numpy()
        Image.fromarray((255 * display).round().astype(np.uint8)).save(root / f"LDR_in/{i:03d}.png")
    return root


def test_pairs_are_split_and_brought_to_the_photograph_s_white(tmp_path):
    data = HDRDataModule("hdr_real", str(write_pairs(tmp_path / "a")), crop=16)
    data.setup("fit")
    data.setup("test")
    assert [len(data.datasets[s]) for s in ("train", "val", "test")] == [8, 1, 1]
    sample = data.datasets["val"][0]
    use = (sample["image"] > 0.1) & (sample["image"] < 0.9)
    ratio = sample["target"][use] / decode(sample["image"])[use]
    assert float(ratio.median()) == pytest.approx(1, abs=0.02)
    assert data.datasets["train"][0]["image"].shape == (3, 16, 16)


def test_a_table_replaces_the_layout(tmp_path):
    root = write_pairs(tmp_path / "a", 3)
    rows = "".join(
        f"LDR_in/00{i}.png,HDR_gt/00{i}.hdr,{s}\n" for i, s in enumerate(("train", "val", "test"))
    )
    (root / "pairs.csv").write_text(f"ldr,hdr,split\n{rows}")
    data = HDRDataModule("hdr_images", str(root), crop=16)
    data.setup("fit")
    assert data.datasets["val"][0]["name"] == "001"


def test_panorama_files_are_seen_in_perspective(tmp_path):
    for i in range(10):
        write_radiance(
            tmp_path / f"p{i}.exr", scenes(1, 32)[0].permute(1, 2, 0).repeat(1, 2, 1).numpy()
        )
    data = HDRDataModule("poly_haven", str(tmp_path), crop=16, view=24, views=3)
    data.setup("fit")
    assert len(data.datasets["val"]) == 3
    assert data.datasets["val"][2]["target"].shape == (3, 24, 24)
    assert data.datasets["train"][0]["image"].shape == (3, 16, 16)


def test_what_layouts_refuse(tmp_path):
    def setup(root, dataset="hdr_real", stage="fit"):
        HDRDataModule(dataset, str(root), crop=16).setup(stage)

    root = write_pairs(tmp_path / "a", 10)
    (root / "LDR_in/003.png").unlink()
    with pytest.raises(ZooError, match="003 has a radiance, but no photograph"):
        setup(root)
    root = write_pairs(tmp_path / "b", 10)
    Image.new("RGB", (5, 5), (128, 128, 128)).save(root / "LDR_in/000.png")
    with pytest.raises(ZooError, match="expected one size"):
        setup(root)
    root = write_pairs(tmp_path / "c", 10)
    (root / "HDR_gt/000.exr").write_bytes((root / "HDR_gt/000.hdr").read_bytes())
    with pytest.raises(ZooError, match="several files named 000"):
        setup(root)
    with pytest.raises(ZooError, match="no folder HDR_gt: hdr_real has HDR_gt"):
        setup(tmp_path)
    with pytest.raises(ZooError, match="is for testing"):
        setup(write_pairs(tmp_path / "d", 2), "fairchild")
    (tmp_path / "e").mkdir()
    (tmp_path / "e/pairs.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ZooError, match="columns ldr, hdr and split"):
        setup(tmp_path / "e")
    (tmp_path / "e/pairs.csv").write_text("ldr,hdr,split\n,x/a.hdr,train\n")
    with pytest.raises(ZooError, match=r"names x/a\.hdr, which is not there"):
        setup(tmp_path / "e")
    root = write_pairs(tmp_path / "f", 10)
    rows = "LDR_in/000.png,HDR_gt/000.hdr,train\n" * 2
    (root / "pairs.csv").write_text(f"ldr,hdr,split\n{rows}")
    with pytest.raises(ZooError, match="several scenes named 000"):
        setup(root)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"dataset": "hdr_reel", "root": "x"}, "Did you mean 'hdr_real'"),
        ({"dataset": "hdr_real"}, "needs a root"),
        ({"root": "x"}, "takes no root"),
        ({"crop": 20}, "multiple of 16"),
        ({"camera": "phot"}, "Did you mean 'photo'"),
    ],
)
def test_mistakes_in_options(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        HDRDataModule(**options)


def test_discs_grow_and_sum_to_one():
    assert disc(0.0, 3)[3, 3] == 1
    assert float(disc(2.5, 3).sum()) == pytest.approx(1)
    assert disc(2.5, 3)[3, 1] > 0
    assert disc(2.5, 3)[3, 0] == 0


def test_what_is_in_focus_is_sharp_and_light_is_kept():
    sharp = torch.rand(3, 40, 40)
    far = torch.full((40, 40), 0.04)
    in_focus, blurred = render(sharp, far, torch.tensor([0.04, 0.96]))
    assert torch.allclose(in_focus, sharp, atol=1e-4)
    assert blurred.var() < 0.2 * sharp.var()
    assert float(blurred.mean()) == pytest.approx(float(sharp.mean()), rel=0.02)
    constant = render(torch.full((3, 40, 40), 0.3), torch.rand(40, 40), torch.tensor([0.5]))
    assert torch.allclose(constant, torch.full_like(constant, 0.3), atol=1e-3)


def test_a_near_object_covers_what_is_behind():
    sharp = torch.zeros(3, 40, 40)
    sharp[:, :, :20] = 1.0
    disparity = torch.where(torch.arange(40) < 20, 0.96, 0.04).expand(40, 40)
    (focused_far,) = render(sharp, disparity, torch.tensor([0.04]))
    row = focused_far[0, 20]
    assert row[10] == pytest.approx(1, abs=1e-3)
    assert row[30] == pytest.approx(0, abs=1e-3)
    assert 0.1 < row[22] < 0.6  # the blurred edge reaches over the sharp ground


def test_stacks_from_folders(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(8):
        (tmp_path / f"stack/{i}").mkdir(parents=True)
        for k in range(4):
            pixels = rng.integers(0, 256, (40, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"stack/{i}/{k}.png")
    data = FocalStackDataModule("stacks", str(tmp_path), focus_frames=3, crop=16, view=24)
    data.setup("fit")
    assert data.datasets["train"][0]["frames"].shape == (3, 3, 16, 16)
    assert len(data.datasets["val"]) == 3
    with pytest.raises(ZooError, match="fewer than 5 pictures"):
        FocalStackDataModule("stacks", str(tmp_path)).setup("fit")
    with pytest.raises(ZooError, match="no focal stacks to train on"):
        FocalStackDataModule("dpdd", str(tmp_path)).setup("fit")
    with pytest.raises(ZooError, match="expected source"):
        FocalStackDataModule("dpdd", str(tmp_path)).setup("test")


def test_pairs_of_blurred_and_sharp_are_tested_on(tmp_path):
    for name in ("source", "target"):
        (tmp_path / f"test_c/{name}").mkdir(parents=True)
        Image.new("RGB", (30, 20), (9, 9, 9)).save(tmp_path / f"test_c/{name}/1.png")
    data = FocalStackDataModule("dpdd", str(tmp_path))
    data.setup("test")
    sample = data.datasets["test"][0]
    assert sample["focus"] == -1
    assert "frames" not in sample


def test_the_sharpest_frame_wins():
    sharp = torch.rand(1, 3, 30, 30)
    flat = torch.full_like(sharp, 0.5)
    assert (merge_by_contrast(torch.cat([flat, sharp])) - sharp[0]).abs().mean() < 0.01
