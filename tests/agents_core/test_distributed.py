"""Two processes compute what one does, on unequal shares."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from zoo.distributed import step_generator, sum_over_ranks

ROOT = Path(__file__).parents[2]


def launch(world, folder):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.agents_core.two_processes"]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(world), str(folder / "store"), str(folder / f"out{world}")],
            env=env,
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]
    for process in running:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()[-2000:]
    return [torch.load(folder / f"out{world}.{rank}") for rank in range(world)]


@pytest.mark.slow
def test_losses_gradients_baselines_and_history_are_those_of_one_process(tmp_path):
    """A skill that is on one process only, and responses of unequal number and length."""
    (alone,) = launch(1, tmp_path)
    both = launch(2, tmp_path)
    for found in both:
        for name, value in alone.items():
            torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-4, msg=name)
    for name in ("history", "correlation"):  # buffers, which must not drift apart
        assert torch.equal(both[0][name], both[1][name])


def test_alone_a_sum_over_processes_is_a_copy():
    values = torch.ones(2, requires_grad=True)
    total = sum_over_ranks(values)
    assert torch.equal(total, torch.ones(2))
    assert not total.requires_grad


def test_draws_depend_on_the_step_alone():
    one, again, other = (torch.rand(3, generator=step_generator(s)) for s in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
