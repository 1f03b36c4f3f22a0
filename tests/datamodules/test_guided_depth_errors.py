"""Wrong options and files, and a user's own inputs: one sentence each, before training."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zoo.datamodules import GuidedDepthDataModule
from zoo.errors import ZooError

from . import layouts
from .samples import SENSOR, SMALL, check_sample, ready

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
