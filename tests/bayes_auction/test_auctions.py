"""Payoffs, learners, linear programs and regrets, against enumeration and each other."""

from itertools import product

import numpy as np
import pytest
import torch
from lightning import seed_everything

from zoo import BayesAuction
from zoo.auction_games import AuctionGame, invert_bids, read_game
from zoo.bayes_auction.dynamics import ALGOS, learn, project, random_strategies
from zoo.bayes_auction.module import games_of, tensors_of
from zoo.bayes_auction.payoff import PAYMENT_CODES, Games, payoffs, utility_loss
from zoo.bayes_auction.polytope import CONCEPTS, Polytope, measure
from zoo.bayes_auction.regret import best_flow, external_regret, semicoarse_regret, swap_regret
from zoo.datamodules import AuctionGamesDataModule
from zoo.errors import ZooError


def games(*made):
    return Games(
        *(
            torch.from_numpy(np.stack([getattr(g, key) for g in made]))
            for key in ("values", "bids", "prior", "mask")
        ),
        torch.tensor([PAYMENT_CODES[g.payment] for g in made]),
    )


def enumerated(game, strategy):
    """Interim payoffs by going through all types and bids of the others."""
    bidders, n, m = strategy.shape
    found = np.zeros((bidders, n, m))
    for k in range(bidders):
        others = [j for j in range(bidders) if j != k]
        q = [game.prior[j] @ strategy[j] for j in others]
        for bids in product(range(m), repeat=len(others)):
            chance = np.prod([q[x][a] for x, a in enumerate(bids)])
            for a in range(m):
                top = max(bids)
                win = 0.0 if a < top else 1 / (1 + sum(b == a for b in bids))
                price = {
                    "first": win * game.bids[a],
                    "all_pay": game.bids[a],
                    "second": win * game.bids[top],
                }[game.payment]
                found[k, :, a] += chance * (win * game.values - price)
    return found


@pytest.mark.parametrize("payment", ["first", "all_pay", "second"])
@pytest.mark.parametrize("bidders", [2, 3, 4])
def test_payoffs_are_those_of_enumeration(payment, bidders):
    game = AuctionGame.power(1.5, 4, 3, bidders, payment)
    made = games(game)
    strategy = random_strategies(made, [0])
    found = payoffs(made, strategy)[0].numpy()
    assert found == pytest.approx(enumerated(game, strategy[0].numpy()), abs=1e-12)


def test_padding_changes_nothing():
    """Bidders, types and bids that are not there: as if they were not."""
    data = AuctionGamesDataModule(sizes=[3, 5], alphas=[2.0])
    data.setup("test")
    padded = data.datasets["test"][0]  # three types, padded to five
    game = AuctionGame.power(2.0, 3)
    alone = games(game)
    batch = games_of(
        {k: torch.as_tensor(v)[None] for k, v in padded.items() if k != "name"}
    ).double()
    strategy = random_strategies(alone, [1])
    wide = torch.zeros(1, 2, 5, 5, dtype=torch.float64)
    wide[:, :, :3, :3] = strategy
    wide[:, :, 3:, 0] = 1
    u = payoffs(batch, wide)[..., :3, :3]
    assert torch.allclose(u, payoffs(alone, strategy), atol=1e-6)
    three = Games(
        batch.values,
        batch.bids,
        torch.cat([batch.prior, 0 * batch.prior[:, :1]], dim=1),
        batch.mask,
        batch.payment,
    )
    absent = torch.cat([wide, wide[:, :1]], dim=1)
    assert torch.allclose(payoffs(three, absent)[:, :2, :3, :3], u, atol=1e-9)


def test_projection_is_the_nearest_point():
    torch.manual_seed(0)
    y, mask = torch.randn(50, 6, dtype=torch.float64), torch.rand(50, 6) < 0.7
    mask[:, 0] = True
    x = project(y, mask)
    assert x.sum(-1).numpy() == pytest.approx(np.ones(50), abs=1e-12)
    assert (x >= 0).all()
    assert (x[~mask] == 0).all()
    for _ in range(200):  # no point of the simplex is nearer
        other = torch.rand(50, 6, dtype=torch.float64).masked_fill(~mask, 0)
        other = other / other.sum(-1, keepdim=True)
        kept = mask.double()
        assert (
            ((x - y) * kept).square().sum(-1) <= ((other - y) * kept).square().sum(-1) + 1e-9
        ).all()


