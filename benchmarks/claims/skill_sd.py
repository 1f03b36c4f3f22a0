"""SCPO: baselines that skills share, against prompt-level and global ones.

The abstract claims better baselines than prompt-level ones and global shrinkage, a stabler gradient
and better final accuracy. All arms of a seed begin with the same demonstrations, and so with the
same policy.
"""

from benchmarks.runner import Arm, Check, Claim, Column, Figures

SCPO, GLOBAL, RLOO, GRPO = "SCPO", "global shrinkage", "RLOO", "GRPO"
ALONE, GROUP, SHUFFLED, CLUSTER = (
    "SCPO without history",
    "SCPO, skills by themselves",
    "SCPO, random labels",
    "SCPO, clusters",
)


def _ratio(arm: str, ours: str, theirs: str, limit: float, text: str) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        a, b = (figures.by_seed(arm, "test", f"test_{m}") for m in (ours, theirs))
        ratio = sum(a.values()) / sum(b.values())
        return ratio <= limit, f"{ratio:.2f}, {len(a)} seeds"

    return Check(text, holds)


def _ahead(arm: str, other: str, least: float, text: str, metric: str | None = None) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        a, b = (figures.by_seed(x, "test", metric) for x in (arm, other))
        both = sorted(a.keys() & b.keys())
        gaps = [a[seed] - b[seed] for seed in both]
        mean = sum(gaps) / len(gaps)
        ahead = sum(gap > 0 for gap in gaps)
        return mean > least, f"{mean:+.3f}, ahead in {ahead} of {len(both)} seeds"

    return Check(text, holds)


def _control(figures: Figures) -> tuple[bool, str]:
    a, b = (figures.by_seed(SHUFFLED, "test", f"test_training_mse_{m}") for m in ("scpo", "global"))
    ratio = sum(a.values()) / sum(b.values())
    return abs(ratio - 1) <= 0.1, f"{ratio:.2f}, {len(a)} seeds"


CLAIM = Claim(
    method="skill_sd",
    metric="test_accuracy",
    unit="greedy, 512 prompts",
    arms=(
        Arm(RLOO, ("--model.baseline", "rloo")),
        Arm(GRPO, ("--model.baseline", "grpo")),
        Arm(GLOBAL, ("--model.baseline", "global")),
        Arm(SCPO),
        Arm(GROUP, ("--model.coupling", "group")),
        Arm(ALONE, ("--model.coupling", "none")),
        Arm(SHUFFLED, ("--data.labels", "random")),
        Arm(CLUSTER, ("--model.skill_source", "cluster")),
    ),
    evaluations={"test": ()},
    columns={
        "greedy": Column("test"),
        "sampled": Column("test", ("test_sampled",)),
        "pass@8": Column("test", ("test_pass_at_8",)),
        "MSE RLOO": Column("test", ("test_training_mse_rloo",)),
        "MSE global": Column("test", ("test_training_mse_global",)),
        "MSE SCPO": Column("test", ("test_training_mse_scpo",)),
    },
    checks=(
        _ratio(
            SCPO,
            "training_mse_scpo",
            "training_mse_global",
            0.7,
            "its MSE over the training is at most 0.7 of global shrinkage's",
        ),
        _ratio(
            SCPO,
            "training_mse_scpo",
            "training_mse_rloo",
            0.4,
            "its MSE over the training is at most 0.4 of RLOO's",
        ),
        _ratio(
            SCPO,
            "gradient_scpo",
            "gradient_global",
            0.95,
            "the trace of the gradient's covariance is at most 0.95 of global shrinkage's",
        ),
        _ratio(
            SCPO,
            "training_mse_scpo",
            "training_mse_scpo_alone",
            1.0,
            "history makes the MSE over the training no worse",
        ),
        Check("with random labels its MSE is within 10 % of global shrinkage's", _control),
        _ahead(SCPO, GLOBAL, 0.0, "greedy accuracy is above global shrinkage's, on the mean"),
        _ahead(SCPO, RLOO, 0.02, "greedy accuracy is above RLOO's by 0.02, on the mean"),
        _ahead(SCPO, GRPO, 0.0, "greedy accuracy is above GRPO's, on the mean"),
        _ahead(
            SCPO,
            GLOBAL,
            0.0,
            "sampled accuracy is above global shrinkage's, on the mean",
            "test_sampled",
        ),
        _ahead(SCPO, RLOO, 0.0, "sampled accuracy is above RLOO's, on the mean", "test_sampled"),
    ),
)
