"""What Skill-SD adds to a step beside GRPO's, and where a step's time goes.

    python -m benchmarks.speed.skill_sd

A step is one of the default config: 16 tasks, 8 rollouts of 4 turns each, two updates, on one
thread, the arms in turns. All tasks have their skill, so that the teacher judges every token.
"""

import json
import sys
from pathlib import Path

import torch
import yaml

from benchmarks.speed.timing import in_turns
from benchmarks.speed.untrained import without_trainer
from zoo import SkillSD
from zoo.agents.envs.workflow import procedure, workflow_tasks
from zoo.distributed import step_generator
from zoo.skill_sd.summary import Summary

CONFIG = Path(__file__).parents[2] / "zoo/skill_sd.yaml"
ROUNDS = 15


def prepared(**changes: object) -> SkillSD:
    """The default model with a full bank, and an optimiser that needs no trainer."""
    torch.manual_seed(0)
    arguments = yaml.safe_load(CONFIG.read_text())["model"]["init_args"]
    model = SkillSD(**{**arguments, **changes})
    without_trainer(model, 1e-3)
    for task in workflow_tasks("train")[:16]:
        skill = Summary("", "", ", ".join(procedure(task.family)))
        model.bandit.visit(task.family, 0.0)
        model.bandit.add(task.family, skill, 4, task.task_id)
    _ = model.practice  # made once, before the clock runs
    return model


def main() -> None:
    """Prints milliseconds of each arm's step, and of the parts of a step."""
    tasks = workflow_tasks("train")[:16]
    batch = {"task": [json.dumps(t.to_dict()) for t in tasks]}
    arms = {
        "GRPO": prepared(mode="grpo"),
        "Skill-SD, centred": prepared(),
        "Skill-SD, iw_k3": prepared(sdl_form="iw_k3"),
        "GRPO without rehearsal": prepared(mode="grpo", rehearsal=0.0),
        "Skill-SD without rehearsal": prepared(rehearsal=0.0),
    }

    def step(model: SkillSD) -> object:
        def run() -> None:
            model.progress.success.append(0.0)  # so that no gradient variance is measured
            while (model.progress.rounds + 1) % model.sync_every == 1:
                model.progress.success.append(0.0)
            with torch.no_grad():
                found = model.experience(batch, step_generator(0))
            for _ in range(2):
                model._minibatch(found, torch.arange(len(found.sequences)))

        return run

    times = in_turns({name: step(model) for name, model in arms.items()}, ROUNDS, 2)  # type: ignore[misc]
    for name, seconds in times.items():
        sys.stdout.write(f"step of {name:<30}{1e3 * seconds:8.1f} ms\n")
    for name in ("Skill-SD, centred", "Skill-SD, iw_k3"):
        sys.stdout.write(f"{name} / GRPO {times[name] / times['GRPO']:.3f}\n")
    bare = times["Skill-SD without rehearsal"] / times["GRPO without rehearsal"]
    sys.stdout.write(f"both without rehearsal {bare:.3f}\n")

    model = arms["Skill-SD, centred"]
    played = model.play(tasks, 8, generator=step_generator(0))
    skills = model._best(tasks)
    model.teacher.weights = model.teacher.candidate(model.policy)
    parts = {
        "rollouts": lambda: model.play(tasks, 8, generator=step_generator(0)),
        "teacher's judgement": lambda: model.judged(played, skills),
        "probe of the gate, 64 rollouts": lambda: model.probed(model.teacher.weights),
    }
    model.known = {task.family: task.to_dict() for task in tasks}
    with torch.no_grad():
        for name, seconds in in_turns(parts, ROUNDS, 2).items():
            sys.stdout.write(f"{name:<38}{1e3 * seconds:8.1f} ms\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
