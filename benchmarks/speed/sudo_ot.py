"""SUDO's parts in seconds, beside what a user would pick instead.

    python -m benchmarks.speed.sudo_ot coupling   # against POT
    python -m benchmarks.speed.sudo_ot memory     # of blocks
    python -m benchmarks.speed.sudo_ot annotate   # cells a second
    python -m benchmarks.speed.sudo_ot race       # to the same W1 as training by simulation

Times are of this process's CPU, so that a busy machine does not count; on several threads they are
the sum over the threads.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer, seed_everything

from zoo import SudoOT
from zoo.cell_files import Snapshots
from zoo.datamodules import CellSnapshotsDataModule
from zoo.datamodules.cell_snapshots import gene_circuit
from zoo.sudo_ot import CostTable, SimulatedOT, pot_coupling, semi_coupling, wfr_cost
from zoo.sudo_ot.coupling import couple_in_blocks
from zoo.sudo_ot.protocol import CellTrajectories

DELTA, REACH, RATIO = 1.5, 4.476, 5.0


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and what it gives."""
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def exact_table() -> CostTable:
    """The closed form of the quadratic penalty."""
    table = CostTable(REACH, RATIO)
    table.fill(lambda d, r: wfr_cost(d.double(), r.double(), DELTA))
    return table


def _sides(cells: int, later: int = 1, seed: int = 0) -> tuple[torch.Tensor, ...]:
    data: Snapshots = gene_circuit(cells, seed)
    x, y = (torch.from_numpy(data.x[data.time == t]) for t in data.times[[later - 1, later]])
    return x, y, torch.ones(len(x)), torch.ones(len(y))


def coupling() -> None:
    """Semi-couplings of the circuit's first interval, ours and POT's."""
    import ot

    table = exact_table()
    for cells in (300, 1000):
        sides = _sides(cells)
        ours, found = seconds(lambda sides=sides: semi_coupling(*sides, table, 200))
        theirs, exact = seconds(lambda sides=sides: pot_coupling(*sides, DELTA))
        d = torch.cdist(*sides[:2]).double().numpy()
        cost = -2 * np.log(np.cos(np.minimum(d / (2 * DELTA), np.pi / 2)).clip(1e-9))
        masses = [side.double().numpy() for side in sides[2:]]
        sinkhorn, _ = seconds(
            lambda m=masses, c=cost: ot.unbalanced.sinkhorn_unbalanced(*m, c, 0.01, 1.0)
        )
        sys.stdout.write(
            f"{len(sides[0])} x {len(sides[1])}: ours {ours:.2f} s, cost {found.cost:.3f}; "
            f"POT mm_unbalanced {theirs:.2f} s, cost {exact.cost:.3f} "
            f"({found.cost / exact.cost - 1:+.2%}); POT sinkhorn_unbalanced, 0.01: "
            f"{sinkhorn:.2f} s\n"
        )
    x, y, a, b = _sides(2000)
    sides = x[:2000], y[:2000], a[:2000], b[:2000]
    ours, _ = seconds(lambda: semi_coupling(*sides, table, 200))
    sys.stdout.write(f"2000 x 2000, 200 iterations: {ours:.1f} s\n")


def memory() -> None:
    """Peak memory of couplings in blocks, each in a process of its own."""
    for cells, chunk in ((1000, 1000), (2000, 2000), (2000, 1000), (4000, 1000)):
        command = [sys.executable, "-m", "benchmarks.speed.sudo_ot", "peak"]
        done = subprocess.run(
            [*command, str(cells), str(chunk)], check=True, capture_output=True, text=True
        )
        sys.stdout.write(f"{cells} cells, blocks of {chunk}: {done.stdout}")


def peak(cells: int, chunk: int) -> None:
    """Couples random cells in few iterations, and prints by how much memory rose."""
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(cells, 10, generator=rng), torch.randn(cells, 10, generator=rng)
    masses = torch.ones(cells), torch.ones(cells)
    table = exact_table()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    couple_in_blocks([(x, y, *masses)], table, 3, chunk)
    rise = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.stdout.write(f"{rise / 1024:.0f} MiB\n")


