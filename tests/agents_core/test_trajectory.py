"""Trajectories: to disk and back, from others' logs, and to tokens of which the agent's count."""

import json

import pytest
import torch

from tests.agents_core.chain import WORDS
from tests.agents_core.test_module import TINY, ChainAgent
from tests.agents_core.test_rollout import collect, make_policy
from zoo.agents.codec import Codec
from zoo.agents.policy import PolicyArgs, TinyConfig
from zoo.agents.trajectory import (
    Trajectory,
    Turn,
    encode,
    from_appworld,
    from_episodes,
    from_messages,
    from_skillrl,
    from_tau_bench,
    read_trajectories,
    write_trajectories,
)
from zoo.datamodules import TrajectoryDataModule
from zoo.errors import ZooError

SIMPLE = Trajectory(
    "a-1", "chain", [Turn("user", "goal red"), Turn("assistant", "red", observation="good now")]
)


def test_json_lines_and_back(tmp_path):
    policy = make_policy()
    played = from_episodes(collect(policy), [["s"]] * 6)
    assert write_trajectories(tmp_path / "a.jsonl", [*played, SIMPLE]) == 7
    assert list(read_trajectories(tmp_path / "a.jsonl")) == [*played, SIMPLE]
    first = (tmp_path / "a.jsonl").read_text().splitlines()[0]
    assert first.startswith('{"schema": 1,')


def test_played_episodes_keep_their_tokens():
    policy = make_policy()
    collected = collect(policy)
    for number, found in enumerate(from_episodes(collected)):
        episode = collected.episodes[number]
        assert [t.text for t in found.turns if t.role == "assistant"] == episode.actions
        ids = [i for turn in found.turns for i in turn.token_ids]
        mask = collected.sequences.mask[number].bool()
        assert ids == collected.sequences.ids[number][mask].tolist()
        for turn in found.turns:
            if turn.token_ids:
                assert all(turn.mask) == (turn.role == "assistant")
                assert len(turn.logprobs) == (len(turn.token_ids) if all(turn.mask) else 0)
        assert found.cost.calls == len(episode.actions)
        assert found.cost.prompt_tokens + found.cost.completion_tokens == len(ids)


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"schema": 2}, "line 2, has the schema 2: this version reads 1"),
        ({"famly": "x"}, "unknown key 'famly'.*Did you mean 'family'"),
        ({"turns": [{"role": "robot", "text": ""}]}, "turn 0, has the role 'robot'"),
        ({"turns": [{"role": "user"}]}, "turn 0, lacks the key 'text'"),
        (
            {"turns": [{"role": "user", "text": "", "token_ids": [1], "mask": [True, True]}]},
            "2 mask for 1 tokens",
        ),
    ],
)
def test_bad_lines_are_one_sentence(tmp_path, change, pattern):
    good = SIMPLE.to_dict()
    lines = [json.dumps(good), json.dumps({**good, **change})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(ZooError, match=pattern):
        list(read_trajectories(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    ("text", "pattern"), [("{", "line 1, is no JSON"), ("[1]", "line 1, is a list")]
)
def test_lines_that_are_no_object(tmp_path, text, pattern):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ZooError, match=pattern):
        list(read_trajectories(tmp_path / "a.jsonl"))
    with pytest.raises(ZooError, match=r"b\.jsonl"):
        list(read_trajectories(tmp_path / "b.jsonl"))


def test_chat_messages_with_tool_calls():
    call = {"id": "1", "function": {"name": "add", "arguments": '{"a": 1}'}}
    found = from_messages(
        [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "2"},
        ],
        "t",
    )
    assert [t.role for t in found.turns] == ["system", "user", "assistant", "tool"]
    assert found.turns[1].text == "1 + 1?"
    assert found.turns[2].tool_calls == [{"name": "add", "arguments": {"a": 1}}]
    call["function"]["arguments"] = "{a"
    with pytest.raises(ZooError, match="'add' with arguments that are no JSON"):
        from_messages([{"role": "assistant", "tool_calls": [call]}], "t")


