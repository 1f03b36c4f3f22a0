"""The teacher judges the student's tokens, token by token, whatever stands before them."""

import copy

import pytest
import torch
from lightning import seed_everything
from transformers import LlamaConfig, LlamaForCausalLM

from zoo.agents.policy import CausalPolicy, LoraArgs, PolicyArgs, TinyConfig
from zoo.agents.rollout import Sequences
from zoo.agents.tokenizer import word_tokenizer
from zoo.errors import ZooError
from zoo.skill_sd.teacher import Teacher, judge, trained_parameters, with_openings

WORDS = [chr(97 + i) for i in range(20)]


@pytest.fixture
def policy():
    seed_everything(0)
    tiny = TinyConfig(WORDS, hidden=16, layers=1, heads=2, ffn=32, context=32)
    return CausalPolicy(PolicyArgs(tiny=tiny, max_context=32)).eval()


def conversations():
    """Two turns each: prompts, actions, observations and actions, all of different lengths."""
    plain = [[2, 5, 6, 4], [2, 7, 4], [2, 8, 9, 10, 4]]
    skilled = [[2, 20, 21, 5, 6, 4], [2, 22, 20, 21, 23, 7, 4], [2, 8, 9, 10, 4]]
    rest = [([11, 3], [12, 4], [13, 14, 3]), ([15, 3], [4], [16, 3]), ([17, 18, 19, 3],)]
    return plain, skilled, rest


def rows_of(openings, rest):
    """Tokens of each, and which are the agent's."""
    rows = []
    for opening, turns in zip(openings, rest, strict=True):
        ids, actions = list(opening), [False] * len(opening)
        for number, turn in enumerate(turns):
            ids += turn
            actions += [number % 2 == 0] * len(turn)
        rows.append((ids, actions))
    return rows


def padded(rows):
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([r + [0] * (width - len(r)) for r, _ in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r, _ in rows])
    actions = torch.tensor([a + [False] * (width - len(a)) for _, a in rows])
    return Sequences(ids, mask, actions, torch.zeros(ids.shape), torch.arange(len(rows)))


def test_other_openings_leave_all_that_follows():
    plain, skilled, rest = conversations()
    found = with_openings(padded(rows_of(plain, rest)), plain, skilled, 0)
    expected = padded(rows_of(skilled, rest))
    assert torch.equal(found.ids, expected.ids)
    assert torch.equal(found.mask, expected.mask)
    assert torch.equal(found.actions, expected.actions)


@pytest.mark.parametrize("micro_batch", [None, 1, 2])
def test_judged_tokens_are_those_of_one_conversation_at_a_time(policy, micro_batch):
    plain, skilled, rest = conversations()
    sequences = padded(rows_of(plain, rest))
    found = judge(policy, sequences, plain, skilled, 0.7, micro_batch)
    assert found.shape == sequences.ids.shape
    assert torch.equal(found != 0, sequences.actions)
    for i, (ids, actions) in enumerate(rows_of(skilled, rest)):
        with torch.no_grad():
            logits = policy(torch.tensor([ids]))[0] / 0.7
        logprobs = logits.log_softmax(-1)
        expected = [float(logprobs[t - 1, ids[t]]) for t in range(len(ids)) if actions[t]]
        own = found[i][sequences.actions[i]]
        torch.testing.assert_close(own, torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_a_sequence_that_begins_otherwise_is_misaligned(policy):
    plain, skilled, rest = conversations()
    sequences = padded(rows_of(plain, rest))
    wrong = [plain[0], [2, 9, 4], plain[2]]
    with pytest.raises(ZooError, match="Token misalignment"):
        judge(policy, sequences, wrong, skilled, 1.0)


def test_a_skill_that_leaves_no_room_is_one_sentence(policy):
    plain, skilled, rest = conversations()
    skilled[0] = [2, *[20] * 40, 4]
    with pytest.raises(ZooError, match=r"has 49 tokens: the model reads 32"):
        judge(policy, padded(rows_of(plain, rest)), plain, skilled, 1.0)


def test_the_teacher_acts_with_its_weights_and_leaves_the_students(policy):
    teacher = Teacher()
    teacher.weights = teacher.candidate(policy)
    ids = torch.tensor([[2, 5, 6, 4]])
    before = policy(ids)
    own = copy.deepcopy(policy.state_dict())
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.1 * torch.randn_like(p))
    now = policy(ids)
    assert not torch.allclose(now, before)
    with teacher.acting(policy):
        assert torch.equal(policy(ids), before)
    assert torch.equal(policy(ids), now)
    assert all(torch.equal(teacher.weights[n], own[n]) for n in teacher.weights)
    with pytest.raises(KeyError), teacher.acting(policy, {}):
        pass
    assert torch.equal(policy(ids), now)  # after a failure too


def test_a_moving_average_goes_a_tenth_of_the_way(policy):
    teacher = Teacher()
    teacher.weights = teacher.candidate(policy)
    first = {n: w.clone() for n, w in teacher.weights.items()}
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(1.0)
    for name, weight in teacher.candidate(policy, 0.9).items():
        torch.testing.assert_close(weight, first[name] + 0.1)


def test_under_adapters_it_is_a_copy_of_the_adapters_alone(tmp_path):
    seed_everything(0)
    tokenizer = word_tokenizer(WORDS)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    policy = CausalPolicy(PolicyArgs(model_id=str(tmp_path), lora=LoraArgs(r=2))).eval()
    names = set(trained_parameters(policy))
    assert names
    assert all("lora_" in name for name in names)
    teacher = Teacher()
    teacher.weights = teacher.candidate(policy)
    ids = torch.tensor([[2, 5, 6, 4]])
    before = policy(ids)
    with torch.no_grad():
        for p in trained_parameters(policy).values():
            p.add_(0.3)
    assert not torch.allclose(policy(ids), before)
    with teacher.acting(policy):
        assert torch.equal(policy(ids), before)
