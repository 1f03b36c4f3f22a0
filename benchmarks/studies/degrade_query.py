"""DegradeQuery: how a few labels of a target help that training has never seen.

``python -m benchmarks.studies.degrade_query --seeds 0 1 2``

Whole targets are held out. For each of them with enough labels, k of its tuples are the support
that ``adapt`` sees, and AUROC is that of the other tuples: the same ones for every k, and the mean
over several draws. Each seed holds out other targets; pretrained and scratch have the same. The
figures are written to ``benchmarks/results/degrade_query_few_shot.json``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from lightning import Trainer, seed_everything
from numpy.typing import NDArray

from benchmarks.runner import RESULTS
from zoo import DegradeQuery
from zoo.atomic import write_json
from zoo.datamodules import ProtacTuplesDataModule
from zoo.metrics import AUROC

SHOTS = (0, 1, 2, 5, 10)
MIN_ROWS, MIN_CLASS = 20, 6  # labels of a target, and of its rarer class
DRAWS = 5
EPOCHS, MONITOR = 8, "val_auroc"


def train(seed: int, **options: Any) -> tuple[DegradeQuery, ProtacTuplesDataModule]:
    """A fit as of the default config, but for ``split: target``; its best checkpoint."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    seed_everything(seed, verbose=False)
    data = ProtacTuplesDataModule(split="target", batch_size=64, label_batch=32, seed=seed)
    model = DegradeQuery(**options)
    best = ModelCheckpoint(monitor=MONITOR, mode="max")
    trainer = Trainer(
        max_epochs=EPOCHS,
        gradient_clip_val=1.0,
        callbacks=[best],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    return DegradeQuery.load_from_checkpoint(best.best_model_path), data


def held_out_targets(data: ProtacTuplesDataModule) -> dict[str, NDArray[np.int64]]:
    """Rows of each target of the test that has enough labels of both classes."""
    table, split, _ = data.load()
    found = {}
    for target in np.unique(table.target[split.test]):
        rows = split.test[table.target[split.test] == target]
        positive = int(table.label[rows].sum())
        if len(rows) >= MIN_ROWS and min(positive, len(rows) - positive) >= MIN_CLASS:
            found[str(target)] = rows
    return found


def few_shot(
    model: DegradeQuery, data: ProtacTuplesDataModule, shots: Sequence[int], draws: int, seed: int
) -> dict[int, dict[str, float]]:
    """AUROC by number of labels and target, the mean over the draws of support."""
    table, *_ = data.load()
    rng = np.random.default_rng(seed)
    scores: dict[int, dict[str, list[float]]] = {k: {} for k in shots}
    for target, rows in held_out_targets(data).items():
        for _ in range(draws):
            order = _alternating(rng.permutation(rows), table.label)
            support, query = order[: max(shots)], order[max(shots) :]
            for k in shots:
                given = [
                    (str(table.smiles[i]), target, str(table.e3[i]), int(table.label[i]))
                    for i in support[:k]
                ]
                one = model.adapt(given) if k else model
                metric = AUROC()
                for e3 in np.unique(table.e3[query]):
                    asked = query[table.e3[query] == e3]
                    p = one.predict(table.smiles[asked].tolist(), target, str(e3))
                    metric.update(torch.from_numpy(p), torch.from_numpy(table.label[asked]))
                scores[k].setdefault(target, []).append(float(metric.compute()))
    return {
        k: {target: statistics.mean(values) for target, values in by_target.items()}
        for k, by_target in scores.items()
    }


def _alternating(rows: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The classes in turns at first, so that two labels are one of each."""
    sides = [rows[labels[rows] == c] for c in (labels[rows[0]], 1 - labels[rows[0]])]
    turns = min(len(side) for side in sides) // 2
    first = np.stack([side[:turns] for side in sides], axis=1).ravel()
    return np.concatenate([first, rows[~np.isin(rows, first)]])


def report(found: Mapping[str, Mapping[int, Mapping[str, float]]]) -> str:
    """One line for each start and number of labels."""
    lines = []
    for start, by_shots in found.items():
        for k, by_target in by_shots.items():
            mean = statistics.mean(by_target.values())
            lines.append(f"{start}, k={k}: AUROC {mean:.3f} over {len(by_target)} targets")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Trains, adapts, prints and writes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.degrade_query")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    record: dict[str, Any] = {}
    for seed in options.seeds:
        found = {}
        for start, changes in (("pretrained", {}), ("scratch", {"pretrain_steps": 0})):
            model, data = train(seed, **changes)
            found[start] = few_shot(model, data, SHOTS, DRAWS, seed)
        sys.stdout.write(f"seed {seed}\n{report(found)}")
        record[str(seed)] = found
    write_json(RESULTS / "degrade_query_few_shot.json", record)


if __name__ == "__main__":
    main()
