"""SUDO: general growth penalties against WFR, POT's couplings and training by simulation.

The abstract claims a simulation-free method for convex growth penalties beyond the quadratic one,
which matches analytic algorithms where there are some, is faster than simulation-based training,
and lets a prior such as "cells here mostly proliferate" be stated. All arms are trained on the
circuit of genes, in which no cell dies and whose growth is known. How long each takes to the same
W1 is measured by ``python -m benchmarks.speed.sudo_ot race``.
"""

from benchmarks.runner import Arm, Check, Claim, Column, Figures

METHOD, WFR, POT, SIMULATED = (
    "SUDO, asymmetric",
    "SUDO, quadratic (WFR)",
    "SUDO, quadratic, coupling of POT",
    "trained by simulation (TIGON-like)",
)
W1, TMV = "test_w1", "test_tmv"
FIT, DEATHS = "test_interval_growth_pearson", "test_interval_spurious_death"


def _like_pot(metric: str, slack: float) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        ours, theirs = (figures.mean(arm, "test", metric) for arm in (WFR, POT))
        detail = f"{ours:.4f} against {theirs:.4f}"
        return abs(ours - theirs) <= 0.1 * theirs + slack, detail

    name = metric.removeprefix("test_")
    return Check(f"{name} with the learned coupling is within 10 % of that with POT's", holds)


def _no_spurious_death(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (figures.mean(arm, "test", DEATHS) for arm in (METHOD, WFR))
    return ours <= theirs / 4, f"{ours:.4f} against {theirs:.4f}"


def _fits_growth(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (figures.mean(arm, "test", FIT) for arm in (METHOD, WFR))
    return ours >= theirs - 0.01, f"{ours:.3f} against {theirs:.3f}"


def _faster(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (figures.mean(arm, "test", W1) for arm in (METHOD, SIMULATED))
    costs = [figures.cost(arm) for arm in (METHOD, SIMULATED)]
    if None in costs:
        raise KeyError(SIMULATED)
    seconds = [cost[0] for cost in costs if cost is not None]
    detail = f"W1 {ours:.4f} in {seconds[0]:.0f} s against {theirs:.4f} in {seconds[1]:.0f} s"
    return ours <= theirs and 3 * seconds[0] <= seconds[1], detail


CLAIM = Claim(
    method="sudo_ot",
    metric=W1,
    unit="data units",
    arms=(
        Arm(
            SIMULATED,
            # more than three times as long as the method, at 0.2 s a step
            ("--model", "zoo.sudo_ot.SimulatedOT", "--trainer.max_epochs", "8"),
        ),
        Arm(WFR, ("--model.penalty", "quadratic")),
        Arm(POT, ("--model.penalty", "quadratic", "--model.coupling", "pot")),
        Arm("SUDO, power 1.5", ("--model.penalty", "power", "--model.power", "1.5")),
        Arm("SUDO, power 4", ("--model.penalty", "power", "--model.power", "4")),
        Arm("SUDO, entropic", ("--model.penalty", "entropic")),
        Arm("SUDO, cost network", ("--model.cost", "net", "--trainer.max_epochs", "34")),
        Arm("SUDO, lambda_g 0.1", ("--model.lambda_g", "0.1")),
        Arm(METHOD),
    ),
    evaluations={"test": ()},
    columns={
        "W1": Column("test", (W1,)),
        "TMV": Column("test", (TMV,)),
        "growth over the interval, Pearson": Column("test", (FIT,)),
        "growth at its start, Pearson": Column("test", ("test_growth_pearson",)),
        "growth, MAE": Column("test", ("test_growth_mae",)),
        "spurious deaths over the interval": Column("test", (DEATHS,)),
        "spurious deaths at its start": Column("test", ("test_spurious_death",)),
    },
    checks=(
        _like_pot(W1, 0.0),
        _like_pot(TMV, 0.005),
        Check("spurious deaths are at most a quarter of WFR's", _no_spurious_death),
        Check("growth correlates with the truth no worse than WFR's by 0.01", _fits_growth),
        Check("W1 not above that of training by simulation, in a third of its time", _faster),
    ),
)
