"""Skill-SD's own steps: prompts, bank, gate, checkpoints, arms, use, and refusals."""

import json

import pytest
import torch
from lightning import Trainer, seed_everything

from tests.skill_sd.case import CASE, HISTORY, OBSERVATION
from zoo import SkillSD
from zoo.agents.envs.workflow import procedure, workflow_tasks
from zoo.agents.losses import aggregate
from zoo.agents.skills import SkillLibrary
from zoo.datamodules import AgentTaskDataModule
from zoo.distributed import step_generator
from zoo.errors import ZooError
from zoo.skill_sd import distillation
from zoo.skill_sd.module import read_tasks
from zoo.skill_sd.summary import MARK, Summary

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def model(**changes):
    seed_everything(0)
    return SkillSD(**{**CASE.model, **changes})


def data(**changes):
    return AgentTaskDataModule(**{**CASE.data, **changes})


def batch_of(tasks):
    return {"task": [json.dumps(t.to_dict()) for t in tasks], "index": list(range(len(tasks)))}


def learnt(module):
    """Puts the true procedures of all types into its bank."""
    for task in workflow_tasks("train")[:16]:
        summary = Summary("", "", ", ".join(procedure(task.family)))
        module.bandit.visit(task.family, 0.0)
        module.bandit.add(task.family, summary, 4, task.task_id)
        module.known[task.family] = task.to_dict()


def fit(module, steps, path=None, **changes):
    """So many batches."""
    trainer = Trainer(max_epochs=1, limit_train_batches=steps, limit_val_batches=0, **SILENT)
    trainer.fit(module, data(**changes), ckpt_path=path, weights_only=True)
    return trainer


