"""`PushToHub`: the tested checkpoint, once, from rank zero."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from tests.toy import Toy, ToyDataModule
from zoo.callbacks import MetricsRecord
from zoo.callbacks.push import PushToHub
from zoo.errors import ZooError

from .server import Hub

REPO = "org/toy"
ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
import torch
from lightning import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from tests.toy import Toy, ToyDataModule
from zoo.callbacks import MetricsRecord
from zoo.callbacks.push import PushToHub

if __name__ == "__main__":
    seed_everything(0)
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, log_every_n_steps=1,
        enable_progress_bar=False, logger=CSVLogger(sys.argv[1]),
        callbacks=[PushToHub("org/toy", "mit"), MetricsRecord(), ModelCheckpoint()],
    )
    trainer.fit(Toy(), ToyDataModule())
    trainer.test(datamodule=ToyDataModule(), ckpt_path="best", weights_only=True)
    torch.distributed.destroy_process_group()
"""


def trainer(folder: Path, *callbacks, **options) -> Trainer:
    """As `zoo fit` makes it: the pusher, from the YAML, comes before the zoo's own callbacks."""
    return Trainer(
        max_epochs=1,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=CSVLogger(folder),
        callbacks=[*callbacks, MetricsRecord(), ModelCheckpoint()],
        **options,
    )


def test_the_checkpoint_is_pushed_after_its_test(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = trainer(tmp_path, PushToHub(REPO, "mit"))
    run.fit(Toy(), ToyDataModule())
    assert not hub.calls("create")
    run.test(datamodule=ToyDataModule(), ckpt_path="best", weights_only=True)
    assert len(hub.calls("create")) == len(hub.calls("commit")) == 1
    metrics = json.loads(hub.files(REPO)["metrics.json"])
    assert metrics["metrics"]["test_mse"] == pytest.approx(float(run.callback_metrics["test_mse"]))
    best = Toy.load_from_checkpoint(run.checkpoint_callback.best_model_path)
    assert torch.equal(Toy.from_pretrained(REPO).head.weight, best.head.weight)
    assert "Published: org/toy@v1 (new," in capsys.readouterr().out


def test_averaged_weights_are_pushed(hub: Hub, tmp_path: Path):
    run = trainer(tmp_path, PushToHub(REPO, "mit"), EMAWeightAveraging(decay=0.5))
    run.fit(Toy(), ToyDataModule())
    path = run.checkpoint_callback.best_model_path
    run.test(datamodule=ToyDataModule(), ckpt_path=path, weights_only=True)
    stored = torch.load(path, weights_only=True)
    assert not torch.equal(
        stored["state_dict"]["head.weight"], stored["current_model_state"]["head.weight"]
    )
    published = Toy.from_pretrained(REPO)
    assert torch.equal(published.head.weight, stored["state_dict"]["head.weight"])


def test_what_push_would_refuse_is_refused_before_training(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(ZooError, match="no licence 'mitt'"):
        trainer(tmp_path, PushToHub(REPO, "mitt")).fit(Toy(), ToyDataModule())
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ZooError, match="Pushing to org/toy needs a token"):
        trainer(tmp_path, PushToHub(REPO, "mit")).fit(Toy(), ToyDataModule())


def test_a_failed_push_says_how_to_push_later(hub: Hub, tmp_path: Path):
    hub.fail(403, "create", message="No")
    run = trainer(tmp_path, PushToHub(REPO, "mit"))
    run.fit(Toy(), ToyDataModule())
    with pytest.raises(ZooError, match=r"403 \(No\).*Nothing is lost: 'zoo push' takes .*\.ckpt"):
        run.test(datamodule=ToyDataModule(), ckpt_path="best", weights_only=True)


def test_a_test_of_no_checkpoint_is_not_pushed(hub: Hub, tmp_path: Path):
    with pytest.raises(ZooError, match="this test loaded none"):
        trainer(tmp_path, PushToHub(REPO, "mit")).test(Toy(), ToyDataModule())
    assert not hub.requests


@pytest.mark.slow
def test_two_ranks_make_one_repository_and_one_commit(hub: Hub, tmp_path: Path):
    """transformers#14840, huggingface_hub PR#2648, open-instruct PR#1282."""
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py", str(tmp_path / "logs")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert len(hub.calls("create")) == len(hub.calls("commit")) == len(hub.calls("tag")) == 1
    assert len(hub.commits(REPO)) == 2  # the hub makes the first with the repository
    assert json.loads(hub.files(REPO)["metrics.json"])["devices"] == 2
