"""What Lightning adds to a training step: DegBins against a bare PyTorch loop.

    python -m benchmarks.speed.overhead

Both train the same network on the same batches with the same optimiser, schedule and clipping, in
turns within one process, so that what else the machine does meets both alike. The ratio of the
medians over the rounds is printed, with the spread of the per-round ratios.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer, seed_everything
from torch.nn.utils import clip_grad_norm_

from zoo import DegBins
from zoo.datamodules import GuidedDepthDataModule


class Clock(Callback):
    """Seconds from the first training step to the end of the last."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts."""
        self.seconds = -time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops."""
        self.seconds += time.perf_counter()


def with_lightning(batches: Sequence[Any]) -> float:
    """Seconds of a ``Trainer.fit`` as the default config runs it, without validation."""
    seed_everything(0, verbose=False)
    model, clock = DegBins(), Clock()
    model.lr_scheduler_config = {
        "class_path": "torch.optim.lr_scheduler.OneCycleLR",
        "init_args": {"max_lr": 1e-3},
        "interval": "step",
    }
    trainer = Trainer(
        max_epochs=1,
        gradient_clip_val=0.5,
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    trainer.fit(model, loader)
    return clock.seconds


def bare(batches: Sequence[Any]) -> float:
    """Seconds of the same steps in a loop of PyTorch's own, without a trainer or logging."""
    torch.manual_seed(0)
    model = DegBins().train()
    model.log = lambda *_, **__: None  # type: ignore[method-assign]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=len(batches))
    start = time.perf_counter()
    for number, batch in enumerate(torch.utils.data.DataLoader(batches, batch_size=None)):
        loss = model.training_step(batch, number)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
    return time.perf_counter() - start


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="a round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    data = GuidedDepthDataModule(samples_per_epoch=8 * options.steps)
    data.setup("fit")
    batches = list(data.train_dataloader())
    times: dict[str, list[float]] = {"lightning": [], "bare": []}
    for function, name in ((with_lightning, "lightning"), (bare, "bare")):
        function(batches[:5])  # warm up
        times[name].clear()
    for number in range(options.rounds):
        order = [("lightning", with_lightning), ("bare", bare)]
        for name, function in order if number % 2 else order[::-1]:
            times[name].append(function(batches) / len(batches))
    ratios = [a / b for a, b in zip(times["lightning"], times["bare"], strict=True)]
    medians = {name: statistics.median(values) for name, values in times.items()}
    sys.stdout.write(
        f"lightning {1e3 * medians['lightning']:.1f} ms/step, bare {1e3 * medians['bare']:.1f}: "
        f"ratio {medians['lightning'] / medians['bare']:.3f} "
        f"(rounds {min(ratios):.3f} to {max(ratios):.3f}), {torch.get_num_threads()} threads\n"
    )


if __name__ == "__main__":
    main()
