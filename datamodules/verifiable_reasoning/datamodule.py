"""Problems with answers that a program checks: eight digit skills, GSM8K, MATH, DAPO."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from zoo.errors import ZooError, check_choice
from zoo.json_lines import read_json_lines

from ..base import ZooDataModule
from . import digits
from .problems import SUBJECTS, Problem, read_dapo, read_gsm8k, read_math, to_problem

DATASETS = ("digits", "gsm8k", "math", "dapo", "jsonl")
LABELS = ("true", "random")
SUFFIXES = (".jsonl", ".txt")


class ProblemDataset(Dataset[dict[str, Any]]):
    """Problems, in training with demonstrations beside them.

    Args:
        problems: They.
        demonstrations: A sample's number of them; 0 for none.
        held_out: Questions that no demonstration may show; ``None`` imitates each problem's own
            solution.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        demonstrations: int = 0,
        held_out: Collection[str] | None = None,
    ) -> None:
        self.problems = list(problems)
        self.demonstrations, self.held_out = demonstrations, held_out

    def __len__(self) -> int:
        return len(self.problems)

    def __getitem__(self, index: int) -> dict[str, Any]:
        problem = self.problems[index]
        sample: dict[str, Any] = {
            "question": problem.question,
            "answer": problem.answer,
            "skill": problem.skill,
            "index": index,
        }
        if self.demonstrations:
            shown = (
                [problem]
                if self.held_out is None
                else [digits.demonstration(self.held_out) for _ in range(self.demonstrations)]
            )
            sample["demonstrations"] = {
                "question": [p.question for p in shown],
                "answer": [p.solution or p.answer for p in shown],
            }
        return sample


class Questions(Dataset[dict[str, Any]]):
    """Questions to answer, each with a name."""

    def __init__(self, questions: Sequence[tuple[str, str]]) -> None:
        self.questions = list(questions)

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name, question = self.questions[index]
        return {"name": name, "question": question}