def annotate() -> None:
    """Cells a second, by the number of cells."""
    import anndata
    import pandas as pd

    model = SudoOT(dim=50).eval()
    for cells in (1000, 10_000, 100_000):
        rng = np.random.default_rng(0)
        obs = pd.DataFrame({"time": rng.random(cells)}, index=np.arange(cells).astype(str))
        x = rng.normal(size=(cells, 50)).astype(np.float32)
        adata = anndata.AnnData(obs=obs, obsm={"X_pca": x})
        taken, _ = seconds(lambda adata=adata: model.annotate(adata))
        sys.stdout.write(f"{cells} cells in 50 dimensions: {cells / taken:.0f} cells/s\n")


class Race(Callback):
    """Notes W1 on the validation cells against the CPU time of training alone."""

    def __init__(self, every: int) -> None:
        self.every, self.spent, self.began = every, 0.0, time.process_time()
        self.curve: list[tuple[int, float, float]] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Every so many steps; evaluation does not count."""
        if trainer.global_step % self.every:
            return
        self.spent += time.process_time() - self.began
        assert isinstance(pl_module, CellTrajectories)
        found = []
        with torch.inference_mode():
            for item in trainer.datamodule.datasets["val"]:  # type: ignore[attr-defined]
                pl_module.val_metrics.reset()
                log = pl_module.log
                pl_module.log = lambda *_, **__: None  # type: ignore[method-assign]
                pl_module._evaluate(item, "val")
                pl_module.log = log  # type: ignore[method-assign]
                found.append(float(pl_module.val_metrics["w1"].compute()))
        self.curve.append((trainer.global_step, self.spent, float(np.mean(found))))
        self.began = time.process_time()


def race(seed: int) -> None:
    """Both arms with the same networks, optimiser and data; prints W1 against CPU seconds."""
    sudo = SudoOT()
    arms = {
        "SUDO": (sudo, sum(stage.steps or 0 for stage in sudo.training_stages)),
        "simulation": (SimulatedOT(), 4000),
    }
    curves = {}
    for name, (model, steps) in arms.items():
        seed_everything(seed, verbose=False)
        data = CellSnapshotsDataModule(steps_per_epoch=steps)
        data.setup("fit")
        model.optimizer_config = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 5e-3}}
        model.lr_scheduler_config = {
            "class_path": "torch.optim.lr_scheduler.OneCycleLR",
            "init_args": {"max_lr": 5e-3, "pct_start": 0.1, "final_div_factor": 20},
            "interval": "step",
        }
        curve = Race(every=200)
        trainer = Trainer(
            max_epochs=1,
            callbacks=[curve],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
        )
        trainer.fit(model, data)
        curves[name] = curve.curve
        for step, spent, w1 in curve.curve:
            sys.stdout.write(f"{name:<12}{step:6d} steps {spent:8.1f} s  W1 {w1:.4f}\n")
    target = max(min(w for _, _, w in curve) for curve in curves.values())
    times = {n: next(s for _, s, w in curve if w <= target) for n, curve in curves.items()}
    sys.stdout.write(
        f"to W1 {target:.4f}, the best of the worse arm: SUDO {times['SUDO']:.1f} s, simulation "
        f"{times['simulation']:.1f} s, {times['simulation'] / times['SUDO']:.1f} times as long\n"
    )


def main() -> None:
    """Measures what the arguments name, and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.sudo_ot")
    parser.add_argument("what", choices=["coupling", "memory", "annotate", "race", "peak"])
    parser.add_argument("numbers", type=int, nargs="*")
    options = parser.parse_args()
    torch.manual_seed(0)
    sys.stdout.write("" if options.what == "peak" else f"{torch.get_num_threads()} threads\n")
    if options.what == "peak":
        peak(*options.numbers)
    elif options.what == "race":
        race(options.numbers[0] if options.numbers else 0)
    else:
        {"coupling": coupling, "memory": memory, "annotate": annotate}[options.what]()


if __name__ == "__main__":
    main()
