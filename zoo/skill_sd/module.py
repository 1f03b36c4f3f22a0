"""Skill-SD as a LightningModule: an agent whose own trajectories, as skills, teach it by token."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import MetricCollection

from zoo.agents.envs.base import Task
from zoo.agents.llm import ClientArgs
from zoo.agents.losses import aggregate, grpo_advantage, kl_k3
from zoo.agents.metrics import MeanPerTask, SuccessRate, TokensPerTask
from zoo.agents.module import Experience, Updates
from zoo.agents.policy import PolicyArgs
from zoo.agents.rollout import Collected, Episode, Sequences
from zoo.agents.skills.library import SkillLibrary
from zoo.agents.worlds import World, WorldArgs
from zoo.distributed import gathered, rank, step_generator, sum_over_ranks, world_size
from zoo.errors import ZooError, check_choice
from zoo.reproducible import global_seed
from zoo.skill_sd.agent import read_task, read_tasks
from zoo.skill_sd.bandit import SkillBandit
from zoo.skill_sd.evaluation import EvaluatedAgent
from zoo.skill_sd.loss import FORMS, LIMIT, distillation
from zoo.skill_sd.practice import Rehearsal, Row, conversation, join, pad
from zoo.skill_sd.report import Progress, gradient_variance
from zoo.skill_sd.summary import MARK, SkillSummarizer, Summary
from zoo.skill_sd.teacher import DECAY, Teacher

MODES = ("skill_sd", "grpo", "opd", "grpo_skill_prompt", "naive_k3")
DISTILLED = ("skill_sd", "opd", "naive_k3")  # modes with a teacher
TEACHERS = ("sync", "ema", "frozen")
SKILLS_BY = ("family", "task")
PRACTICE = 128  # rehearsal batches of conversations that obey random workflows, made once


@dataclass
class Distilled(Experience):
    """A step's experience, with the teacher's judgement of it.

    Attributes:
        teacher: Log-probabilities of the student's tokens. Shape: (B, T).
        taught: Of the tokens whose task has a skill. Shape: (B, T), bool.
    """

    teacher: Tensor = field(default_factory=lambda: torch.zeros(0))
    taught: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))


class SkillSD(EvaluatedAgent):
    """Skill-conditioned self-distillation (arXiv 2604.10674).

    The student acts under the plain prompt. Attempts that succeed are summarised as skills; a
    teacher, earlier weights of the same model, reads the task's skill before the plain prompt and
    judges the student's own tokens, which an importance-weighted reverse KL moves towards it.

    Args:
        policy: The language model; a tiny one without words takes those of its environment.
            Real scale: ``model_id: Qwen/Qwen3-4B-Instruct-2507`` with adapters.
        env: Which environment.
        mode: "skill_sd"; for comparison "grpo", without teacher; "opd", the teacher's judgement
            without rewards; "grpo_skill_prompt", skills in the prompt of training and no teacher;
            "naive_k3", without importance weights.
        summarizer: "scripted", by rule; "llm", the model of ``llm``.
        llm: The summariser's server.
        group_size: G, rollouts a task.
        sdl_weight: lambda, of the distillation. Real scale: 0.1.
        sdl_form: "centred" or the paper's "iw_k3": see :func:`~zoo.skill_sd.distillation`.
        teacher: "sync", the student's weights from time to time; "ema", a moving average of them;
            "frozen", those that reinforcement began with.
        sync_every: Steps of rollouts from one to the next.
        sync_gate: Only if the candidate, reading skills, succeeds at least as often as the teacher.
        probe: Rollouts of each that the gate compares.
        rehearsal: Weight of the imitation of obeying random workflows, in each update.
        rehearsal_batch: Conversations of it. 0.5 and 32 for the tiny model, 0 for a large one.
        ucb_c: Width of the bounds by which skills are chosen.
        skills_per_task: At most.
        skills_by: "family", tasks of one family share their skills; "task", each has its own.
        max_turns: Of an episode.
        max_new_tokens: Of a turn.
        clip: Width of the ratio's clip.
        kl: Weight of the divergence from the policy that reinforcement began with.
        sft_steps: Updates on demonstrations before reinforcement, half of them obeying random
            workflows, half a demonstrator's under the plain prompt.
        sft_lr: Their peak learning rate.
        sft_batch: Conversations of each.
        sft_updates: Of them for each batch of tasks, so that both stages have about as many epochs.
        rl_steps: Updates on rollouts; ``None`` for the rest of the training.
        ppo_epochs: Passes over a step's rollouts.
        minibatches: Updates a pass.
        micro_batch: Trajectories of one backward pass; ``None`` for all.
        grad_clip: Largest norm of the gradient.
        temperature: Of the rollouts, and of what the teacher judges.
        test_rollouts: Sampled of each test task.

    Source: the digest of arXiv 2604.10674 names the skill's fields, UCB, the loss and the
    synchronisation; what UCB credits, the centred form, the gate and rehearsal are our choices.
    """

    monitor: ClassVar[tuple[str, str]] = ("val_success", "max")

    def __init__(
        self,
        policy: PolicyArgs,
        env: WorldArgs | None = None,
        mode: str = "skill_sd",
        summarizer: str = "scripted",
        llm: ClientArgs | None = None,
        group_size: int = 8,
        sdl_weight: float = 0.5,
        sdl_form: str = "centred",
        teacher: str = "sync",
        sync_every: int = 10,
        sync_gate: bool = True,
        probe: int = 64,
        rehearsal: float = 0.5,
        rehearsal_batch: int = 32,
        ucb_c: float = 1.0,
        skills_per_task: int = 4,
        skills_by: str = "family",
        max_turns: int = 4,
        max_new_tokens: int = 4,
        clip: float = 0.2,
        kl: float = 0.0,
        sft_steps: int = 450,
        sft_lr: float = 3e-3,
        sft_batch: int = 64,
        sft_updates: int = 8,
        rl_steps: int | None = None,
        ppo_epochs: int = 2,
        minibatches: int = 1,
        micro_batch: int | None = None,
        grad_clip: float = 1.0,
        temperature: float = 1.0,
        test_rollouts: int = 8,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        check_choice("mode", mode, MODES)
        check_choice("summarizer", summarizer, ("scripted", "llm"))
        check_choice("sdl_form", sdl_form, FORMS)
        check_choice("teacher", teacher, TEACHERS)
        check_choice("skills_by", skills_by, SKILLS_BY)
        if group_size < 2:
            raise ZooError(
                f"group_size={group_size}: a rollout is compared with others, 2 at least."
            )
        counts = {
            "sync_every": sync_every,
            "probe": probe,
            "rehearsal_batch": rehearsal_batch,
            "sft_batch": sft_batch,
            "sft_updates": sft_updates,
            "test_rollouts": test_rollouts,
        }
        if min(sdl_weight, rehearsal) < 0 or min(counts.values()) < 1:
            raise ZooError(
                f"sdl_weight={sdl_weight}, rehearsal={rehearsal} must not be negative, and "
                f"{', '.join(f'{k}={v}' for k, v in counts.items())} be at least 1."
            )
        self.world = World(WorldArgs.of(env))
        self.setup_policy(
            self._with_words(policy),
            Updates(
                epochs=ppo_epochs,
                minibatches=minibatches,
                micro_batch=micro_batch,
                grad_clip=grad_clip,
                clip_low=clip,
                clip_high=clip,
                kl=kl,
                temperature=temperature,
            ),
            sft_steps,
            sft_lr,
            rl_steps,
        )
        self.mode, self.group_size, self.sdl_weight = mode, group_size, sdl_weight
        self.sdl_form = "k3" if mode == "naive_k3" else sdl_form
        self.teacher_kind, self.sync_every, self.sync_gate = teacher, sync_every, sync_gate
        self.probe, self.rehearsal, self.rehearsal_batch = probe, rehearsal, rehearsal_batch
        self.skills_by, self.max_turns, self.max_new_tokens = skills_by, max_turns, max_new_tokens
        self.sft_batch, self.sft_updates = sft_batch, sft_updates
        self.sft_steps, self.test_rollouts = sft_steps, test_rollouts
        self.brief = self.policy.codec.word_level
        self.bandit = SkillBandit(ucb_c, skills_per_task)
        client = ClientArgs.of(llm, "llm").client() if summarizer == "llm" else None
        self.summarizer = SkillSummarizer(client, general=skills_by == "family")
        self.teacher = Teacher()
        self.progress = Progress()
        self.known: dict[str, dict[str, Any]] = {}  # of each task of the bank, one to probe with
        self._practice: Rehearsal | None = None
        self._shown: dict[str, Row] = {}
        self.measure(
            MetricCollection({"success": SuccessRate(), "greedy": SuccessRate()}),
            skill=SuccessRate(),
            teacher=SuccessRate(),
            kl=MeanPerTask(),
            tokens=TokensPerTask(),
        )

    def _with_words(self, policy: PolicyArgs | Mapping[str, Any]) -> PolicyArgs:
        args = PolicyArgs.of(policy)
        if args.tiny is not None and not args.tiny.vocabulary:
            words = [*self.world.vocabulary(), MARK, ",", "."]
            return replace(args, tiny=replace(args.tiny, vocabulary=words))
        return args

    def _opening(self, episode: Episode, skilled: bool) -> str:
        """Of a demonstration; the skill of one that has it tells the episode's own actions."""
        if not skilled:
            return self.plain(episode.observations[0])
        (summary,) = self._rule([episode], [None])
        assert summary is not None
        return self.skilled(episode.observations[0], summary, "practice")

    @property
    def _rule(self) -> SkillSummarizer:
        return SkillSummarizer(None, self.summarizer.general)

    # -- demonstrations ----------------------------------------------------------------------

    def _imitate(self, batch: Mapping[str, Any]) -> Tensor:
        """Several updates on demonstrations, but no more than the stage has."""
        updates = min(self.sft_updates, self.sft_steps - self.trainer.global_step)
        for _ in range(max(updates, 1)):
            loss = self._imitate_once(batch)
        return loss

    def _imitate_once(self, batch: Mapping[str, Any]) -> Tensor:
        """Half of the conversations obey random workflows, half are a demonstrator's."""
        step = self.trainer.global_step
        rng = random.Random(f"{global_seed() or 0} {rank()} {step}")
        dataset = getattr(self.trainer.train_dataloader, "dataset", None)
        # Of all tasks where they are known: a batch has too few for several updates.
        tasks, half = getattr(dataset, "tasks", None) or read_tasks(batch), self.sft_batch // 2
        codec = self.policy.codec
        rows = [self._demonstration(rng.choice(tasks), rng) for _ in range(self.sft_batch - half)]
        parts = [pad(rows, codec.pad_id)]
        if half:
            parts.append(self.practice.draw(half, step_generator(step)))
        joined = join(parts, codec.pad_id)
        return super()._imitate({name: value.to(self.device) for name, value in joined.items()})

    def _demonstration(self, task: Task, rng: random.Random) -> Row:
        """Of the demonstrator, who shows a task in one way, unless it is a noisy one."""
        row = self._shown.get(task.task_id)
        if row is None:
            plan = self.world.plan(task, rng)
            row = conversation(
                self.world, self.policy.codec, task, plan, self._opening, skilled=False
            )
            if not self.world.noisy:
                self._shown[task.task_id] = row
        return row

    @property
    def practice(self) -> Rehearsal:
        """Conversations that obey random workflows, the same in each run of a seed."""
        if self._practice is None:
            self._practice = Rehearsal(
                self.world,
                self.policy.codec,
                self._opening,
                PRACTICE * self.rehearsal_batch,
                global_seed() or 0,
                self.policy.max_context,
            )
        return self._practice

    def on_train_start(self) -> None:
        """Refuses an environment that answers the same actions differently, before any step."""
        dataset = getattr(self.trainer.train_dataloader, "dataset", None)
        tasks = getattr(dataset, "tasks", None)
        if tasks:
            self.world.check(tasks[0], random.Random(0))

    def experience(self, batch: Mapping[str, Any], generator: torch.Generator) -> Experience:
        """Rolls the student out, updates the bank, and lets the teacher judge the tokens."""
        tasks, group = read_tasks(batch), self.group_size
        for task in tasks:
            if task.split != "train":
                raise ZooError(
                    f"Task '{task.task_id}' is of split '{task.split}': skills and rewards are "
                    "drawn from training tasks alone."
                )
        if self.mode in DISTILLED and not self.teacher:
            self.teacher.weights = self.teacher.candidate(self.policy)
        prompts = None
        if self.mode == "grpo_skill_prompt":
            prompts = self._choose(tasks)
        collected = self.play(tasks, group, prompts, generator=generator)
        rewards = collected.rewards().to(self.device).view(-1, group)
        success = torch.tensor([float(e.success) for e in collected.episodes])
        self._learn(tasks, collected)
        advantage = grpo_advantage(rewards)
        values = advantage.values.flatten()
        logs: dict[str, Tensor | float] = {
            "reward": rewards.mean(),
            "success": success.mean(),
            "zero_groups": advantage.zero_groups / len(rewards),
            "coverage": self.bandit.coverage,
            "skills": float(len(self.bandit)),
        }
        taken = torch.tensor([float(sum(len(e.actions) for e in collected.episodes))])
        means = sum_over_ranks(torch.stack([success.sum(), torch.tensor(float(len(success)))]))
        self.progress.add(
            float(means[0] / means[1]), int(sum_over_ranks(taken)), self.bandit.coverage
        )
        if self.mode not in DISTILLED:
            return Experience(collected.sequences, values, logs)
        skills = self._choose(tasks)
        teacher, taught = self.judged(collected, skills)
        logs["taught"] = taught.sum() / collected.sequences.actions.sum().clamp_min(1)
        if self.mode == "opd":
            values = torch.zeros_like(values)
        found = Distilled(collected.sequences, values, logs, teacher=teacher, taught=taught)
        if self.progress.rounds % self.sync_every == 1:
            self._measure_gradient(found)
        return found

    def _choose(self, tasks: Sequence[Task]) -> dict[str, Summary]:
        """A skill for each task that has any, by the bounds; the same on all processes."""
        names = sorted({key for share in gathered([self.key(t) for t in tasks]) for key in share})
        chosen = {key: self.bandit.choose(key) for key in names}
        return {key: skill for key, skill in chosen.items() if skill is not None}

    def _learn(self, tasks: Sequence[Task], collected: Collected) -> None:
        """Credits the skills that were read, and puts new ones into the bank.

        Of each group the success of the fewest turns is summarised, if the bank would take it.
        Failures alone are not: their workflow would teach to fail.
        """
        group = self.group_size
        visits, wins, losses = [], [], []
        for number, task in enumerate(tasks):
            episodes = collected.episodes[number * group : (number + 1) * group]
            won = [e for e in episodes if e.success]
            key = self.key(task)
            visits.append((key, len(won), len(episodes), task.to_dict()))
            if won:
                best = min(won, key=lambda e: len(e.actions))
                if best.actions and self.bandit.wants(key, len(best.actions)):
                    wins.append((key, best))
                    losses.append(next((e for e in episodes if not e.success), None))
        summaries = self.summarizer([best for _, best in wins], losses)
        news = [
            (key, summary.to_dict(), len(best.actions), best.task.task_id)
            for (key, best), summary in zip(wins, summaries, strict=True)
            if summary is not None
        ]
        counts: dict[str, list[int]] = {}
        shares = gathered((visits, news))  # all processes change the bank alike
        for seen, _ in shares:
            for key, right, size, row in seen:
                count = counts.setdefault(key, [0, 0])
                count[0], count[1] = count[0] + right, count[1] + size
                self.known[key] = row
        for key, (right, size) in counts.items():
            self.bandit.visit(key, right / size)
        for _, found in shares:
            for key, fields, turns, evidence in found:
                self.bandit.add(key, Summary(**fields), turns, evidence)

    # -- updates -----------------------------------------------------------------------------

    def extra_loss(
        self, part: Sequences, experience: Experience, rows: Tensor, now: Tensor, count: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]] | None:
        """The distillation of the tokens whose task has a skill, and rehearsal."""
        share = part.actions.sum() * world_size() / count.clamp_min(1)
        loss, logs = now.sum() * 0, {}
        if isinstance(experience, Distilled):
            used = experience.sequences.mask[rows].any(dim=0)
            teacher = experience.teacher[rows][:, used]
            taught = experience.taught[rows][:, used] & part.actions
            values = distillation(now, part.logprobs, teacher, taught, self.sdl_form, LIMIT)
            sdl = aggregate(values, part.actions, count=count)
            with torch.no_grad():
                divergence = kl_k3(now.detach().where(taught, 0), teacher.where(taught, 0))
                logs["teacher_kl"] = aggregate(divergence, part.actions, count=count)
            logs["sdl"] = sdl
            loss = loss + self.sdl_weight * sdl
        if self.rehearsal > 0:
            step = self.trainer.global_step
            drawn = self.practice.draw(self.rehearsal_batch, step_generator(step + 2**30))
            used = drawn["attention_mask"].any(dim=0)
            ids, mask, wanted = (v[:, used].to(self.device) for v in drawn.values())
            found = self.policy.token_logprobs(ids, mask, wanted)
            # Each process and micro-batch adds its share, so that the whole counts once.
            imitation = -(found.values.sum() / wanted.sum()) * share
            logs["rehearsal"] = imitation
            loss = loss + self.rehearsal * imitation
        return loss, logs

    def _reinforce(self, batch: Mapping[str, Any]) -> Tensor:
        """After every ``sync_every`` steps of rollouts the teacher may follow."""
        loss = super()._reinforce(batch)
        due = self.progress.rounds % self.sync_every == 0
        if due and self.mode in DISTILLED and self.teacher_kind != "frozen":
            self.synchronise()
        return loss

    @torch.no_grad()
    def synchronise(self) -> bool:
        """Makes the student the teacher, or part of it, if the gate lets it pass.

        Returns:
            Whether it did; the same on all processes.
        """
        candidate = self.teacher.candidate(
            self.policy, DECAY if self.teacher_kind == "ema" else 0.0
        )
        passes = True
        if self.sync_gate:
            now, after = self.probed(self.teacher.weights), self.probed(candidate)
            passes = after >= now
            self.progress.probes.append([self.progress.rounds, now, after, float(passes)])
        if passes:
            self.teacher.weights = candidate
        self.log("train_synced", torch.tensor(float(passes)), batch_size=1)
        return passes

    def probed(self, weights: Mapping[str, Tensor]) -> float:
        """Share of the probe's rollouts that succeed with skills in the prompt; 0 without a skill.

        All weights are probed on the same tasks with the same draws.
        """
        names = sorted(key for key in self.known if key in self.bandit)
        if not names:
            return 0.0
        skills = {key: self.bandit.best(key) for key in names}
        tasks = [read_task(self.known[names[i % len(names)]]) for i in range(self.probe)]
        keys = torch.arange(self.probe, device=self.device)
        read = {key: skill for key, skill in skills.items() if skill is not None}
        with self.teacher.acting(self.policy, weights):
            collected = self.play(tasks, 1, read, keys=keys)
        wins = torch.tensor([float(e.success) for e in collected.episodes], device=self.device)
        return float(sum_over_ranks(wins.sum())) / (self.probe * world_size())

    def _measure_gradient(self, experience: Distilled) -> None:
        """How the two forms' gradients scatter on this step's rollouts, for the report."""
        if not bool(experience.taught.any()) or world_size() > 1:
            return
        found = gradient_variance(self.policy, experience, self.updates.temperature)
        self.progress.gradients.append([self.progress.rounds, *found])

    # -- checkpoints -------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps bank, teacher and progress under a key of their own: they are not published."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["skill_sd"] = {
            "bank": json.dumps(self.bandit.state_dict()),
            "known": json.dumps(self.known),
            "progress": json.dumps(self.progress.state_dict()),
            "teacher": dict(self.teacher.weights),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes them back."""
        super().on_load_checkpoint(checkpoint)
        if "skill_sd" in checkpoint:
            state = checkpoint["skill_sd"]
            self.bandit.load_state_dict(json.loads(state["bank"]))
            self.known = json.loads(state["known"])
            self.progress.load_state_dict(json.loads(state["progress"]))
            self.teacher.weights = dict(state["teacher"])

    def save_skills(self, folder: str) -> int:
        """Writes the bank as a folder of skills; returns how many.

        Raises:
            ZooError: If there is a skill of the same name in it already.
        """
        library = SkillLibrary(folder)
        for key, arms in sorted(self.bandit.arms.items()):
            for number, arm in enumerate(arms):
                library.add(arm.summary.skill(f"{key} {number}"), [arm.evidence])
        return len(self.bandit)
