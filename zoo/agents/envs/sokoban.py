"""Sokoban: boxes are pushed onto goals, on many boards at a time.

Levels are made by playing backwards from a solved board, so that each can be solved; or they are
read from the Boxoban files (Guez et al., 2018, https://github.com/google-deepmind/boxoban-levels,
Apache-2.0). Rewards are those of Weber et al., "Imagination-Augmented Agents", 2017
(https://arxiv.org/abs/1707.06203): -0.1 a step, +1 for a box that comes to a goal, -1 for one that
leaves it, +10 for the solved board.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.agents.envs.base import (
    Obs,
    State,
    Step,
    Task,
    VectorStep,
    check_length,
    draw_tasks,
)
from zoo.errors import ZooError, check_choice

DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
ACTIONS = tuple(DIRECTIONS)
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
OFFSETS = np.array(list(DIRECTIONS.values()))  # (4, 2) rows and columns
STEP, BOX_ON, BOX_OFF, SOLVED = -0.1, 1.0, -1.0, 10.0
CELLS = "#@$. *+"  # wall, player, box, goal, floor, box on goal, player on goal
# Cells as they are written for a model, a space between, by wall, goal, box and player bits.
WRITTEN = np.frombuffer(b"_#.#$#*#@#+#####", dtype=np.uint8)
MAX_STEPS = 50


# -------------------------------------------------------------------------------------- levels
def check_level(rows: Sequence[str], where: str) -> None:
    """Raises a :class:`ZooError` unless the rows are a level that can be played."""
    if not rows or len({len(row) for row in rows}) != 1:
        raise ZooError(f"{where}: the rows of a Sokoban level are equally long.")
    cells = "".join(rows)
    unknown = set(cells) - set(CELLS)
    if unknown:
        raise ZooError(f"{where}: unknown cells {sorted(unknown)}, expected of {CELLS!r}.")
    if cells.count("@") + cells.count("+") != 1:
        raise ZooError(f"{where}: a level has one player, not {cells.count('@')}.")
    boxes, goals = (sum(map(cells.count, chars)) for chars in ("$*", ".*+"))
    if boxes != goals or not boxes:
        raise ZooError(f"{where}: {boxes} boxes and {goals} goals, expected as many, at least one.")
    border = rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)
    if set(border) != {"#"}:
        raise ZooError(f"{where}: a level is closed by walls on all sides.")


def sokoban_tasks(
    split: str, n: int, size: int = 6, boxes: int = 1, pulls: int = 30, offset: int = 0
) -> list[Task]:
    """Generated levels of a split, which can be solved.

    Args:
        split: ``train``, ``val``, ``test`` or ``probe``.
        n: How many.
        size: Cells of a side, walls included; published levels have 10.
        boxes: On each; published levels have 4.
        pulls: Steps that are played backwards.
        offset: Seeds of the split to pass over.

    Raises:
        ZooError: If there is no room for so many boxes, or there are not as many levels.
    """
    if size < 5 or not 1 <= boxes <= (size - 2) ** 2 // 4:
        raise ZooError(f"There is no room for {boxes} boxes on a board of {size} by {size} cells.")
    family = f"sokoban_{size}x{size}_{boxes}"

    def make(seed: int) -> Task:
        rows, _ = generate_level(seed, size, boxes, pulls)
        return Task(f"{family}-{seed}", family, split, seed, {"rows": rows})

    return draw_tasks(make, split, n, offset)


def generate_level(
    seed: int, size: int = 6, boxes: int = 1, pulls: int = 30
) -> tuple[list[str], list[str]]:
    """A level, and moves that solve it (not the shortest), played backwards from its end."""
    rng = random.Random(f"sokoban {seed} {size} {boxes}")
    inner = [(r, c) for r in range(1, size - 1) for c in range(1, size - 1)]
    while True:
        walls = set(rng.sample(inner, rng.randint(0, len(inner) // 6)))
        free = [cell for cell in inner if cell not in walls]
        goals = frozenset(rng.sample(free, boxes))
        player = rng.choice([cell for cell in free if cell not in goals])
        at, placed, moves = player, set(goals), []
        for _ in range(pulls):
            options = []
            for name, (dr, dc) in DIRECTIONS.items():
                ahead, behind = (at[0] + dr, at[1] + dc), (at[0] - dr, at[1] - dc)
                if ahead in free and ahead not in placed:
                    options.append((name, ahead, behind))
            if not options:
                break
            # A pull is chosen where there is one, three times in four.
            pulling = [o for o in options if o[2] in placed]
            name, ahead, behind = rng.choice(
                pulling if pulling and rng.random() < 0.75 else options
            )
            if behind in placed:
                placed.remove(behind)
                placed.add(at)
            at = ahead
            moves.append(OPPOSITE[name])
            if placed == goals:  # solved already on the way
                moves = []
        if placed & goals or not _connected(free):
            continue
        rows = [
            "".join(_cell((r, c), walls, size, goals, placed, at) for c in range(size))
            for r in range(size)
        ]
        return rows, moves[::-1]


def _cell(cell: Any, walls: Any, size: int, goals: Any, boxes: Any, player: Any) -> str:
    if cell in walls or not (0 < cell[0] < size - 1 and 0 < cell[1] < size - 1):
        return "#"
    if cell == player:
        return "+" if cell in goals else "@"
    if cell in boxes:
        return "*" if cell in goals else "$"
    return "." if cell in goals else " "


def _connected(free: Sequence[tuple[int, int]]) -> bool:
    cells, stack = set(free), [free[0]]
    cells.discard(free[0])
    while stack:
        r, c = stack.pop()
        for dr, dc in DIRECTIONS.values():
            if (r + dr, c + dc) in cells:
                cells.discard((r + dr, c + dc))
                stack.append((r + dr, c + dc))
    return not cells


def read_boxoban(path: str | os.PathLike[str]) -> list[list[str]]:
    """The levels of a Boxoban file: a line ``; <n>``, then the rows, for each.

    Raises:
        ZooError: If a level is malformed; it names the file and the line.
    """
    levels: list[list[str]] = []
    starts = []
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ZooError(f"{path} can't be read as Boxoban levels: {error}.") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(";"):
            levels.append([])
            starts.append(number)
        elif line.strip():
            if not levels:
                raise ZooError(f"{path}, line {number}: a level begins with a line '; <number>'.")
            levels[-1].append(line)
    for start, rows in zip(starts, levels, strict=True):
        check_level(rows, f"{path}, line {start}")
    return levels


def boxoban_tasks(path: str | os.PathLike[str], split: str) -> list[Task]:
    """Tasks of a Boxoban file, or of all files of a folder such as ``medium/train``.

    Args:
        path: Of the file or folder.
        split: A word for the tasks.

    Raises:
        ZooError: If there are none, or a level is malformed.
    """
    path = Path(path)
    files = [path] if path.is_file() else sorted(path.glob("*.txt"))
    if not files:
        raise ZooError(f"There are no Boxoban files *.txt in {path}.")
    return [
        Task(f"{file.stem}-{i}", "boxoban", split, 0, {"rows": rows})
        for file in files
        for i, rows in enumerate(read_boxoban(file))
    ]


# -------------------------------------------------------------------------------------- solver
def solve(rows: Sequence[str], max_states: int = 200_000) -> list[str] | None:
    """The shortest way to solve a level, by breadth-first search; ``None`` if there is none.

    States in which a box stands where no goal can be reached from are left out.

    Args:
        rows: Of the level.
        max_states: To look at.

    Raises:
        ZooError: If that many were looked at.
    """
    check_level(rows, "solve")
    width = len(rows[0])
    flat = "".join(rows)
    walls = {i for i, cell in enumerate(flat) if cell == "#"}
    goals = frozenset(i for i, cell in enumerate(flat) if cell in ".*+")
    boxes = frozenset(i for i, cell in enumerate(flat) if cell in "$*")
    player = next(i for i, cell in enumerate(flat) if cell in "@+")
    offsets = {name: dr * width + dc for name, (dr, dc) in DIRECTIONS.items()}
    alive, queue = set(goals), deque(goals)
    while queue:  # by pulling a box from each goal
        cell = queue.popleft()
        for d in offsets.values():
            if cell + d not in walls and cell + d not in alive and cell + 2 * d not in walls:
                alive.add(cell + d)
                queue.append(cell + d)
    start = (player, boxes)
    came: dict[Any, tuple[Any, str]] = {start: (None, "")}
    states = deque([start])
    while states:
        state = states.popleft()
        if state[1] == goals:
            moves = []
            while came[state][0] is not None:
                state, move = came[state]
                moves.append(move)
            return moves[::-1]
        at, placed = state
        for name, d in offsets.items():
            to = at + d
            if to in walls:
                continue
            after = placed
            if to in placed:
                if to + d not in alive or to + d in placed:
                    continue
                after = placed - {to} | {to + d}
            following = (to, after)
            if following not in came:
                came[following] = (state, name)
                states.append(following)
        if len(came) > max_states:
            raise ZooError(f"No solution among the first {max_states} states of the level.")
    return None


# ----------------------------------------------------------------------------------------- env
class SokobanVectorEnv:
    """n boards of one size in lock-step, by array operations; like ``VectorEnv``.

    Args:
        n: Boards.
        max_steps: After which an episode ends.
        written: "board", a cell a word; "places", rows and columns of player, boxes, goals and
            inner walls, which is shorter, and easier for a small model.
    """

    def __init__(self, n: int, max_steps: int = MAX_STEPS, written: str = "board") -> None:
        if n < 1:
            raise ZooError(f"A vector of environments holds at least one: n={n}.")
        check_choice("written", written, ("board", "places"))
        self.n, self.max_steps, self.written = n, max_steps, written
        self.tasks: list[Task] = []

    def __len__(self) -> int:
        return self.n

    def reset(self, tasks: Sequence[Task]) -> list[Obs]:
        """Sets up a level on each board.

        Raises:
            ZooError: If there are not n, or they differ in size, or one can't be played.
        """
        check_length("tasks", tasks, self.n)
        self.tasks = list(tasks)
        boards = []
        for task in tasks:
            try:
                rows = list(task.payload["rows"])
            except (KeyError, TypeError):
                raise ZooError(f"Task '{task.task_id}' is no Sokoban level.") from None
            check_level(rows, f"Task '{task.task_id}'")
            boards.append(rows)
        shapes = {(len(rows), len(rows[0])) for rows in boards}
        if len(shapes) > 1:
            raise ZooError(f"Boards in lock-step are of one size, not {sorted(shapes)}.")
        cells = np.array([[list(row) for row in rows] for rows in boards])  # (n, H, W)
        self.walls = cells == "#"
        self.goals = np.isin(cells, [".", "*", "+"])
        self.boxes = np.isin(cells, ["$", "*"])
        self.player = np.argwhere(np.isin(cells, ["@", "+"]))[:, 1:]  # (n, 2)
        self.steps = np.zeros(self.n, dtype=np.int64)
        self.dones = self.solved()
        self._infos: list[dict[str, Any]] = [
            {"success": bool(d), "valid": True} for d in self.dones
        ]
        self._obs = self._observe()
        return list(self._obs)

    def solved(self) -> np.ndarray:
        """Whether all boxes stand on goals. Shape: (n,) bool."""
        return np.asarray((self.boxes == self.goals).all(axis=(1, 2)))

    def possible(self) -> np.ndarray:
        """Which of the four moves change the board. Shape: (n, 4) bool."""
        return np.stack([self._can(np.full(self.n, i)) for i in range(4)], axis=1)

    def _look(self, cells: np.ndarray, at: np.ndarray) -> np.ndarray:
        rows = at[:, 0].clip(0, cells.shape[1] - 1)
        columns = at[:, 1].clip(0, cells.shape[2] - 1)
        return np.asarray(cells[np.arange(self.n), rows, columns])

    def _can(self, moves: np.ndarray) -> np.ndarray:
        to = self.player + OFFSETS[moves]
        beyond = to + OFFSETS[moves]
        blocked = self._look(self.walls, beyond) | self._look(self.boxes, beyond)
        free = ~self._look(self.walls, to) & ~(self._look(self.boxes, to) & blocked)
        return np.asarray(free)

    def step(self, actions: Sequence[str], active: Sequence[bool] | None = None) -> VectorStep:
        """Moves each player that is active and not done; see ``VectorEnv.step``."""
        check_length("actions", actions, self.n)
        acting = ~self.dones
        if active is not None:
            check_length("active", active, self.n)
            acting &= np.asarray(active, dtype=bool)
        moves = np.array(
            [ACTIONS.index(a) if a in ACTIONS else -1 for a in (x.strip().lower() for x in actions)]
        )
        moving = acting & (moves >= 0) & self._can(moves.clip(0))
        to = self.player + OFFSETS[moves.clip(0)]
        pushing = moving & self._look(self.boxes, to)
        on_before = (self.boxes & self.goals).sum(axis=(1, 2))
        i = np.flatnonzero(pushing)
        beyond = to + OFFSETS[moves.clip(0)]
        self.boxes[i, to[i, 0], to[i, 1]] = False
        self.boxes[i, beyond[i, 0], beyond[i, 1]] = True
        self.player = np.where(moving[:, None], to, self.player)
        self.steps += acting
        change = (self.boxes & self.goals).sum(axis=(1, 2)) - on_before
        solved = self.solved()
        rewards = STEP + BOX_ON * (change > 0) + BOX_OFF * (change < 0) + SOLVED * solved
        self.dones = self.dones | (acting & (solved | (self.steps >= self.max_steps)))
        observed = self._observe()
        for j in np.flatnonzero(acting):
            self._obs[j] = observed[j]
            self._infos[j] = {"success": bool(solved[j]), "valid": bool(moving[j])}
        rewards = np.where(acting, rewards, 0).astype(np.float32)
        return VectorStep(list(self._obs), rewards, self.dones.copy(), list(self._infos))

    def _observe(self) -> list[Obs]:
        possible = self.possible()
        names = np.array(ACTIONS)
        texts = self._boards() if self.written == "board" else self._places()
        return [
            Obs(text, sorted(names[row].tolist()))
            for text, row in zip(texts, possible, strict=True)
        ]

    def _places(self) -> list[str]:
        inner = np.zeros_like(self.walls)
        inner[:, 1:-1, 1:-1] = self.walls[:, 1:-1, 1:-1]
        texts = [f"player {r} {c}" for r, c in self.player.tolist()]
        for name, cells in (("box", self.boxes), ("goal", self.goals), ("wall", inner)):
            for i, r, c in np.argwhere(cells).tolist():
                texts[i] += f" {name} {r} {c}"
        return texts

    def _boards(self) -> list[str]:
        code = self.walls + 2 * self.goals + 4 * self.boxes  # (n, H, W)
        code[np.arange(self.n), self.player[:, 0], self.player[:, 1]] += 8
        n, height, width = code.shape
        text = np.full((n, height, 2 * width), ord(" "), dtype=np.uint8)
        text[:, :, ::2] = WRITTEN[code]
        text[:, :, -1] = ord("\n")
        return [board.tobytes().decode()[:-1] for board in text]

    def close(self) -> None:
        """Nothing to free."""

    def vocabulary(self) -> list[str]:
        """Cells or names of places, and moves."""
        if self.written == "places":
            numbers = map(str, range(10))
            return sorted({"player", "box", "goal", "wall", *numbers, *ACTIONS})
        return sorted({*"_#.$*@+", *ACTIONS})

    def verify(self) -> np.ndarray:
        """Whether each board is solved. Shape: (n,) bool."""
        return self.solved()

    def state_dicts(self) -> list[State]:
        """Of each board."""
        return [
            {
                "boxes": np.argwhere(boxes).tolist(),
                "player": player.tolist(),
                "steps": int(steps),
                "done": bool(done),
            }
            for boxes, player, steps, done in zip(
                self.boxes, self.player, self.steps, self.dones, strict=True
            )
        ]

    def load_state_dicts(self, states: Sequence[State]) -> None:
        """Goes back to states of the present levels."""
        check_length("states", states, self.n)
        self.boxes[:] = False
        for i, state in enumerate(states):
            rows, columns = np.array(state["boxes"]).T
            self.boxes[i, rows, columns] = True
        self.player = np.array([state["player"] for state in states])
        self.steps = np.array([state["steps"] for state in states])
        self.dones = np.array([state["done"] for state in states])
        self._obs = self._observe()


class SokobanEnv:
    """One board; see :class:`SokobanVectorEnv`, which plays many at a time."""

    def __init__(self, max_steps: int = MAX_STEPS, written: str = "board") -> None:
        self._boards = SokobanVectorEnv(1, max_steps, written)

    def reset(self, task: Task) -> Obs:
        """Sets up the level."""
        return self._boards.reset([task])[0]

    def step(self, action: str) -> Step:
        """Moves up, down, left or right; a move that is blocked costs a step."""
        if not self._boards.tasks or self._boards.dones[0]:
            raise ZooError("A Sokoban episode begins with reset, and ends when done is true.")
        obs, rewards, dones, infos = self._boards.step([action])
        return Step(obs[0], float(rewards[0]), bool(dones[0]), infos[0])

    def close(self) -> None:
        """Nothing to free."""

    def vocabulary(self) -> list[str]:
        """Cells and moves."""
        return self._boards.vocabulary()

    def verify(self, task: Task, state: State) -> bool:
        """Whether the boxes of a state stand on the goals of the level."""
        goals = [
            [r, c]
            for r, row in enumerate(task.payload["rows"])
            for c, cell in enumerate(row)
            if cell in ".*+"
        ]
        return sorted(state["boxes"]) == goals

    def state_dict(self) -> State:
        """Boxes, player and steps."""
        return self._boards.state_dicts()[0]

    def load_state_dict(self, state: State) -> None:
        """Goes back to a state of the present level."""
        self._boards.load_state_dicts([state])
