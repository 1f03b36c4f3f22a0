"""Skill-SD: its own successes as skills for its teacher, against rewards or the teacher alone.

The abstract claims large gains over GRPO and on-policy distillation (OPD) on AppWorld and Sokoban,
that weights of importance are needed, and that the teacher has to follow the student. All arms of a
seed begin with the same demonstrations, and so with the same policy, and rehearse alike, but for
those that show what happens without. These are validated at their end alone, so that what is tested
is how they end, and not the best that they were.
"""

from benchmarks.runner import Arm, Check, Claim, Column, Figures

GRPO, OPD, PROMPT, NAIVE = "GRPO", "OPD", "GRPO, skills in the prompt", "naive k3"
SKILL_SD, PAPER, FROZEN, EMA, OPEN = (
    "Skill-SD",
    "Skill-SD, iw_k3",
    "Skill-SD, teacher frozen",
    "Skill-SD, teacher averaged",
    "Skill-SD without gate",
)
BARE = "GRPO without rehearsal"
COLLAPSE, GATED = "no rehearsal, sync each step", "the same with the gate"
SOKOBAN = {mode: f"Sokoban: {mode}" for mode in (GRPO, OPD, SKILL_SD, PAPER)}
BEST = (SKILL_SD, PAPER, FROZEN, EMA, OPEN)

LAST = ("--trainer.check_val_every_n_epoch", "15")
UNREHEARSED = ("--model.rehearsal", "0", *LAST)
EACH_STEP = ("--model.sdl_form", "iw_k3", "--model.sync_every", "1", *UNREHEARSED)
BOARDS = "zoo/skill_sd/sokoban.yaml"


def _gap(figures: Figures, arm: str, other: str) -> tuple[float, str]:
    a, b = (figures.by_seed(x, "test") for x in (arm, other))
    both = sorted(a.keys() & b.keys())
    if not both:
        raise ValueError(f"no seed has both {arm} and {other}")
    gaps = [a[seed] - b[seed] for seed in both]
    mean = sum(gaps) / len(gaps)
    return mean, f"{mean:+.3f}, ahead in {sum(gap > 0 for gap in gaps)} of {len(both)} seeds"


def _ahead(arm: str, other: str, least: float, text: str) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        mean, said = _gap(figures, arm, other)
        return mean >= least and mean > 0, said  # a tie is not ahead

    return Check(text, holds)


def _best_ahead(other: str, least: float, text: str) -> Check:
    def holds(figures: Figures) -> tuple[bool, str]:
        known = [arm for arm in BEST if figures.by_seed(arm, "test")]
        best = max(known, key=lambda arm: figures.mean(arm, "test"))
        mean, said = _gap(figures, best, other)
        return mean >= least, f"{best}: {said}"

    return Check(text, holds)


def _collapses(figures: Figures) -> tuple[bool, str]:
    plain = figures.mean(COLLAPSE, "test")
    skilled = figures.mean(COLLAPSE, "test", "test_skill")
    return skilled < 0.5, f"with skills {skilled:.3f}, plain {plain:.3f}"


def _gate_prevents(figures: Figures) -> tuple[bool, str]:
    with_gate = figures.mean(GATED, "test", "test_teacher")
    without = figures.mean(COLLAPSE, "test", "test_teacher")
    return with_gate >= without + 0.03, f"{with_gate:.3f} against {without:.3f}"


def _keeps_start(figures: Figures) -> tuple[bool, str]:
    end = figures.mean(GATED, "test")
    start = figures.mean(SKILL_SD, "test", "test_start")  # the same policy: seeds are equal
    return end >= start - 0.03, f"{end:.3f}, it began with {start:.3f}"


def _scatters_less(figures: Figures) -> tuple[bool, str]:
    centred, weighted = (
        figures.mean(SKILL_SD, "test", f"test_gradient_{form}") for form in ("centred", "iw_k3")
    )
    return centred < weighted, f"{centred / weighted:.2f} of it"


CLAIM = Claim(
    method="skill_sd",
    metric="test_success",
    unit="plain prompt, sampled, new objects or levels",
    arms=(
        Arm(GRPO, ("--model.mode", "grpo")),
        Arm(OPD, ("--model.mode", "opd")),
        Arm(PROMPT, ("--model.mode", "grpo_skill_prompt")),
        Arm(NAIVE, ("--model.mode", "naive_k3")),
        Arm(SKILL_SD),
        Arm(PAPER, ("--model.sdl_form", "iw_k3")),
        Arm(FROZEN, ("--model.teacher", "frozen")),
        Arm(EMA, ("--model.teacher", "ema")),
        Arm(OPEN, ("--model.sync_gate", "false")),
        Arm(BARE, ("--model.mode", "grpo", *UNREHEARSED)),
        Arm(COLLAPSE, (*EACH_STEP, "--model.sync_gate", "false")),
        Arm(GATED, EACH_STEP),
        Arm(SOKOBAN[GRPO], ("--model.mode", "grpo"), config=BOARDS),
        Arm(SOKOBAN[OPD], ("--model.mode", "opd"), config=BOARDS),
        Arm(SOKOBAN[SKILL_SD], config=BOARDS),
        Arm(SOKOBAN[PAPER], ("--model.sdl_form", "iw_k3"), config=BOARDS),
    ),
    evaluations={"test": ()},
    columns={
        "sampled": Column("test"),
        "greedy": Column("test", ("test_greedy",)),
        "with its skill": Column("test", ("test_skill",)),
        "teacher with skill": Column("test", ("test_teacher",)),
        "tasks with a skill": Column("test", ("test_coverage",)),
        "when RL began": Column("test", ("test_start",)),
    },
    validation="val_success",
    checks=(
        _best_ahead(GRPO, 0.08, "the best Skill-SD arm is above GRPO by 0.08, on the mean"),
        _best_ahead(OPD, 0.15, "the best Skill-SD arm is above OPD by 0.15, on the mean"),
        _ahead(SKILL_SD, GRPO, 0.0, "the default arm is above GRPO, on the mean"),
        _ahead(PAPER, GRPO, 0.0, "so is the paper's own form, iw_k3"),
        _ahead(PAPER, NAIVE, 0.0, "importance weights help: iw_k3 is above naive k3"),
        _ahead(SKILL_SD, FROZEN, 0.0, "a teacher that follows is above a frozen one"),
        _ahead(SKILL_SD, PROMPT, 0.0, "it is above GRPO with skills in the prompt of training"),
        _ahead(SKILL_SD, OPEN, 0.0, "the gate costs nothing"),
        Check("the centred form's gradient scatters less than iw_k3's", _scatters_less),
        Check(
            "without rehearsal and synchronised each step the student unlearns to read skills, "
            "below 0.5",
            _collapses,
        ),
        Check("there the gate keeps the teacher a better reader, by 0.03", _gate_prevents),
        Check("and plain success at its start less 0.03, at least", _keeps_start),
        _ahead(SOKOBAN[SKILL_SD], SOKOBAN[GRPO], 0.0, "on Sokoban it is above GRPO"),
        _ahead(SOKOBAN[SKILL_SD], SOKOBAN[OPD], 0.0, "on Sokoban it is above OPD"),
    ),
)
