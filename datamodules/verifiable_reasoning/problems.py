"""What a problem is, and how files of problems are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.errors import ZooError, did_you_mean, missing_extra
from zoo.json_lines import read_json_lines

SUBJECTS = (
    "Algebra",
    "Counting & Probability",
    "Geometry",
    "Intermediate Algebra",
    "Number Theory",
    "Prealgebra",
    "Precalculus",
)
QUESTION = ("question", "problem", "prompt")
ANSWER = ("answer", "solution", "ground_truth")
SKILL = ("skill", "type", "subject")


@dataclass(frozen=True)
class Problem:
    """A question and its answer.

    Attributes:
        question: As the model reads it.
        answer: What is checked against.
        skill: Number of its skill; 0 where a data set names none.
        solution: What to imitate; empty for the bare answer.
    """

    question: str
    answer: str
    skill: int = 0
    solution: str = ""


def to_problem(row: Mapping[str, Any], skills: Sequence[str], where: str) -> Problem:
    """A problem from one row of a file.

    Args:
        row: With a question (``question``, ``problem``), an answer (``answer``, else ``solution``)
            and perhaps a skill (``skill``, ``type``, ``subject``).
        skills: Known skills, in the order of their numbers; empty where none are told apart.
        where: File and row, for errors.

    Raises:
        ZooError: If question or answer is missing or empty, or the skill is unknown.
    """
    question = next((str(row[k]).strip() for k in QUESTION if row.get(k)), "")
    if not question:
        raise ZooError(f"{where} has no question: expected a key {' or '.join(QUESTION[:2])}.")
    answer = next((str(row[k]).strip() for k in ANSWER if row.get(k) not in (None, "")), None)
    if answer is None:
        raise ZooError(f"{where} has no answer: expected a key {' or '.join(ANSWER[:2])}.")
    if not answer:
        raise ZooError(f"{where} has an empty answer.")
    solution = str(row.get("solution") or row.get("answer") or "").strip()
    if not skills:
        return Problem(question, answer, 0, solution)
    name = next((str(row[k]) for k in SKILL if row.get(k)), None)
    if name is None or name not in skills:
        hint = did_you_mean(name, skills) if name else ""
        raise ZooError(
            f"{where} has the unknown skill {name!r}: there are {', '.join(skills)}.{hint}"
        )
    return Problem(question, answer, list(skills).index(name), solution)


def read_gsm8k(root: Path, split: str) -> list[Problem]:
    """GSM8K as published: ``train.jsonl`` and ``test.jsonl``, answers ending in ``#### n``."""
    found = []
    for where, row in read_json_lines(root / f"{split}.jsonl", "problems"):
        if "answer" in row and "####" not in str(row["answer"]):
            raise ZooError(f"{where} has no answer: GSM8K's end in '#### n'.")
        found.append(to_problem(row, (), where))
    return found


def read_math(root: Path, split: str) -> list[Problem]:
    r"""MATH as published: ``<split>/<subject>/<id>.json``, answers in ``\boxed{}``."""
    folder = root / split
    if not folder.is_dir():
        raise ZooError(f"No folder {folder}: MATH has {split}/<subject>/<id>.json.")
    found = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ZooError(f"{path} is no JSON: {error}.") from error
        if "solution" in row and r"\boxed" not in row["solution"]:
            raise ZooError(rf"{path} has no answer: its solution has no \boxed{{}}.")
        found.append(to_problem(row, SUBJECTS, str(path)))
    return found


def read_dapo(root: Path) -> list[Problem]:
    """DAPO-Math-17k as published: parquet with a chat ``prompt`` and ``reward_model``."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra("pyarrow", "agents") from error

    paths = sorted(root.rglob("*.parquet"))
    if not paths:
        raise ZooError(f"No .parquet file below {root}: DAPO-Math-17k is one.")
    found: dict[str, Problem] = {}  # the published file repeats its rows
    for path in paths:
        try:
            table = pq.read_table(path, columns=["prompt", "reward_model"])
        except Exception as error:  # pyarrow has no common base class
            raise ZooError(f"{path} is no such parquet file: {error}".splitlines()[0]) from error
        for number, row in enumerate(table.to_pylist()):
            turns, reward = row["prompt"], row["reward_model"] or {}
            question = turns[-1]["content"] if turns else ""
            plain = {"question": question, "answer": reward.get("ground_truth")}
            problem = to_problem(plain, (), f"{path}, row {number},")
            found.setdefault(problem.question, problem)
    return list(found.values())
