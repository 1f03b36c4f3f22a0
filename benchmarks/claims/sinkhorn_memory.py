"""Sinkhorn memory against Hopfield retrieval, no flow at all, and either half of its flow.

The abstract claims a memory for weighted point clouds whose flow retrieves stored measures. All
competitors answer the same test queries of one run. How the memory's capacity grows, what the
theory says, and where it fails is measured by ``python -m benchmarks.studies.sinkhorn_memory``.
The study is ``python -m benchmarks claims sinkhorn_memory --seeds 0``: means over five libraries.
"""

from benchmarks.runner import Arm, Check, Claim, Column, Figures

METHOD, NEAREST, EUCLID, MOMENTS, TRANSPORT, REACTION = (
    "Sinkhorn memory",
    "nearest by S, no flow",
    "Hopfield on coordinates",
    "Hopfield on moments",
    "transport only (eta 0)",
    "reaction only (tau 0)",
)
END, RIGHT, RECOVERED = "test_s_end", "test_id_acc", "test_recovered"


def _identifies(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (figures.mean(METHOD, "test", m) for m in (RIGHT, f"{RIGHT}_euclid"))
    return ours >= theirs + 0.15, f"{ours:.3f} against {theirs:.3f}"


def _cleans(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (figures.mean(arm, "test") for arm in (METHOD, EUCLID))
    return ours <= theirs / 4, f"{ours:.4f} against {theirs:.4f}"


def _recovers(figures: Figures) -> tuple[bool, str]:
    rate = figures.mean(METHOD, "test", RECOVERED)
    return rate >= 0.9, f"{rate:.3f}"


def _monotone(figures: Figures) -> tuple[bool, str]:
    rises = figures.mean(METHOD, "test", "test_violations")
    return rises == 0, f"{rises:g} steps a query"


def _both_halves(figures: Figures) -> tuple[bool, str]:
    ours, *halves = (figures.mean(arm, "test") for arm in (METHOD, TRANSPORT, REACTION))
    return ours < min(halves), f"{ours:.4f} against {halves[0]:.4f} and {halves[1]:.4f}"


def _no_worse_than_nearest(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (figures.mean(METHOD, "test", m) for m in (RIGHT, f"{RIGHT}_nearest"))
    return ours >= theirs, f"{ours:.3f} against {theirs:.3f}"


CLAIM = Claim(
    method="sinkhorn_memory",
    metric=END,
    unit="standardised cost",
    arms=(
        Arm(NEAREST, of=METHOD, metric=f"{END}_nearest"),
        Arm(EUCLID, of=METHOD, metric=f"{END}_euclid"),
        Arm(MOMENTS, of=METHOD, metric=f"{END}_moments"),
        Arm(TRANSPORT, of=METHOD, metric=f"{END}_transport"),
        Arm(REACTION, of=METHOD, metric=f"{END}_reaction"),
        Arm(METHOD),
    ),
    evaluations={"test": ()},
    # Nothing here is random but the data, so one seed is run on five libraries with their queries.
    settings={"": (), **{f"library {k}": ("--data.seed", str(k)) for k in range(1, 5)}},
    columns={
        "S to the truth": Column("test"),
        "right label": Column("test", (RIGHT,)),
        "recovered": Column("test", (RECOVERED,)),
    },
    checks=(
        Check("labels are right in 0.15 more of the queries than with Hopfield", _identifies),
        Check("ends at most a quarter as far from the truth as Hopfield", _cleans),
        Check("at least 0.9 of the queries are recovered", _recovers),
        Check("the energy never rises", _monotone),
        Check("ends nearer than transport alone and reaction alone", _both_halves),
        Check("labels are right no less often than without flow", _no_worse_than_nearest),
    ),
)
