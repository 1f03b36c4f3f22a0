"""Tasks for language agents: generated workflows, Sokoban and households, and published games."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from zoo.agents.envs.base import Task, check_disjoint
from zoo.agents.envs.engines import AlfworldEnv
from zoo.agents.envs.household import household_tasks
from zoo.agents.envs.sokoban import boxoban_tasks, sokoban_tasks
from zoo.agents.envs.workflow import workflow_tasks
from zoo.errors import ZooError, check_choice
from zoo.json_lines import read_json_lines

from .base import ZooDataModule

GENERATED = ("workflow", "sokoban", "household")
PUBLISHED = ("boxoban", "alfworld", "appworld")
ALFWORLD = {"train": "train", "val": "valid_seen", "test": "valid_unseen"}
BOXOBAN = {"train": "train", "val": "valid", "test": "test"}
APPWORLD = {"train": "train", "val": "dev", "test": "test_normal"}


class TaskDataset(Dataset[dict[str, Any]]):
    """Tasks as JSON texts, each with its number."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = list(tasks)
        for task in self.tasks:
            if not task.task_id:
                raise ZooError(f"A task has no task_id: {task.to_dict()}.")

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"task": json.dumps(self.tasks[index].to_dict()), "index": index}


class Histories(Dataset[dict[str, Any]]):
    """Observations and actions in turn, each history with a name."""

    def __init__(self, histories: Sequence[tuple[str, list[str]]]) -> None:
        self.histories = list(histories)

    def __len__(self) -> int:
        return len(self.histories)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name, history = self.histories[index]
        return {"name": name, "history": json.dumps(history)}


