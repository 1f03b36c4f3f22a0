"""SEM-FAS in the contract's tests."""

import numpy as np
from PIL import Image

from tests.case import Case
from tests.datamodules.mmdg import write_tree

SIZE = 32


def write_inputs(folder):
    """Two captures of several sizes and depths of grey; the second has no infrared."""
    rng = np.random.default_rng(0)

    def save(name, *shape, kind=np.uint8):
        pixels = rng.integers(0, np.iinfo(kind).max, shape, dtype=kind)
        Image.fromarray(pixels).save(folder / name)

    save("door_rgb.png", 60, 50, 3)
    save("door_depth.png", 30, 25, kind=np.uint16)
    save("door_ir.png", 40, 40)
    save("gate_rgb.png", 64, 64, 3)
    save("gate_depth.png", 64, 64)
    return [str(folder / "*.png")]


def bad_inputs(folder):
    """Files that are no captures, and lists that are none of MMDG."""
    (folder / "nan").mkdir()
    np.save(folder / "nan/a_depth.npy", np.full((8, 8), np.nan, np.float32))
    yield {"inputs": [str(folder / "nan")]}, r"a_depth.npy has NaN .* set holes to 0"
    (folder / "range").mkdir()
    np.save(folder / "range/a_rgb.npy", np.full((8, 8, 3), 200.0, np.float32))
    yield {"inputs": [str(folder / "range")]}, r"a_rgb.npy has values from 200 .* 0\.\.1"
    (folder / "which").mkdir()
    Image.new("L", (8, 8)).save(folder / "which/face.png")
    yield {"inputs": [str(folder / "which")]}, "face.png: no telling which sensor"
    (folder / "broken").mkdir()
    (folder / "broken/a_ir.png").write_bytes(b"\x89PNG\r\n")
    yield {"inputs": [str(folder / "broken")]}, "a_ir.png cannot be read"
    yield {"root": str(folder / "nowhere")}, "nowhere/MMDG-Benchmark/C-train.txt.*expected"
    write_tree(folder / "fields", {("C", "train"): "a b 1\n"})
    yield {"root": str(folder / "fields")}, "C-train.txt, line 1: .* found 3 fields"
    write_tree(folder / "label", {("C", "train"): "a.png b.png c.png 2\n"})
    yield {"root": str(folder / "label")}, "line 1: the label '2' is neither 0 nor 1"
    yield {"sources": "CW", "target": "W"}, "sources='CW' contains the target domain W"


CASE = Case(
    model={"image_size": SIZE, "state_dim": 4, "n_heads": 2, "effect_rank": 2},
    data={
        "size": SIZE,
        "per_domain": [12, 8, 18],
        "batch_size": 12,
        "eval_batch_size": 12,
    },
    shapes={
        "p_live": (2,),
        "evidence": (2, 2),
        "main": (2, 2, 3),
        "synergy": (2, 2, 3),
        "phi_main": (2, 3),
        "phi_pair": (2, 3),
        "u_amb": (2,),
        "u_mix": (2,),
        "u_cov": (2,),
    },
    write_inputs=write_inputs,
    predict=lambda folder: {
        "rgb": folder / "door_rgb.png",
        "depth": folder / "door_depth.png",
    },
    bad_inputs=bad_inputs,
)
