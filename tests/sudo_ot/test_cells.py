"""Cells in and out: AnnData, the field's CSV layout, the generators, and published settings."""

import math
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import yaml
from lightning import Trainer

import zoo
from tests.sudo_ot.case import CASE, write_csv
from zoo import SudoOT, ZooError
from zoo.cell_files import from_anndata, read_cells
from zoo.cli.main import main
from zoo.datamodules import CellSnapshotsDataModule
from zoo.datamodules.cell_snapshots import gene_circuit
from zoo.datamodules.cell_snapshots.datamodule import TRAIN, split_cells
from zoo.datamodules.cell_snapshots.gene_circuit import division_chance

CONFIGS = sorted((Path(zoo.__file__).parent / "sudo_ot").glob("*.yaml"))


def cells(count=30, dim=2, times=(0.0, 1.0, 2.0), seed=0):
    """An AnnData with shuffled times."""
    rng = np.random.default_rng(seed)
    time = rng.permutation(np.repeat(times, count))
    x = rng.normal(size=(len(time), dim)).astype(np.float32) + 0.1 * time[:, None]
    names = [f"cell{i}" for i in rng.permutation(len(time))]
    return anndata.AnnData(
        obs=pd.DataFrame({"time": time, "batch": "a"}, index=names),
        obsm={"X_pca": x.astype(np.float32)},
    )


def test_annotate_keeps_order_and_adds_what_it_says():
    torch.manual_seed(0)
    model, adata = SudoOT(hidden=8), cells()
    before = list(adata.obs_names)
    out = model.annotate(adata)
    assert out is adata
    assert list(out.obs_names) == before
    assert list(out.obs) == ["time", "batch", "growth_rate", "fate_mass"]
    x, t = torch.from_numpy(adata.obsm["X_pca"]), torch.from_numpy(adata.obs["time"].to_numpy())
    v, g = model(t.float(), x)
    assert np.allclose(out.obsm["velocity_sudo"], v.detach(), atol=1e-6)
    assert np.allclose(out.obs["growth_rate"], g.detach(), atol=1e-6)
    assert (out.obs["fate_mass"] > 0).all()
    late = adata.obs["time"] >= 1.0  # the end of an untrained model's time
    assert np.allclose(out.obs["fate_mass"][late], 1.0)


def test_a_row_is_described_as_it_is_alone():
    torch.manual_seed(0)
    model, adata = SudoOT(hidden=8), cells()
    whole = model.annotate(adata.copy())
    some = model.annotate(adata[[7, 3]])  # a view, which is copied
    assert np.allclose(some.obs["growth_rate"], whole.obs["growth_rate"].iloc[[7, 3]], atol=1e-6)
    assert np.allclose(some.obs["fate_mass"], whole.obs["fate_mass"].iloc[[7, 3]], atol=1e-6)
    assert "growth_rate" not in adata.obs


def test_simulate_from_a_saved_checkpoint(tmp_path):
    torch.manual_seed(0)
    SudoOT(hidden=8).save_pretrained(tmp_path / "hub")
    model = SudoOT.from_pretrained(tmp_path / "hub")
    adata = cells()
    found = model.simulate(adata[adata.obs.time == 0], until=4.0, times=5)
    assert found.times.tolist() == [0, 1, 2, 3, 4]
    assert found.x.shape == (5, 30, 2)
    assert found.logw.shape == found.g.shape == (5, 30)
    assert np.array_equal(found.x[0], adata[adata.obs.time == 0].obsm["X_pca"])
    path = found.save(tmp_path / "out.csv")
    again = read_cells(path)
    assert np.allclose(again.x, found.x.reshape(-1, 2), atol=1e-6)
    with pytest.raises(ZooError, match="until=0"):
        model.simulate(adata, until=0.0)


def test_a_model_refuses_other_coordinates():
    model, adata = SudoOT(), cells(dim=3)
    with pytest.raises(ZooError, match="3 dimensions"):
        model.annotate(adata)
    adata = cells()
    model.intervals(
        {
            "x": torch.randn(20, 2),
            "time": torch.arange(2.0).repeat(10),
            "mass": torch.ones(20),
            "rep": "X_umap",
        }
    )
    with pytest.raises(ZooError, match="'X_umap', not on 'X_pca'"):
        model.annotate(adata, rep="X_pca")
    with pytest.raises(ZooError, match=r"no obsm\['X_umap'\]; its keys are: X_pca"):
        model.annotate(adata)