class AgentTaskDataModule(ZooDataModule):
    """Tasks that an agent plays in an environment, which the method makes.

    A sample is a dict of ``task``, a JSON text of :class:`zoo.agents.envs.base.Task`, and
    ``index``, its number. In ``predict``: ``name`` and ``history``, a JSON list of observations and
    actions in turn.

    Args:
        root: Folder of published tasks; ``None`` for generated ones.
        world: "workflow": 16 types of task with each of 8 objects for training, 2 for validation
            and 4 for the test. "sokoban", "household": generated, none in two splits. "boxoban"
            (``{train,valid,test}/*.txt``; Apache-2.0), "alfworld" (``json_2.1.1/{train,valid_seen,
            valid_unseen}/``; MIT), "appworld" (``data/datasets/{train,dev,test_normal,
            test_challenge}.txt`` and ``data/tasks/<id>/``; its tasks must not be published again).
        tasks: Of "sokoban" and "household": for training, validation and test.
        size: Cells of a Sokoban board's side.
        boxes: On it.
        pulls: Steps that a level is played backwards from its end: fewer make easier levels.
        test_set: Of "appworld": "test_normal" or "test_challenge".
        base: ``batch_size`` (tasks of a step), ``eval_batch_size``, ``num_workers``, ``seed`` and
            ``inputs`` (``.jsonl`` with a ``history``, or ``.txt`` with a first observation a line):
            see `ZooDataModule`.

    Raises:
        ZooError: For a missing folder or file, a malformed level or game, or a task id without
            folder; it names it.
    """

    def __init__(
        self,
        root: str | None = None,
        world: str = "workflow",
        tasks: tuple[int, int, int] = (256, 64, 128),
        size: int = 6,
        boxes: int = 1,
        pulls: int = 30,
        test_set: str = "test_normal",
        batch_size: int = 16,
        eval_batch_size: int = 32,
        **base: Any,
    ) -> None:
        super().__init__(root, batch_size, eval_batch_size, **base)
        check_choice("world", world, (*GENERATED, *PUBLISHED))
        check_choice("test_set", test_set, ("test_normal", "test_challenge"))
        if (world in GENERATED) != (root is None):
            raise ZooError(
                f"world={world!r} with root={root}: {', '.join(GENERATED)} are generated, the "
                "others are read from a folder."
            )
        self.world, self.test_set = world, test_set
        self.size, self.boxes, self.pulls = size, boxes, pulls
        self.tasks = tuple(int(n) for n in tasks)

    def describe(self) -> dict[str, Any]:
        """Adds which world, and its sizes."""
        found = {**super().describe(), "world": self.world}
        if self.world in ("sokoban", "household"):
            found["tasks"] = list(self.tasks)
        if self.world == "sokoban":
            found |= {"size": self.size, "boxes": self.boxes, "pulls": self.pulls}
        if self.world == "appworld":
            found["test_set"] = self.test_set
        return found

    def build(self, split: str) -> Dataset[Any]:
        """Returns the dataset of ``split``."""
        if split == "predict":
            return Histories(self._histories())
        if self.root is None:
            every = {name: self._generated(name) for name in ("train", "val", "test")}
            check_disjoint(every)
            return TaskDataset(every[split])
        if not self.root.is_dir():
            raise ZooError(f"No folder of tasks at {self.root}.")
        if self.world == "alfworld":
            return TaskDataset(AlfworldEnv(self.root).tasks(ALFWORLD[split]))
        if self.world == "boxoban":
            return TaskDataset(boxoban_tasks(self.root / BOXOBAN[split], split))
        return TaskDataset(self._appworld(split))

    def _generated(self, split: str) -> list[Task]:
        count = self.tasks[("train", "val", "test").index(split)]
        offset = 1_000_000 * self.seed
        if self.world == "workflow":
            return workflow_tasks(split)
        if self.world == "sokoban":
            return sokoban_tasks(split, count, self.size, self.boxes, self.pulls, offset)
        return household_tasks(split, count, offset=offset)

    def _appworld(self, split: str) -> list[Task]:
        assert self.root is not None
        name = self.test_set if split == "test" else APPWORLD[split]
        folder = self.root / "data"
        path = folder / "datasets" / f"{name}.txt"
        if not path.is_file():
            raise ZooError(f"{self.root} holds no AppWorld data: expected {path}.")
        tasks = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not (task_id := line.strip()):
                continue
            specs = _specs(folder / "tasks" / task_id, f"{path}, line {number},")
            payload = {"dataset": name, "instruction": specs["instruction"]}
            family = task_id.partition("_")[0]  # its scenario
            tasks.append(Task(task_id, family, split, number, payload))
        return tasks

    def _histories(self) -> list[tuple[str, list[str]]]:
        found = []
        for path in self.input_files((".jsonl", ".txt")):
            if path.suffix == ".txt":
                lines = path.read_text(encoding="utf-8").splitlines()
                texts = [[line.strip()] for line in lines if line.strip()]
            else:
                texts = [_history(*row) for row in read_json_lines(path, "histories")]
            if not texts:
                raise ZooError(f"{path} has no history.")
            found += [(f"{path.stem}-{n}", text) for n, text in enumerate(texts, 1)]
        return found


def _specs(folder: Path, where: str) -> dict[str, Any]:
    path = folder / "specs.json"
    if not folder.is_dir():
        raise ZooError(f"{where} names the task '{folder.name}', but there is no {folder}.")
    try:
        specs = dict(json.loads(path.read_text(encoding="utf-8")))
        if not isinstance(specs.get("instruction"), str):
            raise ValueError("it has no instruction")
    except (OSError, ValueError, TypeError) as error:
        raise ZooError(f"{path} is no specification of an AppWorld task: {error}.") from None
    return specs


def _history(where: str, row: dict[str, Any]) -> list[str]:
    history = row.get("history")
    history = [history] if isinstance(history, str) else history
    if not isinstance(history, list) or not all(isinstance(x, str) for x in history):
        raise ZooError(f"{where} has no history: expected a key history, a list of texts.")
    if len(history) % 2 == 0 or not all(x.strip() for x in history):
        raise ZooError(
            f"{where} has a history of {len(history)} texts: observations and actions in turn end "
            "with an observation, and none is empty."
        )
    return list(history)
