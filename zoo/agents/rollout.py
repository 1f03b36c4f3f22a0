"""Sampling from a policy, over one turn or many, with one cache that is kept between turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from zoo.agents.decoding import LlamaDecoder
from zoo.agents.policy import CausalPolicy, pad_rows, positions
from zoo.agents.sampling import draw_token, uniform
from zoo.agents.sequences import Rollout as Rollout
from zoo.agents.sequences import Sequences as Sequences
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.agents.envs.base import Obs, Task, VectorEnv

KEYS_PER_EPISODE = 4096  # more than an episode has turns


class Session:
    """Conversations of a batch: tokens are appended or sampled, and the cache is kept.

    Rows have different lengths, so what is appended is padded on its left and what is sampled on
    its right; padding is masked, and takes no position.

    Args:
        policy: Whose.
        use_cache: Keep keys and values; without, each step reads the whole context again.
    """

    def __init__(self, policy: CausalPolicy, use_cache: bool = True) -> None:
        self.policy, self.use_cache = policy, use_cache
        empty = torch.zeros(0, 0, dtype=torch.long, device=policy.device)
        self.ids, self.mask, self.actions = empty, empty, empty.bool()
        self.logprobs = empty.float()
        self._cache: Any = None
        self._decoder: LlamaDecoder | None = None
        self._new: list[tuple[Tensor, Tensor, Tensor]] = []  # columns that sampling has yet to add
        self._read = 0  # columns that the cache has
        self._logits: Tensor | None = None  # of the token after the last column

    @property
    def lengths(self) -> Tensor:
        """Tokens of each row. Shape: (B,)."""
        return self.mask.sum(dim=1)

    def append(self, rows: Sequence[Sequence[int]]) -> None:
        """Adds tokens that the agent did not choose; a row that gets none must not be sampled."""
        ids, mask = pad_rows(rows, self.policy.pad_id, self.policy.device, left=True)
        if not len(self.ids):
            shape = (len(ids), 0)
            self.ids, self.mask = self.ids.view(shape), self.mask.view(shape)
            self.actions, self.logprobs = self.actions.view(shape), self.logprobs.view(shape)
        self._add(ids, mask, torch.zeros_like(mask, dtype=torch.bool), torch.zeros(ids.shape))
        self._logits = None

    def _add(self, ids: Tensor, mask: Tensor, actions: Tensor, logprobs: Tensor) -> None:
        self.ids = torch.cat([self.ids, ids], dim=1)
        self.mask = torch.cat([self.mask, mask], dim=1)
        self.actions = torch.cat([self.actions, actions], dim=1)
        self.logprobs = torch.cat([self.logprobs, logprobs.to(self.logprobs)], dim=1)

    def _add_new(self) -> None:
        """Adds the columns that were sampled."""
        if self._new:
            tokens, alive, logprobs = (torch.stack(x, dim=1) for x in zip(*self._new, strict=True))
            self._new.clear()
            self._add(tokens, alive.long(), alive, logprobs)

    def keep(self, rows: Tensor) -> None:
        """Goes on with some of the rows. Shape: (B',), int64."""
        self.ids, self.mask = self.ids[rows], self.mask[rows]
        self.actions, self.logprobs = self.actions[rows], self.logprobs[rows]
        self._logits = None if self._logits is None else self._logits[rows]
        if self._cache is not None:
            self._cache.batch_select_indices(rows)
        if self._decoder is not None:
            self._decoder.select(rows)

    def _next_logits(self) -> Tensor:
        """Logits of the token after each row's last column, reading what was not read yet."""
        if self._logits is not None:
            return self._logits
        if self.use_cache and self.policy.args.tiny is not None:
            if self._decoder is None:
                self._decoder = LlamaDecoder(self.policy.base)
            if self._new:
                token, alive, _ = self._new[-1]
                self._logits = self._decoder.logits(token[:, None], alive[:, None])
            else:
                start = self._decoder.read
                self._logits = self._decoder.logits(self.ids[:, start:], self.mask[:, start:] > 0)
            return self._logits
        policy, start = self.policy, self._read if self.use_cache else 0
        options: dict[str, Any] = {"use_cache": self.use_cache}
        if self.use_cache:
            if self._cache is None:
                from transformers import DynamicCache

                self._cache = DynamicCache(config=policy.base.config)
            options[policy.cache_argument] = self._cache
        out = policy.model(
            input_ids=self.ids[:, start:],
            attention_mask=self.mask,
            position_ids=positions(self.mask)[:, start:],
            logits_to_keep=1,
            **options,
        )
        self._read = self.ids.shape[1]
        logits: Tensor = out.logits[:, -1].float()
        self._logits = logits
        return logits

    @torch.no_grad()
    def sample(
        self,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop_ids: Sequence[int] | None = None,
        generator: torch.Generator | None = None,
        keys: Tensor | None = None,
    ) -> Rollout:
        """Samples a response of each row.

        Args:
            max_new_tokens: At most; also bounded by the policy's ``max_context``.
            temperature: Divides the logits; 0 takes the likeliest token.
            top_p: Sample among the likeliest tokens of so much probability. The log-probabilities
                stay those of the whole distribution, so train on samples with 1 only.
            stop_ids: End a response; ``None`` for the policy's own.
            generator: Of the draws, on any device; ``None`` for PyTorch's own.
            keys: A number for each row, in place of a generator: then a row's draws depend on it
                alone, and not on which rows are sampled with it. Shape: (B,), int64.

        Raises:
            ZooError: If a row leaves no place for a token within ``max_context``, or an option is
                out of range.
        """
        if temperature < 0 or not 0 < top_p <= 1 or max_new_tokens < 1:
            raise ZooError(
                f"Sampling with temperature={temperature}, top_p={top_p}, max_new_tokens="
                f"{max_new_tokens}: expected >= 0, in (0, 1], >= 1."
            )
        room = self.policy.max_context - int(self.lengths.max())
        if room < 1:
            raise ZooError(
                f"A context of {int(self.lengths.max())} tokens leaves no place to answer: "
                f"policy.max_context is {self.policy.max_context}."
            )
        device, start = self.ids.device, self.ids.shape[1]
        stops = torch.tensor(list(stop_ids or self.policy.stop_ids), device=device)
        alive = torch.ones(len(self.ids), dtype=torch.bool, device=device)
        for step in range(min(max_new_tokens, room)):
            logits = self._next_logits()
            if temperature == 0:
                token = logits.argmax(dim=1)
                logprob = logits.log_softmax(dim=1).gather(1, token[:, None])[:, 0]
            else:
                every = (logits / temperature).log_softmax(dim=1)
                token = draw_token(every, top_p, uniform(len(every), step, generator, keys, device))
                logprob = every.gather(1, token[:, None])[:, 0]
            token = token.where(alive, self.policy.pad_id)
            self._new.append((token, alive, logprob.where(alive, 0.0)))
            if self._decoder is None:  # which reads them one by one; others read whole contexts
                self._add_new()
            self._logits = None
            alive = alive & (token[:, None] != stops).all(dim=1)
            if not bool(alive.any()):
                break
        self._add_new()
        return Rollout(
            self.ids[:, start:],
            self.logprobs[:, start:],
            self.actions[:, start:],
            ~alive,
        )


# -- many turns ---------------------------------------------------------------------------------


@dataclass
class Episode:
    """What came of one task.

    Attributes:
        task: It.
        actions: The agent's turns, as text.
        observations: What it read; one more than its turns.
        rewards: Of each turn.
        success: Whether the environment's state solves the task.
        valid: Share of the turns that the environment understood.
        done: Whether the environment ended it, rather than the limit of turns.
    """

    task: Task
    actions: list[str] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    success: bool = False
    valid: float = 1.0
    done: bool = False

    @property
    def reward(self) -> float:
        """Sum over the turns."""
        return sum(self.rewards)


@dataclass
class Collected:
    """A batch of episodes and the sequences to train on.

    Attributes:
        episodes: In the order of the tasks; the G of one task beside each other.
        sequences: Their ``owner`` counts the episodes.
    """

    episodes: list[Episode]
    sequences: Sequences

    def rewards(self) -> Tensor:
        """Of each episode. Shape: (N,), float32."""
        return torch.tensor([e.reward for e in self.episodes])


class RolloutCollector:
    """Plays tasks in an environment, all of them in lock-step.

    Args:
        policy: Who acts.
        env: As many instances as episodes are played at a time.
        max_turns: Of an episode.
        max_new_tokens: Of a turn.
        temperature: Of sampling.
        render: The first prompt of a task, from task and observation; ``None`` for the bare
            observation. It may put skills before it.
    """

    def __init__(
        self,
        policy: CausalPolicy,
        env: VectorEnv,
        max_turns: int = 20,
        max_new_tokens: int = 16,
        temperature: float = 1.0,
        render: Callable[[Task, Obs], str] | None = None,
    ) -> None:
        self.policy, self.env, self.render = policy, env, render
        self.max_turns, self.max_new_tokens = max_turns, max_new_tokens
        self.temperature = temperature

    @torch.no_grad()
    def collect(
        self,
        tasks: Sequence[Task],
        group_size: int = 1,
        generator: torch.Generator | None = None,
        keys: Tensor | None = None,
    ) -> Collected:
        """Plays each task ``group_size`` times.

        Args:
            tasks: They.
            group_size: G.
            generator: Of the draws.
            keys: A number for each episode, in place of a generator: then its draws depend on it
                alone, and not on which episodes are played with it. Shape: (N,), int64.

        The policy samples in eval mode. An episode that has ended leaves the batch. When a context
        would grow beyond ``max_context``, its turns up to then become a sequence of their own, and
        it goes on with the first prompt and the latest turns that fit into half of the rest.

        Raises:
            ZooError: If there are not as many instances as episodes, or a first prompt leaves no
                place for an action.
        """
        everyone = [task for task in tasks for _ in range(group_size)]
        observations = self.env.reset(everyone)
        episodes = [Episode(task) for task in everyone]
        player = _Player(self.policy, self.max_new_tokens, keys)
        first = [
            obs.text if self.render is None else self.render(task, obs)
            for task, obs in zip(everyone, observations, strict=True)
        ]
        for episode, obs in zip(episodes, observations, strict=True):
            episode.observations.append(obs.text)
        training = self.policy.training
        self.policy.eval()
        try:
            player.begin([self.policy.encode_prompt(text) for text in first])
            invalid = [0] * len(episodes)
            for turn in range(self.max_turns):
                texts = player.act(self.temperature, generator)
                actions, active = [""] * len(episodes), [False] * len(episodes)
                for number, text in zip(player.active, texts, strict=True):
                    actions[number], active[number] = text, True
                    episodes[number].actions.append(text)
                step = self.env.step(actions, active)
                going = []
                for number in player.active:
                    episode = episodes[number]
                    episode.observations.append(step.obs[number].text)
                    episode.rewards.append(float(step.rewards[number]))
                    invalid[number] += not step.infos[number]["valid"]
                    episode.done = bool(step.dones[number])
                    if not episode.done:
                        going.append(number)
                if not going or turn + 1 == self.max_turns:
                    break
                replies = {
                    number: self.policy.encode_prompt(step.obs[number].text, first=False)
                    for number in going
                }
                player.observe(replies)
        finally:
            self.policy.train(training)
        for number, solved in enumerate(self.env.verify()):
            episodes[number].success = bool(solved)
            episodes[number].valid = 1 - invalid[number] / max(1, len(episodes[number].actions))
        return Collected(episodes, player.sequences())


class _Player:
    """The policy's side of many episodes: one session, and what has left it."""

    def __init__(
        self, policy: CausalPolicy, max_new_tokens: int, keys: Tensor | None = None
    ) -> None:
        self.policy, self.max_new_tokens, self._keys = policy, max_new_tokens, keys
        self._turn = 0
        self.active: list[int] = []  # the episode of each row
        self.openings: list[list[int]] = []
        self._session = Session(policy)
        self._ended = torch.zeros(0, dtype=torch.bool)
        self._rows: list[tuple[int, list[int], list[bool], list[float]]] = []

    def begin(self, prompts: list[list[int]]) -> None:
        self.openings, self.active = prompts, list(range(len(prompts)))
        self._session.append(prompts)

    def act(self, temperature: float, generator: torch.Generator | None) -> list[str]:
        keys = None
        if self._keys is not None:  # of each turn its own
            keys = self._keys[self.active] * KEYS_PER_EPISODE + self._turn
        self._turn += 1
        rollout = self._session.sample(
            self.max_new_tokens, temperature, generator=generator, keys=keys
        )
        self._ended = rollout.ended
        return self.policy.decode(rollout.rows())

    def observe(self, replies: dict[int, list[int]]) -> None:
        """Episodes without a reply leave; the others read theirs."""
        rows = [row for row, number in enumerate(self.active) if number in replies]
        gone = [row for row, number in enumerate(self.active) if number not in replies]
        self._store(gone)
        kept = [self.active[row] for row in rows]
        if gone:
            index = torch.tensor(rows, device=self.policy.device)
            self._session.keep(index)
            self._ended = self._ended[index]
        self.active = kept
        stop = self.policy.stop_ids[0]
        blocks = [
            ([] if ended else [stop]) + replies[number]  # a turn that was cut off is closed
            for number, ended in zip(kept, self._ended.tolist(), strict=True)
        ]
        lengths = self._session.lengths.tolist()
        limit = self.policy.max_context
        need = [n + len(b) + self.max_new_tokens for n, b in zip(lengths, blocks, strict=True)]
        if max(need) > limit:
            self._restart(blocks, need)
        else:
            self._session.append(blocks)

    def _restart(self, blocks: list[list[int]], need: list[int]) -> None:
        """Cuts the contexts that are too long, and reads all of them anew."""
        limit = self.policy.max_context
        contexts, fresh = self._contents(), []
        full = [row for row, size in enumerate(need) if size > limit]
        self._store(full)
        for row, (number, block) in enumerate(zip(self.active, blocks, strict=True)):
            ids, actions, logprobs = contexts[row]
            if row in full:
                opening = self.openings[number]
                room = limit - len(opening) - len(block) - self.max_new_tokens
                if room < 0:
                    raise ZooError(
                        f"An opening of {len(opening)} tokens and an observation of {len(block)} "
                        f"leave no place for an action: policy.max_context is {limit}."
                    )
                tail = ids[len(opening) :][-(room // 2) :] if room // 2 else []
                ids = [*opening, *tail]
                actions, logprobs = [False] * len(ids), [0.0] * len(ids)
            blank = len(block)
            fresh.append((ids + block, actions + [False] * blank, logprobs + [0.0] * blank))
        self._session = Session(self.policy)
        self._session.append([ids for ids, _, _ in fresh])
        width = self._session.ids.shape[1]
        for row, (ids, actions, logprobs) in enumerate(fresh):
            start = width - len(ids)
            device = self.policy.device
            self._session.actions[row, start:] = torch.tensor(actions, device=device)
            self._session.logprobs[row, start:] = torch.tensor(logprobs, device=device)

    def _contents(self) -> list[tuple[list[int], list[bool], list[float]]]:
        s = self._session
        found = []
        for row in range(len(self.active)):
            there = s.mask[row].bool()
            found.append(
                (
                    s.ids[row][there].tolist(),
                    s.actions[row][there].tolist(),
                    s.logprobs[row][there].tolist(),
                )
            )
        return found

    def _store(self, rows: Sequence[int]) -> None:
        contents = self._contents() if rows else []
        for row in rows:
            if any(contents[row][1]):
                self._rows.append((self.active[row], *contents[row]))

    def sequences(self) -> Sequences:
        """All that was acted, in the order of the episodes."""
        self._store(range(len(self.active)))
        self.active = []
        rows = sorted(self._rows, key=lambda row: row[0])
        device = self.policy.device
        ids, mask = pad_rows([row[1] for row in rows], self.policy.pad_id, device)
        shape = ids.shape
        actions = torch.zeros(shape, dtype=torch.bool, device=device)
        logprobs = torch.zeros(shape, device=device)
        for number, (_, _, chosen, values) in enumerate(rows):
            actions[number, : len(chosen)] = torch.tensor(chosen, device=device)
            logprobs[number, : len(values)] = torch.tensor(values, device=device)
        owner = torch.tensor([row[0] for row in rows], device=device)
        return Sequences(ids, mask, actions, logprobs, owner)
