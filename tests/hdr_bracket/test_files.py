"""HDR files: OpenEXR and Radiance there and back, other primaries, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from zoo.errors import ZooError
from zoo.hdr_files import read_photo, read_radiance, read_rgbe, write_radiance, write_rgbe
from zoo.hdr_files.exr import REC709, read_exr, to_rec709
from zoo.hdr_files.rgbe import from_rgbe, to_rgbe

OpenEXR = pytest.importorskip("OpenEXR")
AP0_FILE = Path(__file__).parents[3] / "shared/data/hdr_bracket/Carrots_AP0.exr"
AP0 = (0.7347, 0.2653, 0.0, 1.0, 0.0001, -0.077, 0.32168, 0.33767)


def scene(height=11, width=33):
    rng = np.random.default_rng(0)
    image = np.exp2(rng.uniform(-8, 8, (height, width, 3))).astype(np.float32)
    image[2, 3:20] = 0.5  # a run
    image[4, 1] = 0
    return image


def write_channels(path, channels, **header):
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage, **header}
    OpenEXR.File(header, channels).write(str(path))
    return path


def test_exr_round_trip_is_that_of_half_floats(tmp_path):
    image = scene()
    path = write_radiance(tmp_path / "a.exr", image)
    assert np.array_equal(read_radiance(path), image.astype(np.float16).astype(np.float32))
    with OpenEXR.File(str(path)) as file:
        assert file.header()["chromaticities"] == pytest.approx(REC709)


@pytest.mark.parametrize("width", [4, 33, 300])  # too narrow for the coding; short; with runs
def test_radiance_round_trip_is_within_a_mantissa_step(tmp_path, width):
    image = scene(width=width)
    again = read_rgbe(write_rgbe(tmp_path / "a.hdr", image))
    error = np.abs(again - image).max(axis=-1)
    assert (error <= image.max(axis=-1) / 128).all()


def test_radiance_files_are_those_of_opencv(tmp_path):
    cv2 = pytest.importorskip("cv2")
    image = scene(width=64)
    ours = write_rgbe(tmp_path / "a.hdr", image)
    assert np.array_equal(cv2.imread(str(ours), cv2.IMREAD_UNCHANGED)[..., ::-1], read_rgbe(ours))
    cv2.imwrite(str(tmp_path / "b.hdr"), image[..., ::-1])
    assert np.allclose(read_rgbe(tmp_path / "b.hdr"), image, atol=image.max(-1, keepdims=True) / 64)


def test_a_mantissa_that_rounds_up_takes_the_next_exponent():
    assert from_rgbe(to_rgbe(np.float32([[0.9999, 0.5, 0]])))[0] == pytest.approx([1, 0.5, 0])


def radiance_file(path, body, resolution=b"-Y 2 +X 2", lines=b""):
    path.write_bytes(
        b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n" + lines + b"\n" + resolution + b"\n" + body
    )
    return path


PIXELS = [bytes([128, 0, 0, 129]), bytes([0, 128, 0, 129]), bytes([0, 0, 128, 129])]  # R, G, B of 1


def test_old_coding_repeats_the_pixel_before(tmp_path):
    body = PIXELS[0] + bytes([1, 1, 1, 2]) + PIXELS[1]
    image = read_rgbe(radiance_file(tmp_path / "a.hdr", body))
    assert np.array_equal(image, [[[1, 0, 0], [1, 0, 0]], [[1, 0, 0], [0, 1, 0]]])
    # Two marks in a row are the digits 1 and 2 of 1 + 2 * 256.
    body = PIXELS[2] + bytes([1, 1, 1, 1]) + bytes([1, 1, 1, 2])
    image = read_rgbe(radiance_file(tmp_path / "b.hdr", body, b"-Y 2 +X 257"))
    assert (image == [0, 0, 1]).all()


@pytest.mark.parametrize(
    ("resolution", "first_row"),
    [
        (b"-Y 2 +X 2", [0, 1]),
        (b"+Y 2 +X 2", [2, 0]),
        (b"-Y 2 -X 2", [1, 0]),
        (b"+X 2 -Y 2", [0, 2]),
    ],
)
def test_orientations_of_the_resolution_line(tmp_path, resolution, first_row):
    body = PIXELS[0] + PIXELS[1] + PIXELS[2] + PIXELS[0]
    image = read_rgbe(radiance_file(tmp_path / "a.hdr", body, resolution))
    assert image[0].argmax(axis=1).tolist() == first_row


def test_exposure_lines_are_divided_out(tmp_path):
    lines = b"EXPOSURE=2\nEXPOSURE=4\nCOLORCORR=1 2 1\n"
    image = read_rgbe(radiance_file(tmp_path / "a.hdr", PIXELS[0] * 2 + PIXELS[1] * 2, lines=lines))
    assert image[0, 0] == pytest.approx([1 / 8, 0, 0])
    assert image[1, 0] == pytest.approx([0, 1 / 16, 0])


def test_broken_radiance_files_name_the_scanline(tmp_path):
    data = write_rgbe(tmp_path / "a.hdr", scene()).read_bytes()
    (tmp_path / "b.hdr").write_bytes(data[:-40])
    with pytest.raises(ZooError, match=r"b\.hdr is truncated or damaged in scanline 10 of 11"):
        read_radiance(tmp_path / "b.hdr")
    (tmp_path / "c.hdr").write_bytes(b"P6 2 2 255\n")
    with pytest.raises(ZooError, match="no Radiance file"):
        read_radiance(tmp_path / "c.hdr")
    with pytest.raises(ZooError, match="no resolution line"):
        read_rgbe(radiance_file(tmp_path / "d.hdr", b"", b"-Y 2"))
    with pytest.raises(ZooError, match="truncated"):
        read_rgbe(radiance_file(tmp_path / "e.hdr", PIXELS[0]))


def test_white_stays_white_between_primaries():
    matrix = to_rec709(AP0, "test")
    assert matrix @ np.ones(3) == pytest.approx(np.ones(3))
    # The published matrix from ACES 2065-1 to linear Rec.709, with Bradford's adaptation.
    published = [
        [2.52169, -1.13413, -0.38756],
        [-0.27648, 1.37272, -0.09624],
        [-0.01538, -0.15298, 1.16835],
    ]
    assert matrix == pytest.approx(np.array(published), abs=2e-3)
    with pytest.raises(ZooError, match="span no colours"):
        to_rec709((0.3, 0.3) * 4, "x.exr")


@pytest.mark.skipif(not AP0_FILE.is_file(), reason="the AP0 test file is not here")
def test_a_real_file_in_other_primaries_is_converted():
    with OpenEXR.File(str(AP0_FILE), separate_channels=True) as file:
        pixels = np.stack([file.channels()[c].pixels for c in "RGB"], -1).astype(np.float64)
    expected = pixels @ to_rec709(AP0, "test").T
    assert np.abs(read_exr(AP0_FILE) - expected).max() < 1e-3
    assert np.abs(read_exr(AP0_FILE) - pixels).max() > 0.05


def test_grey_and_float_and_alpha_channels(tmp_path):
    grey = scene()[..., 0].copy()
    path = write_channels(tmp_path / "y.exr", {"Y": grey})
    assert np.array_equal(read_radiance(path), np.repeat(grey[..., None], 3, axis=-1))
    rgba = np.concatenate([scene(), np.full((11, 33, 1), 0.5, np.float32)], axis=-1)
    assert np.array_equal(
        read_radiance(write_channels(tmp_path / "a.exr", {"RGBA": rgba})), scene()
    )


def test_exr_with_holes_is_refused_or_repaired(tmp_path):
    image = scene()
    path = write_channels(tmp_path / "rg.exr", {c: image[..., 0].copy() for c in ("R", "G", "Z")})
    with pytest.raises(ZooError, match=r"rg\.exr has no channel B, but G, R, Z"):
        read_radiance(path)
    image[0, 0] = np.inf
    image[1, 1] = np.nan
    path = write_channels(tmp_path / "inf.exr", {"RGB": image})
    with pytest.raises(ZooError, match=r"inf\.exr has 6 values that are NaN or infinite"):
        read_radiance(path)
    repaired = read_radiance(path, repair=True)
    assert repaired[0, 0].tolist() == [image[np.isfinite(image)].max()] * 3
    assert (repaired[1, 1] == 0).all()


def test_what_is_no_radiance(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(ZooError, match=r"a\.png is no HDR image.*8-bit"):
        read_radiance(tmp_path / "a.png")
    with pytest.raises(ZooError, match="is black"):
        read_radiance(write_radiance(tmp_path / "b.exr", np.zeros((4, 4, 3), np.float32)))
    with pytest.raises(ZooError, match="50% negative"):
        read_radiance(_saved(tmp_path, np.float32([[[-1, -1, -1], [1, 1, 1]]])))
    with pytest.raises(ZooError, match="uint8"):
        read_radiance(_saved(tmp_path, np.ones((2, 2, 3), np.uint8)))
    (tmp_path / "c.exr").write_bytes(b"nothing")
    with pytest.raises(ZooError, match=r"c\.exr cannot be read as OpenEXR"):
        read_radiance(tmp_path / "c.exr")
    with pytest.warns(UserWarning, match=r"spans 1\.0 stops"):
        read_radiance(_saved(tmp_path, np.float32([[[1, 1, 1], [2, 2, 2]]])))
    with pytest.raises(ZooError, match=r"\.exr, \.hdr or \.npy"):
        write_radiance(tmp_path / "a.tiff", scene())


def _saved(folder, image):
    np.save(folder / "a.npy", image)
    return folder / "a.npy"


def test_photographs_are_turned_as_they_were_held(tmp_path):
    picture = np.zeros((2, 3, 3), np.uint8)
    picture[0, 0] = 255
    image = Image.fromarray(picture)
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was held with its right side down
    image.save(tmp_path / "a.png", exif=exif)
    found = read_photo(tmp_path / "a.png")
    assert found.shape == (3, 2, 3)
    assert found[0, 1].tolist() == [1, 1, 1]


def test_modes_of_photographs(tmp_path):
    deep = (np.arange(12, dtype=np.uint16) * 5000).reshape(3, 4)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert read_photo(tmp_path / "deep.png")[..., 1] == pytest.approx(deep / 65535, abs=1e-6)
    alpha = np.full((3, 4, 4), 51, np.uint8)
    Image.fromarray(alpha).save(tmp_path / "alpha.png")
    assert read_photo(tmp_path / "alpha.png") == pytest.approx(np.full((3, 4, 3), 0.2))
    Image.new("CMYK", (4, 4)).save(tmp_path / "c.jpg")
    with pytest.raises(ZooError, match="CMYK without a colour profile"):
        read_photo(tmp_path / "c.jpg")
    with pytest.raises(ZooError, match="HDR image already"):
        read_photo(tmp_path / "x.exr")
    with pytest.raises(ZooError, match=r"from 0\.5 to 3, so it is HDR already"):
        read_photo(np.array([0.5, 3.0, 1.0], np.float32).reshape(1, 1, 3))
    with pytest.raises(ZooError, match="NaN"):
        read_photo(np.full((2, 2, 3), np.nan))
    with pytest.raises(ZooError, match="shape"):
        read_photo(np.zeros((2, 2, 2), np.uint8))


def test_colour_profiles_are_honoured(tmp_path):
    """A profile whose curve is linear: the same bytes mean brighter sRGB values."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image = Image.new("RGB", (4, 4), (100, 150, 200))
    image.save(tmp_path / "a.png", icc_profile=profile)
    assert read_photo(tmp_path / "a.png")[0, 0] * 255 == pytest.approx([100, 150, 200], abs=1)
    image.save(tmp_path / "b.png", icc_profile=b"no profile")
    assert read_photo(tmp_path / "b.png")[0, 0] * 255 == pytest.approx([100, 150, 200], abs=1e-3)