def test_skillrl_memories_as_published():
    step = {"step_index": 0, "action": "go to shelf", "critical_observation": "a sponge"}
    content = {
        "task_meta": {"original_goal": "put a sponge on cart."},
        "refined_trajectory": {"refined_trajectory": [step]},
        "strategic_guidelines": {"planning_pattern": "search"},
    }
    good = {
        "memory_id": "m1",
        "contextual_description": "AlfWorld task classified as 'pick_and_place' to put.",
        "tags": {"environment": "Alfworld", "outcome": "Success"},
        "content": content,
    }
    failed = {**good, "tags": {"environment": "Alfworld", "outcome": "Failure"}}
    failed["content"] = {**content, "refined_trajectory": None}
    one, other = from_skillrl([good, failed])
    assert (one.family, one.success, other.success) == ("pick_and_place", True, False)
    assert [m["content"] for m in one.messages()] == [
        "put a sponge on cart.",
        "go to shelf",
        "a sponge",
    ]
    assert len(other.turns) == 1
    with pytest.raises(ZooError, match=r"Memory m1 lacks content\.task_meta\.original_goal"):
        from_skillrl([{**good, "content": {}}])


def test_tau_bench_runs_of_both_generations():
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    found = from_tau_bench(
        [
            {"task_id": 3, "reward": 1.0, "traj": messages, "trial": 0},
            {"task_id": "4", "reward_info": {"reward": 0.0}, "messages": messages},
        ],
        "retail",
    )
    assert [(t.task_id, t.success) for t in found] == [("3", True), ("4", False)]
    assert found[0].family == "retail"
    with pytest.raises(ZooError, match="task 5 has no traj"):
        from_tau_bench([{"task_id": 5}], "retail")


def test_appworld_logs():
    found = from_appworld(
        "82e2fac_1", [{"instruction": "like it"}, {"code": "print(1)", "output": "1"}], True
    )
    assert found.family == "82e2fac"
    assert [m["role"] for m in found.messages()] == ["user", "assistant", "user"]
    with pytest.raises(ZooError, match="Step 0"):
        from_appworld("82e2fac_1", [{"output": "1"}])


def test_only_the_agents_tokens_are_marked():
    codec = Codec.of_words(WORDS)
    turns = [Turn("system", "say"), Turn("user", "goal red"), Turn("assistant", "red now")]
    turns += [Turn("user", "good"), Turn("assistant", "green"), Turn("user", "bad")]
    ids, mask = encode(Trajectory("t", "f", turns), codec)
    chosen = [i for i, m in zip(ids, mask, strict=True) if m]
    end = codec.stop_ids[0]
    assert codec.decode([chosen]) == ["red now green"]
    assert chosen.count(end) == 2
    assert codec.decode([ids]) == ["say goal red red now good green"]
    with pytest.raises(ZooError, match="t has no turn of the agent"):
        encode(Trajectory("t", "f", turns[:2]), codec)


def test_a_policy_imitates_trajectories_from_disk(tmp_path):
    rows = [
        Trajectory(str(i), "f", [Turn("user", f"goal {w}"), Turn("assistant", w)], success=i < 9)
        for i, w in enumerate(["red", "blue", "green"] * 4)
    ]
    write_trajectories(tmp_path / "train.jsonl", rows)
    write_trajectories(tmp_path / "val.jsonl", rows[:2])
    data = TrajectoryDataModule(str(tmp_path), WORDS, max_length=16, batch_size=9)
    data.setup("fit")
    assert len(data.datasets["train"]) == 9
    assert len(data.datasets["val"]) == 2
    batch = next(iter(data.train_dataloader()))
    assert batch["actions"].sum(dim=1).tolist() == [2] * 9
    torch.manual_seed(0)
    model = ChainAgent(PolicyArgs(tiny=TinyConfig(**TINY)), sft_steps=2)
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    model._update = lambda losses: (optimiser.zero_grad(), losses[0]().backward(), optimiser.step())
    losses = [float(model._imitate(batch)) for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


def test_trajectories_that_do_not_fit_are_refused(tmp_path):
    write_trajectories(tmp_path / "train.jsonl", [SIMPLE])
    write_trajectories(tmp_path / "val.jsonl", [SIMPLE])
    for options, pattern in (
        ({"max_length": 4, "successes": False}, "a-1 has .* tokens: max_length is 4"),
        ({}, "train split .* is empty"),
    ):
        data = TrajectoryDataModule(str(tmp_path), WORDS, **options)
        with pytest.raises(ZooError, match=pattern):
            data.setup("fit")
    with pytest.raises(ZooError, match="exactly one"):
        TrajectoryDataModule(str(tmp_path))
