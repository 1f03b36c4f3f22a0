"""A language model of 0.3 million weights that has learnt eight programs by heart.

It stands for a real model where none can be had: its replies are sampled token by token, it fails
at whatever it was not taught, and no skill helps it.
"""

from __future__ import annotations

import re
from functools import cache

import torch

from zoo.agents.llm.base import CountingClient, Reply, Request, Usage, calls_in
from zoo.agents.policy import CausalPolicy, PolicyArgs, TinyConfig, pad_rows
from zoo.agents.retrieval import words
from zoo.agents.skill_tasks import embedded_tasks
from zoo.skills_bench.simulated import next_call, telling_words

PIECE = re.compile(r"\n *|[A-Za-z_]+|\d+| +|.")
STEPS, LR, SEED = 180, 4e-3, 0
HIDDEN, LAYERS, CONTEXT = 96, 2, 512


class TinyProgrammer(CountingClient):
    """Writes the program that its model samples for the instruction, runs it, and ends.

    Args:
        lessons: Instructions and the programs that it learns, a few.
    """

    def __init__(self, lessons: list[tuple[str, str]]) -> None:
        super().__init__()
        programs = [PIECE.findall(program) for _, program in lessons]
        self.pieces = sorted({piece for program in programs for piece in program})
        self.known = sorted({w for text, _ in lessons for w in telling_words(text)})
        table = {piece: f"t{i}" for i, piece in enumerate(self.pieces)}
        vocabulary = [*self.known, *table.values()]
        tiny = TinyConfig(vocabulary, HIDDEN, LAYERS, heads=4, ffn=3 * HIDDEN, context=CONTEXT)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            self.policy = CausalPolicy(PolicyArgs(tiny=tiny))
        self._learn(
            [
                (self._prompt(text), self.policy.encode_reply(" ".join(table[p] for p in program)))
                for (text, _), program in zip(lessons, programs, strict=True)
            ]
        )

    def _prompt(self, instruction: str) -> list[int]:
        there = set(telling_words(instruction))
        text = " ".join(w for w in self.known if w in there) or self.known[0]
        return self.policy.encode_prompt(text)

    def _learn(self, rows: list[tuple[list[int], list[int]]]) -> None:
        """Supervised, all lessons at each step."""
        device = self.policy.device
        ids, mask = pad_rows([[*p, *r] for p, r in rows], self.policy.pad_id, device)
        flags = [[0] * len(p) + [1] * len(r) for p, r in rows]
        actions = pad_rows(flags, 0, device)[0].bool()
        optimizer = torch.optim.AdamW(self.policy.parameters(), lr=LR)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=STEPS)
        self.policy.train()
        for _ in range(STEPS):
            found = self.policy.token_logprobs(ids, mask, actions, 1.0)
            loss = -(found.values * actions).sum() / actions.sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        self.policy.eval()

    def _answer(self, request: Request) -> list[Reply]:
        done = [str(m.get("content")) for m in request.messages if m["role"] == "assistant"]
        tokens: list[int] = []

        def program() -> str:
            instruction = next(str(m["content"]) for m in request.messages if m["role"] == "user")
            tokens.extend(self._sample(instruction.partition("\n\nActions:")[0], request))
            written = self.policy.decode([tokens])[0].split()
            return "".join(self.pieces[int(t[1:])] for t in written if re.fullmatch(r"t\d+", t))

        text = next_call(done, program) if request.tools else ""  # it can't write skills
        calls = calls_in(text) if request.tools else ()
        return [Reply(text, calls, Usage(len(words(request.text())), len(tokens), 1))] * request.n

    def _sample(self, instruction: str, request: Request) -> list[int]:
        """Tokens of a program."""
        prompt = self._prompt(instruction)
        with self._lock, torch.inference_mode():
            found = self.policy.generate(
                [prompt],
                max_new_tokens=CONTEXT - len(prompt) - 1,
                temperature=request.temperature,
                top_p=1.0,
                stop_ids=self.policy.stop_ids,
                generator=torch.Generator().manual_seed(request.seed or 0),
            )
        return found.rows()[0]


@cache
def tiny_client() -> TinyProgrammer:
    """Taught the shortest program of each domain that comes with the package; about 20 seconds."""
    lessons: dict[str, tuple[str, str]] = {}
    for item in embedded_tasks():
        lesson = item.instruction, item.task.payload["simulation"]["answer"]
        known = lessons.setdefault(item.task.family, lesson)
        lessons[item.task.family] = min(known, lesson, key=lambda pair: len(pair[1]))
    with torch.inference_mode(False), torch.enable_grad():  # a test or prediction asks first
        return TinyProgrammer(list(lessons.values()))