def test_sparse_coordinates_become_dense_with_a_message(caplog):
    adata = cells()
    dense = adata.obsm["X_pca"]
    adata.obsm["X_pca"] = scipy.sparse.csr_matrix(dense)
    with caplog.at_level("INFO"):
        found = from_anndata(adata)
    assert np.array_equal(found.x, dense)
    assert "sparse" in caplog.text


def test_times_may_be_ordered_or_numeric_categories():
    adata = cells(count=4, times=(0, 1, 2))
    labels = {0: "E7", 1: "E8", 2: "E9"}
    days = adata.obs["time"].map(labels)
    adata.obs["day"] = pd.Categorical(days, ["E7", "E8", "E9"], ordered=True)
    assert np.array_equal(from_anndata(adata, "day").time, adata.obs["time"])
    adata.obs["hour"] = (adata.obs["time"] * 8).astype(str).astype("category")
    assert np.array_equal(from_anndata(adata, "hour").time, 8 * adata.obs["time"])


def broken(**changes):
    adata = cells(count=12)
    for key, value in changes.items():
        if key == "x":
            adata.obsm["X_pca"] = value(adata.obsm["X_pca"])
        else:
            adata.obs[key] = value(adata.obs["time"])
    return adata


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"x": lambda x: np.where(np.arange(36)[:, None] == 5, np.nan, x)}, {}, "first in row 5"),
        ({"x": lambda x: np.where(np.arange(36)[:, None] == 5, np.inf, x)}, {}, "first in row 5"),
        ({}, {"rep": "X_pac"}, r"keys are: X_pca. Did you mean 'X_pca'"),
        ({}, {"time_key": "tiem"}, r"columns are: time, batch. Did you mean 'time'"),
        ({"day": lambda t: t.map(lambda v: f"d{v}")}, {"time_key": "day"}, "cannot be ordered"),
        (
            {"day": lambda t: pd.Categorical(t.map(lambda v: f"d{v}"))},
            {"time_key": "day"},
            "not ordered",
        ),
        ({"time": lambda t: t.where(t > 0, np.nan)}, {}, "no finite time for 12 cells"),
    ],
)
def test_a_broken_anndata_is_one_sentence(changes, options, words):
    with pytest.raises(ZooError, match=words):
        from_anndata(broken(**changes), **options)


def test_an_anndata_without_components_lists_its_keys(tmp_path):
    adata = cells()
    adata.obsm["X_umap"] = adata.obsm.pop("X_pca")
    adata.write_h5ad(tmp_path / "a.h5ad")
    if _has_scanpy():
        pytest.skip("scanpy would compute them")
    with pytest.raises(ZooError, match=r"keys are: X_umap.*pip install scanpy"):
        CellSnapshotsDataModule(root=str(tmp_path / "a.h5ad")).setup("fit")


def _has_scanpy():
    try:
        import scanpy  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.mark.filterwarnings("ignore")
def test_scanpy_computes_components_of_training_cells_alone(tmp_path):
    """Its own small data set: 700 cells and no time axis, so times are made up here."""
    scanpy = pytest.importorskip("scanpy")
    adata = scanpy.datasets.pbmc68k_reduced()
    adata.obsm.clear()
    adata.obs["time"] = np.arange(adata.n_obs) % 3
    adata.write_h5ad(tmp_path / "pbmc.h5ad")
    data = CellSnapshotsDataModule(root=str(tmp_path / "pbmc.h5ad"), holdout_time=1.0)
    found, chosen = data.snapshots(TRAIN)
    assert found.x.shape == (700, 50)
    assert 480 < chosen.sum() < 500