@pytest.mark.parametrize(("algo", "loss"), [(a, 0.02 if a != "reinforce" else 0.08) for a in ALGOS])
def test_learners_approach_equilibrium(algo, loss):
    game = AuctionGame.power(1.0, 6)
    made = games(game).repeat(4)
    start = random_strategies(made, [0, 1, 2, 3])
    generator = torch.Generator().manual_seed(0)
    run = learn(made, start, 2000, algo, eta0=4.0, generator=generator)
    before, after = utility_loss(made, start).mean(), utility_loss(made, run.strategy).mean()
    assert after < min(loss, 0.6 * float(before))
    assert run.strategy.sum(-1).numpy() == pytest.approx(np.ones((4, 2, 6)), abs=1e-6)
    assert (run.strategy[:, :, ~game.mask] == 0).all()


def test_random_starts_depend_on_their_seed_alone():
    made = games(AuctionGame.power(1.0, 4)).repeat(3)
    together = random_strategies(made, [5, 6, 7])
    alone = random_strategies(games(AuctionGame.power(1.0, 4)), [6])
    assert torch.equal(together[1], alone[0])


def test_second_price_is_truthful_and_all_pay_has_its_equilibrium():
    assert AuctionGame.power(1.0, 4, payment="second").equilibrium() == pytest.approx(
        [0.25, 0.5, 0.75, 1]
    )
    v = np.arange(1, 5) / 4
    assert AuctionGame.power(1.0, 4, payment="all_pay").equilibrium() == pytest.approx(
        v**2 / 2, abs=1e-3
    )
    game = AuctionGame.power(2.0, 4, bidders=3)
    assert game.equilibrium() == pytest.approx(v * 4 / 5)
    general = AuctionGame(game.values, game.bids, game.prior, name="same")
    fine = AuctionGame.of_cdf(lambda x: x**2, 400, 4, 3)
    assert np.interp(v, fine.values, fine.equilibrium()) == pytest.approx(v * 4 / 5, abs=5e-3)
    assert general.equilibrium() is not None


@pytest.mark.parametrize(
    ("alpha", "n", "radii"),
    [
        (2.0, 3, (0.267, 0.332, 0.342)),
        (2.0, 5, (0.130, 0.176, 0.338)),
        (1.0, 6, (0.090, 0.090, 0.170)),
        (0.5, 5, (0.131, 0.131, 0.140)),
    ],
)
def test_sets_are_nested_and_of_the_known_size(alpha, n, radii):
    """Figures of a prototype that shares no code with this."""
    game = AuctionGame.power(alpha, n)
    reports = [measure(game, concept) for concept in CONCEPTS]
    found = [r.radius_w2 for r in reports]
    assert found == pytest.approx(radii, abs=1e-3)
    widths = [r.width["expected_bid"] for r in reports]
    assert widths == sorted(widths)
    assert max(widths) <= 2 * max(found) + 1e-9
    for report in reports:
        assert report.worst.sum(axis=1) == pytest.approx(np.ones(n))
        assert (report.worst[~game.mask] == 0).all()


@pytest.mark.parametrize("concept", CONCEPTS)
@pytest.mark.parametrize("payment", ["first", "all_pay"])
def test_tied_and_full_programs_agree(concept, payment):
    game = AuctionGame.power(2.0, 4, 3, payment=payment)
    tied, full = (measure(game, concept, (), symmetric=x) for x in (True, False))
    assert full.variables > 1.7 * tied.variables
    assert full.radius_w2 == pytest.approx(tied.radius_w2, abs=1e-6)


def test_circulation_without_freedom_is_bce_and_summed_is_bcce():
    game = AuctionGame.power(2.0, 5)
    bce, bscce, bcce = (Polytope(game, concept) for concept in CONCEPTS)
    objective = bscce.objective("w2")
    p = bscce.program
    pinned = bscce._pairs
    lower, upper = p.lower.copy(), p.upper.copy()
    lower[pinned:] = upper[pinned:] = 0
    from zoo.solvers import LinearProgram, solve_highs

    value = solve_highs(LinearProgram(-objective, p.rows, p.least, lower, upper, p.equal)).value
    assert value == pytest.approx(bce.maximise(bce.objective("w2")).value, abs=1e-7)
    # Circulations cancel in sums over a, which leaves the rows of BCCE.
    kept = np.r_[: bcce.variables]
    assert bscce.maximise(objective).value >= bcce.maximise(bcce.objective("w2")).value - 1e-9
    assert len(kept) == pinned


