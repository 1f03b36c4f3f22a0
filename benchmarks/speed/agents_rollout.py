"""Rollouts and GRPO steps of the agents' core, beside transformers' and trl's.

    python -m benchmarks.speed.agents_rollout rollout   # tokens a second against model.generate
    python -m benchmarks.speed.agents_rollout grpo      # a step against trl.GRPOTrainer

Both on the tiny model (64 wide, 2 layers), by CPU time of one thread, so that a busy machine does
not count. Prompts come in groups of 8, as in training, which rollouts here read once. ``grpo``
needs the extra ``peers``: 8 prompts, 8 rollouts each of 16 tokens, one update; the reward is the
share of a certain token.
"""

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from zoo.agents.losses import clipped_surrogate, grpo_advantage
from zoo.agents.policy import CausalPolicy, PolicyArgs, TinyConfig
from zoo.agents.rollout import Sequences

WORDS = [f"w{i}" for i in range(195)]  # with the special tokens, a vocabulary of 200
ROUNDS, TOKENS, PROMPTS, GROUP = 9, 16, 8, 8
NEVER = [10_000]  # no such token: all rollouts have the same length


def make_policy() -> CausalPolicy:
    """The tiny policy with random weights."""
    torch.manual_seed(0)
    tiny = TinyConfig(vocabulary=WORDS, context=128)
    return CausalPolicy(PolicyArgs(tiny=tiny, max_context=128)).eval()


def seconds(call: Callable[[], object]) -> float:
    """Median CPU time."""
    times = []
    for number in range(ROUNDS + 1):
        start = time.process_time()
        call()
        if number:
            times.append(time.process_time() - start)
    return statistics.median(times)


def rollout() -> None:
    """Tokens a second for several batch sizes."""
    policy = make_policy()
    model: Any = policy.model
    for batch in (16, 64, 256):
        prompts = [policy.encode_prompt(f"w{i // GROUP} w2 w3 w4") for i in range(batch)]
        ids = torch.tensor(prompts)
        options = {
            "max_new_tokens": TOKENS,
            "min_new_tokens": TOKENS,
            "do_sample": True,
            "top_k": 0,
            "return_dict_in_generate": True,
            "output_logits": True,
        }

        def theirs(ids: torch.Tensor = ids, options: dict[str, Any] = options) -> object:
            found = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
            every = torch.stack(found.logits, dim=1).float().log_softmax(-1)
            return every.gather(2, found.sequences[:, ids.shape[1] :, None])

        def ours(prompts: list[list[int]] = prompts) -> object:
            return policy.generate(prompts, TOKENS, stop_ids=NEVER)

        with torch.no_grad():
            a, b = seconds(ours), seconds(theirs)
        count = batch * TOKENS
        sys.stdout.write(
            f"batch {batch:>4}: {count / a:9.0f} tokens/s, model.generate {count / b:9.0f}; "
            f"{b / a:.2f} times as fast\n"
        )


def grpo() -> None:
    """Seconds of a GRPO step."""
    policy = make_policy()
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-4)
    prompts = [policy.encode_prompt(f"w{i} w2 w3 w4") for i in range(PROMPTS) for _ in range(GROUP)]
    wanted = policy.encode_reply("w7")[0]

    def ours() -> None:
        found = policy.generate(prompts, TOKENS, stop_ids=NEVER)
        rewards = (found.tokens == wanted).float().mean(dim=1).view(PROMPTS, GROUP)
        advantage = grpo_advantage(rewards).values.flatten()
        rows = Sequences.of(prompts, found, policy.pad_id)
        now = policy.token_logprobs(rows.ids, rows.mask, rows.actions)
        loss = clipped_surrogate(now.values, rows.logprobs, advantage, rows.actions).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()

    a = seconds(ours)
    sys.stdout.write(f"a step here {1e3 * a:.1f} ms\n")
    b = _trl_step(make_policy(), wanted)
    sys.stdout.write(f"trl.GRPOTrainer {1e3 * b:.1f} ms; here / trl {a / b:.2f}\n")


def _trl_step(policy: CausalPolicy, wanted: int) -> float:
    """Median CPU time of trl's training step, which makes its rollouts as well."""
    warnings.filterwarnings("ignore")
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    marks: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            marks.append(time.process_time())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks.append(time.process_time())

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [ids.count(wanted) / max(1, len(ids)) for ids in completion_ids]

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            policy.model,
            reward_funcs=reward,
            args=GRPOConfig(
                folder,
                per_device_train_batch_size=PROMPTS * GROUP,
                num_generations=GROUP,
                max_completion_length=TOKENS,
                max_steps=ROUNDS + 1,
                learning_rate=1e-4,
                beta=0.0,
                use_cpu=True,
                report_to="none",
                logging_strategy="no",
                save_strategy="no",
                disable_tqdm=True,
                bf16=False,
                gradient_checkpointing=False,
                generation_kwargs={"min_new_tokens": TOKENS},
            ),
            train_dataset=Dataset.from_list([{"prompt": f"w{i % 8} w2 w3 w4"} for i in range(64)]),
            processing_class=policy.codec.tokenizer,
            callbacks=[Clock()],
        )
        trainer.train()
    # From the end of a step to the end of the next: rollouts are made before a step begins.
    ends = marks[1::2]
    return statistics.median(b - a for a, b in pairwise(ends))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["rollout", "grpo"])
    torch.set_num_threads(1)
    {"rollout": rollout, "grpo": grpo}[parser.parse_args().what]()
