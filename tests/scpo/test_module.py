"""SCPO's own steps: advantages, history in the checkpoint, the table, use, and refusals."""

import json

import pytest
import torch
from lightning import Trainer, seed_everything

from tests.scpo.case import CASE, SKILLS, VOCABULARY
from zoo import SCPO
from zoo.agents.losses import skill_sums
from zoo.datamodules import VerifiableReasoningDataModule
from zoo.datamodules.verifiable_reasoning import digits
from zoo.errors import ZooError
from zoo.scpo import estimate_baselines

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def model(**changes):
    seed_everything(0)
    return SCPO(**{**CASE.model, **changes})


def test_advantage_is_reward_less_baseline_over_one_number_for_the_batch():
    module = model()
    rewards, skills = torch.rand(6, 2).round(), torch.tensor([0, 0, 0, 1, 1, 1])
    off = rewards - estimate_baselines(rewards, skills, n_skills=8)
    torch.testing.assert_close(module.advantage(rewards, skills), off / (off.std() + 1e-6))
    plain = model(normalise="none")
    torch.testing.assert_close(plain.advantage(rewards, skills), off)


def test_groups_that_are_all_right_keep_a_signal_but_not_with_grpo():
    rewards = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    skills = torch.zeros(4, dtype=torch.long)
    assert (model().advantage(rewards, skills)[0] > 0.1).all()
    assert (model(baseline="grpo").advantage(rewards, skills)[0] == 0).all()


def test_history_is_in_the_state_dict_and_grows_with_each_step():
    module = model()
    data = VerifiableReasoningDataModule(**CASE.data)
    Trainer(max_steps=4, limit_val_batches=0, **SILENT).fit(module, data)
    assert int(module.history.steps) == 2  # of four steps, two imitate
    state = module.state_dict()
    assert "history.total" in state
    again = model()
    again.load_state_dict(state)
    assert torch.equal(again.history.weight, module.history.weight)


def test_a_resumed_run_ends_with_the_weights_of_one_that_was_not(tmp_path):
    def fit(path=None, epochs=2):
        data = VerifiableReasoningDataModule(**CASE.data)
        trainer = Trainer(max_epochs=epochs, limit_val_batches=0, **SILENT)
        module = model(kl=0.1)
        trainer.fit(module, data, ckpt_path=path, weights_only=True)
        trainer.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return module

    fit(epochs=1)
    resumed = fit(tmp_path / "1.ckpt")
    whole = fit()
    for (name, a), (_, b) in zip(
        resumed.state_dict().items(), whole.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name


def test_clusters_are_fitted_when_rewards_begin_and_are_saved():
    module = model(skill_source="cluster", n_skills=4)
    data = VerifiableReasoningDataModule(**CASE.data)
    Trainer(max_steps=3, limit_val_batches=0, **SILENT).fit(module, data)
    assert module.clusters.fitted
    (answer,) = module.predict("sort 3 1 2")
    assert 0 <= answer["skill"] < 4
    again = model(skill_source="cluster", n_skills=4)
    again.load_state_dict(module.state_dict())
    assert again.predict("sort 3 1 2") == [answer]


def test_skills_of_soft_weights_train_too():
    module = model()
    rewards = torch.rand(4, 2).round()
    weights = torch.rand(4, 8).softmax(dim=1)
    assert module.advantage(rewards, weights).shape == (4, 2)
    module.history.update(skill_sums(rewards, weights, 8))
    assert module.history.prior() is not None


def test_solving_samples_and_predicting_does_not():
    module = model()
    found = module.solve(["sort 3 1 2", "max 1 2 3"], n=3)
    assert [len(texts) for texts in found] == [3, 3]
    assert found == module.solve(["sort 3 1 2", "max 1 2 3"], n=3)
    assert module.predict("sort 3 1 2") == module.predict(["sort 3 1 2"])
    with pytest.raises(ZooError, match="Question 1 is empty"):
        module.predict(["sort 3 1 2", " "])
    with pytest.raises(ZooError, match="'srot'"):
        module.predict("srot 3 1 2")


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"group_size": 1}, "group_size=1"),
        ({"group_size": 1, "allow_single": True, "baseline": "rloo"}, "group_size=1"),
        ({"baseline": "scop"}, "Did you mean 'scpo'"),
        ({"coupling": "grouped"}, "Did you mean 'group'"),
        ({"history_decay": 1.0}, "history_decay=1.0"),
        ({"skill_names": ["a"]}, "1 names for n_skills=8"),
        ({"skill_source": "llm"}, r"tagger\.model"),
        ({"normalise": "group"}, "batch_std"),
        ({"temperature": 0.0}, "temperature=0"),
    ],
)
def test_bad_arguments_are_one_sentence(changes, pattern):
    with pytest.raises(ZooError, match=pattern):
        model(**changes)


def test_data_with_more_skills_than_the_model_is_refused_before_training():
    module = model(n_skills=3)
    data = VerifiableReasoningDataModule(**CASE.data)
    with pytest.raises(ZooError, match=r"has the skill \d: n_skills=3"):
        Trainer(max_steps=3, limit_val_batches=0, **SILENT).fit(module, data)


