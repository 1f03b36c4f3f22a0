"""Training with two processes: one bank, one teacher, and the bank that one process has."""

import pytest
import torch

from tests.processes import run_with_one_and_two

STEP = """
import json, os, sys, torch
from lightning import Trainer, seed_everything
from torch.utils.data import DataLoader
from tests.skill_sd.case import CASE
from zoo import SkillSD
from zoo.agents.envs.workflow import procedure, workflow_tasks

devices, folder = int(sys.argv[1]), sys.argv[2]
kinds = {}
for task in workflow_tasks("train"):
    kinds.setdefault(task.family, []).append(task)
first, second, third, *_ = kinds.values()
# Of two processes each has every other row: a kind of its own, and one that both have.
tasks = [first[0], second[0], first[1], second[1], third[0], third[1]]
rows = [{"task": json.dumps(t.to_dict()), "index": i} for i, t in enumerate(tasks)]
rows = rows[int(os.environ.get("LOCAL_RANK", 0)) :: devices]
won = {t.task_id: number for number, t in enumerate(tasks)}


class Played(SkillSD):  # an untrained policy hardly succeeds: what it did is set, by task and step
    def _learn(self, tasks, collected):
        self.own = getattr(self, "own", set()) | {t.family for t in tasks}
        for number, episode in enumerate(collected.episodes):
            task = episode.task
            right = [f"{verb} {task.payload['object']}" for verb in procedure(task.family)]
            wins = (won[task.task_id] + self.progress.rounds) % 4
            episode.success = number % self.group_size < wins
            episode.actions = right if episode.success else right[::-1]
            episode.observations = [episode.observations[0], *["done."] * len(right)]
        super()._learn(tasks, collected)


seed_everything(0)
model = Played(**{**CASE.model, "kl": 0.1, "micro_batch": 5, "sft_updates": 2})
before = model.teacher.candidate(model.policy)
trainer = Trainer(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto",
                  max_epochs=5, logger=False, enable_checkpointing=False, limit_val_batches=0,
                  use_distributed_sampler=False,
                  enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, DataLoader(rows, batch_size=len(rows)))
found = {"weights": model.state_dict(), "teacher": model.teacher.weights, "before": before,
         "bank": model.bandit.state_dict(), "known": model.known, "own": sorted(model.own),
         "progress": model.progress.state_dict()}
torch.save(found, f"{folder}/{devices}.{trainer.global_rank}")
if devices > 1:
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_have_one_bank_and_one_teacher(tmp_path):
    """Two updates on demonstrations, four steps of rollouts, two synchronisations."""
    run_with_one_and_two(STEP, tmp_path)
    one, two, three = (
        torch.load(tmp_path / name, weights_only=True) for name in ("1.0", "2.0", "2.1")
    )
    assert len(one["own"]) == 3
    assert len(two["own"]) == len(three["own"]) == 2  # one kind is seen by one process alone
    for name in ("bank", "known", "progress"):
        assert two[name] == three[name], name
    for name in ("weights", "teacher"):
        assert two[name].keys() == three[name].keys()
        for key, value in two[name].items():
            assert torch.equal(value, three[name][key]), (name, key)
    # Successes are set by task and step, so both runs credit the same skills with the same shares.
    assert two["bank"] == one["bank"]
    assert sorted(two["known"]) == sorted(two["bank"]["arms"]) == one["own"]
    assert any(arm["value"] for arms in two["bank"]["arms"].values() for arm in arms)
    progress = two["progress"]
    assert len(progress["success"]) == 4
    assert [row[0] for row in progress["probes"]] == [2, 4]
    assert any(row[3] for row in progress["probes"])  # the gate let a candidate pass on both
    assert not all(torch.equal(v, two["before"][k]) for k, v in two["teacher"].items())
