"""Stages of training in one fit: what trains, in which order, resumed and with DDP."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.toy import Toy, ToyDataModule
from zoo.errors import ZooError

SILENT = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
STAGES = [
    {"name": "encode", "train": ["encoder"], "steps": 3},
    {
        "name": "decode",
        "train": ["head"],
        "steps": 4,
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
        "lr_scheduler": {
            "class_path": "torch.optim.lr_scheduler.OneCycleLR",
            "init_args": {"max_lr": 0.1},
            "interval": "step",
        },
    },
]
AVERAGED = [STAGES[0] | {"average": 0.99}, STAGES[1]]


class Steps(Callback):
    """Notes after each step what has moved, and with which optimiser."""

    def __init__(self):
        self.seen = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.before = {k: v.detach().clone() for k, v in pl_module.named_parameters()}
        self.stage = pl_module.stage.name
        self.optimizer = type(trainer.optimizers[0]).__name__

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        moved = {
            key.partition(".")[0]
            for key, value in pl_module.named_parameters()
            if not torch.equal(value, self.before[key])
        }
        self.seen.append((self.stage, self.optimizer, *sorted(moved)))


def fit(stages, callbacks=(), max_epochs=10, ckpt_path=None, **options):
    seed_everything(0)
    model = Toy(stages=stages)
    trainer = Trainer(max_epochs=max_epochs, callbacks=list(callbacks), **SILENT, **options)
    trainer.fit(model, ToyDataModule(), ckpt_path=ckpt_path, weights_only=True)
    return model, trainer


def test_each_stage_trains_its_own_part_with_its_own_optimiser(tmp_path):
    steps = Steps()
    _, trainer = fit(STAGES, [steps], enable_checkpointing=False)
    assert steps.seen == [("encode", "AdamW", "encoder")] * 3 + [("decode", "SGD", "head")] * 4
    assert trainer.global_step == 7


class EndOfFirstStage(Callback):
    """Notes a weight after each step of the first stage, and when the second begins."""

    def __init__(self):
        self.steps, self.after = [], None

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if pl_module.stage_index and self.after is None:
            self.after = pl_module.encoder[0].weight.detach().clone()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if self.after is None:  # it is called before the stage may end
            self.steps.append(pl_module.encoder[0].weight.detach().clone())


def test_average_of_a_stage_takes_the_place_of_its_weights():
    seen = EndOfFirstStage()
    fit(AVERAGED, [seen], enable_checkpointing=False)
    weight = seen.steps[0]
    for step, value in enumerate(seen.steps[:3], start=1):
        weight = torch.lerp(weight, value, 1 - step / (step + 9))
    torch.testing.assert_close(seen.after, weight)


def test_last_stage_without_steps_runs_to_the_end():
    stages = [STAGES[0], {"name": "decode", "train": ["head"]}]
    _, trainer = fit(stages, max_epochs=5, enable_checkpointing=False)
    assert trainer.global_step == 10


def test_frozen_parts_are_in_eval_mode_so_batch_statistics_stay():
    model, _ = fit(STAGES, enable_checkpointing=False)
    first, _ = fit(STAGES, enable_checkpointing=False, max_steps=3)
    assert torch.equal(model.encoder[1].running_mean, first.encoder[1].running_mean)


@pytest.mark.filterwarnings("ignore:Training ended at step 2")
@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint")
@pytest.mark.parametrize("cut", [2, 4, 6])  # in the first stage, after the switch, in the second
def test_resumed_run_goes_on_in_its_stage(tmp_path, cut):
    whole, _ = fit(AVERAGED, enable_checkpointing=False)
    checkpoint = ModelCheckpoint(tmp_path, save_last=True)
    fit(AVERAGED, [checkpoint], max_epochs=cut // 2)
    steps = Steps()
    resumed, _ = fit(
        AVERAGED, [steps], ckpt_path=tmp_path / "last.ckpt", enable_checkpointing=False
    )
    assert len(steps.seen) == 7 - cut
    for key, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


def test_best_checkpoint_is_one_of_the_last_stage(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, monitor="val_mse", filename="{step}", save_top_k=1)
    fit(STAGES, [checkpoint])
    assert int(Path(checkpoint.best_model_path).stem.removeprefix("step=")) > 3


def test_a_stage_that_has_not_trained_is_never_the_best(tmp_path):
    """The first one ends with an epoch, so that a validation falls between the two."""
    worse = {"optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 5.0}}}
    stages = [STAGES[0] | {"steps": 2}, {"name": "decode", "train": ["head"], "steps": 4} | worse]
    checkpoint = ModelCheckpoint(tmp_path, monitor="val_mse", filename="{step}", save_top_k=1)
    fit(stages, [checkpoint])
    assert int(Path(checkpoint.best_model_path).stem.removeprefix("step=")) > 2
    assert [path.name for path in tmp_path.iterdir()] == [Path(checkpoint.best_model_path).name]


def test_too_short_a_training_is_told():
    with pytest.warns(UserWarning, match="Training ended at step 2, in stage 'encode'"):
        fit(STAGES, max_epochs=1, enable_checkpointing=False)


def test_mistakes_are_told_before_training():
    with pytest.raises(ZooError, match=r"no submodule 'hea' to train\. Did you mean 'head'"):
        fit([{"name": "a", "train": ["hea"]}], enable_checkpointing=False)
    with pytest.raises(ZooError, match="Only the last stage"):
        fit([{"name": "a", "train": ["head"]}, STAGES[1]], enable_checkpointing=False)


@pytest.mark.slow
def test_two_processes_leave_no_parameter_without_gradient(tmp_path):
    options = ["fit", "--model", "tests.toy.Toy", "--model.stages", json.dumps(STAGES)]
    options += ["--data", "tests.toy.ToyDataModule", "--trainer.accelerator", "cpu"]
    options += ["--trainer.devices", "2", "--trainer.max_epochs", "20", "--data.batch_size", "4"]
    options += ["--trainer.strategy", "ddp", "--trainer.log_every_n_steps", "1"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "zoo", *options],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (run,) = tmp_path.glob("runs/toy/version_0")
    assert json.loads((run / "metrics.json").read_text())["training"]["steps"] == 7


class Scores(Callback):
    """Puts validation figures of its own in the place of the model's, and notes the weights."""

    def __init__(self, values):
        self.values, self.weights = list(values), []

    def on_validation_epoch_end(self, trainer, pl_module):
        if not trainer.sanity_checking and pl_module.stage_index == 0 and self.values:
            pl_module.log("val_made_up", self.values.pop(0))
            self.weights.append(pl_module.encoder[0].weight.detach().clone())


