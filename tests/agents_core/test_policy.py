"""The policy: padding, cache, log-probabilities, adapters; offline, on a tiny Llama."""

import inspect

import pytest
import torch

from zoo.agents.policy import CausalPolicy, LoraArgs, PolicyArgs, TinyConfig, pad_rows
from zoo.agents.rollout import Session
from zoo.agents.sampling import counter_uniform
from zoo.agents.tokenizer import word_tokenizer
from zoo.errors import ZooError

WORDS = ["sort reverse 0 1 2 3 4 5 6 7 8 9 go to box-1 search[red shoes]."]


@pytest.fixture
def policy():
    torch.manual_seed(0)
    tiny = TinyConfig(vocabulary=WORDS, hidden=32, heads=2, ffn=64, context=64)
    return CausalPolicy(PolicyArgs(tiny=tiny, max_context=64)).eval()


@pytest.fixture
def prompts(policy):
    return [policy.encode_prompt(t) for t in ("sort 3 1 2", "reverse 1", "go to box-1 5 6 7 8")]


def test_tokenizer_is_lossless_on_its_words_and_names_an_unknown_one(policy):
    text = "search[red shoes]."
    assert policy.decode([policy.encode_reply(text)]) == [text]
    assert policy.encode_reply("sort 1")[-1] == policy.stop_ids[0]
    with pytest.raises(ZooError, match=r"'srot'.*Did you mean 'sort'"):
        policy.encode_prompt("srot 1 2")


def test_tokenizer_does_not_depend_on_the_order_of_words():
    one, other = (word_tokenizer(words).get_vocab() for words in (["b a", "c"], ["c", "a", "b"]))
    assert one == other
    with pytest.raises(ZooError, match="vocabulary"):
        word_tokenizer([])


def test_left_and_right_padding_change_no_logits(policy, prompts):
    for left in (True, False):
        ids, mask = pad_rows(prompts, policy.pad_id, policy.device, left)
        batched = policy(ids, mask)
        for row, prompt in enumerate(prompts):
            alone = policy(torch.tensor([prompt]))[0]
            there = batched[row][mask[row].bool()]
            torch.testing.assert_close(there, alone, atol=1e-4, rtol=0)