def test_no_signalling_holds_at_the_extreme():
    game = AuctionGame.power(2.0, 4)
    polytope = Polytope(game, "BSCCE")
    x = polytope.maximise(polytope.objective("w2")).x
    sigma = x[polytope.index]
    n = len(game.values)
    sums = np.stack([sigma[:, polytope.types == j].sum(axis=1) for j in range(n)])
    assert np.ptp(sums, axis=0).max() < 1e-7


def test_average_play_lies_in_the_set_up_to_its_regret():
    game = AuctionGame.power(2.0, 4)
    made = games(game)
    start = random_strategies(made, [3])
    # Both bidders alike, as the tied program has it.
    start = start[:, :1].expand_as(start).contiguous()
    run = learn(made, start, 2000, joint=True)
    joint = run.joint[0].numpy()
    assert joint.sum(axis=(1, 3)) == pytest.approx(np.ones((4, 4)))
    regret = float(semicoarse_regret(run.swaps, made.prior, made.mask)[0])
    worst = regret / game.prior.min()  # of a type, not of the mean over types
    violation = Polytope(game, "BSCCE").violation(joint)
    assert violation <= worst + 1e-6
    anything = Polytope(game, "BSCCE").violation(
        np.einsum("ia,jc->iajc", start[0, 0].numpy(), start[0, 1].numpy())
    )
    assert anything > 2 * violation


def test_summed_regrets_are_those_of_the_joint_distribution():
    game = AuctionGame.power(1.0, 4)
    made = games(game)
    run = learn(made, random_strategies(made, [0]), 50, joint=True)
    joint, v, b = run.joint[0].numpy(), game.values, game.bids
    gain = np.zeros((4, 4, 4))
    for i, a, d, j, c in product(range(4), repeat=5):
        u = [(v[i] - b[x]) * ((x > c) + 0.5 * (x == c)) for x in (d, a)]
        gain[i, a, d] += game.prior[1, j] * joint[i, a, j, c] * (u[0] - u[1])
    allowed = game.mask[:, :, None] & game.mask[:, None, :]
    assert run.swaps[0, 0].numpy() == pytest.approx(gain * allowed, abs=1e-10)


def test_regrets_are_ordered_and_vanish_like_one_over_time():
    made = games(AuctionGame.power(1.0, 5)).repeat(3)
    start = random_strategies(made, [0, 1, 2])
    found = []
    for steps in (300, 3000):
        run = learn(made, start, steps)
        external = external_regret(run.swaps, made.prior).numpy()
        middle = semicoarse_regret(run.swaps, made.prior, made.mask)
        swap = swap_regret(run.swaps, made.prior).numpy()
        assert (external <= middle + 1e-9).all()
        assert (middle <= swap + 1e-9).all()
        found.append(middle.max())
    assert found[1] <= 0.005
    assert found[1] <= found[0] / 2.5


def test_best_flow_of_two_bids_is_any_map_and_of_a_cycle_is_none():
    """With two bids every map is a flow; a cycle a -> b -> c -> a is none, so it gains nothing."""
    assert best_flow(np.array([[0, 0.3], [-0.2, 0]])) == pytest.approx(0.3)
    cycle = np.array([[0, 1.0, -1.0], [-1.0, 0, 1.0], [1.0, -1.0, 0]])
    assert best_flow(cycle) == pytest.approx(0, abs=1e-9)
    assert np.maximum(cycle, 0).max(axis=1).sum() == 3  # what a swap would gain
    constant = np.array([[0, 0.5, 0], [0, 0, 0], [0, 0.5, 0]])
    assert best_flow(constant) == pytest.approx(1.0)  # always the middle bid


def test_network_learns_to_bid():
    from lightning import Trainer

    seed_everything(0)
    data = AuctionGamesDataModule(
        sizes=[4, 5], n_train=256, n_val=8, batch_size=32, eval_batch_size=8
    )
    model = BayesAuction(hidden=32, steps=10, starts=1, lp_sizes=[])
    model.optimizer_config = {"class_path": "torch.optim.Adam", "init_args": {"lr": 5e-3}}
    options = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "inference_mode": False,
    }
    before = Trainer(**options).validate(model, data, verbose=False)[0]["val_network_loss"]
    Trainer(max_epochs=15, **options).fit(model, data)
    after = Trainer(**options).validate(model, data, verbose=False)[0]["val_network_loss"]
    assert after < 0.4 * before


