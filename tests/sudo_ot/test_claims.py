"""What the abstract's priors on growth promise, on couplings alone (C5)."""

import numpy as np
import pytest
import torch

from tests.sudo_ot.training import RATIO, REACH, train_path
from zoo.datamodules.cell_snapshots import gene_circuit
from zoo.sudo_ot import CostTable, semi_coupling
from zoo.sudo_ot.protocol import DYING


def inferred(x, y, table, length):
    """Growth rate of each cell: what becomes of it, by what it was."""
    found = semi_coupling(x, y, torch.ones(len(x)), torch.ones(len(y)), table, 200)
    return (found.log_g1.logsumexp(dim=1) / length).numpy()


@pytest.mark.slow
def test_c5_a_prior_against_death_finds_growth_better():
    """Deaths are impossible in the circuit: how many are inferred, and does growth fit?"""
    found = {}
    for name in ("quadratic", "asymmetric"):
        net = train_path(name, steps=800)
        table = CostTable(REACH, RATIO)
        table.fill(lambda d, r, net=net: net.cost(d, r, net.trained_for))
        rows = []
        for seed in (0, 1, 2):
            data = gene_circuit(200, seed)
            for start, end in zip(data.times, data.times[1:], strict=False):
                here = data.time == start
                x, y = (torch.from_numpy(data.x[data.time == t]) for t in (start, end))
                g = inferred(x, y, table, end - start)
                truth = data.growth[here]
                fit = np.corrcoef(g, truth)[0, 1]
                rows.append((fit, (g < DYING).mean(), np.abs(g - truth).mean()))
        found[name] = np.array(rows).reshape(3, -1, 3)
    for name, values in found.items():
        print(name, "first interval", values[:, 0].tolist(), "mean", values.mean(axis=(0, 1)))
    wfr, prior = (found[name].mean(axis=(0, 1)) for name in ("quadratic", "asymmetric"))
    assert prior[0] >= wfr[0] - 0.01
    assert prior[1] <= wfr[1] / 4
