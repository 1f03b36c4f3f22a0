"""The whole road: train, publish, fetch elsewhere, predict, offline, and tampered copies."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import zoo.cli.main
from tests.degbins.case import CASE
from zoo import DegBins
from zoo.check import check
from zoo.cli.hub import run
from zoo.errors import ZooError
from zoo.publish import publish
from zoo.remote import locate

from .roundtrip import REPO, tiny, write_run
from .server import Hub

QUIET = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
LIMITS = ["--trainer.max_epochs", "1", "--trainer.log_every_n_steps", "1"]
LIMITS += ["--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "1"]
PULL = """
import sys
import numpy as np, torch
torch.set_num_threads(1)
import zoo
model = zoo.from_pretrained(sys.argv[1])
out = model.predict(rgb="hall_rgb.png", depth="hall_depth.png")
np.save(sys.argv[2], out.depth)
"""


def fresh(hub: Hub, home: Path, *arguments: str) -> None:
    """Runs Python in a new process with a cache of its own."""
    environment = {**os.environ, **hub.env(home), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_train_push_pull_predict_check(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    CASE.write_inputs(tmp_path)
    config = ["--config", "degbins", *CASE.options(), *QUIET]
    zoo.cli.main.main(["fit", *config, *LIMITS])
    (ckpt,) = tmp_path.glob("runs/degbins/version_0/checkpoints/best-*.ckpt")
    push = ["push", "degbins", "--ckpt_path", str(ckpt), "--repo-id", REPO, "--license", "mit"]
    capsys.readouterr()
    run(push)
    run(push)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        [f"{REPO}@v1", "(new,"],
        [f"{REPO}@v1", "(unchanged,"],
    ]

    # Elsewhere, with an empty cache: the same pixels as from the checkpoint.
    inputs = ["--data.inputs", json.dumps([str(tmp_path / "*.png")])]
    zoo.cli.main.main(
        ["predict", *config, "--ckpt_path", str(ckpt), *inputs, "--output", "expected"]
    )
    expected = np.load(tmp_path / "expected/hall.npy")
    elsewhere = tmp_path / "elsewhere"
    fresh(hub, elsewhere, "-c", PULL, f"{REPO}@v1", "online.npy")
    np.testing.assert_array_equal(np.load("online.npy"), expected)

    # Without the hub.
    hub.stop()
    fresh(hub, elsewhere, "-c", PULL, f"{REPO}@v1", "offline.npy")
    np.testing.assert_array_equal(np.load("offline.npy"), expected)
    hub.start()

    # Checked, and tampered with.
    capsys.readouterr()
    run(["pull", f"{REPO}@v1", "--cache-dir", str(elsewhere / "hub")])
    folder = capsys.readouterr().out.strip()
    assert "to the last bit" in check(folder)[2]
    for name, (tamper, match) in TAMPER.items():
        copy = Path(shutil.copytree(folder, tmp_path / name))
        tamper(copy)
        with pytest.raises(ZooError, match=match):
            check(copy)


def change_a_byte(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def rename_a_key(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b"network.", b"netwerk.", 1))


def add_a_pickle(folder: Path) -> None:
    (folder / "optimizer.pt").write_bytes(b"\x80\x02.")


def swap_the_class(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "_class_name": "LightningModule"}))


TAMPER = {
    "byte": (change_a_byte, "was changed or damaged"),
    "key": (rename_a_key, "foreign key"),
    "pickle": (add_a_pickle, "may hold a pickle"),
    "class": (swap_the_class, "Unknown method 'LightningModule'"),
}


@pytest.fixture
def published(hub: Hub, tmp_path: Path) -> str:
    publish(DegBins, write_run(tiny(), tmp_path / "trained"), REPO, license="mit")
    return f"hf://{REPO}@v1"


def predict(source: str, inputs: list[str], output: str) -> None:
    options = ["--ckpt_path", source, "--data.inputs", json.dumps(inputs), "--output", output]
    zoo.cli.main.main(["predict", "--config", "degbins", "--data.scale", "4", *options, *QUIET])


def test_predict_with_a_published_model(published: str, tmp_path: Path):
    inputs = CASE.write_inputs(tmp_path)
    predict(published, inputs, "out")
    record = json.loads((tmp_path / "out/predictions.json").read_text())
    assert record["ckpt_path"] == published
    expected = tiny().predict(**CASE.predict(tmp_path)).depth
    np.testing.assert_array_equal(np.load(tmp_path / "out/hall.npy"), expected)
    predict(str(locate(published)), inputs, "out2")
    np.testing.assert_array_equal(np.load(tmp_path / "out2/hall.npy"), expected)


@pytest.mark.slow
def test_test_with_a_published_model(published: str, tmp_path: Path):
    options = ["--data.scale", "4", "--trainer.limit_test_batches", "1", *QUIET]
    zoo.cli.main.main(["test", "--config", "degbins", "--ckpt_path", published, *options])
    (path,) = tmp_path.glob("runs/degbins/version_0/metrics.json")
    record = json.loads(path.read_text())
    assert record["checkpoint"] == published
    assert record["metrics"]


def test_fit_does_not_go_on_from_a_published_model(published: str):
    with pytest.raises(SystemExit, match="no optimiser's state"):
        zoo.cli.main.main(["fit", "--config", "degbins", "--ckpt_path", published])


def test_a_published_model_that_is_not_there_is_one_sentence(hub: Hub):
    with pytest.raises(SystemExit, match="zoo: No repository org/other"):
        zoo.cli.main.main(["test", "--config", "degbins", "--ckpt_path", "hf://org/other"])
