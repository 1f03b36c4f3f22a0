"""Two processes take the step that one takes on the same global batch."""

import pytest
import torch

from tests.processes import run_with_one_and_two

SCRIPT = """
import sys, torch
from lightning import Trainer, seed_everything
from torch.utils.data import DataLoader
from zoo.sem_fas import SemFas
from zoo.datamodules import MultimodalFASDataModule

if __name__ == "__main__":
    devices, folder = int(sys.argv[1]), sys.argv[2]
    seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    model = SemFas(image_size=16, state_dim=4, n_heads=2, effect_rank=2,
                   weights={"oe": 0.0, "dom": 5.0}, modality_dropout=(0.0, 0.0, 0.0))
    data = MultimodalFASDataModule(size=16, per_domain=[8, 4, 4])
    data.setup("fit")
    source = data.datasets["train"].source
    samples = [source[i] for i in range(24)]
    rank = int(__import__("os").environ.get("LOCAL_RANK", 0)) if devices > 1 else 0
    model.optimizer_config = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}}
    trainer = Trainer(max_epochs=2, accelerator="cpu", devices=devices, logger=False,
                      strategy="ddp" if devices > 1 else "auto", limit_val_batches=0,
                      enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, use_distributed_sampler=False)
    mine = samples[rank::devices]
    trainer.fit(model, DataLoader(mine, batch_size=len(mine)))
    if trainer.is_global_zero:
        torch.save(model.state_dict(), f"{folder}/{devices}.pt")
    if devices > 1:
        torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_learn_what_one_does(tmp_path):
    """The domain loss is of the whole batch: means over a rank's share would differ."""
    run_with_one_and_two(SCRIPT, tmp_path)
    one, two = (torch.load(tmp_path / f"{d}.pt", weights_only=True) for d in (1, 2))
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, atol=1e-4, rtol=1e-4)
    start = one["head.weight"]
    assert start.isfinite().all()
