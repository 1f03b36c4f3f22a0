"""SCPO in the contract's tests."""

import json

from tests.case import Case

SKILLS = ["last", "max", "min", "reverse", "sort", "add", "subtract", "count"]
VOCABULARY = [*SKILLS, "and", "0 1 2 3 4 5 6 7 8 9"]


def write_inputs(folder):
    """Questions a line, and as JSON Lines."""
    (folder / "some.txt").write_text("sort 3 1 2\n\nmax 4 5 6\n")
    (folder / "more.jsonl").write_text(json.dumps({"question": "last 7 8 9"}) + "\n")
    return [str(folder / "some.txt"), str(folder / "more.jsonl")]


def bad_inputs(folder):
    """Missing files, rows without question or answer, unknown skills, broken JSON."""
    yield {"root": str(folder / "nowhere"), "dataset": "gsm8k"}, "nowhere"
    rows = {
        "noanswer": ({"question": "1 + 1?"}, "line 2, has no answer"),
        "empty": ({"question": "1 + 1?", "answer": "  "}, "line 2, has an empty answer"),
        "noquestion": ({"answer": "2"}, "line 2, has no question"),
        "skill": ({"question": "q", "answer": "2", "skill": "srot"}, "'srot'.*mean 'sort'"),
        "list": ([1], "line 2, is a list"),
    }
    good = json.dumps({"question": "q", "answer": "1", "skill": "sort"})
    for name, (row, pattern) in rows.items():
        (folder / name).mkdir()
        (folder / name / "train.jsonl").write_text(f"{good}\n{json.dumps(row)}\n")
        data = {"root": str(folder / name), "dataset": "jsonl", "skills": SKILLS}
        yield {**data, "val_problems": 1}, pattern
    (folder / "broken").mkdir()
    (folder / "broken/train.jsonl").write_text('{"question": ')
    yield {"root": str(folder / "broken"), "dataset": "jsonl"}, "line 1, is no JSON"
    (folder / "few").mkdir()
    (folder / "few/train.jsonl").write_text(good)
    yield {"root": str(folder / "few"), "dataset": "jsonl"}, "val_problems=256 would leave none"
    (folder / "gsm").mkdir()
    (folder / "gsm/train.jsonl").write_text(json.dumps({"question": "q", "answer": "no hashes"}))
    yield {"root": str(folder / "gsm"), "dataset": "gsm8k"}, "#### n"
    (folder / "math/train/algebra").mkdir(parents=True)
    problem = {"problem": "q", "solution": r"\boxed{1}", "type": "Algbra"}
    (folder / "math/train/algebra/1.json").write_text(json.dumps(problem))
    yield {"root": str(folder / "math"), "dataset": "math"}, "Did you mean 'Algebra'"
    (folder / "blank.txt").write_text("\n\n")
    yield {"inputs": str(folder / "blank.txt")}, "has no question"
    (folder / "key.jsonl").write_text('{"text": "q"}')
    yield {"inputs": str(folder / "key.jsonl")}, "has no question"


CASE = Case(
    model={
        "policy": {
            "tiny": {
                "vocabulary": VOCABULARY,
                "hidden": 16,
                "layers": 1,
                "heads": 2,
                "ffn": 32,
                "context": 24,
            },
            "max_context": 24,
        },
        "max_new_tokens": 4,
        "test_rollouts": 34,
        "test_batch": 4,
        "sft_steps": 2,  # so that the other steps roll out
    },
    data={"problems": [32, 8, 9], "batch_size": 8, "eval_batch_size": 4},
    shapes={"value": (2, 6, 24)},
    write_inputs=write_inputs,
    predict=lambda folder: {"question": "sort 3 1 2"},
    bad_inputs=bad_inputs,
    trainer={"check_val_every_n_epoch": 1},
    learns=0.9,  # of imitation's loss to that of rewards; tests/scpo has that the first falls
)
