import numpy as np
import pytest
from PIL import ExifTags, Image

from zoo.depth_files import channels_and_size, check_pair, read_depth, read_image
from zoo.errors import ZooError

MM = np.array([[0, 1500], [2000, 65535]], np.uint16)
METRES = np.array([[0, 1.5], [2.0, 65.535]], np.float32)


@pytest.mark.parametrize("ending", [".png", ".tif", ".npy"])
def test_integer_files_are_in_the_unit_asked_for(tmp_path, ending):
    path = tmp_path / f"depth{ending}"
    np.save(path, MM) if ending == ".npy" else Image.fromarray(MM).save(path)
    for source in (path, str(path)):
        depth = read_depth(source)
        assert depth.dtype == np.float32
        np.testing.assert_allclose(depth, METRES, rtol=1e-6)
    np.save(tmp_path / "small.npy", MM // 1000)
    np.testing.assert_array_equal(read_depth(tmp_path / "small.npy", "m"), MM // 1000)


@pytest.mark.parametrize("ending", [".tif", ".npy"])
@pytest.mark.parametrize("unit", ["mm", "m"])
def test_float_files_are_always_metres(tmp_path, ending, unit):
    path = tmp_path / f"depth{ending}"
    np.save(path, METRES) if ending == ".npy" else Image.fromarray(METRES).save(path)
    np.testing.assert_array_equal(read_depth(path, unit), METRES)


def test_depth_in_memory():
    np.testing.assert_allclose(read_depth(Image.fromarray(MM)), METRES, rtol=1e-6)
    np.testing.assert_allclose(read_depth(MM.astype(np.int32)[:, :, None]), METRES, rtol=1e-6)
    unknown = read_depth(np.array([[np.nan, np.inf, 1.0]]))
    np.testing.assert_array_equal(unknown, [[0, 0, 1]])


@pytest.mark.parametrize(
    ("depth", "message"),
    [
        (np.zeros((2, 2), np.uint16), "no known pixel"),
        (np.array([[1.0, -0.5]]), r"negative depth \(-0.5\)"),
        (np.full((2, 2), 1500.0), "median depth of 1500 m, so it is in millimetres"),
        (np.ones((2, 2), np.uint8), "8-bit"),
        (np.ones((2, 2, 3), np.uint16), r"one channel .* found the shape \(2, 2, 3\)"),
        (np.array([["near", "far"]]), "expected integers or floats"),
    ],
)
def test_bad_depth(depth, message):
    with pytest.raises(ZooError, match=message):
        read_depth(depth)


def test_bad_files_are_named(tmp_path):
    Image.fromarray((METRES * 3).astype(np.uint8)).save(tmp_path / "eight.png")
    with pytest.raises(ZooError, match=r"eight\.png has 8-bit values"):
        read_depth(tmp_path / "eight.png")
    with pytest.raises(ZooError, match=r"none\.png does not exist"):
        read_depth(tmp_path / "none.png")
    noise = np.random.default_rng(0).integers(0, 9999, (64, 64)).astype(np.uint16)
    Image.fromarray(noise).save(tmp_path / "cut.png")
    np.save(tmp_path / "cut.npy", noise)
    for name in ("cut.png", "cut.npy"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(ZooError, match=f"{name} cannot be read"):
            read_depth(tmp_path / name)
    np.save(tmp_path / "code.npy", np.array([{}], object))
    with pytest.raises(ZooError, match=r"code\.npy cannot be read"):
        read_depth(tmp_path / "code.npy")


def test_unknown_unit():
    with pytest.raises(ZooError, match=r"depth_unit='mn' is unknown.*Did you mean 'm"):
        read_depth(MM, "mn")


def test_guide_from_any_kind_of_image(tmp_path):
    rgb = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    Image.fromarray(rgb).save(tmp_path / "guide.png")
    for source in (tmp_path / "guide.png", rgb, Image.fromarray(rgb), (rgb / 255).astype("f4")):
        guide = read_image(source)
        assert guide.dtype == np.float32
        np.testing.assert_allclose(guide, rgb / 255, atol=1e-6)
    alpha = np.concatenate([rgb, np.full((2, 4, 1), 9, np.uint8)], axis=2)
    np.testing.assert_allclose(read_image(alpha), rgb / 255, atol=1e-6)
    grey = read_image(Image.fromarray(rgb[:, :, 0]))
    np.testing.assert_allclose(grey, np.stack([rgb[:, :, 0]] * 3, axis=2) / 255, atol=1e-6)
    assert read_image(np.full((2, 2, 3), 65535, np.uint16)).max() == 1


@pytest.mark.parametrize(
    ("guide", "message"),
    [
        (np.full((2, 2, 3), np.nan), "NaN"),
        (np.full((2, 2, 3), 200.0), "values from 200 to 200: expected RGB in 0..1"),
        (np.full((2, 2, 3), -0.1), "expected RGB in 0..1"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.zeros(4), r"shape \(4,\)"),
    ],
)
def test_bad_guide(guide, message):
    with pytest.raises(ZooError, match=message):
        read_image(guide)


def test_pair_must_have_the_ratio():
    depth, guide = np.ones((3, 4), np.float32), np.zeros((24, 32, 3), np.float32)
    check_pair(depth, guide, 8, "here")
    with pytest.raises(ZooError, match=r"here: .*3x4.*scale=4 need a guide of 12x16, found 24x32"):
        check_pair(depth, guide, 4, "here")


def test_a_photograph_is_read_as_the_camera_was_held(tmp_path):
    photo = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))
    exif = photo.getexif()
    exif[ExifTags.Base.Orientation] = 6  # held upright: to be turned clockwise
    photo.save(tmp_path / "photo.png", exif=exif)
    assert read_image(tmp_path / "photo.png").shape == (4, 2, 3)
    assert channels_and_size(tmp_path / "photo.png") == (3, (4, 2))
