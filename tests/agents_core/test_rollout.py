"""Episodes of many turns: what is trained on is what was sampled, token by token."""

import pytest
import torch

from tests.agents_core.chain import WORDS, Chain, task
from zoo.agents.envs import VectorEnv
from zoo.agents.losses import aggregate, clipped_surrogate
from zoo.agents.policy import CausalPolicy, PolicyArgs, TinyConfig
from zoo.agents.rollout import RolloutCollector, Sequences
from zoo.errors import ZooError


def make_policy(context=128):
    torch.manual_seed(0)
    tiny = TinyConfig(vocabulary=WORDS, hidden=32, heads=2, ffn=64, context=context)
    return CausalPolicy(PolicyArgs(tiny=tiny, max_context=context))


TASKS = [task(0, "red", 3), task(1, "blue", 5, 2), task(2, "green", 1)]


def collect(policy, tasks=TASKS, group=2, **options):
    env = VectorEnv(Chain, len(tasks) * group)
    collector = RolloutCollector(policy, env, **{"max_new_tokens": 3, "max_turns": 9, **options})
    return collector.collect(tasks, group, torch.Generator().manual_seed(5))


def test_each_episode_has_its_turns_and_its_own_sequence():
    policy = make_policy()
    found = collect(policy)
    assert [len(e.actions) for e in found.episodes] == [3, 3, 5, 5, 1, 1]
    assert all(len(e.observations) == len(e.actions) + 1 for e in found.episodes)
    assert all(e.done for e in found.episodes)
    assert found.sequences.owner.tolist() == list(range(6))
    assert found.rewards().shape == (6,)
    assert policy.training  # as it was before
    for row, episode in enumerate(found.episodes):
        tokens = found.sequences.ids[row][found.sequences.mask[row].bool()].tolist()
        opening = policy.encode_prompt(f"goal {episode.task.payload['word']}")
        assert tokens[: len(opening)] == opening
        said = found.sequences.ids[row][found.sequences.actions[row]].tolist()
        assert policy.decode([said])[0] == " ".join(a for a in episode.actions if a)


def test_log_probabilities_are_those_of_the_whole_sequence():
    policy = make_policy()
    sequences = collect(policy).sequences
    now = policy.token_logprobs(sequences.ids, sequences.mask, sequences.actions)
    assert (now.values - sequences.logprobs).abs().max() < 1e-4


def test_observation_tokens_get_no_gradient():
    policy = make_policy()
    sequences = collect(policy).sequences
    now = policy.token_logprobs(
        sequences.ids, sequences.mask, sequences.mask.bool() & later(sequences)
    )
    now.values.retain_grad()
    advantage = torch.randn(len(sequences))
    clipped_surrogate(now.values, sequences.logprobs, advantage, sequences.actions).loss.backward()
    gradient = now.values.grad
    assert (gradient[~sequences.actions] == 0).all()
    assert (gradient[sequences.actions] != 0).any()


def later(sequences):
    """All but the first column, which nothing predicts."""
    wanted = torch.ones_like(sequences.actions)
    wanted[:, 0] = False
    return wanted


def test_a_limit_of_turns_ends_episodes_that_are_not_done():
    found = collect(make_policy(), max_turns=2)
    assert [len(e.actions) for e in found.episodes] == [2, 2, 2, 2, 1, 1]
    assert [e.done for e in found.episodes] == [False] * 4 + [True] * 2


def test_a_context_that_is_cut_becomes_several_sequences_with_true_log_probabilities():
    policy = make_policy(context=32)
    found = collect(policy, [task(0, "red", 8, 4), task(1, "blue", 8, 3)])
    sequences = found.sequences
    assert len(sequences) > 4
    assert sequences.mask.sum(dim=1).max() <= 32
    assert sequences.owner.tolist() == sorted(sequences.owner.tolist())
    now = policy.token_logprobs(sequences.ids, sequences.mask, sequences.actions)
    assert (now.values - sequences.logprobs).abs().max() < 1e-4
    for number, episode in enumerate(found.episodes):  # each turn is trained on once
        rows = sequences.owner == number
        said = policy.decode([sequences.ids[rows][sequences.actions[rows]].tolist()])[0]
        assert said == " ".join(a for a in episode.actions if a)
        assert len(episode.actions) == 8


def test_an_opening_without_room_is_refused():
    with pytest.raises(ZooError, match="max_context is 32"):
        collect(make_policy(context=32), [task(0, "red", 3, 40)], max_new_tokens=8)


def test_rendering_may_put_something_before_the_first_observation():
    policy = make_policy()
    found = collect(policy, render=lambda task, obs: f"say 7 {obs.text}")
    start = policy.encode_prompt("say 7 goal red")
    assert found.sequences.ids[0, : len(start)].tolist() == start
    assert found.episodes[0].observations[0] == "goal red"


def test_parts_drop_columns_that_are_padding_everywhere():
    policy = make_policy()
    sequences = collect(policy).sequences
    part = sequences[torch.tensor([4, 5])]
    assert part.ids.shape[1] == int(sequences.mask[4:].sum(dim=1).max())
    assert part.mask.any(dim=0).all()


def test_single_turns_become_sequences():
    policy = make_policy()
    prompts = [policy.encode_prompt(t) for t in ("goal red", "goal red say 1 2")]
    rollout = policy.generate(prompts, 4)
    sequences = Sequences.of(prompts, rollout, policy.pad_id)
    now = policy.token_logprobs(sequences.ids, sequences.mask, sequences.actions)
    assert (now.values - sequences.logprobs).abs().max() < 1e-4
    assert float(aggregate(now.values.detach(), sequences.actions)) < 0
