"""Checkpoints: plain data, strict, resumable, and safe to open."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint

from tests.toy import Shape, Toy, ToyDataModule
from zoo.checkpoint import read_checkpoint
from zoo.cli.main import main
from zoo.errors import ZooError

SILENT = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
FIT = ["fit", "--model", "tests.toy.Toy", "--data", "tests.toy.ToyDataModule"]
FIT += ["--trainer.enable_progress_bar", "false", "--trainer.log_every_n_steps", "1"]


def saved(tmp_path, model, **options):
    """A checkpoint of the model after an epoch, and the trainer."""
    trainer = Trainer(max_epochs=1, enable_checkpointing=False, **SILENT, **options)
    trainer.fit(model, ToyDataModule())
    trainer.save_checkpoint(tmp_path / "toy.ckpt")
    return tmp_path / "toy.ckpt", trainer


def test_hyper_parameters_are_the_flat_dict_of_init_arguments(tmp_path):
    path, _ = saved(tmp_path, Toy(width=5, shape=Shape(width=2)))
    found = torch.load(path, weights_only=True)["hyper_parameters"]
    assert found == {
        "width": 5,
        "stages": None,
        "shape": {"width": 2, "depth": 1},
        "backbone": False,
        "pretrained": False,
        "scale": 1.0,
    }


def test_dataclass_arguments_come_back_with_their_type(tmp_path):
    path, _ = saved(tmp_path, Toy(shape=Shape(depth=3)))
    assert Toy.load_from_checkpoint(path).hparams.shape == Shape(depth=3)


def test_argument_that_is_no_json_is_refused_when_saving(tmp_path):
    model = Toy(scale=frozenset({1}))
    with pytest.raises(ZooError, match=r"Toy\(scale=...\) is a frozenset"):
        model.save_pretrained(tmp_path / "hub")


def test_unknown_init_argument_is_named(tmp_path):
    path, _ = saved(tmp_path, Toy())
    with pytest.raises(ZooError, match=r"Toy has no argument 'widht'\. Did you mean 'width'"):
        Toy.load_from_checkpoint(path, widht=3)


def test_frozen_parts_are_left_out_and_everything_else_is_strict(tmp_path):
    path, _ = saved(tmp_path, Toy(backbone=True))
    stored = torch.load(path, weights_only=True)
    assert not [key for key in stored["state_dict"] if key.startswith("backbone")]
    Toy.load_from_checkpoint(path)
    del stored["state_dict"]["head.bias"]
    torch.save(stored, path)
    with pytest.raises(ZooError, match=r"head\.bias"):
        Toy.load_from_checkpoint(path)


def test_initial_weights_are_not_fetched_when_a_checkpoint_follows(tmp_path):
    assert Toy(pretrained=True).fetched
    path, _ = saved(tmp_path, Toy(pretrained=True))
    loaded = Toy.load_from_checkpoint(path)
    assert not loaded.fetched
    assert loaded.hparams.pretrained


@pytest.mark.slow
def test_compiled_module_saves_clean_names_and_loads_them_back(tmp_path):
    model = Toy()
    model.encoder = torch.compile(model.encoder, backend="eager")
    path, _ = saved(tmp_path, model)
    keys = torch.load(path, weights_only=True)["state_dict"]
    assert "encoder.0.weight" in keys
    assert not [key for key in keys if "_orig_mod" in key]
    plain = Toy.load_from_checkpoint(path)
    compiled = Toy()
    compiled.encoder = torch.compile(compiled.encoder, backend="eager")
    compiled.load_state_dict(plain.state_dict())
    model.save_pretrained(tmp_path / "hub")
    again = Toy.from_pretrained(tmp_path / "hub")
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_averaged_weights_are_published_and_training_resumes_from_the_raw_ones(tmp_path):
    class Spy(EMAWeightAveraging):
        def on_train_start(self, trainer, pl_module):
            self.head_at_start = pl_module.head.weight.detach().clone()

    def fit(epochs, ckpt_path=None):
        spy = Spy(decay=0.5)
        callbacks = [spy, ModelCheckpoint(tmp_path / str(epochs), save_last=True)]
        trainer = Trainer(max_epochs=epochs, callbacks=callbacks, **SILENT)
        trainer.fit(Toy(), ToyDataModule(), ckpt_path=ckpt_path, weights_only=True)
        return spy

    fit(1)
    last = tmp_path / "1/last.ckpt"
    stored = read_checkpoint(last)
    average, raw = stored["state_dict"]["head.weight"], stored["current_model_state"]["head.weight"]
    assert not torch.equal(average, raw)
    published = Toy.load_from_checkpoint(last)
    assert torch.equal(published.head.weight, average)
    assert torch.equal(fit(2, last).head_at_start, raw)


def test_checkpoint_with_code_is_refused_and_not_run(tmp_path):
    class Harm:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "harmed",))

    torch.save({"state_dict": {}, "hyper_parameters": {"width": Harm()}}, tmp_path / "bad.ckpt")
    with pytest.raises(ZooError, match="pickled Python objects"):
        Toy.load_from_checkpoint(tmp_path / "bad.ckpt")
    (tmp_path / "raw.ckpt").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(ZooError, match=r"raw\.ckpt"):
        read_checkpoint(tmp_path / "raw.ckpt")
    for command in ("fit", "test"):
        with pytest.raises(SystemExit, match="pickled Python objects"):
            main([command, *FIT[1:], "--ckpt_path", "bad.ckpt"])
    assert not (tmp_path / "harmed").exists()


def test_instantiator_named_in_a_checkpoint_is_never_followed(tmp_path):
    path, _ = saved(tmp_path, Toy())
    stored = torch.load(path, weights_only=True)
    stored["hyper_parameters"]["_instantiator"] = "os.system"
    torch.save(stored, path)
    assert isinstance(Toy.load_from_checkpoint(path), Toy)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"not a checkpoint"])
def test_broken_checkpoint_is_one_sentence(tmp_path, content):
    (tmp_path / "broken.ckpt").write_bytes(content)
    with pytest.raises(ZooError, match=r"broken\.ckpt"):
        read_checkpoint(tmp_path / "broken.ckpt")


def test_checkpoint_of_another_method_is_refused(tmp_path):
    path, _ = saved(tmp_path, Toy())
    with pytest.raises(SystemExit, match="is a checkpoint of Toy, not of"):
        main(["test", "--config", "degbins", "--ckpt_path", str(path)])


def test_option_against_a_checkpoint_says_which_value_won(tmp_path, caplog):
    path, _ = saved(tmp_path, Toy(width=6))
    test = ["test", *FIT[1:], "--ckpt_path", str(path)]
    main(test)
    assert "model.width is 6 as in the checkpoint" in caplog.text
    with pytest.raises(SystemExit, match="not weights of this Toy"):
        main([*test, "--model.width", "5"])
    assert "--model.width 5 replaces 6 of the checkpoint" in caplog.text


@pytest.mark.slow
def test_killed_and_resumed_run_ends_as_an_unbroken_one(tmp_path):
    """Shuffling, dropout and batch normalisation included."""
    options = [*FIT, "--data.samples", "64", "--data.batch_size", "4", "--test_after_fit", "false"]
    options += ["--optimizer", "Adam", "--optimizer.lr", "0.01"]
    main([*options, "--trainer.max_epochs", "6", "--trainer.default_root_dir", "whole"])

    forever = [*options, "--trainer.max_epochs", "100000", "--trainer.default_root_dir", "cut"]
    process = subprocess.Popen(
        [sys.executable, "-m", "zoo", *forever],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    last = tmp_path / "cut/runs/toy/version_0/checkpoints/last.ckpt"
    deadline = time.monotonic() + 120
    epoch = -1
    while epoch < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
        epoch = read_checkpoint(last)["epoch"] if last.exists() else -1
    process.send_signal(signal.SIGKILL)
    process.wait()
    epoch = read_checkpoint(last)["epoch"]
    assert epoch >= 2

    total = ["--trainer.max_epochs", str(epoch + 4)]
    main([*options, *total, "--ckpt_path", str(last), "--trainer.default_root_dir", "resumed"])
    main([*options, *total, "--trainer.default_root_dir", "unbroken"])
    resumed, unbroken = (
        read_checkpoint(next(Path(folder).rglob("last.ckpt"))) for folder in ("resumed", "unbroken")
    )
    assert resumed["global_step"] == unbroken["global_step"]
    for key, value in unbroken["state_dict"].items():
        assert torch.equal(value, resumed["state_dict"][key]), key