@pytest.fixture(scope="module")
def trained():
    """A model that has learnt to obey the skill in its prompt, and nothing else."""
    tiny = {"hidden": 64, "layers": 2, "heads": 4, "ffn": 128, "context": 64}
    module = model(policy={"tiny": tiny, "max_context": 48})
    weights, steps = list(module.policy.parameters()), 260
    optimizer = torch.optim.AdamW(weights, 5e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for step in range(steps):
        drawn = module.practice.draw(48, step_generator(step))
        optimizer.zero_grad()
        aggregate(
            -module.policy.token_logprobs(*drawn.values()).values, drawn["actions"]
        ).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
    learnt(module)
    module.teacher.weights = module.teacher.candidate(module.policy)
    module.log = lambda *_, **__: None
    return module


@pytest.fixture
def reader(trained):
    """The same, and afterwards as it was."""
    own = trained.teacher.weights
    yield trained
    trained.teacher.weights, trained.sync_gate = own, True
    with torch.no_grad():
        for name, parameter in trained.policy.named_parameters():
            parameter.copy_(own[name])


def prompts_of(module, monkeypatch):
    """What is encoded as the beginning of a conversation, from now on."""
    seen = []
    encode = module.policy.codec.encode_prompt

    def spy(text, first=True):
        if first:
            seen.append(text)
        return encode(text, first)

    monkeypatch.setattr(module.policy.codec, "encode_prompt", spy)
    return seen


# -- prompts -------------------------------------------------------------------------------------


def test_the_student_never_reads_a_skill_and_the_teacher_does(monkeypatch):
    module = model()
    learnt(module)
    tasks = workflow_tasks("train")[:4]
    seen = prompts_of(module, monkeypatch)
    played = module.play(tasks, 2, generator=step_generator(0))
    assert len(seen) == 8
    assert not any(MARK in text for text in seen)
    seen.clear()
    module.teacher.weights = module.teacher.candidate(module.policy)
    module.judged(played, module._best(tasks))
    with_skill = [text for text in seen if MARK in text]
    assert len(with_skill) == 8
    for text in with_skill:
        kind = text.rpartition("for ")[2].strip(".\n")
        assert text.startswith(f"{MARK} {', '.join(procedure(kind))}.")


def test_a_skill_in_what_the_student_reads_is_refused():
    module = model()
    text = f"{MARK} heat, open.\n{OBSERVATION}"
    for use in (module.act, module.predict, module.plain):
        with pytest.raises(ZooError, match="student's prompt holds a skill"):
            use(text)
    with pytest.raises(ZooError, match="student's prompt holds a skill"):
        module.act([OBSERVATION, "heat apple", f"{MARK} heat."])


def test_in_every_arm_the_deployed_agent_reads_the_same_prompt():
    for mode in ("skill_sd", "grpo_skill_prompt"):
        module = model(mode=mode)
        learnt(module)
        ids = module.conversation_tokens(HISTORY)
        assert module.policy.decode([ids]) == ["prepare apple for lunch. heat apple done."]


@pytest.mark.parametrize("mode", ["skill_sd", "grpo", "opd", "grpo_skill_prompt", "naive_k3"])
def test_what_each_arm_trains_on(mode, monkeypatch):
    module = model(mode=mode)
    learnt(module)
    seen = prompts_of(module, monkeypatch)
    module.policy.eval()
    with torch.no_grad():
        found = module.experience(batch_of(workflow_tasks("train")[:4]), step_generator(1))
    taught = getattr(found, "taught", None)
    distilled = mode in ("skill_sd", "opd", "naive_k3")
    assert (taught is not None) == distilled
    if distilled:
        assert bool(taught.any())
        assert torch.equal(taught, found.sequences.actions)
        assert module.sdl_form == ("k3" if mode == "naive_k3" else "centred")
    assert any(MARK in text for text in seen) == (mode != "grpo")
    if mode == "opd":
        assert not found.advantage.any()


# -- the bank ------------------------------------------------------------------------------------


def test_successes_become_skills_and_the_next_visit_credits_them():
    module = model()
    tasks = workflow_tasks("train")[:2]
    played = module.play(tasks, module.group_size, generator=step_generator(0))
    for number, episode in enumerate(played.episodes):
        right = [f"{v} {episode.task.payload['object']}" for v in procedure(episode.task.family)]
        episode.actions, episode.success = (right, True) if number == 2 else (right[::-1], False)
        episode.observations = [episode.observations[0], *["done."] * 4]
    module._learn(tasks, played)
    first, second = (task.family for task in tasks)
    assert module.bandit.last == {first: 0.25, second: 0.0}
    (arm,) = module.bandit.arms[first]
    assert arm.summary.golden_workflow == ", ".join(procedure(first))
    assert second not in module.bandit
    assert module.bandit.coverage == 0.5
    assert list(module._choose(tasks)) == [first]
    module._learn(tasks, played)
    assert (arm.uses, arm.value) == (1, 0.0)


def test_skills_are_drawn_from_training_tasks_alone():
    module = model()
    with pytest.raises(ZooError, match="of split 'test': skills and rewards"):
        module.experience(batch_of(workflow_tasks("test")[:2]), step_generator(0))


def test_the_bank_is_written_as_a_library_of_skills(tmp_path):
    module = model()
    learnt(module)
    assert module.save_skills(str(tmp_path)) == 16
    library = SkillLibrary(tmp_path)
    assert len(library) == 16
    assert ", ".join(procedure("lunch")) in library["lunch-0"].body
    assert library.history()[0]["evidence"]


def test_success_with_a_skill_is_logged_only_if_a_test_task_has_one():
    """On Sokoban each level has its own skill, so none of the bank's is of a level of the test."""
    trainer = Trainer(**SILENT)
    module = model()
    (none,) = trainer.test(module, data(), verbose=False)
    assert {"test_success", "test_greedy", "test_tokens"} <= none.keys()
    assert not {"test_skill", "test_teacher", "test_kl"} & none.keys()
    module.bandit.visit("knitting", 0.0)
    module.bandit.add("knitting", Summary("", "", "cast on"), 1, "knitting-0")
    module.teacher.weights = module.teacher.candidate(module.policy)
    (other,) = trainer.test(module, data(), verbose=False)
    assert other.keys() == none.keys()
    learnt(module)
    (known,) = trainer.test(module, data(), verbose=False)
    assert {"test_skill", "test_teacher", "test_kl"} <= known.keys()


# -- the teacher ---------------------------------------------------------------------------------


def test_the_teacher_is_no_parameter_and_is_not_published():
    module = model()
    fit(module, 3)
    assert module.teacher
    assert not any("teacher" in name for name, _ in module.named_parameters())
    assert not any("teacher" in name for name in module.state_dict())


def test_the_gate_lets_a_good_reader_pass_and_not_one_that_has_unlearnt_it(reader):
    own = reader.teacher.weights
    assert reader.probed(own) > 0.8
    assert reader.synchronise()
    with torch.no_grad():
        for parameter in reader.policy.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    assert not reader.synchronise()
    assert all(torch.equal(reader.teacher.weights[name], own[name]) for name in own)
    _, now, after, passed = reader.progress.probes[-1]
    assert after < now
    assert passed == 0
    reader.sync_gate = False
    assert reader.synchronise()
    assert not any(torch.equal(reader.teacher.weights[name], own[name]) for name in own)


def test_a_reader_does_what_the_skill_says_and_a_student_that_does_not_read_does_not(reader):
    tasks = workflow_tasks("test")
    keys = torch.arange(len(tasks))
    skills = reader._best(tasks)
    right = [e.success for e in reader.play(tasks, 1, skills, keys=keys).episodes]
    plain = [e.success for e in reader.play(tasks, 1, keys=keys).episodes]
    assert sum(right) > 0.6 * len(tasks)
    assert sum(plain) < 0.3 * len(tasks)


def test_distillation_moves_the_student_towards_what_the_teacher_would_do(reader):
    """Without rewards: under the plain prompt it learns what only the skills say."""
    tasks = workflow_tasks("train")[:16]
    skills = reader._best(tasks)
    optimizer = torch.optim.Adam(reader.policy.parameters(), 1e-3)

    def likelihood():
        values, taught = reader.judged(reader.play(tasks, 4, keys=torch.arange(64)), skills)
        return float(values.sum() / taught.sum())

    before = likelihood()
    for step in range(12):
        played = reader.play(tasks, 4, generator=step_generator(step))
        values, taught = reader.judged(played, skills)
        s = played.sequences
        now = reader.policy.token_logprobs(s.ids, s.mask, s.actions).values
        loss = aggregate(distillation(now, s.logprobs, values, taught), s.actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert likelihood() > before + 0.3


# -- checkpoints ---------------------------------------------------------------------------------


def test_a_resumed_run_ends_as_one_that_was_not(tmp_path):
    """Weights, teacher, bank with its counts, and progress."""

    def run(path=None, epochs=2):
        module = model(kl=0.1)
        learnt(module)
        options = {**SILENT, "limit_train_batches": 3, "limit_val_batches": 0}
        trainer = Trainer(max_epochs=epochs, **options)
        trainer.fit(module, data(), ckpt_path=path, weights_only=True)
        trainer.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return module

    run(epochs=1)
    resumed = run(tmp_path / "1.ckpt")
    whole = run()
    assert whole.progress.rounds == 5
    for (name, a), (_, b) in zip(
        resumed.state_dict().items(), whole.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name
    assert resumed.bandit.state_dict() == whole.bandit.state_dict()
    assert sum(arm.uses for arms in whole.bandit.arms.values() for arm in arms) > 0
    assert resumed.progress.state_dict() == whole.progress.state_dict()
    assert resumed.teacher.weights.keys() == whole.teacher.weights.keys()
    for name, weight in whole.teacher.weights.items():
        assert torch.equal(resumed.teacher.weights[name], weight)
    again = SkillSD.load_from_checkpoint(tmp_path / "2.ckpt")
    assert again.bandit.state_dict() == whole.bandit.state_dict()
    assert again.known == whole.known


# -- use -----------------------------------------------------------------------------------------


def test_acting_chooses_among_what_is_admissible():
    module = model()
    choices = ["open apple", "heat apple", "use apple"]
    chosen = module.act(HISTORY, choices)
    prompt = module.conversation_tokens(HISTORY)
    scores = [float(module.policy.score(prompt, [module.policy.encode_reply(c)])) for c in choices]
    assert chosen == choices[scores.index(max(scores))]
    (found,) = module.predict(HISTORY, choices)
    assert found["logprob"] == pytest.approx(3 * max(scores), rel=1e-4)
    assert isinstance(module.act(OBSERVATION), str)


@pytest.mark.parametrize(
    ("history", "pattern"),
    [
        ([], "it has 0 texts"),
        (HISTORY[:2], "it has 2 texts"),
        (" ", "none of them empty"),
        ("prepare soap for lunch.", "'soap'"),
    ],
)
def test_a_history_that_is_none_is_one_sentence(history, pattern):
    with pytest.raises(ZooError, match=pattern):
        model().predict(history)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"mode": "skill-sd"}, "Did you mean 'skill_sd'"),
        ({"sdl_form": "k4"}, "expected centred, iw_k3, k3"),
        ({"teacher": "frosen"}, "Did you mean 'frozen'"),
        ({"skills_by": "tasks"}, "Did you mean 'task'"),
        ({"group_size": 1}, "group_size=1"),
        ({"rehearsal": -1.0}, "rehearsal=-1.0"),
        ({"sync_every": 0}, "sync_every=0"),
        ({"summarizer": "llm"}, r"llm\.model"),
        ({"env": {"name": "alfworld", "root": "/x"}}, "policy.model_id"),
    ],
)
def test_bad_arguments_are_one_sentence(changes, pattern):
    with pytest.raises(ZooError, match=pattern):
        model(**changes)


