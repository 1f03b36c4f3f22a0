"""Delta-Adapter in the contract's tests."""

import json

import numpy as np
from PIL import Image

from tests.case import Case


def write_inputs(folder):
    """Two photographs of other sizes than the exemplar, one with alpha."""
    rng = np.random.default_rng(0)
    pictures = {
        "door.png": rng.integers(0, 256, (37, 25, 4), dtype=np.uint8),
        "field.jpg": rng.integers(0, 256, (32, 48, 3), dtype=np.uint8),
        "before.png": rng.integers(0, 256, (40, 40, 3), dtype=np.uint8),
    }
    pictures["after.png"] = 255 - pictures["before.png"]
    for name, pixels in pictures.items():
        Image.fromarray(pixels).save(folder / name)
    return [str(folder / "door.png"), str(folder / "*.jpg")]


def bad_inputs(folder):
    """Pairs of two sizes, a small picture, a file that is not there, tasks in two splits."""
    for name, side in (("a", 40), ("b", 48), ("small", 12)):
        Image.new("RGB", (side, 40)).save(folder / f"{name}.png")
    pair = {"before": str(folder / "a.png"), "after": str(folder / "b.png")}
    yield {"inputs": [str(folder / "a.png")], **pair}, "40x40 and 48x40 pixels"
    pair["after"] = pair["before"]
    yield {"inputs": [str(folder / "small.png")], **pair}, "12x40 pixels.*at least 16"
    yield {"inputs": [str(folder / "a.png")], "before": None}, "--data.before"
    good = {"source": "a.png", "target": "a.png", "task": "hat", "split": "train"}
    for name, lines, pattern in (
        ("missing", [good, {**good, "target": "no.png"}], "line 2 names .*no.png"),
        ("split", [good, {**good, "split": "unseen"}], "'hat' is in the unseen split"),
        ("word", [{**good, "split": "dev"}], "line 1 has the split 'dev'"),
        ("task", [{"source": "a.png", "target": "a.png"}], "line 1 has no 'task'"),
    ):
        root = folder / name
        root.mkdir()
        Image.new("RGB", (20, 20)).save(root / "a.png")
        (root / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        yield {"dataset": "pairs", "root": str(root)}, pattern
    yield {"dataset": "magicbrush", "root": str(folder / "nowhere")}, "nowhere"
    yield {"dataset": "magicbrsh", "root": str(folder)}, "Did you mean 'magicbrush'"


CASE = Case(
    model={
        "num_edit_tokens": 2,
        "resampler_layers": 1,
        "adapter_dim": 16,
        "out_rank": 4,
        "steps": 2,
        "encoder_steps": 1,
        "editor_steps": 1,
        "adapter_steps": 100,
        "stage0_cache": None,  # the config's would be read from, and left in, the working folder
        "lora_items": 1,
        "lora_steps": 1,
    },
    data={
        "pairs": 16,
        "items": 2,
        "batch_size": 4,
        "eval_batch_size": 2,
        "before": "before.png",
        "after": "after.png",
    },
    shapes={"value": (1, 3, 32, 32)},
    write_inputs=write_inputs,
    predict=lambda folder: {
        "query": folder / "door.png",
        "before": folder / "before.png",
        "after": folder / "after.png",
    },
    bad_inputs=bad_inputs,
)