class VerifiableReasoningDataModule(ZooDataModule):
    r"""Questions whose answers can be checked.

    A sample is a dict of ``question`` and ``answer``, text; ``skill`` and ``index``, numbers; in
    training also ``demonstrations``, with ``question`` and ``answer``. In ``predict``: ``name`` and
    ``question``.

    Args:
        root: Folder of the data set as published; ``None`` for the digit problems.
        dataset: "digits"; "gsm8k" (``train.jsonl``, ``test.jsonl``; MIT); "math"
            (``train/<subject>/<id>.json``; MIT; a problem's subject is its skill); "dapo"
            (DAPO-Math-17k, parquet; Apache-2.0; needs ``eval_file``); "jsonl" (``train.jsonl`` and
            ``test.jsonl`` with question, answer and skill).
        eval_file: JSON Lines of other test problems, as MATH-500, AMC or AIME: a path below
            ``root``.
        skills: Names of the skills of "jsonl" or ``eval_file``, where they have any.
        labels: "true", or as a control "random": each problem has a skill drawn by chance.
        problems: Of the digit skills: for training, validation and test.
        demonstrations: Beside each training problem, drawn anew each time, of skills in unequal
            shares; none is a validation or test problem. Other data sets show a problem's own
            solution.
        val_problems: Training problems of the other data sets that are kept for validation.
        base: ``batch_size``, ``eval_batch_size``, ``num_workers``, ``seed`` and ``inputs``
            (``.txt`` with a question a line, or ``.jsonl``): see `ZooDataModule`.

    Raises:
        ZooError: For a missing folder or file, a row without question or answer, or with an unknown
            skill; it names file and row.
    """

    def __init__(
        self,
        root: str | None = None,
        dataset: str = "digits",
        eval_file: str | None = None,
        skills: list[str] | None = None,
        labels: str = "true",
        problems: tuple[int, int, int] = (512, 256, 512),
        demonstrations: int = 2,
        val_problems: int = 256,
        batch_size: int = 32,
        eval_batch_size: int = 64,
        **base: Any,
    ) -> None:
        super().__init__(root, batch_size, eval_batch_size, **base)
        check_choice("dataset", dataset, DATASETS)
        check_choice("labels", labels, LABELS)
        if (dataset == "digits") != (root is None):
            raise ZooError(
                f"dataset={dataset!r} with root={root}: the digit problems come with the package, "
                "the others are read from a folder."
            )
        if dataset == "dapo" and eval_file is None:
            raise ZooError("dataset='dapo' is for training: name test problems by eval_file.")
        if demonstrations < 1:
            raise ZooError(f"demonstrations={demonstrations} must be at least 1.")
        self.dataset, self.eval_file, self.labels = dataset, eval_file, labels
        self.problems = tuple(int(n) for n in problems)
        self.demonstrations, self.val_problems = demonstrations, val_problems
        named = {"digits": digits.SKILLS, "math": SUBJECTS}
        self.skills = tuple(skills) if skills else named.get(dataset, ())

    def describe(self) -> dict[str, Any]:
        """Adds which data set, skills and labels."""
        return {
            **super().describe(),
            "dataset": self.dataset,
            "eval_file": self.eval_file,
            "labels": self.labels,
            "skills": list(self.skills),
        }

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``."""
        if split == "predict":
            return Questions(self._questions())
        if self.dataset == "digits":
            names = ("train", "val", "test")
            every = digits.splits(dict(zip(names, self.problems, strict=True)), self.seed)
            held_out = {p.question for name in names[1:] for p in every[name]}
            problems = self._labelled(every[split], split)
            if split == "train":
                return ProblemDataset(problems, self.demonstrations, held_out)
            return ProblemDataset(problems)
        assert self.root is not None
        if not self.root.is_dir():
            raise ZooError(f"No folder of problems at {self.root}.")
        if split == "test":
            return ProblemDataset(self._labelled(self._read("test"), split))
        problems = self._read("train")
        if len(problems) <= self.val_problems:
            raise ZooError(
                f"{self.root} has {len(problems)} training problems, of which val_problems="
                f"{self.val_problems} would leave none."
            )
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(problems), generator=generator).tolist()
        cut = len(problems) - self.val_problems
        chosen = [problems[i] for i in sorted(order[:cut] if split == "train" else order[cut:])]
        return ProblemDataset(self._labelled(chosen, split), int(split == "train"))

    def _read(self, split: str) -> list[Problem]:
        assert self.root is not None
        if split == "test" and self.eval_file is not None:
            return self._read_jsonl(self.root / self.eval_file)
        if self.dataset == "gsm8k":
            return read_gsm8k(self.root, split)
        if self.dataset == "math":
            return read_math(self.root, split)
        if self.dataset == "dapo":
            return read_dapo(self.root)
        return self._read_jsonl(self.root / f"{split}.jsonl")

    def _read_jsonl(self, path: Path) -> list[Problem]:
        return [
            to_problem(row, self.skills, where) for where, row in read_json_lines(path, "problems")
        ]

    def _labelled(self, problems: list[Problem], split: str) -> list[Problem]:
        if self.labels == "true":
            return problems
        key = ("train", "val", "test").index(split)
        generator = torch.Generator().manual_seed(3 * self.seed + key)
        count = max(1, len(self.skills))
        random = torch.randint(count, (len(problems),), generator=generator).tolist()
        return [
            Problem(p.question, p.answer, k, p.solution)
            for p, k in zip(problems, random, strict=True)
        ]

    def _questions(self) -> list[tuple[str, str]]:
        found = []
        for path in self.input_files(SUFFIXES):
            if path.suffix == ".txt":
                lines = path.read_text(encoding="utf-8").splitlines()
                texts = [(i, text.strip()) for i, text in enumerate(lines, 1) if text.strip()]
            else:
                rows = enumerate(read_json_lines(path, "problems"), 1)
                texts = [(i, _question(where, row)) for i, (where, row) in rows]
            if not texts:
                raise ZooError(f"{path} has no question.")
            found += [(f"{path.stem}-{number}", text) for number, text in texts]
        return found


def _question(where: str, row: dict[str, Any]) -> str:
    text = row.get("question") or row.get("problem")
    if not isinstance(text, str) or not text.strip():
        raise ZooError(f"{where} has no question: expected a key question or problem.")
    return text.strip()