def test_sampling_with_and_without_cache_is_the_same(policy, prompts):
    found = [
        policy.generate(
            prompts * 8, 12, generator=torch.Generator().manual_seed(3), use_cache=use_cache
        )
        for use_cache in (True, False)
    ]
    assert torch.equal(found[0].tokens, found[1].tokens)
    torch.testing.assert_close(found[0].logprobs, found[1].logprobs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_that_were_sampled_from(policy, prompts, temperature):
    """Before the first update the ratio is 1."""
    rollout = policy.generate(prompts * 8, 10, temperature)
    scored = policy.logprobs(prompts * 8, rollout.rows(), temperature, return_entropy=True)
    width = scored.values.shape[1]
    assert (scored.values - rollout.logprobs[:, :width]).abs().max() < 1e-4
    assert torch.equal(scored.mask, rollout.mask[:, :width])
    full = policy.logprobs(prompts * 8, rollout.rows(), temperature, True, True, micro_batch=5)
    torch.testing.assert_close(full.values, scored.values, atol=1e-5, rtol=0)
    torch.testing.assert_close(full.entropy, scored.entropy, atol=1e-5, rtol=0)
    naive = -(full.full.exp() * full.full).sum(-1)
    torch.testing.assert_close(full.entropy, naive)


def test_a_wide_vocabulary_goes_in_chunks_to_the_same_values_and_gradients(
    policy, prompts, monkeypatch
):
    responses = policy.generate(prompts, 6).rows()

    def loss_and_gradient():
        policy.zero_grad()
        policy.logprobs(prompts, responses, return_entropy=True).values.sum().backward()
        weights = policy.base.get_input_embeddings().weight
        return weights.grad.clone()

    whole = loss_and_gradient()
    monkeypatch.setattr("zoo.agents.policy.WIDE", 4)
    monkeypatch.setattr("zoo.agents.policy.CHUNK", 64)
    torch.testing.assert_close(loss_and_gradient(), whole, atol=1e-5, rtol=1e-4)


def test_log_probabilities_of_nothing_keep_the_graph(policy, prompts):
    ids, mask = pad_rows(prompts, policy.pad_id, policy.device)
    none = torch.zeros_like(ids, dtype=torch.bool)
    policy.token_logprobs(ids, mask, none).values.sum().backward()
    assert all(p.grad is not None for p in policy.parameters())


def test_greedy_takes_the_likeliest_and_stops_at_the_end_token(policy, prompts):
    rollout = policy.generate(prompts, 12, temperature=0)
    first = policy(torch.tensor([prompts[0]]))[0, -1].argmax()
    assert rollout.tokens[0, 0] == first
    for row, ended in zip(rollout.rows(), rollout.ended.tolist(), strict=True):
        assert (policy.stop_ids[0] in row) == ended
        assert policy.stop_ids[0] not in row[:-1]


def test_sampled_shares_are_the_probabilities(policy, prompts):
    logprobs = policy(torch.tensor([prompts[0]]))[0, -1].float().log_softmax(0)
    rollout = policy.generate([prompts[0]] * 20_000, 1, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(rollout.tokens[:, 0], minlength=len(logprobs)) / 20_000
    error = (logprobs.exp() * (1 - logprobs.exp()) / 20_000).sqrt()
    assert ((shares - logprobs.exp()).abs() < 4.5 * error + 1e-6).all()


def test_top_p_never_draws_from_the_tail(policy, prompts):
    probabilities = policy(torch.tensor([prompts[0]]))[0, -1].float().softmax(0)
    values, order = probabilities.sort(descending=True)
    kept = order[: int((values.cumsum(0) - values < 0.3).sum())]
    rollout = policy.generate([prompts[0]] * 500, 1, top_p=0.3)
    assert torch.isin(rollout.tokens[:, 0], kept).all()


def test_keyed_draws_do_not_depend_on_the_batch(policy, prompts):
    keys = torch.arange(24)
    whole = policy.generate(prompts * 8, 8, keys=keys)
    part = policy.generate((prompts * 8)[5:7], 8, keys=keys[5:7])
    assert part.rows() == whole.rows()[5:7]


def test_counters_are_uniform_and_uncorrelated():
    u, v = (counter_uniform(torch.arange(50_000), c) for c in (0, 1))
    assert 0 <= float(u.min()) < 1e-3 < 0.999 < float(u.max()) < 1
    assert abs(float(u.mean()) - 0.5) < 0.006
    assert abs(float(torch.corrcoef(torch.stack([u, v]))[0, 1])) < 0.02


def test_many_turns_with_a_kept_cache_equal_one_reading(policy, prompts):
    """Appended and sampled tokens of rows of different lengths, then scored at once."""
    session = Session(policy)
    session.append(prompts)
    session.sample(4, generator=torch.Generator().manual_seed(1))
    session.append([policy.encode_prompt(t, first=False) for t in ("1", "2 3 4", "5 6")])
    session.keep(torch.tensor([0, 2]))
    session.sample(4, generator=torch.Generator().manual_seed(2))
    scored = policy.token_logprobs(session.ids, session.mask, session.actions)
    torch.testing.assert_close(scored.values, session.logprobs, atol=1e-4, rtol=0)
    assert (session.logprobs[~session.actions] == 0).all()


def test_score_is_the_mean_over_tokens(policy, prompts):
    candidates = [policy.encode_reply(t) for t in ("1 2", "3")]
    found = policy.score(prompts[0], candidates)
    for value, candidate in zip(found, candidates, strict=True):
        logits = policy(torch.tensor([prompts[0] + candidate]))[0].log_softmax(-1).detach()
        start = len(prompts[0]) - 1
        steps = [logits[start + i, token] for i, token in enumerate(candidate)]
        assert float(value) == pytest.approx(float(sum(steps)) / len(steps), abs=1e-4)
    with pytest.raises(ZooError, match="candidates"):
        policy.score(prompts[0], [])


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"temperature": -1.0}, "temperature=-1"),
        ({"top_p": 0.0}, "top_p=0"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
    ],
)
def test_sampling_out_of_range_is_refused(policy, prompts, options, pattern):
    with pytest.raises(ZooError, match=pattern):
        policy.generate(prompts, **{"max_new_tokens": 2, **options})


