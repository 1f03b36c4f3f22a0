"""HDR bracket in the contract's tests."""

import numpy as np
from PIL import Image

from tests.case import Case


def write_inputs(folder):
    """A portrait with alpha, and a landscape that a phone stored turned."""
    rng = np.random.default_rng(0)
    alpha = rng.integers(0, 256, (37, 21, 4), dtype=np.uint8)
    Image.fromarray(alpha).save(folder / "door.png")
    turned = Image.fromarray(rng.integers(0, 256, (24, 40, 3), dtype=np.uint8))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(folder / "field.jpg", exif=exif)
    return [str(folder / "*.png"), str(folder / "*.jpg")]


def bad_inputs(folder):
    """CMYK, a broken file, an HDR image, a missing root, 8 bits as truth, mistakes in options."""
    for name in ("cmyk", "broken", "hdr", "pairs"):
        (folder / name).mkdir()
    Image.new("CMYK", (20, 20)).save(folder / "cmyk/a.jpg")
    yield {"inputs": [str(folder / "cmyk")]}, "CMYK"
    (folder / "broken/a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    yield {"inputs": [str(folder / "broken")]}, "cannot be read"
    np.save(folder / "hdr/a.npy", np.ones((4, 4, 3), np.float32))
    yield {"inputs": [str(folder / "hdr")]}, "matches no file"
    yield {"dataset": "hdr_real", "root": str(folder / "nowhere")}, "nowhere"
    Image.new("RGB", (20, 20)).save(folder / "pairs/a.png")
    (folder / "pairs/pairs.csv").write_text("ldr,hdr,split\na.png,a.png,train\n")
    yield {"dataset": "hdr_real", "root": str(folder / "pairs")}, "8-bit"


CASE = Case(
    model={
        "evs": [-2.0, 0.0, 2.0],
        "steps": 2,
        "generator_steps": 1,
        "cache_size": 2,
        "fusion_width": 4,
        "fusion_steps": 100,
    },
    data={"crop": 16, "view": 24, "views": 2, "samples_per_epoch": 8, "batch_size": 4},
    shapes={
        "hdr": (1, 3, 16, 16),
        "frames": (1, 3, 3, 16, 16),
        "weights": (1, 3, 16, 16),
    },
    write_inputs=write_inputs,
    predict=lambda folder: {"image": folder / "door.png"},
    bad_inputs=bad_inputs,
    learns=0.97,
)
