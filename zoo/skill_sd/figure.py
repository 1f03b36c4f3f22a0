"""Pictures: success over the training, the bank of skills, a trajectory with its skill."""

from __future__ import annotations

import textwrap

from matplotlib.figure import Figure

from zoo.agents.rollout import Episode
from zoo.skill_sd.bandit import SkillBandit
from zoo.skill_sd.report import Progress
from zoo.skill_sd.summary import FIELDS, Summary

MOST = 24  # tasks, or turns, that are drawn
WIDTH = 56  # characters of a line


def success_curve(progress: Progress) -> Figure:
    """Success under the prompt of training, on validation tasks, and the bank's coverage."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(progress.steps, progress.success, lw=1, label="training rollouts")
    points = [p for p in progress.validations if p[0] > 0]
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, "o-", ms=3, label="validation, plain prompt")
    axes.plot(
        progress.steps, progress.coverage, "--", color="0.5", lw=1, label="tasks with a skill"
    )
    for rounds, _, _, passed in progress.probes:
        at = progress.steps[int(rounds) - 1]
        axes.axvline(at, color="tab:green" if passed else "tab:red", lw=0.6, alpha=0.6)
    axes.set(xlabel="actions in the environment", ylabel="share", ylim=(0, 1.02))
    if progress.probes:
        axes.set_title("lines: the teacher followed (green) or the gate refused (red)", fontsize=8)
    axes.legend(fontsize=7)
    return figure


def bank_figure(bandit: SkillBandit) -> Figure:
    """Success of each task's last visit, and value and uses of its skills."""
    tasks = sorted(bandit.last)[:MOST]
    figure = Figure(figsize=(7, 0.24 * len(tasks) + 1.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    places = range(len(tasks))
    left.barh(places, [bandit.last[t] for t in tasks], color="tab:blue")
    left.set(yticks=list(places), xlim=(0, 1), xlabel="success of the last visit")
    left.set_yticklabels(tasks, fontsize=7)
    left.invert_yaxis()
    for place, task in zip(places, tasks, strict=True):
        for arm in bandit.arms.get(task, []):
            right.scatter(arm.value, place, s=12 + 6 * arm.uses, alpha=0.5, color="tab:orange")
        if task not in bandit:
            right.text(0, place, "no skill", fontsize=7, color="0.5", ha="center", va="center")
    right.axvline(0, color="0.8", lw=0.8)
    right.set(xlim=(-1, 1), xlabel="mean credit of its skills (size: uses)")
    shown = "" if len(bandit.last) <= MOST else f", the first {MOST} shown"
    figure.suptitle(
        f"{len(bandit)} skills for {bandit.coverage:.0%} of {bandit.visited} tasks{shown}",
        fontsize=9,
    )
    return figure


def trajectory_figure(episode: Episode, skill: Summary | None) -> Figure:
    """What the agent read and did, and beside it what the teacher reads."""
    lines = [*_wrapped(episode.observations[0], ""), ""]
    for action, seen in list(zip(episode.actions, episode.observations[1:], strict=False))[:MOST]:
        lines += [*_wrapped(action, "> "), *_wrapped(seen, "  ")]
    if len(episode.actions) > MOST:
        lines.append(f"... {len(episode.actions)} turns in all")
    lines += ["", "success" if episode.success else "failure"]
    beside = ["no skill for this task"]
    if skill is not None:
        beside = []
        for name in FIELDS:
            beside += [name.replace("_", " "), *_wrapped(getattr(skill, name), "  "), ""]
    height = 0.17 * max(len(lines), len(beside)) + 0.7
    figure = Figure(figsize=(9, height), layout="constrained")
    titles = ("the student, plain prompt", "the teacher's skill")
    for axes, text, title in zip(figure.subplots(1, 2), (lines, beside), titles, strict=True):
        axes.axis("off")
        axes.set_title(title, fontsize=9, loc="left")
        axes.text(0, 1, "\n".join(text), family="monospace", fontsize=7, va="top", ha="left")
    return figure


def _wrapped(text: str, before: str) -> list[str]:
    """Lines of a text, none wider than the panel; a ``$`` would begin a formula."""
    found = []
    for line in text.replace("$", r"\$").split("\n"):
        found += textwrap.wrap(
            line,
            WIDTH,
            initial_indent=before,
            subsequent_indent=" " * len(before),
            drop_whitespace=False,
        ) or [before]
    return found