def test_a_task_without_id_is_refused():
    row = {**workflow_tasks("train")[0].to_dict(), "task_id": ""}
    with pytest.raises(ZooError, match="no task_id"):
        read_tasks({"task": [json.dumps(row)]})


def test_published_layouts(tmp_path):
    level = "; 0\n######\n#@$. #\n#    #\n######\n"
    for folder in ("train", "valid", "test"):
        (tmp_path / "boxoban" / folder).mkdir(parents=True)
        (tmp_path / "boxoban" / folder / "000.txt").write_text(level)
    boxes = AgentTaskDataModule(str(tmp_path / "boxoban"), "boxoban")
    apps = tmp_path / "apps/data"
    (apps / "datasets").mkdir(parents=True)
    for split, name in (("train", "1_1"), ("dev", "2_1"), ("test_challenge", "3_2")):
        (apps / f"datasets/{split}.txt").write_text(f"{name}\n\n")
        (apps / f"tasks/{name}").mkdir(parents=True)
        (apps / f"tasks/{name}/specs.json").write_text(json.dumps({"instruction": "Do it."}))
    world = AgentTaskDataModule(str(tmp_path / "apps"), "appworld", test_set="test_challenge")
    for found in (boxes, world):
        found.setup("fit")
        found.setup("test")
        assert all(len(found.datasets[split]) == 1 for split in ("train", "val", "test"))
    (task,) = read_tasks({"task": [world.datasets["test"][0]["task"]]})
    assert (task.task_id, task.family) == ("3_2", "3")
    with pytest.raises(ZooError, match="are generated"):
        AgentTaskDataModule(str(tmp_path), "workflow")
