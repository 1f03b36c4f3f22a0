"""SCPO's baselines in milliseconds, and what they add to a step beside GRPO's.

    python -m benchmarks.speed.scpo

Baselines are of 512 prompts with 4 rollouts and 64 skills. A step is one of the default config
(128 prompts, 2 rollouts of at most 8 tokens, one update), of CPU time on one thread, the baselines
in turns; what differs between them is the advantage and the history.
"""

import statistics
import sys
import time

import torch

from benchmarks.speed.untrained import without_trainer
from zoo import SCPO
from zoo.agents.losses import skill_sums
from zoo.agents.policy import PolicyArgs, TinyConfig
from zoo.datamodules import VerifiableReasoningDataModule
from zoo.distributed import step_generator
from zoo.scpo import SkillHistory, estimate_baselines

PROMPTS, GROUP, SKILLS, ROUNDS = 512, 4, 64, 200
WORDS = ["last max min reverse sort add subtract count and 0 1 2 3 4 5 6 7 8 9"]
STEPS = 15


def baselines() -> None:
    """CPU time of each baseline, a step's checks among them."""
    torch.manual_seed(0)
    rewards, labels = torch.rand(PROMPTS, GROUP).round(), torch.randint(0, SKILLS, (PROMPTS,))
    soft = torch.rand(PROMPTS, SKILLS).softmax(dim=1)
    history = SkillHistory(SKILLS)
    sums = skill_sums(rewards, labels, SKILLS)
    for _ in range(12):
        history.update(sums)
    prior = history.prior()

    def scpo(skills: torch.Tensor, past: object) -> object:
        return lambda: estimate_baselines(rewards, skills, n_skills=SKILLS, prior=past)

    candidates = {
        "rloo": lambda: estimate_baselines(rewards, baseline="rloo"),
        "global": lambda: estimate_baselines(rewards, baseline="global"),
        "scpo, labels, no history": scpo(labels, None),
        "scpo, labels, correlated": scpo(labels, prior),
        "scpo, soft weights, correlated": scpo(soft, prior),
        "history: prior": history.prior,
        "history: update": lambda: history.update(sums),
    }
    for name, call in candidates.items():
        times = []
        for _ in range(ROUNDS):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        sys.stdout.write(f"{name:<34}{1e3 * statistics.median(times):8.3f} ms of CPU time\n")


def steps() -> None:
    """Seconds of CPU time of a training step, by baseline."""
    data = VerifiableReasoningDataModule(batch_size=128, demonstrations=1)
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    models, times = {}, {}
    for name in ("grpo", "scpo"):
        torch.manual_seed(0)
        tiny = TinyConfig(vocabulary=WORDS, context=32)
        model = SCPO(PolicyArgs(tiny=tiny, max_context=32), baseline=name, sft_steps=0)
        without_trainer(model, 3e-4)
        models[name], times[name] = model, []
    for number in range(STEPS + 2):
        for name, model in models.items():
            start = time.process_time()
            with torch.no_grad():
                experience = model.experience(batch, step_generator(number))
            model._minibatch(experience, torch.arange(len(experience.sequences)))
            if number >= 2:
                times[name].append(time.process_time() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in medians.items():
        sys.stdout.write(f"step with {name:<24}{1e3 * seconds:8.1f} ms of CPU time\n")
    sys.stdout.write(f"scpo / grpo {medians['scpo'] / medians['grpo']:.3f}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    baselines()
    steps()
