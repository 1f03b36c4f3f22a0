"""DegradeQuery in tuples a second, beside what a user would pick instead.

    python -m benchmarks.speed.degrade_query

Rates are of one thread, with a tenth of the packaged sample. Those with kept features answer rows
of a featurised table; the one from SMILES pays RDKit too. The forest is scikit-learn's own, not its
copy as tensors.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

from benchmarks.speed.timing import in_turns
from zoo import DegradeQuery
from zoo.datamodules import ProtacTuplesDataModule
from zoo.molecules import featurize

ROWS, ROUNDS, BATCH, TREES = 512, 5, 128, 500


def main() -> None:
    """Measures, and prints."""
    from sklearn.ensemble import RandomForestClassifier

    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = ProtacTuplesDataModule(tuples=1200, val_labels=60)
    data.setup("fit")
    data.setup("test")
    table, split, vocabulary = data.load()
    test = data.datasets["test"]
    rows = np.resize(np.arange(len(table)), ROWS)
    smiles = table.smiles[rows[:BATCH]].tolist()

    def answer(model: DegradeQuery) -> None:
        with model.evaluating():
            for start in range(0, ROWS, BATCH):
                chosen = rows[start : start + BATCH]
                part = table.molecules.batch(table.molecule[chosen])
                index = test.index[chosen]  # type: ignore[attr-defined]
                molecule = model._encode(part)
                pair = model._pair(index[:, 1:2], index[:, 2:3], vocabulary)
                r, _ = model._fuse(molecule, *pair)
                model.network.degradation(r).sigmoid()

    models = {}
    for kind in ("both", "fingerprint"):
        models[kind] = DegradeQuery(molecule=kind)
        models[kind].vocabulary.fit(vocabulary)
    counts = table.molecules.counts
    labelled = split.labelled
    forest = RandomForestClassifier(TREES, n_jobs=1, random_state=0)
    forest.fit(counts[table.molecule[labelled]], table.label[labelled])
    found = in_turns(
        {
            "kept features, graph and fingerprint": lambda: answer(models["both"]),
            "kept features, fingerprint": lambda: answer(models["fingerprint"]),
            "random forest, kept fingerprints": lambda: forest.predict_proba(
                counts[table.molecule[rows]]
            ),
        },
        ROUNDS,
    )
    for name, seconds in found.items():
        sys.stdout.write(f"{name}: {ROWS / seconds:.0f} tuples/s\n")
    start = time.perf_counter()
    featurize(smiles)
    featurising = time.perf_counter() - start
    sys.stdout.write(f"RDKit features: {BATCH / featurising:.0f} molecules/s, once a molecule\n")

    model, one = models["both"], smiles[0]
    targets = [name for name, _ in model.vocabulary.ranked(model.vocabulary.target_count)]

    def one_by_one() -> None:
        for target in targets:
            model.predict(one, target, "CRBN")

    scan = in_turns(
        {"rank_targets": lambda: model.rank_targets(one, "CRBN"), "predict for each": one_by_one},
        3,
    )
    for name, seconds in scan.items():
        sys.stdout.write(f"{name}: {1000 * seconds:.0f} ms for {len(targets)} targets\n")

    model.train()
    model.log = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    batch = data.datasets["train"].__getitems__(list(range(64)))  # type: ignore[attr-defined]
    steps = {}
    for index, stage in enumerate(("pretraining", "fine-tuning")):

        def step(index: int = index) -> None:
            model.stage_index = index
            model.training_step(batch, 0).backward()  # type: ignore[no-untyped-call]

        steps[stage] = step
    for name, seconds in in_turns(steps, ROUNDS).items():
        sys.stdout.write(f"{name}: {1000 * seconds:.0f} ms a step\n")


if __name__ == "__main__":
    main()
