"""SkillsBench: does the instrument find what was planted?

The abstract's figures are of language models, which don't run here. What can be claimed of
simulated agents is that lifts and regressions are found where they were put, and nothing else.
Coverage of the intervals and what pairing saves are tests, ``tests/skills_bench``.
"""

from benchmarks.runner import Arm, Check, Claim, Column, Figures

CURATED, SELF, PLACEBO = "curated", "self", "placebo"
PLANTED = 4  # tasks with a skill that is of no use


def _worst_agent(figures: Figures) -> tuple[bool, str]:
    worst = figures.mean(CURATED, "test", "test_worst_agent_curated")
    return worst >= 10, f"{worst:+.1f}"


def _small(arm: str) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        lift = figures.mean(arm, "test")
        return abs(lift) < 5, f"{lift:+.1f}"

    return Check(f"{arm} changes less than 5 points", holds)


def _regressions(figures: Figures) -> tuple[bool, str]:
    found = figures.mean(CURATED, "test", "test_significant_regressions_curated")
    return 1 <= found <= PLANTED + 2, f"{found:.0f} significant, {PLANTED} planted"


def _no_false(figures: Figures) -> tuple[bool, str]:
    names = [f"test_significant_regressions_{c}" for c in (SELF, PLACEBO)]
    found = sum(figures.mean(CURATED, "test", name) for name in names)
    return found <= 2, f"{found:.0f} with self and placebo, where none are planted"


def _forecast(figures: Figures) -> tuple[bool, str]:
    model = figures.mean(CURATED, "test", "test_log_loss_model")
    domain = figures.mean(CURATED, "test", "test_log_loss_domain")
    return model < domain, f"{model:.3f} against {domain:.3f}, all {_all(figures):.3f}"


def _all(figures: Figures) -> float:
    return figures.mean(CURATED, "test", "test_log_loss_all")


CLAIM = Claim(
    method="skills_bench",
    metric="test_lift_curated",
    unit="points, mean of paired differences",
    arms=(
        Arm(CURATED),
        Arm(SELF, of=CURATED, metric="test_lift_self"),
        Arm(PLACEBO, of=CURATED, metric="test_lift_placebo"),
    ),
    evaluations={"test": ()},
    columns={
        "lift": Column("test"),
        "worst agent": Column("test", ("test_worst_agent_curated",)),
        "significant regressions": Column("test", ("test_significant_regressions_curated",)),
    },
    checks=(
        Check("curated skills lift every agent by at least 10 points", _worst_agent),
        _small(SELF),
        _small(PLACEBO),
        Check("planted regressions are found, and few others", _regressions),
        Check("hardly any regressions where none are planted", _no_false),
        Check("forecasts of new tasks beat the domain's mean", _forecast),
    ),
)
