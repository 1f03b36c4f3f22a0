"""The default mode: what is stored, chosen, saved, published and retrieved."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning import Trainer

from tests.hub.roundtrip import roundtrip
from tests.sinkhorn_memory.case import write_cloud, write_folder
from zoo import SinkhornMemory, ZooError
from zoo.cli.main import main
from zoo.datamodules import PointCloudPairsDataModule
from zoo.sinkhorn_memory.calibration import Dynamics, choose, make_grid

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
TINY = {"max_steps": 6, "inner_iters": 40}
DATA = {"patterns": 7, "points": 6, "dim": 3, "batch_size": 3, "eval_batch_size": 4}


def clouds(*sizes, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, dim)) + 4 * rng.normal(size=dim) for n in sizes]


@pytest.fixture(scope="module")
def filled():
    model = SinkhornMemory(**TINY).eval()
    model.store(clouds(5, 8, 6), labels=["ant", "bee", "cow"])
    return model


def test_the_snippet_of_the_issue(filled):
    stored = clouds(5, 8, 6)
    found = filled.retrieve([stored[1][::-1] + 0.05, stored[2][:4]])
    assert found.label == ["bee", "cow"]
    assert [p.shape for p in found.points] == [(8, 3), (4, 3)]
    assert found.divergence.shape == (2,)
    assert [float(w.sum()) for w in found.weights] == pytest.approx([1.0, 1.0], abs=1e-5)
    # in the user's unit: nearer to the clean cloud than the query was
    moved = np.abs(found.points[0][::-1] - stored[1]).mean()
    assert moved < 0.04


def test_weights_count():
    (cloud,) = clouds(6)
    model = SinkhornMemory(**TINY)
    heavy, light = np.array([9, 9, 9, 1, 1, 1.0]), np.array([1, 1, 1, 9, 9, 9.0])
    model.store([cloud, cloud], [heavy, light], ["heavy", "light"])
    assert model.retrieve([cloud, cloud], [light, heavy]).label == ["light", "heavy"]


def test_answers_do_not_depend_on_unit_and_place():
    a, b = SinkhornMemory(**TINY), SinkhornMemory(**TINY)
    stored, query = clouds(5, 8), clouds(6, seed=3)[0]
    a.store(stored)
    b.store([100 + 10 * c for c in stored])
    one, two = a.retrieve([query]), b.retrieve([100 + 10 * query])
    np.testing.assert_allclose(two.points[0], 100 + 10 * one.points[0], atol=2e-3)
    np.testing.assert_allclose(two.pattern_prob, one.pattern_prob, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (lambda m: SinkhornMemory().retrieve(clouds(3)), "Nothing is stored"),
        (lambda m: m.retrieve(clouds(3, dim=2)), "d=3"),
        (lambda m: m.retrieve([np.full((3, 3), np.nan)]), "row 0"),
        (lambda m: m.retrieve(clouds(3), [np.zeros(3)]), "all 0"),
        (lambda m: m.retrieve(clouds(3), [np.array([1, -1, 1])]), "negative"),
        (lambda m: m.retrieve([np.zeros((0, 3))]), "at least 1"),
        (lambda m: m(torch.ones(1, 2, 3), torch.zeros(1, 2)), "not all 0"),
        (lambda m: m(torch.full((1, 2, 3), torch.nan)), "not finite"),
        (lambda m: SinkhornMemory().store(clouds(3) + clouds(3, dim=2)), "2 dimensions"),
        (lambda m: SinkhornMemory().store([]), "no cloud"),
        (lambda m: SinkhornMemory().store([np.ones((3, 2))]), "nothing to tell"),
        (lambda m: SinkhornMemory().store(clouds(3), labels=["a", "b"]), "2 labels for 1"),
        (lambda m: SinkhornMemory(eps=0.0), "eps=0"),
        (lambda m: SinkhornMemory(mode="lern"), "Did you mean 'learn'"),
        (lambda m: SinkhornMemory(mode="learn"), "n_patterns=None"),
        (lambda m: m.predict("nowhere.npz"), "no file"),
    ],
)
def test_bad_input_is_one_sentence(filled, call, pattern):
    with pytest.raises(ZooError, match=pattern):
        call(filled)


def test_padding_may_hold_anything(filled):
    x = torch.randn(2, 5, 3)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    plain = filled(x, None, mask)
    x[1, 3:] = torch.nan
    for one, other in zip(plain, filled(x, None, mask), strict=True):
        torch.testing.assert_close(one, other)


def test_fit_stores_each_cloud_once_in_order_and_ends():
    model, data = SinkhornMemory(**TINY), PointCloudPairsDataModule(**DATA)
    trainer = Trainer(max_epochs=5, **SILENT)
    trainer.fit(model, data)
    assert trainer.current_epoch == 1
    assert trainer.global_step == 3  # of 3, 3 and 1 clouds
    assert model.labels == [str(k) for k in range(7)]
    stored = model.memory.restore(model.memory.points, model.memory.weights)
    for own, given in zip(stored, data.stored(), strict=True):
        np.testing.assert_allclose(own.numpy(), given.points, atol=1e-5)
    assert model.hparams["n_patterns"] == 7
    assert model.beta.item() in (20.0, 50.0, 100.0, 200.0)
    assert model.eps.item() != pytest.approx(0.1)  # what is chosen is a share of the median cost


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_fits_without_validation():
    model, data = SinkhornMemory(**TINY), PointCloudPairsDataModule(**DATA)
    data.setup("fit")
    Trainer(max_epochs=2, limit_val_batches=0, **SILENT).fit(model, data.train_dataloader())
    assert model.labels == [str(k) for k in range(7)]
    assert model.beta.item() == 50.0


def test_calibration_prefers_recovery_then_nearness():
    grid = make_grid(Dynamics(), 2.0)
    assert len(grid) == 16
    assert {round(d.eps, 3) for d in grid} == {0.04, 0.1, 0.2, 0.4}
    counts = torch.zeros(16, 2)
    counts[3], counts[5], counts[9] = (torch.tensor(c) for c in ([4, 0.1], [5, 3.0], [5, 2.0]))
    assert choose(counts, grid) is grid[9]


def test_fit_test_and_predict_by_command_line(tmp_path):
    root = write_folder(tmp_path / "own")
    options = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
    config = ["--config", "zoo/sinkhorn_memory.yaml", "--model.max_steps", "6", *options]
    folder = ["--trainer.default_root_dir", str(tmp_path / "out"), "--data.root", str(root)]
    main(["fit", *config, *folder])
    (run,) = (tmp_path / "out/runs").glob("*/version_0")
    record = json.loads((run / "metrics.json").read_text())["metrics"]
    for name in ("id_acc", "s_end", "recovered_euclid", "s_end_moments", "s_end_transport", "w2"):
        assert f"test_{name}" in record
    assert (run / "figures/test_flow.png").is_file()
    (best,) = (run / "checkpoints").glob("best-*.ckpt")
    main(["test", *config, *folder, "--ckpt_path", str(best)])
    again = json.loads((run.parent / "version_1/metrics.json").read_text())["metrics"]
    assert again == record
    write_cloud(tmp_path / "scan.npz", n=4)
    ask = ["--ckpt_path", str(best), "--data.inputs", str(tmp_path / "scan.npz")]
    main(["predict", *config, *ask, "--output", str(tmp_path / "found")])
    with np.load(tmp_path / "found/scan.npz") as found:
        assert str(found["id"]) in ("c0", "c1", "c2")
        assert found["points"].shape == (4, 3)
    assert SinkhornMemory.load_from_checkpoint(best).labels == ["c0", "c1", "c2"]


def test_fast_dev_run_of_the_default():
    config = ["--config", "zoo/sinkhorn_memory.yaml", "--model.max_steps", "2"]
    main(["fit", *config, "--data.patterns", "6", "--trainer.fast_dev_run", "true"])


def test_any_size_goes_through_the_hub(filled, hub, tmp_path):
    roundtrip(hub, filled, tmp_path / "run")


def test_any_size_loads_into_any_other(filled):
    other = SinkhornMemory(**TINY)
    other.store(clouds(2, 3, 4, 5, dim=2))
    other.load_state_dict(filled.state_dict())
    assert other.labels == filled.labels
    assert other.init_args()["n_patterns"] == 3
    assert other.init_args()["dim"] == 3
    query = clouds(4, seed=5)
    np.testing.assert_array_equal(other.retrieve(query).points[0], filled.retrieve(query).points[0])


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_learning_lowers_the_mean_energy():
    torch.manual_seed(0)
    model = SinkhornMemory(mode="learn", n_patterns=4, support=6, dim=3, **TINY)
    data = PointCloudPairsDataModule(**{**DATA, "patterns": 12, "batch_size": 12})
    losses = []
    model.log = lambda name, value, **_: losses.append(float(value.detach()))
    data.setup("fit")
    Trainer(max_epochs=40, limit_val_batches=0, **SILENT).fit(model, data.train_dataloader())
    assert losses[-1] < 0.8 * losses[0]
    with pytest.raises(ZooError, match="prototypes of its own"):
        model.store(clouds(3))


SCRIPT = """
import sys, torch
from lightning import Trainer, seed_everything
from zoo.sinkhorn_memory import SinkhornMemory
from zoo.datamodules import PointCloudPairsDataModule

