"""Training by stages, simulation, evaluation, and cells in and out."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from lightning import Trainer, seed_everything
from scipy.stats import wasserstein_distance

from tests.sudo_ot.case import CASE
from zoo import SudoOT, ZooError
from zoo.cell_files import Snapshots
from zoo.reproducible import generator
from zoo.sudo_ot import GrowthPenalty, SimulatedOT, network, protocol, wfr_cost
from zoo.sudo_ot.metrics import wasserstein1
from zoo.sudo_ot.network import integrate

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def batch_of(snapshots, **masses):
    """All cells as one training batch; masses by time, else the numbers of cells."""
    counts = {t: float((snapshots.time == t).sum()) for t in snapshots.times}
    share = np.array([masses.get(f"t{t:g}", counts[t]) / counts[t] for t in snapshots.time])
    return {
        "x": torch.from_numpy(snapshots.x),
        "time": torch.from_numpy(snapshots.time).float(),
        "mass": torch.from_numpy(share).float(),
        "rep": snapshots.rep,
    }


def two_snapshots(count=40, dim=2, shift=1.0, dt=2.0, grown=1):
    """A cloud that is shifted, with each cell ``grown`` times afterwards."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 0.05, (count, dim))
    y = np.repeat(x, grown, axis=0)
    y[:, 0] += shift
    return Snapshots.stack([x, y], [0.0, dt], "cells")


def fit(model, batch, steps):
    class Loader(torch.utils.data.Dataset):
        def __len__(self):
            return steps

        def __getitem__(self, index):
            return batch

    loader = torch.utils.data.DataLoader(Loader(), batch_size=None)
    Trainer(max_epochs=1, limit_val_batches=0, **SILENT).fit(model, loader)
    return model.eval()


@pytest.fixture(scope="module")
def shifted():
    """A model that has seen a shift by 1 in two units of time, in which mass doubles."""
    seed_everything(0)
    model = SudoOT(
        penalty="quadratic",
        delta=1.5,
        path_steps=150,
        match_steps=250,
        hidden=32,
        pairs=128,
        ema=0.9,
    )
    return fit(model, batch_of(two_snapshots(grown=2)), 400)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_velocity_and_growth_are_in_the_users_time(shifted):
    """The exact fields of one atom: its place is known at each time, and so is its mass."""
    model = shifted
    x = torch.from_numpy(two_snapshots().x[:40])
    places, log_w = integrate(model.forward, x, torch.zeros(40), torch.tensor([2.0]), 2.0)
    assert (places[-1] - x - torch.tensor([1.0, 0.0])).abs().mean() < 0.06
    assert log_w[-1].exp().mean().item() == pytest.approx(2.0, rel=0.1)
    c = math.cos(1 / (2 * 1.5))
    _, g = model(torch.zeros(40), x)
    assert g.mean().item() == pytest.approx(
        (2 * math.sqrt(2) * c - 2) / 2.0, abs=0.06
    )  # l'(0) / dT


def test_gaussian_mixtures_cost_their_analytic_action():
    """Each component of the generator moves and grows as one atom does."""
    from zoo.datamodules.cell_snapshots import gaussian_wfr as module
    from zoo.datamodules.cell_snapshots.gaussian_wfr import CENTRES, DELTA, RATIOS, SHARES, SHIFTS

    assert abs(CENTRES[0] - CENTRES[1]) > math.pi * DELTA
    for dim in (2, 10, 50):
        data = module(100, dim, seed=0)
        x, y = (torch.from_numpy(data.x[data.time == t]) for t in data.times)
        model = SudoOT(dim=dim, penalty="quadratic", delta=DELTA, coupling_iters=300)
        model.cost.fill(lambda d, r: wfr_cost(d.double(), r.double(), DELTA))
        found = model._couple([(x, y, torch.ones(len(x)), torch.ones(len(y)))])[0][0].cost
        exact = sum(
            100 * share * wfr_cost(torch.tensor(shift), torch.tensor(ratio).log(), DELTA).item()
            for shift, ratio, share in zip(SHIFTS, RATIOS, SHARES, strict=True)
        )
        assert found == pytest.approx(exact, rel=0.03), dim


