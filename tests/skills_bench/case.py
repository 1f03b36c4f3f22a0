"""SkillsBench in the contract's tests."""

import json
import shutil
from pathlib import Path

import zoo.datamodules
from tests.case import Case

SAMPLES = Path(zoo.datamodules.__file__).parent / "samples" / "skills_bench"


def copy_task(folder, name="speed-table", **changes):
    """An embedded task; ``changes`` replace files by path with ``__`` for a slash, or drop them."""
    target = folder / name
    shutil.copytree(SAMPLES / name, target)
    for key, text in changes.items():
        path = target / key.replace("__", "/").replace("_DOT_", ".")
        if text is None:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return target


def write_inputs(folder):
    """Two task folders."""
    return [str(copy_task(folder)), str(copy_task(folder, "plate-blanks"))]


def bad_inputs(folder):
    """What a task folder can lack, one mistake each."""

    def root(name, **changes):
        (folder / name).mkdir()
        copy_task(folder / name, **changes)
        return {"root": str(folder / name)}

    yield root("verifier", tests__test_outputs_DOT_py=None), "neither test_outputs.py nor test.sh"
    flaky = "import uuid\n\ndef test_file():\n    assert open('ms.csv')\n" + "".join(
        f"\n\ndef test_{i}():\n    assert uuid.uuid4().int % 2\n" for i in range(20)
    )
    yield root("flaky", tests__test_outputs_DOT_py=flaky), "disagree: they must be deterministic"
    yield root("oracle", solution__solve_DOT_sh="exit 3\n"), "own solution.*exit status 3"
    empty = "def test_nothing():\n    pass\n"
    yield root("empty", tests__test_outputs_DOT_py=empty), "pass although nothing was done"
    bad = "---\nname: other\ndescription: x\n---\n"
    skill = {"environment__skills__systems-of-units__SKILL_DOT_md": bad}
    yield root("skill", **skill), "its name is 'other'"
    yield root("toml", task_DOT_toml="[metadata"), "is no TOML"
    yield root("blank", instruction_DOT_md=" \n"), "instruction.md is empty"
    (folder / "link").mkdir()
    (copy_task(folder / "link") / "environment/passwd").symlink_to("/etc/passwd")
    yield {"root": str(folder / "link")}, "passwd is a link"
    leak = "---\nname: systems-of-units\ndescription: x\n---\ntrain,56.00 then van,25.00\n"
    leaky = 'EXPECTED = "train,56.00 then"\n\ndef test_a():\n    assert open("ms.csv")\n'
    skill = {"environment__skills__systems-of-units__SKILL_DOT_md": leak}
    yield root("leak", **skill, tests__test_outputs_DOT_py=leaky), "must not contain answers"
    yield root("outcomes"), "zoo test with --data.root"
    (folder / "table.csv").write_text("task,agent\n")
    yield {"outcomes": str(folder / "table.csv")}, "has the columns"
    row = "task,agent,condition,trials,successes\nspeed-table,a,none,2,3\n"
    (folder / "count.csv").write_text(row)
    yield {"outcomes": str(folder / "count.csv")}, "line 2: 3 successes of 2 trials"
    (folder / "line.jsonl").write_text(json.dumps({"schema": 1, "turns": []}) + "\n")
    yield {"outcomes": str(folder / "line.jsonl")}, "line 1, lacks the key"
    yield {"domains": ["cooking"]}, "domain 'cooking'"
    (folder / "void").mkdir()
    yield {"root": str(folder / "void")}, "holds no task folders"
    yield {"root": str(folder / "nowhere")}, "is no folder"
    yield {"inputs": [str(folder / "nowhere")]}, "is no task folder"


CASE = Case(
    model={"n_trials": 1, "conditions": ["none", "curated"], "width": 16, "folds": 2},
    data={"n_tasks": 5, "eval_batch_size": 2, "batch_size": 4},
    shapes={"without": (3,), "curated": (3,)},
    write_inputs=write_inputs,
    predict=lambda folder: {"task": folder / "speed-table"},
    bad_inputs=bad_inputs,
)