if __name__ == "__main__":
    devices, mode, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    sizes = dict(n_patterns=3, support=5, dim=3) if mode == "learn" else {}
    model = SinkhornMemory(mode=mode, max_steps=6, inner_iters=40, **sizes)
    data = PointCloudPairsDataModule(patterns=7, points=6, dim=3, batch_size=2, eval_batch_size=2)
    trainer = Trainer(max_epochs=2, accelerator="cpu", devices=devices, logger=False,
                      strategy="ddp" if devices > 1 else "auto", enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False,
                      use_distributed_sampler=False)
    trainer.fit(model, data)
    torch.save(model.state_dict(), f"{path}-{trainer.global_rank}")
    if devices > 1:
        torch.distributed.destroy_process_group()
"""


def run_script(folder, devices, mode):
    (folder / "run.py").write_text(SCRIPT)
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    target = str(folder / f"{mode}{devices}")
    command = [sys.executable, str(folder / "run.py"), str(devices), mode, target]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return [torch.load(f"{target}-{rank}", weights_only=True) for rank in range(devices)]


@pytest.mark.slow
def test_two_processes_with_unequal_shards_store_what_one_does(tmp_path):
    """Seven clouds: one rank reads four of them, the other three and a repeated one."""
    (one,) = run_script(tmp_path, 1, "store")
    for rank in run_script(tmp_path, 2, "store"):
        for key, value in one.items():
            assert torch.equal(rank[key], value), key


@pytest.mark.slow
def test_two_processes_learn_the_same_prototypes(tmp_path):
    first, second = run_script(tmp_path, 2, "learn")
    for key, value in first.items():
        assert torch.equal(second[key], value), key
    assert first["memory.points"].isfinite().all()
