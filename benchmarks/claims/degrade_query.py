"""DegradeQuery: does pretraining on counterfactual tuples help when labels are few, and where?

The abstract claims that a model conditioned on degrader, target and ligase, pretrained on tuples
with the target, the ligase or both replaced, predicts degradation better (AUROC 0.9065 and accuracy
0.8500 on PROTAC-8K, which are the abstract's figures), also when scaffolds or target-ligase pairs
are held out. Here: 300 labels of the public table, three splits; each seed draws its own split and
labels, the same for all arms, since they matter more than the network's start. How a few labels of
a new target help is measured by ``python -m benchmarks.studies.degrade_query``.
"""

from benchmarks.runner import Arm, Check, Claim, Column, Figures

PRETRAINED, SCRATCH, ALONE, PERMUTED, FOREST, FOREST_ALONE = (
    "DegradeQuery",
    "from scratch",
    "molecule only",
    "pretrained on permuted targets and ligases",
    "random forest, fingerprints and one-hot context",
    "random forest, fingerprints",
)
AUROC, SEVERAL, SWAP = "test_auroc", "test_several_auroc", "test_swap_target"
TREES = ("--model", "zoo.degrade_query.FingerprintForest", "--trainer.max_epochs", "1")
TREES += ("--trainer.gradient_clip_val", "null")
UNTRAINED = ("--model.pretrain_steps", "0")


def _differences(figures: Figures, arm: str, other: str, split: str) -> list[float]:
    """Of the seeds that both have, in one split."""
    ours, theirs = (figures.by_setting(name, "test")[split] for name in (arm, other))
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def _pretraining_helps(figures: Figures) -> tuple[bool, str]:
    gains = _differences(figures, PRETRAINED, SCRATCH, "random")
    mean, better = sum(gains) / len(gains), sum(gain > 0 for gain in gains)
    detail = f"{mean:+.4f}, better on {better} of {len(gains)} seeds"
    return mean >= 0.01 and better >= 0.8 * len(gains), detail


def _context_helps(figures: Figures) -> tuple[bool, str]:
    gains = _differences(figures, PRETRAINED, ALONE, "random")
    mean = sum(gains) / len(gains)
    return mean >= 0.015, f"{mean:+.4f}"


def _context_helps_where_it_must(figures: Figures) -> tuple[bool, str]:
    ours, theirs = (
        figures.by_setting(name, "test", SEVERAL)["random"] for name in (PRETRAINED, ALONE)
    )
    gains = [ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()]
    mean = sum(gains) / len(gains)
    return mean > 0, f"{mean:+.4f}"


def _control_does_nothing(figures: Figures) -> tuple[bool, str]:
    gains = _differences(figures, PERMUTED, SCRATCH, "random")
    mean = sum(gains) / len(gains)
    return mean <= 0.01, f"{mean:+.4f}"


def _swaps_are_told_apart(figures: Figures) -> tuple[bool, str]:
    found = figures.by_setting(PRETRAINED, "test", SWAP)["random"].values()
    mean = sum(found) / len(found)
    return mean >= 0.9, f"{mean:.3f}"


CLAIM = Claim(
    method="degrade_query",
    metric=AUROC,
    unit="mean over splits",
    arms=(
        Arm(FOREST_ALONE, (*TREES, "--model.context", "false")),
        Arm(FOREST, TREES),
        Arm(ALONE, (*UNTRAINED, "--model.context", "false")),
        Arm(SCRATCH, UNTRAINED),
        Arm(PERMUTED, ("--data.permute", "true")),
        Arm(PRETRAINED),
    ),
    seeded=("--data.seed",),
    settings={split: ("--data.split", split) for split in ("random", "scaffold", "target_e3")},
    evaluations={"test": ()},
    columns={
        "AUROC, pooled": Column("test", (AUROC,)),
        "AUROC within targets": Column("test", ("test_target_auroc",)),
        "AUROC, molecules with several targets": Column("test", (SEVERAL,)),
        "accuracy": Column("test", ("test_accuracy",)),
        "calibration error": Column("test", ("test_ece",)),
        "swapped targets score lower": Column("test", (SWAP,)),
    },
    checks=(
        Check(
            "random split: pretrained above scratch by 0.01, on four of five seeds",
            _pretraining_helps,
        ),
        Check("random split: above the molecule alone by 0.015", _context_helps),
        Check(
            "random split: above the molecule alone on molecules with several targets",
            _context_helps_where_it_must,
        ),
        Check("random split: permuted tuples help by no more than 0.01", _control_does_nothing),
        Check(
            "random split: a swapped target lowers compatibility for 90 % of tuples",
            _swaps_are_told_apart,
        ),
    ),
)
