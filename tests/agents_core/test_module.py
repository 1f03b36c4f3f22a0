"""Training a policy in two stages: imitation, then rewards; references, parts, schedules."""

import copy
import warnings

import pytest
import torch
from lightning import Trainer, seed_everything
from torch.utils.data import DataLoader, Dataset

from tests.agents_core.chain import WORDS, Chain, task
from zoo.agents.envs import VectorEnv
from zoo.agents.losses import grpo_advantage
from zoo.agents.module import Experience, PolicyModule, Updates
from zoo.agents.policy import CausalPolicy, PolicyArgs, TinyConfig
from zoo.agents.rollout import RolloutCollector
from zoo.errors import ZooError

TINY = {"vocabulary": WORDS, "hidden": 32, "heads": 2, "ffn": 64, "context": 64}
SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
COLOURS = ("red", "blue", "green")


class Tasks(Dataset):
    """Tasks of the chain, with a demonstration of one turn."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        word = COLOURS[index % 3]
        return {
            "number": index,
            "word": word,
            "demonstrations": {"question": [f"goal {word}"], "answer": [word]},
        }


class ChainAgent(PolicyModule):
    """GRPO over episodes of the chain."""

    def __init__(
        self,
        policy: PolicyArgs,
        updates: dict | None = None,
        sft_steps: int = 4,
        rl_steps: int | None = None,
        group: int = 2,
        length: int = 2,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.setup_policy(policy, Updates(**(updates or {})), sft_steps, 3e-3, rl_steps)
        self.group, self.length = group, length
        self.logged = []

    def experience(self, batch, generator):
        numbers = batch["number"].tolist()
        tasks = [task(n, w, self.length) for n, w in zip(numbers, batch["word"], strict=True)]
        env = VectorEnv(Chain, len(tasks) * self.group)
        collector = RolloutCollector(self.policy, env, self.length, 2)
        found = collector.collect(tasks, self.group, generator)
        rewards = found.rewards().view(-1, self.group)
        advantage = grpo_advantage(rewards).values.flatten()
        groups = torch.arange(len(tasks)).repeat_interleave(self.group)
        return Experience(found.sequences, advantage, {"reward": rewards.mean()}, groups)

    def log(self, name, value, **_):
        self.logged.append((self.stage.name, name, float(torch.as_tensor(value).detach())))

    def validation_step(self, batch, batch_idx): ...

    def write_prediction(self, prediction, path): ...


def fit(model, steps=6, batch_size=4, **options):
    seed_everything(0)
    loader = DataLoader(Tasks(), batch_size=batch_size)
    trainer = Trainer(max_steps=steps, limit_val_batches=0, **{**SILENT, **options})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You defined a `validation_step`")
        trainer.fit(model, loader)
    return trainer


def agent(**options):
    seed_everything(0)
    return ChainAgent(PolicyArgs(tiny=TinyConfig(**TINY), max_context=64), **options)


def test_imitation_comes_first_and_rewards_after():
    model = agent()
    fit(model)
    losses = [stage for stage, name, _ in model.logged if name == "train_loss"]
    assert losses == ["sft"] * 4 + ["rl"] * 2
    names = {name for stage, name, _ in model.logged if stage == "rl"}
    assert names >= {
        "train_reward", "train_entropy", "train_clip_frac", "train_grad_norm", "train_response_len",
        "train_tokens_per_s",
    }  # fmt: skip


def test_imitation_learns_the_demonstrations():
    model = agent(sft_steps=60)
    fit(model, 60)
    prompts = [model.policy.encode_prompt(f"goal {w}") for w in COLOURS]
    rollout = model.policy.generate(prompts, 3, temperature=0)
    assert model.policy.decode(rollout.rows()) == list(COLOURS)


@pytest.mark.slow
def test_rewards_teach_what_was_not_shown():
    """Imitation stops early; the reward goes on from there."""
    model = agent(sft_steps=12, updates={"epochs": 2}, group=8, length=1)
    fit(model, 12 + 120, batch_size=8)
    rewards = [value for _, name, value in model.logged if name == "train_reward"]
    assert sum(rewards[-10:]) / 10 > sum(rewards[:5]) / 5 + 0.1


def test_epochs_and_minibatches_make_so_many_updates():
    model = agent(sft_steps=0, updates={"epochs": 2, "minibatches": 3})
    trainer = fit(model, 12)
    assert trainer.global_step == 12
    assert sum(name == "train_reward" for _, name, _ in model.logged) == 2


@pytest.mark.parametrize("how", ["token", "sequence"])
def test_micro_batches_change_nothing(how):
    def weights(micro_batch):
        model = agent(sft_steps=0, updates={"micro_batch": micro_batch, "how": how, "kl": 0.1})
        fit(model, 2)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    torch.testing.assert_close(weights(3), weights(None), atol=1e-5, rtol=1e-4)


def test_the_first_update_has_a_ratio_of_one():
    model = agent(sft_steps=0)
    fit(model, 1)
    clipped = [value for _, name, value in model.logged if name == "train_clip_frac"]
    assert clipped == [0.0]


def test_learning_rate_warms_up_from_a_tenth():
    model = agent(sft_steps=0)
    trainer = fit(model, 3)
    (config,) = trainer.lr_scheduler_configs
    assert config.scheduler.last_epoch == 3
    assert config.scheduler.get_last_lr()[0] == pytest.approx(3e-4 * (0.1 + 0.9 * 3 / 10))


def test_the_reference_is_the_policy_at_the_first_reward_and_is_kept(tmp_path):
    model = agent(updates={"kl": 0.5})
    trainer = fit(model, 4)  # imitation only
    start = copy.deepcopy(model.policy.state_dict())
    assert not model._reference
    fit(model, 6, max_epochs=None)  # stage "sft" anew, then two updates on rewards
    kl = [value for _, name, value in model.logged if name == "train_kl"]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[1] > 0
    assert start.keys() == model._reference[0].state_dict().keys()
    checkpoint = {"state_dict": model.state_dict(), "hyper_parameters": {}}
    model.on_save_checkpoint(checkpoint)
    assert not any("reference" in key for key in checkpoint["state_dict"])
    fresh = agent(updates={"kl": 0.5})
    fresh.on_load_checkpoint(checkpoint)
    for key, value in model._reference[0].state_dict().items():
        assert torch.equal(fresh._reference[0].state_dict()[key], value)
    assert trainer.global_step == 4


def test_adapters_alone_are_trained_and_saved_and_the_base_comes_again(tmp_path):
    torch.manual_seed(0)
    base = str(tmp_path / "base")
    CausalPolicy(PolicyArgs(tiny=TinyConfig(**TINY))).save_pretrained(base)
    seed_everything(0)
    args = PolicyArgs(model_id=base, lora={"r": 2, "alpha": 4}, max_context=64)
    model = ChainAgent(args, {"kl": 0.1}, sft_steps=2)
    before = {k: v.clone() for k, v in model.named_parameters()}
    fit(model, 4)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) == ("lora_" not in name), name
    kept = model.state_dict()
    assert kept
    assert all("lora_" in key for key in kept)
    again = ChainAgent.from_init_args(model.init_args())
    again.load_state_dict(kept)
    ids = torch.arange(6)[None]
    torch.testing.assert_close(again(ids, torch.ones_like(ids)), model(ids, torch.ones_like(ids)))


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"clip_low": 0.0}, "clip_low=0"),
        ({"kl": -1.0}, "kl=-1"),
        ({"how": "group", "micro_batch": 2}, "split groups"),
    ],
)
def test_bad_updates_are_one_sentence(options, pattern):
    with pytest.raises(ZooError, match=pattern):
        Updates(**options)


def test_nothing_to_train_is_refused():
    with pytest.raises(ZooError, match="nothing would be trained"):
        agent(sft_steps=0, rl_steps=0)


def test_a_demonstration_longer_than_the_context_is_refused():
    with pytest.raises(ZooError, match="max_context is 64"):
        agent().imitation_loss(["goal " + "1 " * 70], ["red"])
