"""Several processes: nothing hangs, nothing is done twice, and figures are exact."""

import csv
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import yaml
from lightning import Trainer, seed_everything

from tests.toy import MeanSquare, Toy, ToyDataModule, TwoLoaders
from zoo.cli.main import main
from zoo.datamodules.base import ShardSampler

ROOT = Path(__file__).parent.parent
ZOO = [sys.executable, "-m", "zoo"]
TWO = ["--trainer.accelerator", "cpu", "--trainer.devices", "2"]
TOY = ["--model", "tests.toy.Toy", "--trainer.log_every_n_steps", "1"]


def run(command, tmp_path, timeout=240):
    """Runs a command with two processes, and returns what it printed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.slow
def test_fit_with_two_processes(tmp_path):
    """By the ``zoo`` script, with a progress bar, logging every step, on uneven validation data."""
    script = Path(sys.executable).with_name("zoo")
    data = ["--data", "tests.toy.CountingDataModule", "--data.samples", "7", "--data.batch_size"]
    data += ["2", "--data.eval_batch_size", "2"]
    out = run([str(script), "fit", *TOY, *TWO, *data, "--trainer.max_epochs", "2"], tmp_path)
    assert out.count("Run folder: ") == 1
    assert len(list(tmp_path.glob("prepared-*"))) == 2  # once to fit, once to test

    (saved,) = tmp_path.rglob("training.yaml")
    assert yaml.safe_load(saved.read_text())["trainer"]["devices"] == "2"

    folder = saved.parent
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    logged = [float(row["val_mse"]) for row in rows if row["val_mse"]]
    main(["validate", *TOY, *data, "--ckpt_path", str(folder / "checkpoints/last.ckpt")])
    (alone,) = tmp_path.glob("runs/toy/version_1/metrics.csv")
    (row,) = csv.DictReader(alone.read_text().splitlines())
    assert logged[-1] == pytest.approx(float(row["val_mse"]), rel=1e-6)
    assert json.loads((folder / "metrics.json").read_text())["devices"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("samples", [1, 3])
def test_validation_ends_when_a_rank_has_fewer_batches_or_none(tmp_path, samples):
    data = ["--data", "tests.toy.ToyDataModule", "--data.samples", str(samples)]
    run([*ZOO, "validate", *TOY, *TWO, *data], tmp_path, timeout=120)


@pytest.mark.slow
def test_spawned_processes_return(tmp_path):
    options = ["--data", "tests.toy.ToyDataModule", "--trainer.strategy", "ddp_spawn"]
    run([*ZOO, "fit", *TOY, *TWO, *options, "--trainer.max_epochs", "1"], tmp_path)


def test_no_process_group_outlives_a_run(tmp_path):
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    main(["validate", *TOY, "--data", "tests.toy.ToyDataModule"])
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_shards_hold_each_sample_once(world):
    data = list(range(7))
    shards = [ShardSampler(data, num_replicas=world, rank=rank) for rank in range(world)]
    assert sorted(index for shard in shards for index in shard) == data
    assert [len(shard) for shard in shards] == [len(list(shard)) for shard in shards]


def test_fewer_samples_than_ranks_are_taken_by_all():
    for rank in range(3):
        assert list(ShardSampler([0, 1], num_replicas=3, rank=rank)) == [0, 1]


def test_logged_metric_is_that_over_all_predictions_at_once():
    data = ToyDataModule(samples=7, eval_batch_size=3)
    model = Toy().eval()
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    (logged,) = Trainer(**options).validate(model, data, verbose=False)
    x, y = data.datasets["val"].tensors
    whole = MeanSquare()
    whole.update(model(x)["y"], y)
    assert logged["val_mse"] == pytest.approx(float(whole.compute()), rel=1e-6)


def test_sanity_check_of_two_validation_sets_warns_of_nothing():
    class Pair(Toy):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            return super().validation_step(batch, batch_idx)

    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*LeafSpec|.*many workers")
        Trainer(max_epochs=1, enable_checkpointing=False, **options).fit(Pair(), TwoLoaders())


class Draws(ToyDataModule):
    """Training samples that are nothing but augmentation."""

    def build(self, split):
        return RandomDraws() if split == "train" else super().build(split)


class RandomDraws(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(3), torch.rand(1)


class Recorder(Toy):
    """Notes what it was trained on."""

    def training_step(self, batch, batch_idx):
        self.seen.setdefault(self.current_epoch, []).append(batch[0].clone())
        return super().training_step(batch, batch_idx)


def draws(workers, epochs=2):
    seed_everything(3, workers=True)
    model = Recorder()
    model.seen = {}
    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=epochs, enable_checkpointing=False, **options)
    trainer.fit(model, Draws(num_workers=workers, batch_size=4))
    return [torch.cat(model.seen[epoch]) for epoch in range(epochs)]


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentation_differs_by_epoch_and_worker_but_not_by_run(workers):
    first, second = draws(workers)
    assert not torch.equal(first, second)
    assert len(first.unique(dim=0)) == len(first)
    for a, b in zip(draws(workers), (first, second), strict=True):
        assert torch.equal(a, b)
