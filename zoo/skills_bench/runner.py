"""Runs trajectories: every task under every condition, by every agent, with the same seeds.

A trajectory is kept under what it depends on (task, condition, skills, agent, seed, harness), so a
run that was stopped goes on where it was. What failed for want of infrastructure is tried again,
and then left out of all conditions of its pair, not of one alone.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from zoo.agents.llm import ClientError, LLMClient, prompt_versions
from zoo.agents.sandbox import Limits, SandboxError
from zoo.agents.skill_tasks import SkillTask
from zoo.agents.skill_tasks.task import skills_digest
from zoo.agents.skills import Skill
from zoo.agents.trajectory import Trajectory, Turn
from zoo.atomic import write_text
from zoo.errors import ZooError, check_choice
from zoo.skills_bench.agent import AgentArgs, make_client
from zoo.skills_bench.conditions import CONDITIONS, PROMPTS, own_skills, placebo
from zoo.skills_bench.harness import ReActHarness
from zoo.skills_bench.workspace import EXECUTORS, SkillEnv, Verdicts

RETRIES = 2  # of a trajectory that infrastructure ended
PAUSE_S = 1.0  # before the first of them, twice as long before the second


@dataclass(frozen=True)
class RunArgs:
    """How trajectories are run: the same for all conditions.

    Attributes:
        conditions: Of "none", "curated", "self" and "placebo"; "none" is what others are paired to.
        n_trials: Seeds 0 to n - 1, of each task under each condition by each agent.
        max_turns: Actions of a trajectory.
        timeout_s: Seconds of a trajectory.
        command_s: Seconds of one command.
        memory_mb: MiB of a command.
        executor: "sandbox", or "docker", in the task's own image.
        concurrency: Trajectories at a time; results do not depend on it.
        cache_dir: Where trajectories are kept for runs to come.
    """

    conditions: tuple[str, ...] = ("none", "curated", "self")
    n_trials: int = 5
    max_turns: int = 30
    timeout_s: float = 600.0
    command_s: float = 60.0
    memory_mb: int = 512
    executor: str = "sandbox"
    concurrency: int = 4
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "conditions", tuple(self.conditions))
        for name in self.conditions:
            check_choice("conditions", name, CONDITIONS)
        if "none" not in self.conditions or len(set(self.conditions)) < len(self.conditions):
            raise ZooError(
                f"conditions={list(self.conditions)}: expected 'none', which the others are "
                "compared with, and each once."
            )
        check_choice("executor", self.executor, EXECUTORS)
        for name in ("n_trials", "max_turns", "timeout_s", "concurrency"):
            if getattr(self, name) <= 0:
                raise ZooError(f"{name}={getattr(self, name)}: expected more than 0.")

    def limits(self) -> Limits:
        """Of a command."""
        cpu = max(1, round(self.command_s))
        return Limits(timeout_s=self.command_s, cpu_s=cpu, mem_mb=self.memory_mb)


@dataclass(frozen=True)
class Trial:
    """One trajectory to be made."""

    item: SkillTask
    condition: str
    agent: AgentArgs
    seed: int


class Bench:
    """Runs trials.

    Args:
        agents: Who do the tasks.
        args: How.
        pool: Tasks whose skills serve as placebos; those that are run if none are given.
    """

    def __init__(
        self, agents: Sequence[AgentArgs], args: RunArgs, pool: Sequence[SkillTask] = ()
    ) -> None:
        names = [agent.name for agent in agents]
        if not names or len(set(names)) < len(names):
            raise ZooError(f"agents={names}: expected at least one, each with a name of its own.")
        self.agents, self.args, self.pool = list(agents), args, list(pool)
        self.verdicts = Verdicts()
        self._clients: dict[str, LLMClient] = {}

    def trials(self, items: Sequence[SkillTask]) -> list[Trial]:
        """All trials of tasks, those of a pair beside each other."""
        args = self.args
        return [
            Trial(item, condition, agent, seed)
            for item in items
            for agent in self.agents
            for seed in range(args.n_trials)
            for condition in args.conditions
        ]

    def run(self, items: Sequence[SkillTask]) -> list[Trajectory]:
        """The trajectories of tasks, in the order of :meth:`trials`."""
        trials = self.trials(items)
        pool = self.pool or list(items)
        if "placebo" in self.args.conditions:
            for item in items:
                placebo(item, pool)
        self._connect()
        with ThreadPoolExecutor(self.args.concurrency) as threads:
            # What takes time happens in processes of the sandbox, or at the server.
            try:
                return list(threads.map(lambda t: self._kept(t, pool), trials))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def one(self, item: SkillTask, condition: str, agent: AgentArgs, seed: int) -> Trajectory:
        """A single trajectory."""
        self._connect()
        return self._kept(Trial(item, condition, agent, seed), self.pool or [item])

    def _connect(self) -> None:
        for agent in self.agents:
            if agent.name not in self._clients:
                self._clients[agent.name] = make_client(agent, self.args.cache_dir)

    def _kept(self, trial: Trial, pool: Sequence[SkillTask]) -> Trajectory:
        """From the folder of an earlier run if it is there, else made and kept."""
        offered = placebo(trial.item, pool) if trial.condition == "placebo" else trial.item.skills
        if self.args.cache_dir is None:
            return self._tried(trial, offered)
        key = trial_key(trial, offered, self.args)
        path = Path(self.args.cache_dir).expanduser() / key[:2] / f"{key}.json"
        if path.exists():
            return Trajectory.from_dict(json.loads(path.read_text(encoding="utf-8")), str(path))
        found = self._tried(trial, offered)
        if found.meta["status"] != "infrastructure":
            write_text(path, json.dumps(found.to_dict(), ensure_ascii=False))
        return found

    def _tried(self, trial: Trial, offered: tuple[Skill, ...]) -> Trajectory:
        """Made, again if infrastructure fails; after that an empty one says so."""
        for attempt in range(RETRIES + 1):
            try:
                found = self._play(trial, offered)
                break
            except (ClientError, SandboxError) as error:
                if attempt < RETRIES:
                    time.sleep(PAUSE_S * 2**attempt)
                    continue
                text = f"{type(error).__name__}: {error}"
                found = Trajectory(
                    trial.item.name,
                    trial.item.task.family,
                    [Turn("system", text)],
                    meta={"status": "infrastructure"},
                )
        found.meta |= {
            "condition": trial.condition,
            "agent": trial.agent.name,
            "seed": trial.seed,
            "task_hash": trial.item.task.payload_hash,
        }
        return found

    def _play(self, trial: Trial, offered: tuple[Skill, ...]) -> Trajectory:
        agent, args = trial.agent, self.args
        client = self._clients[agent.name]
        if trial.condition == "none":
            offered = ()
        elif trial.condition == "self":
            offered = own_skills(
                trial.item, client, agent.temperature, agent.max_tokens, trial.seed
            )
        env = SkillEnv(self.verdicts, args.executor, args.limits(), args.max_turns)
        harness = ReActHarness(client, env, agent.temperature, agent.max_tokens, args.timeout_s)
        return harness.play(trial.item, offered, trial.seed)


def trial_key(trial: Trial, offered: tuple[Skill, ...], args: RunArgs) -> str:
    """SHA-256 of what a trajectory depends on."""
    own = ("concurrency", "cache_dir", "conditions", "n_trials")
    skills = "" if trial.condition in ("none", "self") else skills_digest(offered)
    parts = [
        trial.item.name,
        trial.item.task.payload_hash,
        trial.condition,
        skills,
        asdict(trial.agent),
        trial.seed,
        {k: v for k, v in asdict(args).items() if k not in own},
        prompt_versions(PROMPTS),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def excluded(trajectories: Iterable[Trajectory]) -> set[tuple[str, str, int]]:
    """Task, agent and seed of which some condition failed for want of infrastructure."""
    return {
        (t.task_id, t.meta["agent"], t.meta["seed"])
        for t in trajectories
        if t.meta["status"] == "infrastructure"
    }
