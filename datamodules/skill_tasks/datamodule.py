"""Tasks with skills: to run agents on, and, with outcomes of earlier runs, to learn lifts from."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from zoo.agents.skill_tasks import (
    SkillTask,
    admit,
    embedded_tasks,
    lift_rows,
    read_outcomes,
    read_task,
    read_tasks,
)
from zoo.errors import ZooError

from ..base import ZooDataModule

OUTCOMES = "skills_bench/outcomes.csv"  # of the embedded tasks and the simulated agents


class LiftRows(Dataset[dict[str, Any]]):
    """Features and outcomes of tasks and agents."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class TaskList(Dataset[dict[str, Any]]):
    """Tasks as text."""

    def __init__(self, items: Sequence[SkillTask]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = self.items[index]
        return {
            "index": torch.tensor(index),
            "name": item.name,
            "family": item.task.family,
            "task": item.to_json(),
        }


class SkillsBenchDataModule(ZooDataModule):
    """Task folders in Harbor's layout with skills, as the public SkillsBench has them.

    A batch of test and prediction has ``name``, ``family`` and ``task``, text that
    :meth:`~zoo.agents.skill_tasks.SkillTask.from_json` reads. One of training and validation has
    ``features`` (B, 15), ``successes`` and ``trials`` (B, 2), without skills and with them, and
    ``name``, ``family`` and ``agent``. Tasks of validation are not trained on.

    Tasks below ``root`` are admitted first: their solution passes, doing nothing fails, tests agree
    with themselves, and skills hold no answers.

    Args:
        root: ``tasks/<task>/task.toml`` and so on; ``None`` for 24 small tasks of eight domains.
        outcomes: Table, or ``trajectories.jsonl`` of a test, to learn lifts from; ``None`` for that
            of the embedded tasks.
        domains: Only tasks of these; ``None`` for all.
        n_tasks: At most so many, by name, dealt over the domains; ``None`` for all.
        val_share: Share of the tasks to validate forecasts on.
        admission: Whether to admit tasks below ``root``. Those that need their own image are not
            admitted in the sandbox: say no, and admit them where the images are.
        base: ``batch_size``, ``eval_batch_size``, ``num_workers``, ``seed`` and ``inputs``, task
            folders: see `ZooDataModule`.

    Raises:
        ZooError: If a task is malformed or not admitted, or outcomes are missing.
    """

    def __init__(
        self,
        root: str | None = None,
        outcomes: str | None = None,
        domains: list[str] | None = None,
        n_tasks: int | None = None,
        val_share: float = 0.25,
        admission: bool = True,
        batch_size: int = 18,
        eval_batch_size: int = 24,
        **base: Any,
    ) -> None:
        super().__init__(root, batch_size, eval_batch_size, **base)
        if not 0 < val_share < 1 or (n_tasks is not None and n_tasks < 1):
            raise ZooError(
                f"val_share={val_share}, n_tasks={n_tasks}: expected a share between 0 and 1, and "
                "at least one task."
            )
        self.outcomes, self.domains, self.n_tasks = outcomes, domains, n_tasks
        self.val_share, self.admission = val_share, admission
        self._items: list[SkillTask] | None = None

    def describe(self) -> dict[str, Any]:
        """Domains and number of tasks, beside what the base class tells."""
        items = self._items or []
        own = {"tasks": len(items), "domains": sorted({i.task.family for i in items})}
        return {**super().describe(), **own}

    def build(self, split: str) -> Dataset[Any]:
        """Returns the tasks, or of training and validation what lifts are learnt from."""
        if split == "predict":
            return TaskList(self._admitted(self._inputs()))
        if self._items is None:
            items = embedded_tasks() if self.root is None else self._of_root()
            self._items = self._chosen(items)
        if split == "test":
            return TaskList(self._items)
        held = self._held_out([item.name for item in self._items])
        rows = lift_rows({i.name: i for i in self._items}, read_outcomes(self._table()))
        found = [row for row in rows if (row["name"] in held) == (split == "val")]
        if not found:
            raise ZooError(
                f"{self._table()} has no outcomes of the tasks to learn from: expected rows of "
                f"{', '.join(sorted(i.name for i in self._items)[:3])}, ..."
            )
        return LiftRows(found)

    def _table(self) -> Path:
        if self.outcomes is not None:
            return Path(self.outcomes).expanduser()
        if self.root is not None:
            raise ZooError(
                "Lifts of your own tasks are learnt from a run on them: zoo test with --data.root "
                "first, then --data.outcomes <run folder>/trajectories.jsonl."
            )
        return Path(str(files("zoo.datamodules") / "samples" / OUTCOMES))

    def _of_root(self) -> list[SkillTask]:
        assert self.root is not None
        if not self.root.is_dir():
            raise ZooError(f"{self.root} is no folder: expected one with task folders.")
        return self._admitted(read_tasks(self.root))

    def _inputs(self) -> list[SkillTask]:
        if not self.inputs:
            raise ZooError("Nothing to predict: name task folders with --data.inputs tasks/one.")
        found = []
        for text in self.inputs:
            path = Path(text).expanduser()
            if not path.is_dir():
                raise ZooError(f"--data.inputs {text!r} is no task folder.")
            found += [read_task(path)] if (path / "task.toml").exists() else read_tasks(path)
        return found

    def _admitted(self, items: list[SkillTask]) -> list[SkillTask]:
        if self.admission:
            with ThreadPoolExecutor(4) as pool:  # the work is done by processes of the sandbox
                list(pool.map(admit, items))
        return items

    def _chosen(self, items: list[SkillTask]) -> list[SkillTask]:
        known = sorted({item.task.family for item in items})
        for domain in self.domains or ():
            if domain not in known:
                raise ZooError(
                    f"No task is of the domain '{domain}': there are {', '.join(known)}."
                )
        kept = [i for i in items if self.domains is None or i.task.family in self.domains]
        place: dict[str, int] = {}
        turn = []
        for item in kept:  # the first of each domain, then the second of each
            place[item.task.family] = place.get(item.task.family, 0) + 1
            turn.append((place[item.task.family], item.name, item))
        turn.sort(key=lambda row: row[:2])
        return sorted((item for *_, item in turn[: self.n_tasks]), key=lambda item: item.name)

    def _held_out(self, names: list[str]) -> set[str]:
        """Names of the tasks of validation: by the seed, whole tasks."""
        count = min(len(names) - 1, max(1, round(self.val_share * len(names))))
        order = np.random.default_rng(self.seed).permutation(len(names))
        return {names[i] for i in order[:count]}