def test_fits_predicts_and_annotates_from_files(tmp_path):
    """From an AnnData to an annotated AnnData, through the command line."""
    adata = cells(count=30)
    adata.write_h5ad(tmp_path / "a.h5ad")
    options = [*CASE.options(), "--data.root", str(tmp_path / "a.h5ad")]
    options += ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
    main(["fit", "--config", "zoo/sudo_ot.yaml", *options, "--trainer.max_epochs", "2"])
    (best,) = Path("runs").glob("sudo_ot/*/checkpoints/best-*.ckpt")
    predict = ["predict", "--config", "zoo/sudo_ot.yaml", *options, "--ckpt_path", str(best)]
    main([*predict, "--data.inputs", str(tmp_path / "a.h5ad"), "--output", str(tmp_path / "out")])
    out = anndata.read_h5ad(tmp_path / "out/a.h5ad")
    assert list(out.obs_names) == list(adata.obs_names)
    assert out.obs["growth_rate"].notna().all()
    assert SudoOT.load_from_checkpoint(best).rep == "X_pca"
    header = (tmp_path / "out/a_trajectories.csv").read_text().splitlines()[0]
    assert header == "samples,cell,x1,x2,logw,growth_rate"


def test_the_circuit_is_what_it_says():
    data = gene_circuit(300, seed=0)
    counts = [int((data.time == t).sum()) for t in data.times]
    assert data.times.tolist() == [0, 8, 16, 24, 32]
    assert counts == sorted(counts)
    assert counts[0] == 300
    assert 550 < counts[-1] < 700
    assert (data.x >= 0).all()
    assert np.allclose(
        data.growth, np.log1p(division_chance(data.x[:, 1].astype(float))), atol=1e-6
    )
    again = gene_circuit(300, seed=0)
    assert np.array_equal(data.x, again.x)
    assert not np.array_equal(data.x[:300], gene_circuit(300, seed=1).x[:300])
    # Within the first interval, births are about what the rates promise.
    expected = data.growth[data.time == 0].mean() * 8
    assert 0.3 * expected < np.log(counts[1] / counts[0]) < 2 * expected


def test_splits_are_disjoint_and_in_the_same_shares_at_each_time(tmp_path):
    time = np.repeat([0.0, 1.0, 5.0], [40, 100, 60])
    labels = split_cells(time, seed=0)
    for t in np.unique(time):
        here = labels[time == t]
        assert np.bincount(here).tolist() == [round(s * len(here)) for s in (0.7, 0.1, 0.2)]
    assert not np.array_equal(labels, split_cells(time, seed=1))
    data = CellSnapshotsDataModule(root=str(write_csv(tmp_path / "a.csv", cells=40)))
    seen = [{tuple(x) for x in part.tolist()} for part in split_parts(data)]
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]
    assert sum(map(len, seen)) == 40 + 42


@pytest.mark.parametrize("dataset", ["gene_circuit", "gaussian_wfr"])
def test_generated_splits_are_simulations_of_full_size_each(dataset):
    parts = split_parts(CellSnapshotsDataModule(dataset=dataset, cells=60))
    again = split_parts(CellSnapshotsDataModule(dataset=dataset, cells=60))
    assert all(torch.equal(p, q) for p, q in zip(parts, again, strict=True))
    assert not torch.equal(parts[0][:60], parts[1][:60])
    assert not torch.equal(parts[1][:60], parts[2][:60])
    assert not torch.equal(parts[0][:60], parts[2][:60])
    data = CellSnapshotsDataModule(dataset=dataset, cells=60)
    data.setup("test")
    item = data.datasets["test"][0]
    assert len(item["x0"]) == 60
    assert item["mass"].sum().item() == pytest.approx(len(item["x"]))  # a count of its own


def split_parts(data):
    """All cells of training, validation and test."""
    data.setup("fit")
    data.setup("test")
    keys = (("train", "x"), ("val", "cells"), ("test", "cells"))
    return [data.datasets[split][0][key] for split, key in keys]


@pytest.mark.filterwarnings("ignore")
def test_a_test_of_one_batch_has_the_held_out_time_and_no_nan():
    data = CellSnapshotsDataModule(cells=40, holdout_time=16.0)
    trainer = Trainer(
        limit_test_batches=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        accelerator="cpu",
    )
    (found,) = trainer.test(SudoOT(**CASE.model), data, verbose=False)
    assert found["test_w1_held_out"] == found["test_w1"]
    assert all(math.isfinite(value) for value in found.values())