def test_rk4_integrates_a_linear_field_exactly_enough():
    def field(t, x):
        return x * t[:, None], 2 * t

    x = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    start = torch.tensor([0.0, 0.5], dtype=torch.float64)
    times = torch.tensor([0.25, 1.0], dtype=torch.float64)
    places, log_w = integrate(field, x, start, times, interval=1.0)
    assert torch.equal(places[0, 1], x[1])  # it has not begun
    assert log_w[0, 1] == 0
    factor = torch.tensor([math.exp(0.5), math.exp((1 - 0.25) / 2)])
    assert torch.allclose(places[1], x * factor[:, None].double(), rtol=1e-7)
    assert torch.allclose(log_w[1], torch.tensor([1.0, 0.75], dtype=torch.float64), atol=1e-9)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_training_calls_no_integrator(monkeypatch):
    def refuse(*_):
        raise AssertionError("an ODE was integrated in training")

    monkeypatch.setattr(network, "_rk4", refuse)
    monkeypatch.setattr(protocol, "integrate", refuse)
    fit(SudoOT(**{**CASE.model, "path_steps": 2, "match_steps": 3}), batch_of(two_snapshots()), 5)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
@pytest.mark.parametrize(
    "options",
    [
        {"penalty": "quadratic"},
        {"penalty": "quadratic", "coupling": "pot"},
        {"penalty": "power", "power": 1.5},
        {"penalty": "power", "power": 4.0},
        {"penalty": "entropic"},
        {"cost": "net"},
        {"chunk_size": 15},
    ],
    ids=str,
)
def test_every_variant_trains_through_all_its_stages(options):
    seed_everything(0)
    model = SudoOT(**{**CASE.model, "path_steps": 3, "match_steps": 3, **options})
    before = [p.detach().clone() for p in model.fields.parameters()]
    fit(model, batch_of(two_snapshots(grown=2)), 9)
    assert model.stage.name == "match"
    assert len(model._plans[0][1]) == (6 if "chunk_size" in options else 1)
    assert any(
        not torch.equal(a, b) for a, b in zip(before, model.fields.parameters(), strict=True)
    )
    v, g = model(torch.zeros(4), torch.zeros(4, 2))
    assert v.isfinite().all()
    assert g.isfinite().all()


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_a_penalty_of_ones_own_trains_in_a_subclass():
    class Own(SudoOT):
        def make_penalty(self):
            return GrowthPenalty(lambda g: torch.cosh(g) - 1)

    model = fit(
        Own(**{**CASE.model, "path_steps": 2, "match_steps": 2}), batch_of(two_snapshots()), 4
    )
    assert model.stage.name == "match"


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_average_of_the_weights_is_evaluated_and_saved(tmp_path):
    seed_everything(0)
    model = SudoOT(**{**CASE.model, "path_steps": 2, "match_steps": 12})
    start = model.fields.velocity[0].weight.clone()
    fit(model, batch_of(two_snapshots()), 14)
    raw, average = (f.velocity[0].weight for f in (model.fields, model.averaged))
    assert not torch.equal(raw, average)
    assert not torch.equal(average, start)
    assert not average.requires_grad
    inputs = {"t": torch.zeros(3), "x": torch.ones(3, 2)}
    expected = model.flow(model.averaged, *inputs.values())[0]
    assert torch.equal(model(**inputs)[0], expected)
    model.save_pretrained(tmp_path)
    again = SudoOT.from_pretrained(tmp_path)
    assert torch.equal(again(**inputs)[0], expected)
    assert torch.equal(again.fields.velocity[0].weight, raw)
    assert again.rep == "cells"
    assert again.span.tolist() == [0, 2, 2]


