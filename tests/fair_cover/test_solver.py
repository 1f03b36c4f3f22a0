"""The algorithm against brute force, its promises, and each of its parts alone."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from lightning import Trainer

from zoo import FairCover
from zoo.datamodules import CoverInstancesDataModule
from zoo.datamodules.cover.generators import district, graph
from zoo.errors import ZooError
from zoo.fair_cover.baselines import BASELINES, ilp, solve_baseline
from zoo.fair_cover.module import dual_point, tensors_of
from zoo.fair_cover.program import Residual, cover_program, relax, violated_knapsacks
from zoo.fair_cover.rounding import (
    Counter,
    _round_by_pairs,
    complete,
    draw,
    prune_choices,
    round_limit,
)
from zoo.solvers import dual_bound


def hard_of(instance, theta=0.5):
    return instance.promise >= theta


def relaxed(instance, hard):
    return relax([Residual.whole(instance, hard.astype(float))])[0]


def brute_force(instance, hard):
    """The least cost of any choice, by trying all."""
    everything = np.array(list(product([False, True], repeat=len(instance.cost))))
    good = everything[Counter(instance, hard).feasible(everything)]
    return (good @ instance.cost).min()


@pytest.mark.parametrize("seed", range(6))
def test_against_brute_force(seed):
    instance = district(30, 10, 3, seed)
    hard = hard_of(instance)
    best = brute_force(instance, hard)
    relaxation = relaxed(instance, hard)
    assert relaxation.bound <= best + 1e-9
    drawn = draw(instance, hard, relaxation, np.random.SeedSequence(0).spawn(8))
    costs = drawn.chosen @ instance.cost
    assert Counter(instance, hard).feasible(drawn.chosen).all()
    assert (costs >= best - 1e-9).all()
    assert costs.min() <= 1.15 * best
    assert ilp(instance, hard, 20.0) @ instance.cost == pytest.approx(best)


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_are_feasible(name):
    for instance in (district(60, 20, 4, 1), graph("karate", 0)):
        hard = hard_of(instance)
        rng = np.random.default_rng(0)
        chosen = solve_baseline(name, instance, hard, relaxed(instance, hard), rng)
        assert Counter(instance, hard).feasible(chosen[None])[0]
    with pytest.raises(ZooError, match="unknown"):
        solve_baseline("best", instance, hard, relaxed(instance, hard), rng)


def test_thresholds_keep_each_promise_exactly():
    """P[j in D] = p_j: of 4000 thresholds in a grid, and of independent ones by chance."""
    instance = replace(district(40, 12, 3, 0), promise=np.linspace(0, 1, 40))
    grid = (np.arange(4000) + 0.5) / 4000
    share = np.mean([hard_of(instance, theta) for theta in grid], axis=0)
    assert share == pytest.approx(instance.promise, abs=1 / 4000)
    model = FairCover(individual="independent", predictor_width=0)
    rng = np.random.default_rng(0)
    share = np.mean([model.draw_hard(instance, None, rng)[0] for _ in range(4000)], axis=0)
    assert share == pytest.approx(instance.promise, abs=0.04)  # 5 deviations


@pytest.mark.parametrize("individual", ["common", "independent"])
def test_policy_keeps_its_promises_in_the_audit(individual):
    instance = district(40, 14, 3, 2)
    draws = 300 if individual == "common" else 60
    model = FairCover(individual=individual, predictor_width=0, trials=1)
    policy = model.policy(instance, draws)
    found = model.audit(instance, policy)
    assert found.groups_met == 1
    assert found.broken == []
    assert found.draws == draws
    assert policy.mean_cost >= model.lower_bound(instance) * 0.9  # by chance alone below


def test_audit_finds_a_broken_promise():
    """The cheapest draw of all alone: what best-of-many over thresholds would deploy."""
    instance = district(60, 20, 3, 0)
    model = FairCover(predictor_width=0, trials=1)
    policy = model.policy(instance, 400)
    cheapest = policy.chosen[policy.cost.argmin()]
    greedy_policy = replace(policy, chosen=np.repeat(cheapest[None], 400, axis=0))
    found = model.audit(instance, greedy_policy)
    assert found.broken
    assert found.worst_individual_gap > 0.2


def test_a_partition_costs_no_more_than_overlapping_groups():
    """Groups without their overlaps ask for less, and take the same path."""
    instance = district(120, 40, 4, 3)
    members = instance.groups.toarray()[1:]
    first = (members.cumsum(axis=0) <= 1) & (members > 0)  # each element in its first group alone
    need = np.minimum(instance.need[1:], first @ instance.coverable)
    part = replace(
        instance, groups=type(instance.groups)(first.astype(np.int32)), need=need
    ).check()
    whole = replace(instance, groups=instance.groups[1:], need=instance.need[1:]).check()
    hard = hard_of(instance)
    assert relaxed(part, hard).bound <= relaxed(whole, hard).bound + 1e-6


def test_trials_do_not_depend_on_each_other():
    instance, seeds = district(80, 30, 4, 1), np.random.SeedSequence(5).spawn(6)
    hard = hard_of(instance)
    relaxation = relaxed(instance, hard)
    together = draw(instance, hard, relaxation, seeds).chosen
    alone = [
        draw(instance, hard, relaxation, [seed]).chosen[0]
        for seed in np.random.SeedSequence(5).spawn(6)
    ]
    assert (together == np.stack(alone)).all()


def test_pruning_leaves_no_set_that_could_go():
    instance = district(80, 30, 4, 2)
    hard = hard_of(instance)
    counter = Counter(instance, hard)
    everything = np.ones((1, 30), dtype=bool)
    (chosen,) = prune_choices(counter, everything)
    assert counter.feasible(chosen[None])[0]
    for number in np.flatnonzero(chosen):
        without = chosen.copy()
        without[number] = False
        assert not counter.feasible(without[None])[0]


def test_incremental_counts_are_those_of_a_recount():
    instance = district(80, 30, 4, 2)
    counter = Counter(instance, hard_of(instance))
    rng = np.random.default_rng(0)
    chosen = rng.random((50, 30)) < 0.7
    chosen = np.stack([complete(counter, c) for c in chosen])
    pruned = prune_choices(counter, chosen)
    assert counter.feasible(pruned).all()
    assert (pruned <= chosen).all()
    dense = instance.membership.toarray()
    assert (counter.counts(pruned) == pruned.astype(int) @ dense.T).all()


def test_rounding_by_pairs_keeps_marginals_and_the_sum():
    rng = np.random.default_rng(0)
    share = rng.random(9)
    generators = [np.random.default_rng(i) for i in range(4000)]
    picked = _round_by_pairs(np.repeat(share[None], 4000, axis=0), generators)
    assert picked.mean(axis=0) == pytest.approx(share, abs=0.04)
    assert set(picked.sum(axis=1)) <= {int(share.sum()), int(share.sum()) + 1}


def test_rounding_in_round_one_only_is_completed():
    instance = district(80, 30, 4, 4)
    hard = hard_of(instance)
    nothing = replace(relaxed(instance, hard), x=np.zeros(30))
    drawn = draw(instance, hard, nothing, np.random.SeedSequence(0).spawn(5), limit=1)
    assert drawn.completed.all()
    assert drawn.programs == 0
    assert Counter(instance, hard).feasible(drawn.chosen).all()
    assert round_limit(instance, 1.0) == int(np.ceil(np.log(80 * 4))) + 2


def test_knapsack_rows_close_a_gap():
    """One set covers all ten of a group that needs one: its share of 1 / 10 is no choice."""
    instance = district(30, 10, 1, 0)
    a = type(instance.membership)(np.ones((10, 1), np.int32))
    g = type(instance.groups)(np.ones((1, 10), np.int32))
    single = replace(
        instance,
        membership=a,
        cost=np.ones(1),
        groups=g,
        need=np.array([1]),
        promise=np.zeros(10),
        set_places=None,
        element_places=None,
    )
    left = Residual.whole(single, np.zeros(10))
    (loose,), (tight,) = relax([left]), relax([left], knapsack=True)
    assert loose.bound == pytest.approx(0.1)
    assert violated_knapsacks(left, loose.x).tolist() == [0]
    assert tight.bound == pytest.approx(1)


def test_first_order_solver_gives_a_bound_below_the_optimum():
    instance = district(100, 30, 4, 0)
    left = Residual.whole(instance, instance.promise)
    (exact,), (near,) = relax([left], "highs"), relax([left], "pdhg")
    assert near.bound <= exact.bound + 1e-6
    assert near.bound == pytest.approx(exact.bound, rel=2e-3)
    assert near.x @ instance.cost == pytest.approx(exact.x @ instance.cost, rel=5e-3)


def test_guessed_multipliers_prove_a_bound():
    instance = district(60, 20, 4, 0)
    hard = hard_of(instance)
    value = relaxed(instance, hard).bound
    program = cover_program(Residual.whole(instance, hard.astype(float)))
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.01, 0.1, 1.0):
        y = program.point(rng.random(20), scale * rng.random(4))[1]
        full = dual_point(program.program, len(program.sets), y)
        assert dual_bound(program.program, full) <= value + 1e-9
    assert FairCover(predictor_width=8).guess(instance, hard).bound <= value + 1e-9


def test_without_network_forward_solves_the_relaxation():
    instance = district(40, 12, 3, 0)
    model = FairCover(predictor_width=0)
    found = model(**tensors_of(instance))
    exact = relax([Residual.whole(instance, instance.promise)])[0]
    assert found["x"].numpy() == pytest.approx(exact.x, abs=1e-6)


@pytest.mark.filterwarnings("ignore:`LightningModule.configure_optimizers` returned `None`")
def test_without_network_fit_only_reports():
    data = CoverInstancesDataModule(sizes=[[40, 12, 3]], n_train=2, n_val=2, n_test=2)
    model = FairCover(predictor_width=0, trials=1, compare=[])
    trainer = Trainer(
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    assert trainer.callback_metrics["val_fast_feasible"] == 1


def test_network_learns_which_sets_matter():
    """Its guess of unseen districts gets nearer to the relaxation, and stays feasible."""
    torch.manual_seed(0)
    data = CoverInstancesDataModule(sizes=[[60, 20, 3]], n_train=24, n_val=4, batch_size=4)
    model = FairCover(predictor_width=16, predictor_rounds=2, trials=4, compare=[])
    model.optimizer_config = {"class_path": "torch.optim.Adam", "init_args": {"lr": 5e-3}}
    options = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "inference_mode": False,  # validated before and after the fit
    }
    before = Trainer(**options).validate(model, data, verbose=False)[0]
    Trainer(max_epochs=20, **options).fit(model, data)
    after = Trainer(**options).validate(model, data, verbose=False)[0]
    assert after["val_share_error"] < 0.7 * before["val_share_error"]
    assert after["val_fast_feasible"] == 1


def test_warm_start_and_no_program_variants_solve():
    instance = district(60, 20, 3, 0)
    for options in (
        {"lp_backend": "pdhg"},
        {"resolve": "none"},
        {"rounding": "dependent"},
        {"kc": True},
    ):
        found = FairCover(predictor_width=8, trials=2, **options).solve(instance, theta=0.5)
        assert (found.slack >= 0).all()
        assert found.covered[hard_of(instance)].all()
        assert found.cost >= found.bound - 1e-6
        if found.bound > 0:
            assert found.ratio == pytest.approx(found.cost / found.bound)
        else:  # an untrained guess may prove nothing
            assert options == {"resolve": "none"}
            assert found.ratio == math.inf


def test_price_of_fairness_rises_with_what_is_asked_for():
    model = FairCover(predictor_width=0)
    price = model.price_of_fairness(district(120, 40, 5, 0), [0.0, 1.0])
    assert price[0] == pytest.approx(1)
    assert price[1] > 1.05


def test_saved_files_say_what_was_chosen(tmp_path):
    found = FairCover(predictor_width=0).solve(graph("karate", 0), theta=0.7)
    sets, groups, record = found.save(tmp_path / "karate")
    assert len(sets.read_text().splitlines()) == 1 + len(found.selected)
    for line in groups.read_text().splitlines()[1:]:
        _, members, need, covered = line.split(",")
        assert int(need) <= int(covered) <= int(members)
    assert '"theta": 0.7' in record.read_text()


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"tau": 0}, "tau > 0"),
        ({"resolve": "once"}, "resolve='once'"),
        ({"individual": "none"}, "common"),
        ({"compare": ["gurobi"]}, "compare='gurobi'"),
        ({"resolve": "none", "predictor_width": 0}, "needs a predictor_width"),
        ({"lp_backend": "cplex"}, "lp_backend"),
    ],
)
def test_mistakes_in_arguments(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        FairCover(**options)


def test_thresholds_out_of_range():
    model = FairCover(predictor_width=0)
    with pytest.raises(ZooError, match=r"theta=1.5"):
        model.solve(graph("karate", 0), theta=1.5)
    with pytest.raises(ZooError, match="no common theta"):
        FairCover(individual="independent").solve(graph("karate", 0), theta=0.5)
    with pytest.raises(ZooError, match="draws=0"):
        model.policy(graph("karate", 0), 0)
