"""Runs as `zoo fit` leaves them, made in no time; and the whole road to the hub and back."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import yaml
from PIL import Image

from zoo import DegBins, from_pretrained
from zoo.base import ZooModule
from zoo.check import check
from zoo.hub import flatten, reference_output
from zoo.publish import publish
from zoo.remote import sha256

REPO = "org/model"
TRAINING = {
    "seed_everything": 0,
    "model": {"class_path": "DegBins", "init_args": {"scale": 4}},
    "data": {"init_args": {"root": "/home/me/data/nyu", "api_token": "hunter2"}},
    "trainer": {"logger": [{"init_args": {"save_dir": "runs", "url": "https://me:pw@host/x"}}]},
    "ckpt_path": None,
}


def tiny(**changes) -> DegBins:
    """A DegBins of a few thousand random weights."""
    torch.manual_seed(0)
    model = DegBins(**{"channels": 4, "width": 8, "blocks": 1, "bins": 4, "scale": 4, **changes})
    for parameter in model.parameters():  # zero-initialised heads would hide what is loaded
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def write_checkpoint(model: ZooModule, path: Path) -> Path:
    """Saves a model as Lightning does."""
    checkpoint = {"state_dict": model.state_dict(), "pytorch-lightning_version": "2.6.6"}
    checkpoint |= {"epoch": 1, "global_step": 10}
    model.on_save_checkpoint(checkpoint)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(checkpoint, path)
    return path


def write_record(model: ZooModule, folder: Path, checkpoint: Path, **changes) -> None:
    """What a test run leaves: metrics and a figure."""
    record = {
        "class": type(model).__name__,
        "metrics": {"test_rmse": 0.0345678, "test_mae": 0.0123},
        "data": {"class": "GuidedDepthDataModule", "dataset": "middlebury_mini", "seed": 0},
        "split": "test",
        "seed": 7,
        "checkpoint": str(checkpoint),
        "checkpoint_sha256": sha256(checkpoint),
        "devices": 1,
        "training": {"seconds": 12.5, "steps": 10, "epochs": 1, "peak_rss_mib": 800.0},
        "hardware": "2 CPU cores, x86_64",
        "versions": {"zoo": "0.1.0"},
        "commit": "abc1234",
        "date": "2026-01-02T03:04:05+00:00",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").write_text(json.dumps({**record, **changes}))
    (folder / "figures").mkdir(exist_ok=True)
    for name in ("test_depth", "val_depth"):
        Image.new("RGB", (4, 4)).save(folder / "figures" / f"{name}.png")


def write_run(model: ZooModule, root: Path) -> Path:
    """A run folder with everything in it; returns its checkpoint."""
    folder = root / "runs" / type(model).__name__.lower() / "version_0"
    path = write_checkpoint(model, folder / "checkpoints" / "best-epoch001-val_rmse0.1000.ckpt")
    write_record(model, folder, path)
    (folder / "training.yaml").write_text(yaml.safe_dump(TRAINING))
    return path


def retrain(model: ZooModule, checkpoint: Path) -> None:
    """Replaces the weights of a run, and tests them."""
    write_checkpoint(model, checkpoint)
    write_record(model, checkpoint.parents[1], checkpoint)


def outputs(model: ZooModule) -> dict[str, torch.Tensor]:
    """What a model gives for its example input, by dotted name."""
    return dict(flatten(reference_output(model, model.example_inputs())))


def same(a: ZooModule, b: ZooModule) -> bool:
    """Whether two models give the same to the last bit."""
    left, right = outputs(a), outputs(b)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def roundtrip(hub, model: ZooModule, folder: Path) -> None:
    """Publishes a method of the catalogue, pulls it into an empty cache, and checks both.

    Args:
        hub: The fixture.
        model: With tiny sizes.
        folder: Empty.
    """
    cls, repo_id = type(model), f"org/{type(model).__name__.lower()}"
    checkpoint = write_run(model, folder)
    first = publish(cls, checkpoint, repo_id, license="apache-2.0")
    assert publish(cls, checkpoint, repo_id, license="apache-2.0") == first._replace(new=False)
    assert len(hub.commits(repo_id)) == 1 + 1  # the hub makes one with the repository
    cache = folder / "cache"
    pulled = from_pretrained(f"{repo_id}@{first.tag}", cache_dir=cache)
    assert type(pulled) is cls
    assert same(pulled, model)
    assert hub.fetched() == sorted(
        ["README.md", "config.json", "model.safetensors", "reference.safetensors"]
    )
    assert len(check(repo_id, cache_dir=cache)) == 4
    hub.stop()
    try:
        assert same(cls.from_pretrained(repo_id, cache_dir=cache), model)
    finally:
        hub.start()
