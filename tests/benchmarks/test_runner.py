"""Figures of a claim over arms, seeds, evaluations and settings."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import runner
from benchmarks.curves import curve_tables, draw_curves
from benchmarks.runner import Arm, Check, Claim, Column, Figures, Tuning, missing, table

TARGETS = ("A", "B")
CLAIM = Claim(
    method="toy",
    metric="test_error",
    unit="%",
    arms=(Arm("ours"), Arm("theirs"), Arm("trivial", of="ours", metric="test_trivial")),
    evaluations={"plain": (), "hard": ("--data.hard", "true")},
    settings={name: ("--data.target", name) for name in TARGETS},
    columns={
        "error": Column("plain"),
        "both": Column("plain", ("test_error", "test_other")),
        "own": Column("hard", ("test_own",)),
    },
    checks=(Check("ours is lower", lambda f: (f.mean("ours", "plain") < 5, "as measured")),),
)


def line(arm, seed, setting, evaluation, **metrics):
    return {
        "arm": arm,
        "seed": seed,
        "setting": setting,
        "evaluation": evaluation,
        "metrics": {f"test_{name}": value for name, value in metrics.items()},
        "training": {"seconds": 2.0, "peak_rss_mib": 100.0},
        "date": "2026-01-02T00:00:00",
        "hardware": "2 CPU cores",
    }


def study():
    lines = []
    for seed in (1, 0):
        for number, target in enumerate(TARGETS):
            for evaluation in CLAIM.evaluations:
                values = {
                    "error": 1.0 + 2 * number + seed,
                    "other": 3.0,
                    "trivial": 9.0,
                    "own": 7.0,
                }
                lines.append(line("ours", seed, target, evaluation, **values))
                lines.append(line("theirs", seed, target, evaluation, error=6.0, other=8.0))
    return lines


def test_a_seeds_figure_is_the_mean_over_the_settings():
    figures = Figures(CLAIM, study())
    assert figures.by_seed("ours", "plain") == {0: 2.0, 1: 3.0}
    assert figures.by_setting("ours", "plain") == {"A": {0: 1.0, 1: 2.0}, "B": {0: 3.0, 1: 4.0}}
    assert figures.mean("ours", "plain") == 2.5
    assert figures.by_seed("trivial", "plain") == {0: 9.0, 1: 9.0}


def test_several_metrics_are_averaged_and_unmeasured_ones_left_out():
    figures = Figures(CLAIM, study())
    assert figures.by_seed("ours", "plain", ["test_error", "test_other"]) == {0: 2.5, 1: 3.0}
    assert figures.by_seed("theirs", "hard", "test_own") == {}


def test_a_seed_counts_only_with_all_its_settings():
    lines = [entry for entry in study() if (entry["seed"], entry["setting"]) != (1, "B")]
    assert list(Figures(CLAIM, lines).by_seed("ours", "plain")) == [0]


def test_the_table_has_the_columns_and_leaves_unmeasured_cells_empty():
    rows = runner.table(Figures(CLAIM, study())).splitlines()
    assert rows[0] == "| error (%) | error | both | own | train (s) | peak (MiB) |"
    assert rows[2] == "| ours | 2.500 ± 0.707 | 2.750 ± 0.354 | 7.000 | 2 | 100 |"
    assert rows[3].startswith("| theirs | 6.000 | 7.000 |  |")
    assert "--seeds 0 1" in rows[-1]
    assert runner.verdicts(Figures(CLAIM, study())) == "- Holds: ours is lower (as measured).\n"


def test_the_table_says_which_arms_have_fewer_seeds():
    lines = [entry for entry in study() if (entry["arm"], entry["seed"]) != ("theirs", 1)]
    rows = runner.table(Figures(CLAIM, lines)).splitlines()
    assert rows[2].startswith("| ours |")
    assert rows[3].startswith("| theirs (1 of 2 seeds) |")


def test_what_is_not_measured_is_named_and_not_judged():
    lines = [entry for entry in study() if entry["arm"] == "theirs"]
    figures = Figures(CLAIM, lines)
    rows = runner.table(figures).splitlines()
    assert [row.split(" |")[0] for row in rows[2:3]] == ["| theirs"]
    assert "Not measured yet: ours, trivial." in rows[-1]
    assert runner.verdicts(figures) == "- Not measured yet: ours is lower.\n"


def test_without_columns_and_settings_there_is_one_column_an_evaluation():
    plain = Claim("toy", "test_error", "m", (Arm("ours"),), {"one": (), "two": ("--x", "1")})
    lines = [line("ours", 0, "", e, error=1.5) for e in plain.evaluations]
    for entry in lines:
        del entry["setting"]  # as studies without settings store them
    figures = Figures(plain, lines)
    assert runner.table(figures).splitlines()[0] == (
        "| error (m) | one | two | train (s) | peak (MiB) |"
    )
    assert figures.by_seed("ours", "two") == {0: 1.5}


def test_only_what_is_missing_is_run(tmp_path, monkeypatch):
    """All is there but one setting of one arm, which no config can train: it is what is tried."""
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    lines = [e for e in study() if (e["arm"], e["seed"], e["setting"]) != ("theirs", 1, "B")]
    (tmp_path / "toy.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    with pytest.raises(RuntimeError, match=r"zoo fit .*--seed_everything 1 --data.target B"):
        runner.run(CLAIM, [0, 1])
    figures = runner.run(CLAIM, [0])
    assert figures.mean("theirs", "plain") == 6.0


def tuned(choice, seed, last):
    return line("A", seed, "", "test", rmse=last) | {
        "choice": choice,
        "validation": [[25, 3.0], [50, last]],
    }


def test_a_tuned_option_is_chosen_on_the_first_seed_and_then_kept():
    arm = Arm("A", tune=Tuning("--optimizer.lr", ("1e-3", "1e-2")))
    claim = Claim("toy", "test_rmse", "cm", (arm,), {"test": ()}, validation="val_loss")
    assert [task[2:] for task in missing(claim, [0, 1], None, [])] == [(0, "1e-3"), (0, "1e-2")]
    half = [tuned("1e-3", 0, 2.0)]
    assert [task[2:] for task in missing(claim, [0, 1], None, half)] == [(0, "1e-2")]
    first = [*half, tuned("1e-2", 0, 1.0)]
    assert [task[2:] for task in missing(claim, [0, 1], None, first)] == [(1, "1e-2")]
    done = [*first, tuned("1e-2", 1, 1.5)]
    assert missing(claim, [0, 1], None, done) == []
    figures = Figures(claim, done)
    assert figures.by_seed("A", "test") == {0: 1.0, 1: 1.5}
    assert figures.curves("A")[1] == [[25, 3.0], [50, 1.5]]
    text = table(figures)
    assert "A, lr 1e-2" in text
    assert "A (1e-3: 2.000, 1e-2: 1.000)" in text
    assert "| A | 3.000 | 1.250 |" in curve_tables(figures)
    assert len(draw_curves(figures).axes) == 1


def test_a_cheap_option_is_tried_on_all_seeds_and_chosen_by_their_mean():
    """What is best on the first seed may be at the edge of stability."""
    arm = Arm("A", tune=Tuning("--optimizer.lr", ("1", "3"), every_seed=True))
    claim = Claim("toy", "test_rmse", "cm", (arm,), {"test": ()}, validation="val_loss")
    first = [tuned("1", 0, 1.2), tuned("3", 0, 1.0)]
    assert [task[2:] for task in missing(claim, [0, 1], None, first)] == [(1, "1"), (1, "3")]
    figures = Figures(claim, [*first, tuned("1", 1, 1.5), tuned("3", 1, 9.0)])
    assert figures.chosen == {"A": "1"}
    assert figures.by_seed("A", "test") == {0: 1.2, 1: 1.5}


def test_a_run_is_given_the_options_of_claim_setting_and_arm_and_the_seed(monkeypatch):
    commands = []

    def zoo(args, jobs):
        commands.append(args)
        root = Path(args[args.index("--trainer.default_root_dir") + 1])
        folder = root / f"runs/toy/version_{len(commands) - 1}"
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "checkpoints/best-epoch001.ckpt").touch()
        record = {"metrics": {"test_error": 1.0}, "training": {"seconds": 1.0}}
        (folder / "metrics.json").write_text(json.dumps(record))

    monkeypatch.setattr(runner, "_zoo", zoo)
    claim = replace(CLAIM, options=("--model.a", "1"), seeded=("--data.seed",))
    arm = Arm("ours", ("--model.b", "2"))
    lines = runner._train_and_test(claim, arm, "B", 7, None, 1)
    expected = ["--model.a", "1", "--data.seed", "7", "--data.target", "B", "--model.b", "2"]
    for command, first in zip(commands, ("fit", "test"), strict=True):
        assert command[:5] == [first, "--config", "zoo/toy.yaml", "--seed_everything", "7"]
        assert command[5:13] == expected
    assert commands[1][-2:] == ["--data.hard", "true"]
    assert [(x["seed"], x["setting"], x["evaluation"]) for x in lines] == [
        (7, "B", "plain"),
        (7, "B", "hard"),
    ]