def test_matching_weighs_by_mass_and_divides_by_the_time():
    """The loss of one pair, worked out from the path itself."""
    torch.manual_seed(0)
    model = SudoOT(penalty="quadratic", pairs=64, lambda_g=3.0, hidden=8)
    data = Snapshots.stack([np.zeros((1, 2)), np.ones((1, 2))], [0.0, 5.0], "cells")
    model.intervals(batch_of(data, t5=2.0))  # sets the scaling
    plans = model._couple_all(model.intervals(batch_of(data, t5=2.0)))
    torch.manual_seed(1)
    loss = model._match_loss(plans)
    torch.manual_seed(1)
    plans[0][1][0].draw(64)
    t = torch.rand(64)
    zero, one = torch.zeros(64, 2), torch.ones(64, 2)
    place, mass, velocity, rate = model.path(zero, one, torch.ones(64), torch.full((64,), 2.0), t)
    v, g = model.flow(model.fields, 5 * t, place)
    error = (v - velocity / 5).square().sum(dim=1) + 3 * (g - rate / 5).square()
    assert loss.item() == pytest.approx((mass * error).mean().item(), rel=1e-4)


def test_masses_of_the_data_chain_over_intervals():
    data = Snapshots.stack([np.zeros((4, 2)), np.ones((5, 2)), np.ones((2, 2))], [0, 1, 2], "cells")
    first, second = SudoOT().intervals(batch_of(data, t1=9.0))
    assert first.b.sum().item() == pytest.approx(9.0)
    assert second.a.sum().item() == pytest.approx(9.0)
    assert second.b.sum().item() == 2
    assert (first.start, first.length, second.start) == (0.0, 1.0, 1.0)


def test_couple_and_path_are_for_use():
    model = SudoOT(penalty="quadratic", coupling_iters=20)
    model.fill_table()
    data = two_snapshots()
    x, y = (torch.from_numpy(data.x[data.time == t]) for t in data.times)
    g0, g1 = model.couple(x, y, m1=torch.full((40,), 2.0))
    assert torch.allclose(g0.sum(dim=1), torch.ones(40), atol=1e-5)
    assert torch.allclose(g1.sum(dim=0), torch.full((40,), 2.0), atol=1e-5)
    place, mass, _, _ = model.path(x, y, torch.ones(40), torch.full((40,), 2.0), torch.ones(40))
    assert torch.allclose(place, y, atol=1e-5)
    assert torch.allclose(mass, torch.full((40,), 2.0), atol=1e-4)


def test_w1_is_that_of_scipy_in_one_dimension():
    rng = generator(0)
    x, y = torch.randn(30, 1, generator=rng), torch.randn(40, 1, generator=rng) + 1
    w, m = torch.rand(30, generator=rng), torch.rand(40, generator=rng)
    expected = wasserstein_distance(x[:, 0], y[:, 0], w, m)
    assert wasserstein1(x, w, y, m) == pytest.approx(expected, rel=1e-4)
    big = torch.randn(3000, 1, generator=rng)
    assert wasserstein1(big, torch.ones(3000), big, torch.ones(3000)) < 0.1


def test_evaluation_of_exact_fields_is_exact():
    """Cells that move by 0.25 a unit of time and grow by e^(0.1 t): nothing is left to be wrong."""
    model = SudoOT(penalty="quadratic", delta=2.0)
    rng = generator(3)
    x0 = torch.randn(20, 2, generator=rng)
    model.forward = lambda t, x: (torch.tensor([0.25, 0.0]).expand_as(x), torch.full_like(t, 0.1))
    mass = torch.ones(20)
    later = x0 + torch.tensor([1.0, 0.0])
    batch = {
        "x0": x0,
        "mass0": mass,
        "x": later,
        "mass": mass * math.exp(0.4),
        "time": torch.tensor(4.0),
        "times": torch.tensor([0.0, 4.0]),
        "source": x0,
        "source_time": torch.tensor(0.0),
        "held_out": torch.tensor(True),
        "holds_out": torch.tensor(True),
        "growth": torch.linspace(0.05, 0.15, 20),
        "rep": "cells",
    }
    logged = {}
    model.log = lambda name, value, **_: logged.update({name: value.compute().item()})
    model._evaluate(batch, "test")
    values = {k: v.compute().item() for k, v in model.test_metrics.items()}
    assert values["test_w1"] < 1e-5
    assert values["test_tmv"] < 1e-5
    # in time that runs from 0 to 1: |v| = 1, g = 0.4, mass e^(0.4 s)
    growth = (math.exp(0.4) - 1) / 0.4
    assert values["test_action"] == pytest.approx(growth * (0.5 + 2 * 0.4**2), rel=1e-3)
    assert logged["test_growth_mae"] == pytest.approx(0.05 * 10 / 19, rel=1e-3)
    assert logged["test_spurious_death"] == logged["test_interval_spurious_death"] == 0
    assert logged["test_w1_held_out"] < 1e-5


