"""Skill-SD in the contract's tests."""

import json

from tests.case import Case

OBSERVATION = "prepare apple for lunch."
HISTORY = [OBSERVATION, "heat apple", "done."]


def write_inputs(folder):
    """First observations a line, and histories as JSON Lines."""
    (folder / "some.txt").write_text(f"{OBSERVATION}\n\nprepare cup for party.\n")
    (folder / "more.jsonl").write_text(json.dumps({"history": HISTORY}) + "\n")
    return [str(folder / "some.txt"), str(folder / "more.jsonl")]


def bad_inputs(folder):
    """Missing folders, ids without folder, malformed levels, games and histories."""
    for world in ("boxoban", "alfworld", "appworld"):
        yield {"root": str(folder / "nowhere"), "world": world}, "nowhere"
    (folder / "empty").mkdir()
    yield {"root": str(folder / "empty"), "world": "boxoban"}, r"no Boxoban files"
    yield {"root": str(folder / "empty"), "world": "alfworld"}, r"json_2\.1\.1"
    yield {"root": str(folder / "empty"), "world": "appworld"}, r"datasets/train\.txt"
    (folder / "boxoban/train").mkdir(parents=True)
    (folder / "boxoban/train/000.txt").write_text("; 0\n####\n#@.#\n####\n")
    yield {"root": str(folder / "boxoban"), "world": "boxoban"}, "0 boxes and 1 goals"
    apps = folder / "apps/data"
    (apps / "datasets").mkdir(parents=True)
    (apps / "tasks/82e2fac_1").mkdir(parents=True)
    (apps / "datasets/train.txt").write_text("82e2fac_1\n82e2fac_2\n")
    (apps / "tasks/82e2fac_1/specs.json").write_text('{"instruction": "Do it."}')
    yield {"root": str(folder / "apps"), "world": "appworld"}, "line 2, names the task '82e2fac_2'"
    (apps / "tasks/82e2fac_2").mkdir()
    (apps / "tasks/82e2fac_2/specs.json").write_text("{}")
    yield {"root": str(folder / "apps"), "world": "appworld"}, "has no instruction"
    (folder / "blank.txt").write_text("\n\n")
    yield {"inputs": str(folder / "blank.txt")}, "has no history"
    (folder / "key.jsonl").write_text('{"text": "q"}')
    yield {"inputs": str(folder / "key.jsonl")}, "expected a key history"
    (folder / "even.jsonl").write_text(json.dumps({"history": HISTORY[:2]}))
    yield {"inputs": str(folder / "even.jsonl")}, "end with an observation"


CASE = Case(
    model={
        "policy": {
            "tiny": {"hidden": 16, "layers": 1, "heads": 2, "ffn": 32, "context": 64},
            "max_context": 48,
        },
        "group_size": 4,
        "max_new_tokens": 3,
        "sft_steps": 2,  # so that the other steps roll out
        "sft_batch": 8,
        "rehearsal_batch": 4,
        "probe": 4,
        "sync_every": 2,
        "test_rollouts": 2,
    },
    data={"batch_size": 4, "eval_batch_size": 4},
    shapes={"value": (2, 6, 50)},
    write_inputs=write_inputs,
    predict=lambda folder: {"observation": OBSERVATION},
    bad_inputs=bad_inputs,
    trainer={"check_val_every_n_epoch": 1, "limit_train_batches": 4},
    learns=0.9,  # of imitation's loss to that of rehearsal; tests/skill_sd has that success grows
)
