"""Configs: where they are found, how they combine, and what is saved of them."""

import json
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml

from zoo.catalog import get_method
from zoo.cli.configs import find_config, packaged_configs
from zoo.cli.main import main

TOY = ["--model", "tests.toy.Toy", "--data", "tests.toy.ToyDataModule"]
QUIET = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
FAST = [*TOY, *QUIET, "--trainer.max_epochs", "1", "--trainer.log_every_n_steps", "1"]


def printed(capsys, *args):
    """The config that ``zoo fit`` would run."""
    with pytest.raises(SystemExit):
        main(["fit", *args, "--print_config"])
    return yaml.safe_load(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["degbins", "zoo/degbins.yaml", "degbins.yaml"])
def test_packaged_configs_are_found_from_any_folder(name):
    assert Path(find_config(name)) == packaged_configs()["degbins"]


def test_a_file_here_beats_the_packaged_config(tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo/degbins.yaml").write_text("{}")
    assert find_config("zoo/degbins.yaml") == "zoo/degbins.yaml"


def test_later_configs_and_options_win(tmp_path, capsys):
    (tmp_path / "wide.yaml").write_text("model: {init_args: {width: 64, blocks: 2}}")
    found = printed(capsys, "--config", "degbins", "--config", "wide.yaml", "--model.blocks", "3")
    assert found["model"]["init_args"]["width"] == 64
    assert found["model"]["init_args"]["blocks"] == 3
    assert found["model"]["init_args"]["bins"] == 8


def test_an_appended_callback_keeps_those_of_the_config(tmp_path, capsys):
    callbacks = {"trainer": {"callbacks": [{"class_path": "LearningRateMonitor"}]}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(callbacks))
    found = printed(capsys, *TOY, "--config", "a.yaml", "--trainer.callbacks+=DeviceStatsMonitor")
    names = [c["class_path"].rpartition(".")[2] for c in found["trainer"]["callbacks"]]
    assert names == ["LearningRateMonitor", "DeviceStatsMonitor"]


def test_saved_config_keeps_types_and_runs_again(tmp_path):
    main(["fit", *FAST, "--model.width", "6"])
    saved = tmp_path / "runs/toy/version_0/training.yaml"
    config = yaml.safe_load(saved.read_text())
    assert config["model"]["init_args"]["width"] == 6
    assert config["trainer"]["max_epochs"] == 1
    main(["fit", "--config", str(saved)])
    first, again = (
        json.loads((tmp_path / f"runs/toy/version_{i}/metrics.json").read_text()) for i in (0, 1)
    )
    assert first["metrics"] == again["metrics"]


def test_optimizer_scheduler_and_interval_come_from_yaml(tmp_path):
    config = {
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.5}},
        "lr_scheduler": {"class_path": "StepLR", "init_args": {"step_size": 1, "gamma": 0.1}},
        "lr_scheduler_interval": "step",
        "trainer": {"callbacks": [{"class_path": "LearningRateMonitor"}]},
    }
    (tmp_path / "sgd.yaml").write_text(yaml.safe_dump(config))
    main(["fit", *FAST, "--config", "sgd.yaml"])
    lines = (tmp_path / "runs/toy/version_0/metrics.csv").read_text().splitlines()
    column = lines[0].split(",").index("lr-SGD")
    rates = [float(line.split(",")[column]) for line in lines[1:] if line.split(",")[column]]
    assert rates == pytest.approx([0.5, 0.05])


def test_one_cycle_takes_its_length_from_the_training(tmp_path):
    options = ["--lr_scheduler", "OneCycleLR", "--lr_scheduler.max_lr", "0.1"]
    main(["fit", *FAST, *options, "--optimizer", "SGD", "--lr_scheduler_interval", "step"])


def test_default_callbacks_and_loggers_can_be_replaced(tmp_path):
    checkpoint = '[{"class_path": "ModelCheckpoint", "init_args": {"filename": "mine"}}]'
    main(["fit", *FAST, "--trainer.callbacks", checkpoint])
    names = [p.name for p in tmp_path.glob("runs/toy/version_0/checkpoints/*")]
    assert names == ["mine.ckpt"]
    main(["fit", *FAST, "--trainer.logger", "false"])


@pytest.mark.filterwarnings("ignore:When using the `ThroughputMonitor`")  # FLOPs are optional
def test_lightnings_own_monitors_work_from_yaml(tmp_path):
    callbacks = [
        {"class_path": "EMAWeightAveraging", "init_args": {"decay": 0.9}},
        {"class_path": "EarlyStopping", "init_args": {"monitor": "val_mse"}},
        {"class_path": "LearningRateMonitor"},
        {"class_path": "ThroughputMonitor", "init_args": {"batch_size_fn": "tests.toy.batch_size"}},
    ]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": callbacks}}))
    main(["fit", *FAST[:-2], "--trainer.log_every_n_steps", "1", "--config", "c.yaml"])


@pytest.mark.slow
def test_an_offline_wandb_logger_keeps_both_configs(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    logger = {"class_path": "WandbLogger", "init_args": {"offline": True, "save_dir": "w"}}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump({"trainer": {"logger": logger}}))
    main(["fit", *FAST, "--config", "w.yaml", "--model.width", "6"])
    (saved,) = tmp_path.rglob("training.yaml")
    assert yaml.safe_load(saved.read_text())["model"]["init_args"]["width"] == 6
    assert list(tmp_path.glob("w/wandb/offline-run-*"))


def test_advertising_tips_are_not_printed(capfd):
    main(["fit", *FAST])
    captured = capfd.readouterr()
    assert "Tip" not in captured.out + captured.err
    assert "Run folder: " in captured.out
    assert "The card has" not in captured.out  # FAST is no method of the catalogue


@pytest.mark.slow
def test_a_fit_ends_with_what_the_card_has(capfd):
    config = ["--config", "degbins", "--trainer.fast_dev_run", "1"]
    main(["fit", *config, "--trainer.enable_progress_bar", "false"])
    result = get_method("degbins").result
    out = capfd.readouterr().out
    assert f"{result['metric']}: {result['value']} ({result['baseline']})" in out


def test_catalogue_commands_import_no_torch():
    script = (
        "import sys; from zoo.cli.main import main\n"
        "main(['list']); main(['list', '--task', 'depth', 'deg*']); main(['info', 'DegBins'])\n"
        "main(['--help'])\n"
        "assert not {'torch', 'lightning', 'numpy', 'jsonargparse'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "degbins  DegBins  guided depth super-resolution" in done.stdout
    assert "zoo fit --config zoo/degbins.yaml" in done.stdout


def test_list_without_a_match_is_one_sentence():
    with pytest.raises(SystemExit, match="No method matches 'nothing'"):
        main(["list", "nothing"])


def test_bounds_exclude_the_malicious_uploads_and_breaking_parsers():
    bounds = {re.match(r"[\w-]+", line)[0]: line for line in requires("lightning-zoo")}
    assert "!=2.6.2" in bounds["lightning"]
    assert "!=2.6.3" in bounds["lightning"]
    assert "<" in bounds["jsonargparse"]