def test_delta_that_is_too_small_is_refused_before_training():
    model = SudoOT(**{**CASE.model, "delta": 0.01})
    with pytest.raises(ZooError, match=r"too small.*nearest distance 0\.\d+, but D = 0.0298"):
        model.training_step(batch_of(two_snapshots()), 0)


def test_cells_of_another_kind_are_refused():
    model = SudoOT(dim=3)
    with pytest.raises(ZooError, match=r"2 dimensions, .* dim=3"):
        model.training_step(batch_of(two_snapshots()), 0)
    model = SudoOT()
    model.intervals(batch_of(two_snapshots()))
    with pytest.raises(ZooError, match="'cells', not on 'other'"):
        model.intervals({**batch_of(two_snapshots()), "rep": "other"})


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_the_baseline_learns_by_simulation():
    seed_everything(0)
    model = SimulatedOT(hidden=16, layers=2, pairs=32, steps=4, ema=0.5)
    losses = []
    model.log = lambda name, value, **_: losses.append(float(value.detach()))
    fit(model, batch_of(two_snapshots(grown=2)), 100)
    assert losses[-1] < 0.5 * losses[0]
    _, log_w = integrate(model.forward, torch.zeros(4, 2), torch.zeros(4), torch.tensor([2.0]), 2.0)
    assert log_w[-1].exp().mean().item() == pytest.approx(2, rel=0.3)


@pytest.mark.slow
def test_two_processes_give_the_couplings_and_w1_of_one(tmp_path):
    """Each process is asked for the sum of its couplings; the figures come from the test run."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "from lightning import Trainer, seed_everything\n"
        "from zoo import SudoOT\n"
        "from zoo.datamodules import CellSnapshotsDataModule\n"
        "if __name__ == '__main__':\n"
        "    torch.set_num_threads(1)\n"
        "    devices = int(sys.argv[1])\n"
        "    seed_everything(0)\n"
        "    model = SudoOT(path_steps=200, match_steps=600, coupling_iters=40,\n"
        "        pairs=256 // devices)\n"
        "    data = CellSnapshotsDataModule(cells=120, steps_per_epoch=100 * devices)\n"
        "    trainer = Trainer(max_epochs=8, limit_val_batches=0, num_sanity_val_steps=0,\n"
        "        accelerator='cpu', devices=devices, logger=False, enable_checkpointing=False,\n"
        "        enable_progress_bar=False, strategy='ddp' if devices > 1 else 'auto')\n"
        "    trainer.fit(model, data)\n"
        "    cost = sum(c.cost for _, blocks in model._plans for c in blocks)\n"
        "    first = float(model._plans[0][1][0].log_g0.exp()[3, 5])\n"
        "    w1 = float(trainer.test(model, data, verbose=False)[0]['test_w1'])\n"
        "    print('FOUND', trainer.global_rank, cost, first, w1, flush=True)\n"
    )
    found = {}
    for devices in (1, 2):
        done = subprocess.run(
            [sys.executable, str(script), str(devices)],
            check=True,
            capture_output=True,
            text=True,
            timeout=280,
        )
        lines = [line.split()[1:] for line in done.stdout.splitlines() if "FOUND" in line]
        found[devices] = [[float(v) for v in line] for line in lines]
    ((_, cost, first, w1),) = found[1]
    for _, both_cost, both_first, both_w1 in found[2]:
        assert both_cost == pytest.approx(found[2][0][1], abs=0)
        assert both_first == pytest.approx(found[2][0][2], abs=0)
        assert both_cost == pytest.approx(cost, rel=0.01)
        assert both_w1 == pytest.approx(w1, rel=0.05)
        assert first > 0
