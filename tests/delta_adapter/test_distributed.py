"""Two processes take the step that one takes on the same batch."""

import pytest
import torch

from tests.processes import run_with_one_and_two

STEP = """
import os, sys, torch
from lightning import Trainer, seed_everything
from torch.utils.data import DataLoader
from zoo import DeltaAdapter
from zoo.delta_adapter import module

seed_everything(0)
devices, folder = int(sys.argv[1]), sys.argv[2]
options = dict(num_edit_tokens=2, resampler_layers=1, adapter_dim=16, out_rank=4, encoder_steps=1,
               editor_steps=1, adapter_steps=2, delta_aug=False, token_drop=0.0, null_prob=0.0,
               consistency_weight=0.0)
model = DeltaAdapter(**options)
model.training_stages = model.training_stages[-1:]
def draw(clean, mu):  # noise that belongs to the sample, not to the process
    return clean.flip(1), clean.mean(dim=(1, 2)).sigmoid()
module.draw = draw
torch.manual_seed(1)
pictures = torch.rand(4, 2, 3, 32, 32)
samples = [{"source": p[0], "target": p[1], "task": 0, "index": i} for i, p in enumerate(pictures)]
trainer = Trainer(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto",
                  max_epochs=2, logger=False, enable_checkpointing=False, limit_val_batches=0,
                  enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, DataLoader(samples, batch_size=4 // devices))
if trainer.is_global_zero:
    torch.save(model.adapter.state_dict(), f"{folder}/{devices}.pt")
if devices > 1:
    torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_make_the_step_of_one(tmp_path):
    run_with_one_and_two(STEP, tmp_path)
    one, two = (torch.load(tmp_path / f"{n}.pt", weights_only=True) for n in (1, 2))
    for name, value in one.items():
        assert torch.allclose(value, two[name], atol=2e-5), name
