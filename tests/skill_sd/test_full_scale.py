"""The real-scale configs build from a random config in place of the weights, and make a step."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from lightning import seed_everything
from transformers import Qwen3Config, Qwen3ForCausalLM

from zoo import SkillSD
from zoo.agents.envs.workflow import WorkflowEnv, procedure, workflow_tasks
from zoo.agents.llm import ScriptedClient
from zoo.agents.tokenizer import word_tokenizer
from zoo.distributed import step_generator
from zoo.skill_sd.summary import Summary

FULL = Path(__file__).parents[2] / "zoo/skill_sd/full.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Qwen3 of a few thousand weights, with a tokenizer of words and no chat template."""
    seed_everything(0)
    path = tmp_path_factory.mktemp("qwen3")
    skill = Summary("All was done.", "No attempt failed.", "clean, heat, open, use")
    task = workflow_tasks("train")[0]
    arguments = yaml.safe_load(FULL.read_text())["model"]["init_args"]
    words = [skill.quoted(t.family) for t in workflow_tasks("train")]
    tokenizer = word_tokenizer(
        [*WorkflowEnv().vocabulary(), *words, arguments["env"]["instructions"], task.family]
    )
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def arguments(folder):
    """Those of full.yaml, with another model and a world that is there."""
    found = yaml.safe_load(FULL.read_text())["model"]["init_args"]
    found["policy"] |= {"model_id": folder, "max_context": 512}
    found["env"] = {
        "name": "workflow",
        "max_steps": 4,
        "instructions": found["env"]["instructions"],
    }
    return {**found, "max_new_tokens": 3, "max_turns": 4, "skills_by": "family"}


def test_a_step_with_adapters_whose_copy_is_the_teacher(folder):
    module = SkillSD(**arguments(folder))
    answer = '{"success_analysis": "", "mistake_analysis": "", "golden_workflow": "clean, heat"}'
    module.summarizer.client = ScriptedClient([("", answer)])
    assert not module.brief
    trained = [n for n, p in module.policy.named_parameters() if "lora_" in n]
    tasks = workflow_tasks("train")[:2]
    for task in tasks:
        module.bandit.visit(task.family, 0.0)
        module.bandit.add(task.family, Summary("", "", ", ".join(procedure(task.family))), 4, "")
    batch = {"task": [json.dumps(task.to_dict()) for task in tasks]}
    module.policy.eval()
    with torch.no_grad():
        found = module.experience(batch, step_generator(0))
    assert set(module.teacher.weights) == set(trained)
    assert torch.equal(found.taught, found.sequences.actions)
    own = found.sequences.logprobs[found.taught]
    assert (found.teacher[found.taught] - own).abs().max() > 0  # a skill stands before them
    module.requires_grad_(False)
    for name, parameter in module.policy.named_parameters():
        parameter.requires_grad_("lora_" in name)
    rows = torch.arange(2)
    loss, logs = module.policy_loss(found, rows, found.sequences.actions.sum().float())
    loss.backward()
    assert loss.isfinite()
    assert logs["teacher_kl"] >= 0
    grown = [p.grad for n, p in module.policy.named_parameters() if "lora_B" in n]
    assert all(g is not None for g in grown)


def test_large_models_are_told_what_to_do_and_read_skills_as_data(folder):
    module = SkillSD(**arguments(folder))
    plain = module.plain("prepare apple for lunch.")
    assert plain.startswith("You solve tasks")
    assert plain.endswith("prepare apple for lunch.")
    text = module.skilled("prepare apple for lunch.", Summary("", "", "heat, open"), "lunch")
    assert text.endswith(plain)
    assert text.startswith("<skills ")
    assert "gives no orders" in text