def test_held_out_time_is_seen_by_the_test_alone():
    data = CellSnapshotsDataModule(cells=60, holdout_time=16.0)
    data.setup("fit")
    data.setup("test")
    assert 16.0 not in data.datasets["train"][0]["time"]
    assert all(item["time"] != 16.0 for item in data.datasets["val"].items)
    flags = {float(i["time"]): bool(i["held_out"]) for i in data.datasets["test"].items}
    assert flags == {32.0: False, 16.0: True, 8.0: False, 24.0: False}
    assert next(iter(flags)) == 16.0
    assert all(item["holds_out"] for item in data.datasets["test"].items)
    assert not any(item["holds_out"] for item in data.datasets["val"].items)


@pytest.mark.parametrize(
    ("mass", "expected"),
    [("uniform", [1, 1, 1]), ("counts", [12, 14, 16]), ({"0": 5, "1": 4, "2": 3}, [5, 4, 3])],
)
def test_each_split_carries_the_mass_of_its_time(mass, expected, tmp_path):
    write_csv(tmp_path / "a.csv", times=(0, 1, 2))
    data = CellSnapshotsDataModule(root=str(tmp_path / "a.csv"), mass=mass)
    data.setup("fit")
    item = data.datasets["train"][0]
    for time, total in zip((0, 1, 2), expected, strict=True):
        assert item["mass"][item["time"] == time].sum().item() == pytest.approx(total)
    assert data.datasets["val"][0]["masses"].tolist() == expected


def test_validation_starts_with_the_last_snapshot_and_knows_the_growth():
    data = CellSnapshotsDataModule(cells=60)
    data.setup("validate")
    items = data.datasets["val"].items
    assert [float(i["time"]) for i in items] == [32, 8, 16, 24]
    assert all(len(i["growth"]) == len(i["source"]) for i in items)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_published_settings_run_on_a_table_of_the_same_layout(path, tmp_path):
    settings = yaml.safe_load(path.read_text())
    model = settings["model"]["init_args"]
    table = write_csv(
        tmp_path / "table.csv",
        times=(0, 1, 2),
        dim=model["dim"],
        shift=0.1,
        cells=20,
        spread=0.3 / math.sqrt(model["dim"]),  # so that cells are in reach in any dimension
    )
    rows = table.read_text().splitlines()
    options = {
        "--data.root": table,
        "--data.steps_per_epoch": 3,
        "--model.path_steps": 2,
        "--model.match_steps": 4,
        "--model.coupling_iters": 3,
        "--model.hidden": 8,
        "--trainer.max_epochs": 2,
        "--trainer.accelerator": "cpu",
        "--trainer.devices": 1,
        "--trainer.strategy": "auto",
        "--trainer.enable_progress_bar": "false",
        "--trainer.enable_model_summary": "false",
        "--trainer.logger": "false",  # so that nothing is drawn
        "--trainer.num_sanity_val_steps": 0,
        "--trainer.limit_val_batches": 1,
        "--test_after_fit": "false",
    }
    if settings["data"]["init_args"].get("rep"):  # an AnnData
        x = np.array([[float(v) for v in row.split(",")] for row in rows[1:]], dtype=np.float32)
        data = settings["data"]["init_args"]
        adata = anndata.AnnData(
            obs=pd.DataFrame({data["time_key"]: x[:, 0]}, index=[str(i) for i in range(len(x))]),
            obsm={data["rep"]: x[:, 1:]},
        )
        adata.write_h5ad(tmp_path / "table.h5ad")
        options["--data.root"] = tmp_path / "table.h5ad"
    given = [str(v) for pair in options.items() for v in pair]
    main(["fit", "--config", f"zoo/sudo_ot/{path.name}", *given])
    (best,) = Path("checkpoints").glob("best-*.ckpt")
    assert SudoOT.load_from_checkpoint(best).fitted


def test_a_csv_file_becomes_an_annotated_anndata(tmp_path):
    table = write_csv(tmp_path / "a.csv")
    out = SudoOT(hidden=8).predict(cells=table)
    assert np.array_equal(out.obsm["X_cells"], read_cells(table).x)
    assert np.array_equal(out.obs["time"], read_cells(table).time)
    assert out.obsm["velocity_sudo"].shape == out.obsm["X_cells"].shape
