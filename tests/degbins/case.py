"""DegBins in the contract's tests."""

import numpy as np
from PIL import Image

from tests.case import Case

SCALE = 4


def write_inputs(folder):
    """Two scenes: a slanted plane with a box before it."""
    rng = np.random.default_rng(0)
    for name in ("hall", "yard"):
        depth = np.linspace(1000, 3000, 16 * 20).reshape(16, 20).astype(np.uint16)
        depth[4:10, 5:12] = 800
        Image.fromarray(depth).save(folder / f"{name}_depth.png")
        guide = rng.integers(0, 256, (16 * SCALE, 20 * SCALE, 3), dtype=np.uint8)
        Image.fromarray(guide).save(folder / f"{name}_rgb.png")
    return [str(folder / "*.png")]


def bad_inputs(folder):
    """A pair that does not fit, metres as millimetres, nothing known, a guide without depth."""
    rgb = np.zeros((16 * SCALE, 20 * SCALE, 3), dtype=np.uint8)
    samples = {
        "size": (np.full((10, 20), 1000, np.uint16), "64x80|scale"),
        "unknown": (np.zeros((16, 20), np.uint16), "no known pixel"),
        "metres": (np.full((16, 20), 1500.0, np.float32), "millimetres|mm"),
        "negative": (np.full((16, 20), -1.0, np.float32), "negative|below"),
    }
    for name, (depth, pattern) in samples.items():
        (folder / name).mkdir()
        Image.fromarray(rgb).save(folder / name / "a_rgb.png")
        np.save(folder / name / "a_depth.npy", depth)
        yield {"inputs": [str(folder / name)]}, pattern
    (folder / "alone").mkdir()
    Image.fromarray(rgb).save(folder / "alone/b_rgb.png")
    yield {"inputs": [str(folder / "alone")]}, "b_rgb"
    yield {"dataset": "rgbdd", "root": str(folder / "nowhere")}, "nowhere"
    (folder / "broken").mkdir()
    (folder / "broken/nyu_depth_v2_labeled.mat").write_bytes(b"MATLAB 5.0 MAT-file")
    yield {"dataset": "nyu", "root": str(folder / "broken")}, "HDF5"


CASE = Case(
    model={"scale": SCALE, "channels": 8, "width": 8, "blocks": 1, "bins": 4},
    data={
        "scale": SCALE,
        "crop": 32,
        "samples_per_epoch": 8,
        "batch_size": 4,
    },
    shapes={
        "depth": (1, 1, 8 * SCALE, 8 * SCALE),
        "std": (1, 1, 8 * SCALE, 8 * SCALE),
        "upsampled": (1, 1, 8 * SCALE, 8 * SCALE),
        "widening": (1, 1, 8 * SCALE, 8 * SCALE),
        "stages.0": (1, 1, 8 * SCALE, 8 * SCALE),
        "stages.1": (1, 1, 8 * SCALE, 8 * SCALE),
        "stages.2": (1, 1, 8 * SCALE, 8 * SCALE),
    },
    write_inputs=write_inputs,
    predict=lambda folder: {"rgb": folder / "hall_rgb.png", "depth": folder / "hall_depth.png"},
    bad_inputs=bad_inputs,
    learns=0.97,  # it starts as bicubic interpolation, most of whose loss is not to be had
)