def test_a_prompt_as_long_as_the_context_is_refused(policy):
    with pytest.raises(ZooError, match=r"64 tokens.*max_context is 64"):
        policy.generate([[5] * 64], 4)


@pytest.mark.parametrize(
    ("args", "pattern"),
    [
        ({}, "exactly one"),
        ({"model_id": "a/b", "tiny": {"vocabulary": ["a"]}}, "exactly one"),
        ({"tiny": {"vocabulary": ["a"], "hiden": 3}}, "Did you mean 'hidden'"),
        ({"tiny": {"vocabulary": ["a"], "hidden": 30}}, "multiple of twice"),
        ({"tiny": {"vocabulary": ["a"]}, "lora": {}}, "lora"),
        ({"tiny": {"vocabulary": ["a"]}, "dtype": "float16"}, "policy.dtype"),
        ({"modelid": "a/b"}, "Did you mean 'model_id'"),
    ],
)
def test_bad_policy_arguments_are_one_sentence(args, pattern):
    with pytest.raises(ZooError, match=pattern):
        PolicyArgs.of(args)


# -- from the hub, which a folder stands for -----------------------------------------------------


@pytest.fixture
def folder(policy, tmp_path):
    policy.save_pretrained(str(tmp_path / "base"))
    return str(tmp_path / "base")


def test_written_folder_is_read_by_transformers_alike(policy, prompts, folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([prompts[0]])
    torch.testing.assert_close(model(ids).logits, policy(ids), atol=1e-5, rtol=0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer("sort 3 1 2")["input_ids"] == policy.codec.tokenizer("sort 3 1 2")["input_ids"]


def test_adapters_train_alone_and_switch_off(folder):
    policy = CausalPolicy(PolicyArgs(model_id=folder, lora=LoraArgs(r=2)))
    ids = torch.arange(5, 11)[None]
    base = policy(ids).detach()
    for name, weight in policy.named_parameters():
        assert weight.requires_grad == ("lora_" in name)
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    assert (policy(ids) - base).abs().max() > 1e-3
    with policy.adapters_off():
        torch.testing.assert_close(policy(ids), base)
    saved = {n for n, _ in policy.named_parameters()}
    frozen = tuple(f"{name}." for name in policy.frozen())
    assert {n for n in saved if not n.startswith(frozen)} == {n for n in saved if "lora_" in n}
    assert all("lora_" in name for name in policy.trainable())


def test_a_missing_model_is_one_sentence(tmp_path):
    with pytest.raises(ZooError, match="nowhere"):
        CausalPolicy(PolicyArgs(model_id=str(tmp_path / "nowhere")))


def test_both_names_of_the_cache_argument_are_known(policy):
    names = inspect.signature(policy.base.forward).parameters
    assert policy.cache_argument in names or policy.cache_argument == "past_key_values"


def test_follow_up_turns_of_a_chat_template(folder):
    policy = CausalPolicy(PolicyArgs(model_id=folder))
    end = policy.codec.tokenizer.eos_token
    policy.codec.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}{{ ' ' }}{{ m['content'] }}"
        "{{ '" + end + "' }}{{ ' ' }}{% endfor %}{% if add_generation_prompt %}go{% endif %}"
    )
    seen = []
    tokenizer = policy.codec.tokenizer

    class Spy:
        chat_template = tokenizer.chat_template
        apply_chat_template = staticmethod(tokenizer.apply_chat_template)
        convert_ids_to_tokens = staticmethod(tokenizer.convert_ids_to_tokens)
        eos_token_id = tokenizer.eos_token_id

        def __call__(self, text, **_):
            seen.append(text)
            return {"input_ids": [1]}

    policy.codec.tokenizer = Spy()
    policy.encode_prompt("1 2", first=True)
    policy.encode_prompt("3", first=False)
    assert seen == [f"user 1 2{end} go", f" user 3{end} go"]