def test_rewards_of_ones_own_are_checked():
    class Odd(SCPO):
        def reward(self, responses, answers):
            return torch.full((len(responses),), 2.0)

    rewards = torch.full((2, 2), 2.0)
    with pytest.raises(ZooError, match=r"Row 0 .*clip_rewards"):
        Odd(**CASE.model).advantage(rewards, torch.tensor([0, 1]))
    assert (
        Odd(**CASE.model, clip_rewards=True)
        .advantage(rewards, torch.tensor([0, 1]))
        .isfinite()
        .all()
    )


# -- data ----------------------------------------------------------------------------------------


def test_skills_by_hand():
    expected = {
        "last": ([3, 1, 2], "2"),
        "max": ([3, 1, 2], "3"),
        "min": ([3, 1, 2], "1"),
        "reverse": ([3, 1, 2], "2 1 3"),
        "sort": ([3, 1, 2], "1 2 3"),
        "add": ([3, 7, 5, 8], "5"),
        "subtract": ([3, 7, 5, 8], "9"),
        "count": ([5, 1, 9], "2"),
    }
    assert list(expected) == list(digits.SKILLS) == SKILLS
    for skill, (numbers, answer) in expected.items():
        assert digits.SOLVE[skill](numbers) == answer


def test_splits_share_no_question_and_demonstrations_hold_none_out():
    data = VerifiableReasoningDataModule(demonstrations=8)
    for stage in ("fit", "test"):
        data.setup(stage)
    questions = {s: [p.question for p in d.problems] for s, d in data.datasets.items()}
    assert [len(questions[s]) for s in ("train", "val", "test")] == [512, 256, 512]
    everything = [q for found in questions.values() for q in found]
    assert len(set(everything)) == len(everything)
    held_out = set(questions["val"]) | set(questions["test"])
    seed_everything(0)
    shown = [data.datasets["train"][i]["demonstrations"] for i in range(512)]
    pairs = [p for d in shown for p in zip(d["question"], d["answer"], strict=True)]
    assert not held_out & {q for q, _ in pairs}
    names = [q.split()[0] for q, _ in pairs]
    shares = [names.count(s) / len(names) for s in SKILLS]
    exposure = [w / sum(digits.EXPOSURE) for w in digits.EXPOSURE]
    assert shares == pytest.approx(exposure, abs=0.025)
    words = set(" ".join(VOCABULARY).split())
    assert {w for q, a in pairs for w in f"{q} {a}".split()} <= words == set(digits.VOCABULARY)


def test_random_labels_are_drawn_by_chance_and_kept():
    true, one, again = (
        VerifiableReasoningDataModule(labels=labels) for labels in ("true", "random", "random")
    )
    found = []
    for data in (true, one, again):
        data.setup("fit")
        found.append([p.skill for p in data.datasets["train"].problems])
    assert found[1] == found[2]
    agree = sum(a == b for a, b in zip(*found[:2], strict=True)) / 512
    assert 0.05 < agree < 0.2


def test_published_layouts(tmp_path):
    gsm = {"question": "2 + 2?", "answer": "2 and 2 is 4\n#### 4"}
    lines = "\n".join(json.dumps({**gsm, "question": f"{i} + 2?"}) for i in range(5))
    (tmp_path / "gsm").mkdir()
    for split in ("train", "test"):
        (tmp_path / f"gsm/{split}.jsonl").write_text(lines)
        folder = tmp_path / "math" / split / "geometry"
        folder.mkdir(parents=True)
        for i in range(3):
            row = {"problem": f"p{i}", "solution": rf"so \boxed{{{i}}}", "type": "Geometry"}
            (folder / f"{i}.json").write_text(json.dumps(row))
    data = VerifiableReasoningDataModule(str(tmp_path / "gsm"), "gsm8k", val_problems=2)
    data.setup("fit")
    data.setup("test")
    assert [len(data.datasets[s]) for s in ("train", "val", "test")] == [3, 2, 5]
    sample = data.datasets["train"][0]
    assert sample["demonstrations"]["answer"] == [gsm["answer"]]
    data = VerifiableReasoningDataModule(str(tmp_path / "math"), "math", val_problems=1)
    data.setup("test")
    assert data.datasets["test"][2]["skill"] == 2
    (tmp_path / "math/aime.jsonl").write_text(
        '{"problem": "q", "answer": 204, "subject": "Algebra"}'
    )
    data = VerifiableReasoningDataModule(str(tmp_path / "math"), "math", "aime.jsonl")
    data.setup("test")
    assert data.datasets["test"][0] == {"question": "q", "answer": "204", "skill": 0, "index": 0}


def test_dapo_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    row = {"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "34"}}
    other = {**row, "prompt": [{"role": "user", "content": "r"}]}
    pq.write_table(pa.Table.from_pylist([row, other, row]), tmp_path / "dapo.parquet")
    (tmp_path / "aime.jsonl").write_text('{"problem": "q", "answer": "1"}')
    data = VerifiableReasoningDataModule(str(tmp_path), "dapo", "aime.jsonl", val_problems=1)
    data.setup("fit")
    assert len(data.datasets["train"]) == len(data.datasets["val"]) == 1
    with pytest.raises(ZooError, match="eval_file"):
        VerifiableReasoningDataModule(str(tmp_path), "dapo")
    (tmp_path / "dapo.parquet").write_bytes(b"PAR1")
    data = VerifiableReasoningDataModule(str(tmp_path), "dapo", "aime.jsonl")
    with pytest.raises(ZooError, match=r"dapo\.parquet is no such parquet file"):
        data.setup("fit")
