"""Training with two processes: they stay together, and take the step that one takes."""

import pytest
import torch

from tests.processes import run_with_one_and_two

STEP = """
import sys, torch
from lightning import Trainer, seed_everything
from torch.utils.data import DataLoader
from tests.scpo.case import CASE
from zoo import SCPO
from zoo.datamodules.verifiable_reasoning import digits

devices, folder = int(sys.argv[1]), sys.argv[2]
problems = digits.splits({"train": 16}, 0)["train"]
shown = digits.splits({"train": 16}, 1)["train"]
rows = [
    {"question": p.question, "answer": p.answer, "skill": p.skill, "index": i,
     "demonstrations": {"question": [s.question], "answer": [s.answer]}}
    for i, (p, s) in enumerate(zip(problems, shown))
]

class Keyed(SCPO):  # draws that belong to the prompt, not to the process
    def experience(self, batch, generator):
        generate = self.policy.generate
        keys = (batch["index"][:, None] * 2 + torch.arange(2)).flatten()
        fixed = {"generator": None, "keys": keys}
        self.policy.generate = lambda *a, **k: generate(*a, **{**k, **fixed})
        try:
            return super().experience(batch, generator)
        finally:
            self.policy.generate = generate

    def reward(self, responses, answers):  # an untrained policy is never right
        return torch.tensor([float(len(r) % 3 == 0) for r in responses])

seed_everything(0)
model = Keyed(**{**CASE.model, "kl": 0.1, "ppo_epochs": 2, "micro_batch": 5})
trainer = Trainer(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto",
                  max_epochs=4, logger=False, enable_checkpointing=False, limit_val_batches=0,
                  enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, DataLoader(rows, batch_size=16 // devices))
torch.save((model.state_dict(), trainer.global_step), f"{folder}/{devices}.{trainer.global_rank}")
if devices > 1:
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_make_the_steps_of_one(tmp_path):
    """Two updates on demonstrations, and twice two on rollouts, in micro-batches."""
    run_with_one_and_two(STEP, tmp_path)
    (one, steps), (two, both), (three, _) = (
        torch.load(tmp_path / name, weights_only=True) for name in ("1.0", "2.0", "2.1")
    )
    assert steps == both == 6
    for name, value in one.items():
        assert torch.equal(two[name], three[name]), name
        torch.testing.assert_close(two[name], value, atol=2e-5, rtol=1e-4, msg=name)
    assert int(one["history.steps"]) == 2