def test_a_stage_ends_early_with_its_best_weights(tmp_path):
    """Best after the second validation; two more without a better one end the stage."""
    stages = [STAGES[0] | {"steps": 1000, "stop": ("val_made_up", "max", 2)}, STAGES[1]]
    scores, steps = Scores([0.1, 0.9, 0.5, 0.9, 0.2]), Steps()
    model, trainer = fit(stages, [scores, steps], max_epochs=30, default_root_dir=tmp_path)
    first = [name for name, *_ in steps.seen].count("encode")
    assert 0 < first < 1000
    assert [name for name, *_ in steps.seen].count("decode") == 4
    assert trainer.global_step == first + 4
    assert len(scores.weights) in (4, 5)
    assert torch.equal(model.encoder[0].weight, scores.weights[1])
    assert not torch.equal(scores.weights[1], scores.weights[3])
    saved = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=True)
    assert saved["callbacks"]["StageSwitch"]["begun"] == first


def test_a_stage_that_stops_by_what_nobody_logs_says_so(tmp_path):
    stages = [STAGES[0] | {"steps": 1000, "stop": ("val_ms", "min", 2)}, STAGES[1]]
    with pytest.raises(ZooError, match=r"stops by 'val_ms'.*Did you mean 'val_mse'"):
        fit(stages, default_root_dir=tmp_path)
    with pytest.raises(ZooError, match="last stage may not have 'stop'"):
        fit([STAGES[0], STAGES[1] | {"stop": ("val_mse", "min", 2)}], default_root_dir=tmp_path)
