"""SUDO in the contract's tests."""

import numpy as np

from tests.case import Case


def write_csv(path, times=(0, 1), cells=12, dim=2, shift=0.5, spread=0.2):
    """Clouds that move along the first axis, in the field's layout."""
    rng = np.random.default_rng(0)
    names = ",".join(f"x{i + 1}" for i in range(dim))
    rows = [f"samples,{names}"]
    for number, time in enumerate(times):
        x = rng.normal(0, spread, (cells + 2 * number, dim))
        x[:, 0] += shift * number
        rows += [f"{time}," + ",".join(f"{v:.6f}" for v in row) for row in x]
    path.write_text("\n".join(rows) + "\n")
    return path


def write_inputs(folder):
    """One table in the field's layout, and one AnnData."""
    import anndata
    import pandas as pd

    write_csv(folder / "organoid.csv")
    rng = np.random.default_rng(1)
    obs = pd.DataFrame({"time": np.repeat([0.0, 8.0], 6)}, index=[f"cell{i}" for i in range(12)])
    adata = anndata.AnnData(obs=obs, obsm={"X_pca": rng.normal(size=(12, 2)).astype(np.float32)})
    adata.write_h5ad(folder / "embryo.h5ad")
    return [str(folder / "*.csv")]


def bad_inputs(folder):
    """What a table of cells can lack."""
    write_csv(folder / "single.csv", times=(3,))
    yield {"root": str(folder / "single.csv")}, "one time only"
    write_csv(folder / "few.csv", cells=6)
    yield {"root": str(folder / "few.csv")}, "6 cells at the time 0"
    text = write_csv(folder / "nan.csv").read_text().splitlines()
    text[4] = text[4].split(",")[0] + ",nan,1"
    (folder / "nan.csv").write_text("\n".join(text))
    yield {"root": str(folder / "nan.csv")}, "row 3"
    (folder / "other.csv").write_text("day,gene\n0,1\n")
    yield {"root": str(folder / "other.csv")}, "'samples'.*'day', 'gene'"
    (folder / "empty.csv").write_text("samples,x1\n")
    yield {"root": str(folder / "empty.csv")}, "no cells"
    (folder / "words.csv").write_text("samples,x1\nearly,1\n")
    yield {"root": str(folder / "words.csv")}, "no table of numbers"
    yield {"root": str(folder / "nowhere.h5ad")}, "nowhere"
    (folder / "broken.h5ad").write_bytes(b"no HDF5")
    yield {"root": str(folder / "broken.h5ad")}, "no readable"
    write_csv(folder / "good.csv", times=(0, 1, 2))
    yield {"root": str(folder / "good.csv"), "holdout_time": 2.0}, "no middle time.*1"
    yield {"root": str(folder / "good.csv"), "mass": {"0": 1.0, "1": 2.0}}, "time 2"
    yield {"inputs": [str(folder / "*.h5ad.gz")]}, "matches no file"


CASE = Case(
    model={
        "path_steps": 2,  # the stages must be through within three steps, else training warns
        "match_steps": 16,
        "coupling_iters": 5,
        "hidden": 8,
        "layers": 2,
        "pairs": 8,
    },
    data={"cells": 60, "steps_per_epoch": 24},
    shapes={"0": (4, 2), "1": (4,)},
    write_inputs=write_inputs,
    predict=lambda folder: {"cells": folder / "embryo.h5ad"},
    bad_inputs=bad_inputs,
    trainer={"check_val_every_n_epoch": 1},  # the stages end in the first epoch
    learns=0.9,  # from the first stage's loss to the last one's; test_module has what is learnt
)
