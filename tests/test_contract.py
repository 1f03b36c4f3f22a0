"""The promises that every method of the catalogue keeps. ``tests/<method>/case.py`` has sizes."""

import json
import os
import re
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from lightning import Callback, Trainer, seed_everything
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader

import zoo
import zoo.datamodules
from tests.case import load_case
from tests.hub.roundtrip import roundtrip
from zoo.card import missing_sections
from zoo.catalog import card_prose, list_methods
from zoo.cli.main import main
from zoo.errors import ZooError
from zoo.hub import flatten, reference_output

ROOT = Path(__file__).parent.parent
METHODS = [method.name for method in list_methods()]
QUIET = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}

# The tests of one method share a fit, so they stay in one worker.
GROUPED = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in METHODS]
pytestmark = pytest.mark.parametrize("name", GROUPED, scope="module")


class Method:
    """One method with its tiny sizes."""

    def __init__(self, name):
        (self.entry,) = [m for m in list_methods() if m.name == name]
        self.case = load_case(name)
        self.name = name
        self.cls = getattr(zoo, self.entry.cls)

    def model(self, **changes):
        seed_everything(0)
        return self.cls(**{**self.case.model, **changes})

    def data(self, **changes):
        cls = getattr(zoo.datamodules, self.entry.data)
        return cls(**{**self.case.data, **changes})

    def fit(self, folder, *options):
        """A tiny fit through the command line; returns its run folder."""
        limits = ["--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "2"]
        steps = ["--trainer.max_epochs", "2", "--trainer.log_every_n_steps", "1"]
        root = ["--trainer.default_root_dir", str(folder)]
        config = ["--config", self.entry.config, *self.case.options()]
        main(["fit", *config, *limits, *steps, *QUIET, *root, *options])
        return newest_run(folder)


def newest_run(folder):
    """The run folder of the highest version."""
    return max(folder.glob("runs/*/version_*"), key=lambda p: int(p.name.rpartition("_")[2]))


@pytest.fixture
def method(name):
    return Method(name)


@pytest.fixture(scope="module")
def run_folder(name, tmp_path_factory):
    """One tiny fit of each method, which many tests look at."""
    return Method(name).fit(tmp_path_factory.mktemp(name))


def best(run_folder):
    (path,) = (run_folder / "checkpoints").glob("best-*.ckpt")
    return path


def test_every_room_of_the_house_exists(method):
    name = method.name
    for path in (
        f"zoo/{name}/__init__.py",
        f"zoo/{name}/module.py",
        f"zoo/{name}.yaml",
        f"zoo/{name}/full.yaml",
        f"model_cards/{name}.md",
        f"benchmarks/claims/{name}.py",
        f"tests/{name}/case.py",
    ):
        assert (ROOT / path).is_file(), path
    assert method.entry.cls in zoo.__all__
    assert method.entry.data in zoo.datamodules.__all__
    claim = import_module(f"benchmarks.claims.{name}").CLAIM
    assert claim.method == name
    assert claim.checks


def test_a_method_imports_neither_data_modules_nor_other_methods(method):
    others = "|".join(
        ["datamodules", "callbacks", "cli", *(n for n in METHODS if n != method.name)]
    )
    for path in (ROOT / "zoo" / method.name).rglob("*.py"):
        assert not re.search(rf"(from|import) zoo\.({others})\b", path.read_text()), path


def test_every_packaged_config_parses(method, capsys):
    for path in sorted(
        [ROOT / f"zoo/{method.name}.yaml", *(ROOT / "zoo" / method.name).glob("*.yaml")]
    ):
        name = str(path.relative_to(ROOT))
        with pytest.raises(SystemExit) as stop:
            main(["fit", "--config", name, "--print_config"])
        assert stop.value.code in (0, None)
        cls = yaml.safe_load(capsys.readouterr().out)["model"]["class_path"].rpartition(".")[2]
        assert cls in (method.entry.cls, *method.entry.also)


def test_default_config_runs_a_fast_dev_run(method):
    options = [*method.case.options(), *QUIET]
    main(["fit", "--config", method.entry.config, "--trainer.fast_dev_run", "true", *options])


def test_fit_leaves_metrics_figures_config_and_checkpoints(method, run_folder):
    record = json.loads((run_folder / "metrics.json").read_text())
    assert record["class"] == method.entry.cls
    assert record["data"]["class"] == method.entry.data
    assert record["metrics"]
    assert all(key.startswith("test_") for key in record["metrics"])
    assert record["training"]["steps"] > 0
    assert list((run_folder / "figures").glob("test_*.png"))
    assert list((run_folder / "figures").glob("val_*.png"))
    assert (run_folder / "checkpoints/last.ckpt").is_file()
    assert yaml.safe_load((run_folder / "training.yaml").read_text())["trainer"]["max_epochs"] == 2


def test_name_of_the_best_checkpoint_holds_the_monitored_value(method, run_folder):
    metric, _ = method.cls.monitor
    stored = torch.load(best(run_folder), weights_only=True)["callbacks"]
    (state,) = [s for name, s in stored.items() if "ModelCheckpoint" in name]
    assert f"-{metric}{float(state['best_model_score']):.4f}" in best(run_folder).name


def test_validate_and_test_reload_the_checkpoint_to_the_same_figures(method, run_folder, tmp_path):
    options = ["--config", method.entry.config, "--trainer.limit_test_batches", "2", *QUIET]
    options += [*method.case.options(), "--ckpt_path", str(best(run_folder))]
    main(["test", *options])
    again = json.loads((newest_run(tmp_path) / "metrics.json").read_text())["metrics"]
    assert again == json.loads((run_folder / "metrics.json").read_text())["metrics"]
    main(["validate", *options, "--trainer.limit_val_batches", "1"])


def test_checkpoint_brings_its_own_sizes(method, run_folder):
    """The default config's sizes differ from the checkpoint's, which win."""
    data = [o for k, v in method.case.data.items() for o in (f"--data.{k}", str(v))]
    options = ["--config", method.entry.config, "--ckpt_path", str(best(run_folder)), *data]
    main(["test", *options, "--trainer.limit_test_batches", "1", *QUIET])


def test_predict_writes_files_named_after_the_inputs(method, run_folder, tmp_path):
    inputs = method.case.write_inputs(tmp_path)
    options = ["--config", method.entry.config, *method.case.options(), *QUIET]
    options += ["--ckpt_path", str(best(run_folder)), "--output", str(tmp_path / "out")]
    main(["predict", *options, "--data.inputs", json.dumps(inputs)])
    record = json.loads((tmp_path / "out/predictions.json").read_text())
    assert record["ckpt_path"] == str(best(run_folder))
    assert record["predictions"]
    for name, files in record["predictions"].items():
        assert files
        for file in files:
            assert file.startswith(name)
            assert (tmp_path / "out" / file).stat().st_size > 0


def test_predict_without_weights_is_refused(method, tmp_path):
    inputs = method.case.write_inputs(tmp_path)
    with pytest.raises(SystemExit, match="--ckpt_path"):
        main(["predict", "--config", method.entry.config, "--data.inputs", json.dumps(inputs)])


def test_predict_from_files_keeps_the_mode(method, tmp_path):
    method.case.write_inputs(tmp_path)
    model = method.model().train()
    next(model.children()).eval()  # as a stage of training does with what it does not train
    modes = {name: module.training for name, module in model.named_modules()}
    model.predict(**method.case.predict(tmp_path))
    assert {name: module.training for name, module in model.named_modules()} == modes


def test_shapes_are_as_documented(method):
    model = method.model()
    found = dict(flatten(reference_output(model, model.example_inputs())))
    assert {key: tuple(value.shape) for key, value in found.items()} == dict(method.case.shapes)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_loss_falls_on_a_few_samples(method):
    """The same batch again and again: dropout and augmentation aside, it can be learnt."""
    model, data = method.model(), method.data()
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    loader = DataLoader([batch] * 20, batch_size=None)
    losses = []

    class SameDraws(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            torch.manual_seed(0)

    model.log = lambda name, value, **_: losses.append(float(value.detach()))
    options = {**SILENT, **method.case.trainer}
    trainer = Trainer(max_epochs=1, callbacks=[SameDraws()], **options)
    trainer.fit(model, loader)
    assert losses[-1] < method.case.learns * losses[0]


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_every_trainable_parameter_gets_a_gradient(method):
    """Else DDP stops. A few steps first, since zero-initialised layers block what lies below."""
    model, data = method.model(), method.data()
    data.setup("fit")
    Trainer(max_steps=3, limit_val_batches=0, **SILENT).fit(model, data.train_dataloader())
    model.log = lambda *_, **__: None
    model.zero_grad(set_to_none=True)
    loss = model.training_step(next(iter(data.train_dataloader())), 0)
    if model.automatic_optimization:  # else the step has gone backward itself
        loss.backward()
    missing = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing


def test_saved_and_loaded_in_a_fresh_process_bit_equal(method, tmp_path):
    model = method.model()
    model.save_pretrained(tmp_path / "hub")
    script = (
        "import sys, torch; from safetensors.torch import load_file\n"
        f"from zoo import from_pretrained, {method.entry.cls} as cls\n"
        "from zoo.hub import flatten, reference_output\n"
        "models = [from_pretrained(sys.argv[1]), cls.from_pretrained(sys.argv[1])]\n"
        "stored = load_file(sys.argv[1] + '/reference.safetensors')\n"
        "inputs = {k[6:]: v for k, v in stored.items() if k.startswith('input.')}\n"
        "torch.set_num_threads(1)\n"
        "for model in models:\n"
        "    for key, value in flatten(reference_output(model, inputs)):\n"
        "        assert torch.equal(value, stored['output.' + key]), key\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "hub")], check=True)


def test_published_and_pulled_again(method, hub, tmp_path):
    """One commit, no second one for the same content, only the needed files, checked, offline."""
    roundtrip(hub, method.model(), tmp_path / "run")


def test_config_json_equals_the_init_arguments(method, tmp_path):
    model = method.model()
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert {k: v for k, v in config.items() if not k.startswith("_")} == model.init_args()
    assert method.case.model.items() <= config.items()


@pytest.mark.slow
def test_checkpoint_loads_in_a_fresh_process_with_no_other_argument(method, run_folder):
    script = "import sys, zoo; getattr(zoo, sys.argv[1]).load_from_checkpoint(sys.argv[2])"
    command = [sys.executable, "-c", script, method.entry.cls, str(best(run_folder))]
    subprocess.run(command, check=True)


def test_checkpoint_is_plain_data_and_needs_no_arguments(method, run_folder):
    stored = torch.load(best(run_folder), weights_only=True)
    model = method.cls.load_from_checkpoint(best(run_folder))
    assert stored["hyper_parameters"] == model.init_args()
    for key, value in model.state_dict().items():
        assert torch.equal(value, stored["state_dict"][key])


def test_fits_without_logger_and_with_a_plain_data_loader(method):
    data = method.data()
    data.setup("fit")
    loaders = data.train_dataloader(), data.val_dataloader()
    trainer = Trainer(max_epochs=1, limit_val_batches=1, **SILENT)
    trainer.fit(method.model(), *loaders)
    assert trainer.global_step > 0


def test_fits_with_two_loggers(method, tmp_path):
    loggers = [CSVLogger(tmp_path, name="csv"), TensorBoardLogger(tmp_path, name="board")]
    options = {**SILENT, "logger": loggers, "log_every_n_steps": 1}
    Trainer(max_epochs=1, limit_val_batches=1, **options).fit(method.model(), method.data())
    assert "train_loss" in (tmp_path / "csv/version_0/metrics.csv").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["lightning", "torchrun"])
def test_two_processes_measure_what_one_does(method, run_folder, tmp_path, launcher):
    """On a test set that does not divide by two."""
    test = ["test", "--config", method.entry.config, *method.case.options(), *QUIET]
    test += ["--ckpt_path", str(best(run_folder)), "--trainer.accelerator", "cpu"]
    two = [*test, "--trainer.devices", "2", "--trainer.default_root_dir", str(tmp_path / "two")]
    if launcher == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
        command += [f"--master_port={free_port()}", "-m", "zoo", *two]
    else:
        command = [sys.executable, "-m", "zoo", *two]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port())}
    subprocess.run(command, check=True, timeout=240, env=env, capture_output=True)
    main([*test, "--trainer.devices", "1", "--trainer.default_root_dir", str(tmp_path / "one")])
    one, both = (
        json.loads((newest_run(tmp_path / folder) / "metrics.json").read_text())
        for folder in ("one", "two")
    )
    assert both["devices"] == 2
    assert both["metrics"] == pytest.approx(one["metrics"], rel=1e-5)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_bad_input_is_one_sentence_before_training(method, tmp_path):
    for arguments, pattern in method.case.bad_inputs(tmp_path):
        with pytest.raises(ZooError, match=pattern):
            method.data(**arguments).setup("predict" if "inputs" in arguments else "fit")


