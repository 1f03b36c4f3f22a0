"""The tiny Llama's own decoder against transformers' module, which training goes through."""

import pytest
import torch

from zoo.agents.decoding import SPARE, LlamaDecoder
from zoo.agents.policy import CausalPolicy, PolicyArgs, TinyConfig, positions
from zoo.agents.rollout import Session


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    tiny = TinyConfig([f"w{i}" for i in range(30)], 32, 2, 4, 48, context=128)
    policy = CausalPolicy(PolicyArgs(tiny=tiny, max_context=128)).eval()
    with torch.no_grad():  # norms start at 1, where folding them in would show nothing
        for name, weight in policy.named_parameters():
            if "norm" in name:
                weight.add_(0.3 * torch.randn(weight.shape))
    return policy


def theirs(policy, ids, mask):
    with torch.no_grad():
        out = policy.base(input_ids=ids, attention_mask=mask, position_ids=positions(mask))
    return out.logits[:, -1]


def test_logits_equal_those_of_the_module_however_columns_come(policy):
    """Padding on both sides, shared prompts, several columns at once, more than there is room."""
    torch.manual_seed(1)
    ids = torch.randint(5, 35, (6, 3 * SPARE))
    mask = torch.ones_like(ids)
    for row, size in enumerate((0, 2, 5, 2, 5, 0)):
        mask[row, :size] = 0
    ids[3, :8], ids[4, :8], ids[5, :8] = ids[1, :8], ids[2, :8], ids[0, :8]  # as in a group
    mask[:, 20] = torch.tensor([1, 0, 1, 1, 0, 1])  # an observation, padded on its left
    mask[:2, 11:13] = 0  # a response that had ended
    decoder, start = LlamaDecoder(policy.base), 0
    for end in (8, 9, 10, 11, 12, 13, 19, 24, 25, 3 * SPARE):
        found = decoder.logits(ids[:, start:end], mask[:, start:end] > 0)
        last = mask[:, end - 1] > 0
        expected = theirs(policy, ids[:, :end], mask[:, :end])
        assert (found - expected)[last].abs().max() < 1e-4, end
        start = end
    assert found.dtype == torch.float32


def test_rows_that_leave_do_not_disturb_the_others(policy):
    torch.manual_seed(2)
    ids, mask = torch.randint(5, 35, (4, 12)), torch.ones(4, 12, dtype=torch.long)
    decoder = LlamaDecoder(policy.base)
    decoder.logits(ids[:, :6], mask[:, :6] > 0)
    rows = torch.tensor([3, 1])
    decoder.select(rows)
    found = decoder.logits(ids[rows, 6:], mask[rows, 6:] > 0)
    assert (found - theirs(policy, ids[rows], mask[rows])).abs().max() < 1e-4


def test_sessions_sample_the_same_with_and_without_it(policy):
    """Two turns, rows leaving between them."""
    runs = []
    for use_cache in (True, False):
        session, draws = Session(policy, use_cache), torch.Generator().manual_seed(3)
        session.append([[5, 6, 7], [8], [5, 6, 7], [9, 10]])
        first = session.sample(6, generator=draws)
        session.keep(torch.tensor([0, 2, 3]))
        session.append([[11], [12, 13, 14], [15]])
        second = session.sample(20, generator=draws)
        runs.append((first, second, session.ids, session.logprobs))
    for a, b in zip(*runs, strict=True):
        pairs = zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]
        for x, y in pairs:
            assert torch.allclose(x.float(), y.float(), atol=1e-5)


def test_it_follows_an_update_of_the_weights(policy):
    before = policy.generate([[5, 6]], 1, temperature=0, stop_ids=[99])
    with torch.no_grad():
        policy.base.model.embed_tokens.weight[7].mul_(50)
    after = policy.generate([[5, 6]], 1, temperature=0, stop_ids=[99])
    plain = policy.generate([[5, 6]], 1, temperature=0, stop_ids=[99], use_cache=False)
    assert after.tokens.equal(plain.tokens)
    assert after.logprobs.allclose(plain.logprobs, atol=1e-5)
    assert not after.logprobs.allclose(before.logprobs)
