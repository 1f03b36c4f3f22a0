"""Learning in auctions: learners against each other, and what bounds them.

The abstract claims a set (BSCCE) between BCE and BCCE that holds what gradient learners can end up
with, and that it shrinks to equilibrium in many cases where BCCE does not. The sizes of the sets
are those of ``polytopes.csv``; each is a linear program without chance.
"""

from collections.abc import Callable

from benchmarks.runner import Arm, Check, Claim, Column, Figures
from zoo.auction_games import AuctionGame
from zoo.bayes_auction import measure

METHOD, HEDGE, ADAM, NETWORK = (
    "projected gradient ascent",
    "hedge",
    "Adam on logits",
    "the network alone",
)


# The network plays no part in what learners from random starts do.
SHORT = (
    *("--model.lp_sizes", "[]", "--trainer.max_epochs", "1"),
    *("--trainer.check_val_every_n_epoch", "1"),
)


def _radius(alpha: float, n: int, concept: str) -> float:
    return measure(AuctionGame.power(alpha, n), concept, ()).radius_w2


def _nested(figures: Figures) -> tuple[bool, str]:
    details, holds = [], True
    for alpha in (0.5, 1.0, 2.0, 3.0):
        for n in (3, 5, 8):
            radii = [_radius(alpha, n, concept) for concept in ("BCE", "BSCCE", "BCCE")]
            holds &= radii[0] <= radii[1] + 1e-6 and radii[1] <= radii[2] + 1e-6
            if n == 8:
                details.append(f"alpha {alpha:g}: {', '.join(f'{r:.3f}' for r in radii)}")
    return holds, f"at 8 types, {'; '.join(details)}"


def _shrinks(figures: Figures) -> tuple[bool, str]:
    found = {(c, n): _radius(2.0, n, c) for c in ("BSCCE", "BCCE") for n in (5, 12)}
    holds = (
        found["BSCCE", 12] <= 0.6 * found["BCCE", 12]
        and found["BSCCE", 12] < 0.85 * found["BSCCE", 5]
        and found["BCCE", 12] > 0.85 * found["BCCE", 5]
    )
    detail = ", ".join(f"{c} {found[c, 5]:.3f} to {found[c, 12]:.3f}" for c in ("BSCCE", "BCCE"))
    return holds, f"from 5 to 12 types {detail}"


def _convex(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (_radius(3.0, 8, concept) for concept in ("BSCCE", "BCCE"))
    return ours < 0.85 * theirs, f"{ours:.3f} against {theirs:.3f}"


def _below(metric: str, limit: float) -> Callable[[Figures], tuple[bool, str]]:
    def holds(figures: Figures) -> tuple[bool, str]:
        values = figures.by_seed(METHOD, "test", metric).values()
        return max(values) <= limit, f"largest {max(values):.4f}"

    return holds


CLAIM = Claim(
    method="bayes_auction",
    metric="test_utility_loss",
    unit="of the highest value, worst game and start",
    arms=(
        Arm(HEDGE, ("--model.algo", "hedge", *SHORT)),
        Arm(ADAM, ("--model.algo", "adam_logits", *SHORT)),
        Arm(NETWORK, of=METHOD, metric="test_network_loss"),
        Arm(METHOD),
    ),
    evaluations={"test": ()},
    columns={
        "worst": Column("test"),
        "mean": Column("test", ("test_utility_loss_mean",)),
        "W2, mean": Column("test", ("test_w2",)),
        "W2, worst start": Column("test", ("test_w2_worst",)),
        "external regret": Column("test", ("test_external_regret",)),
        "semicoarse regret": Column("test", ("test_semicoarse_regret",)),
        "swap regret": Column("test", ("test_swap_regret",)),
    },
    checks=(
        Check("BCE lies in BSCCE, and that in BCCE, for every prior and size", _nested),
        Check("with F = v^2 BSCCE shrinks and BCCE does not", _shrinks),
        Check("with F = v^3, too, BSCCE is 15 % smaller than BCCE", _convex),
        Check(
            "semicoarse regret of average play is at most 0.005",
            _below("test_semicoarse_regret", 0.005),
        ),
        Check(
            "utility loss of the last step is at most 0.003 on average",
            _below("test_utility_loss_mean", 0.003),
        ),
        Check("and in the worst game from the worst start", _below("test_utility_loss", 0.003)),
    ),
)