def test_card_is_complete(method):
    front, prose = method.entry.card, card_prose(method.name)
    assert missing_sections(prose) == []
    for key in ("cls", "data", "title", "task", "summary", "pipeline_tag", "tags"):
        assert front.get(key), key
    for key in ("metric", "value", "baseline", "run_time", "peak_memory"):
        assert method.entry.result.get(key), key


def test_usage_snippet_of_the_card_runs(method, tmp_path):
    """With a folder in place of the repository, on the case's files."""
    method.case.write_inputs(tmp_path)
    method.model().save_pretrained(tmp_path / "hub")
    (snippet,) = re.findall(
        r"^## Use\n.*?```python\n(.*?)```", card_prose(method.name), re.S | re.M
    )
    snippet = re.sub(r'from_pretrained\("[^"]+"\)', f'from_pretrained("{tmp_path}/hub")', snippet)
    for key, path in method.case.predict(tmp_path).items():
        snippet = re.sub(rf'{key}="[^"]+"', f'{key}="{path}"', snippet)
    exec(snippet, {})


def test_reloading_finished_weights_needs_no_network(method, run_folder, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    method.cls.load_from_checkpoint(best(run_folder))


def test_outputs_are_finite_in_bfloat16(method):
    model = method.model().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        for key, value in flatten(model(**model.example_inputs())):
            assert value.isfinite().all(), key


def test_order_of_a_directory_listing_changes_nothing(method, monkeypatch):
    def first(data):
        data.setup("fit")
        seed_everything(0)
        return [dict(flatten(data.datasets["val"][i])) for i in range(len(data.datasets["val"]))]

    expected = first(method.data())
    listdir, iterdir = os.listdir, Path.iterdir
    monkeypatch.setattr(os, "listdir", lambda *a: listdir(*a)[::-1])
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(list(iterdir(self))[::-1]))
    for a, b in zip(expected, first(method.data()), strict=True):
        assert all(np.array_equal(a[key], b[key], equal_nan=True) for key in a)