def test_solve_reports_what_it_found():
    model = BayesAuction(steps=1500, hidden=8)
    for game in (AuctionGame.power(1.0, 6), AuctionGame.power(2.0, 5, bidders=3)):
        found = model.solve(game, start="random", seed=1)
        assert found.strategy.shape == (*game.prior.shape, len(game.bids))
        assert found.utility_loss < 0.01
        assert found.external_regret <= found.semicoarse_regret + 1e-9 <= found.swap_regret + 2e-9
        assert 0 < found.revenue < found.welfare <= 1
        assert found.w2_to_bne < 0.15
    truthful = AuctionGame.power(1.0, 5, payment="second")
    assert model.solve(truthful, start="random").utility_loss < 0.01


def test_welfare_and_revenue_of_known_play():
    """Both bid nothing: the good is worth the mean value, and brings nothing."""
    game = AuctionGame.power(1.0, 4, 1)
    found = BayesAuction(steps=1, hidden=8).solve(game)
    assert found.revenue == pytest.approx(0, abs=1e-9)
    assert found.welfare == pytest.approx(game.prior[0] @ game.values)


def test_priors_differ_by_bidder_in_full_programs(tmp_path):
    prior = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    game = AuctionGame(np.arange(1, 4) / 3, np.arange(3) / 3, prior).check()
    widths = []
    for concept in CONCEPTS:
        polytope = Polytope(game, concept)
        assert not polytope.symmetric
        objective = polytope.objective("revenue")
        widths.append(-polytope.maximise(objective).value - polytope.maximise(-objective).value)
    assert widths == sorted(widths)
    with pytest.raises(ZooError, match="not known"):
        polytope.objective("w2")
    with pytest.raises(ZooError, match="priors differ"):
        Polytope(game, "BCE", symmetric=True)


def test_programs_are_of_two_bidders_and_not_too_large():
    with pytest.raises(ZooError, match="3 bidders"):
        Polytope(AuctionGame.power(1.0, 3, bidders=3), "BCE")
    with pytest.raises(ZooError, match=r"variables: expected at most"):
        Polytope(AuctionGame.power(1.0, 40), "BSCCE")


def test_bids_of_the_equilibrium_give_their_values_back():
    """Two bidders with uniform values bid half of them; v = b + G / g must return the values."""
    rng = np.random.default_rng(0)
    values = rng.random(4000)
    found = invert_bids(values / 2, 2)
    middle = (values > 0.15) & (values < 0.85)  # a kernel blurs the ends
    assert np.abs(found - values)[middle].mean() < 0.02


def test_valuations_become_a_prior(tmp_path):
    (tmp_path / "values.csv").write_text("value,bidder\n10,a\n20,a\n30,b\n40,b\n5,b\n")
    game = AuctionGame.first_price(tmp_path / "values.csv", 4, 4, cap=40, reserve=0)
    wanted = np.array([[0.5, 0.5, 0, 0], [1 / 3, 0, 1 / 3, 1 / 3]])
    assert game.prior == pytest.approx(wanted)
    assert not game.symmetric
    with pytest.raises(ZooError, match=r"cap=3 must lie above reserve=5"):
        AuctionGame.first_price([1.0, 2.0], cap=3, reserve=5)
    with pytest.raises(ZooError, match="does not exist"):
        read_game(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"algo": "sgd"}, "algo='sgd'"),
        ({"gradient": "type"}, "gradient"),
        ({"steps": 0}, "steps=0"),
        ({"concepts": ["CCE"]}, "Did you mean 'BCCE'|CCE"),
    ],
)
def test_mistakes_in_arguments(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        BayesAuction(**options)


def test_joint_scope_is_not_silently_ignored():
    with pytest.raises(NotImplementedError, match="not built"):
        BayesAuction(gradient="joint")


def test_batch_of_one_is_the_game(tmp_path):
    found = tensors_of(AuctionGame.power(2.0, 4))
    assert found["equilibrium"][0].numpy() == pytest.approx(np.arange(1, 5) / 4 * 2 / 3)
