"""Games of TextWorld's engines: the household by its planning domain, ALFWorld, and TextWorld.

These need ``pip install "lightning-zoo[envs]"``. An engine's state can't be written down, but its
games are deterministic: the state is the actions so far, and going back to it plays them again.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from zoo.agents.envs.base import Obs, State, Step, Task, split_seeds
from zoo.agents.envs.household import (
    CLEANABLE,
    COOLABLE,
    HEATABLE,
    MAX_STEPS,
    RECEPTACLES,
    HouseholdEnv,
    Room,
)
from zoo.atomic import write_text
from zoo.errors import ZooError, check_choice, missing_extra


class _EngineEnv(ABC):
    """What the games have in common: an engine that plays one, and the actions so far."""

    max_steps: int
    _engine: Any = None

    @abstractmethod
    def _start(self, task: Task) -> Any:
        """An engine that has loaded the task's game."""

    def reset(self, task: Task) -> Obs:
        """Loads the game and begins it."""
        self.close()
        self.task = task
        self._engine = self._start(task)
        return self._begin()

    def _begin(self) -> Obs:
        self._state = self._engine.reset()
        self.actions: list[str] = []
        self._score, self.done = 0.0, False
        return self._observe()

    def _observe(self) -> Obs:
        admissible = self._state["admissible_commands"]
        return Obs(self._state["feedback"].strip(), sorted(admissible))

    def step(self, action: str) -> Step:
        """Takes one action; the reward is what the engine's score gains."""
        if self._engine is None or self.done:
            raise ZooError("An episode begins with reset, and ends when done is true.")
        valid = action.strip() in self._state["admissible_commands"]
        self._state, score, over = self._engine.step(action.strip())
        self.actions.append(action)
        reward, self._score = float(score) - self._score, float(score)
        success = bool(self._state["won"])
        self.done = bool(over) or success or len(self.actions) >= self.max_steps
        return Step(self._observe(), reward, self.done, {"success": success, "valid": valid})

    def close(self) -> None:
        """Ends the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def vocabulary(self) -> list[str]:
        """Open: a language model's own tokenizer is needed."""
        return []

    def verify(self, task: Task, state: State) -> bool:
        """Whether the actions of a state, played anew, win the game."""
        engine = self._start(task)
        try:
            found = engine.reset()
            for action in state["actions"]:
                found, *_ = engine.step(action.strip())
            return bool(found["won"])
        finally:
            engine.close()

    def state_dict(self) -> State:
        """The actions so far."""
        return {"actions": list(self.actions), "done": self.done}

    def load_state_dict(self, state: State) -> None:
        """Plays the present game anew up to a state."""
        self._begin()
        for action in state["actions"]:
            self.step(action)
        self.done = state["done"]


# ------------------------------------------------------------------------------ planning domain
@cache
def _alfworld_logic() -> dict[str, str]:
    """ALFWorld's planning domain and grammar, which its wheel has."""
    try:
        folder = files("alfworld").joinpath("data")
    except ModuleNotFoundError:
        raise missing_extra("alfworld", "envs") from None
    return {
        "pddl_domain": folder.joinpath("alfred.pddl").read_text(encoding="utf-8"),
        "grammar": folder.joinpath("alfred.twl2").read_text(encoding="utf-8"),
    }


def _pddl_engine(game: Mapping[str, Any]) -> Any:
    try:
        import textworld
        from textworld.envs.pddl import PddlEnv
    except ImportError:
        raise missing_extra("textworld", "envs") from None
    engine = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
    engine.load(dict(game))
    return engine


KINDS = {"sinkbasin": "SinkBasinType", "microwave": "MicrowaveType", "fridge": "FridgeType"}


def _kind(name: str) -> str:
    return KINDS.get(name, f"{name.capitalize()}Type")


def household_pddl(task: Task) -> str:
    """A household task as a problem of ALFWorld's planning domain."""
    room = Room(task)
    places = [name.replace(" ", "_") for name in room.places]
    things = [name.replace(" ", "_") for name in room.things]
    rtypes = sorted({_kind(k) for k in room.receptacles} | set(KINDS.values()))
    otypes = sorted({_kind(k) for k in room.objects} | {"KnifeType", "ButterKnifeType"})
    spots = [f"loc_{i}" for i in range(len(places) + 1)]  # the last is the middle of the room
    facts = [f"(atLocation agent1 {spots[-1]})", "(= (total-cost) 0)"]
    for place, spot, kind in zip(places, spots, room.receptacles, strict=False):
        facts.append(f"(receptacleAtLocation {place} {spot})")
        facts.append(f"(receptacleType {place} {_kind(kind)})")
        if RECEPTACLES[kind][0]:
            facts.append(f"(openable {place})")
    for kind in sorted(set(room.receptacles)):
        held = [o for o in sorted(set(room.objects)) if o in RECEPTACLES[kind][2]]
        facts += [f"(canContain {_kind(kind)} {_kind(o)})" for o in held]
    for thing, kind, start in zip(things, room.objects, room.starts, strict=True):
        facts.append(f"(objectType {thing} {_kind(kind)})")
        facts.append(f"(inReceptacle {thing} {places[start]})")
        facts.append(f"(objectAtLocation {thing} {spots[start]})")
        if kind == "desklamp":
            facts.append(f"(toggleable {thing})")
            continue
        facts.append(f"(pickupable {thing})")
        for able, kinds in (
            ("cleanable", CLEANABLE),
            ("heatable", HEATABLE),
            ("coolable", COOLABLE),
        ):
            if kind in kinds:
                facts.append(f"({able} {thing})")
    objects = [
        "agent1 - agent",
        f"{' '.join(spots)} - location",
        f"{' '.join(places)} - receptacle",
        f"{' '.join(things)} - object",
        f"{' '.join(rtypes)} - rtype",
        f"{' '.join(otypes)} - otype",
    ]
    return (
        "(define (problem household)\n (:domain alfred)\n"
        f" (:objects\n  {chr(10).join(objects)}\n )\n"
        f" (:init\n  {chr(10).join(facts)}\n )\n"
        f" (:goal {_goal(room)})\n (:metric minimize (total-cost))\n)\n"
    )


def _goal(room: Room) -> str:
    """The goal, as ALFWorld states that of the family."""
    wanted = f"(objectType ?o {_kind(room.goal['object'])})"
    if room.family == "look":
        return (
            "(and (exists (?t - object ?r - receptacle ?a - agent ?l - location) (and "
            "(toggleable ?t) (isToggled ?t) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) "
            f"(inReceptacle ?t ?r))) "
            f"(exists (?o - object ?a - agent) (and {wanted} (holds ?a ?o))))"
        )
    there = f"(receptacleType ?r {_kind(room.goal['receptacle'])}) (inReceptacle ?o ?r)"
    state = {"clean": "(isClean ?o)", "heat": "(isHot ?o)", "cool": "(isCool ?o)"}
    goal = f"(and {wanted} {there} {state.get(room.family, '')}"
    if room.family == "pick_two":
        other = wanted.replace("?o", "?p")
        goal += f"(exists (?p - object) (and (not (= ?o ?p)) {other} (inReceptacle ?p ?r)))"
    return f"(exists (?r - receptacle ?o - object) {goal}))"


class AlfworldPddlEnv(_EngineEnv):
    """Household tasks on TextWorld's planning engine, by ALFWorld's own domain and grammar.

    It takes milliseconds a step where ``HouseholdEnv`` takes microseconds: it is there to compare.

    Args:
        max_steps: After which an episode ends.
    """

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self.max_steps = max_steps

    def _start(self, task: Task) -> Any:
        logic = dict(_alfworld_logic())
        goal = Room(task).goal_text
        logic["grammar"] = logic["grammar"].replace("UNKNOWN GOAL", goal)
        engine = _pddl_engine({**logic, "pddl_problem": household_pddl(task)})
        for info in engine._entity_infos.values():  # as ALFWorld's own wrapper sets names
            info.name = info.id.replace("_", " ")
        return engine

    def vocabulary(self) -> list[str]:
        """Of the household, and the engine's greeting."""
        return sorted({*HouseholdEnv().vocabulary(), "-", "=", "Welcome", "TextWorld", "ALFRED"})


# ------------------------------------------------------------------------------------- ALFWorld
ALFWORLD_FAMILIES = {
    "pick_and_place_simple": "pick",
    "look_at_obj_in_light": "look",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "pick_two",
}
ALFWORLD_SPLITS = ("train", "valid_seen", "valid_unseen")


class AlfworldEnv(_EngineEnv):
    """ALFWorld's own games, as ``alfworld-download`` lays them out (MIT).

    Args:
        root: Folder of ``json_2.1.1/{train,valid_seen,valid_unseen}/<task>/<trial>/game.tw-pddl``.
        max_steps: After which an episode ends.

    Raises:
        ZooError: If there are no games.
    """

    def __init__(self, root: str | os.PathLike[str], max_steps: int = MAX_STEPS) -> None:
        self.root, self.max_steps = Path(root) / "json_2.1.1", max_steps
        if not self.root.is_dir():
            raise ZooError(
                f"{root} holds no ALFWorld games: expected {self.root}/<split>/<task>/<trial>/"
                f"game.tw-pddl, the splits being {', '.join(ALFWORLD_SPLITS)}."
            )

    def tasks(self, split: str) -> list[Task]:
        """The games of a split that can be solved, by path.

        Raises:
            ZooError: If the split is unknown or empty, or a game is no JSON.
        """
        check_choice("split", split, ALFWORLD_SPLITS)
        found = []
        for number, path in enumerate(sorted((self.root / split).glob("*/*/game.tw-pddl"))):
            relative = path.relative_to(self.root).as_posix()
            family = ALFWORLD_FAMILIES.get(path.parent.parent.name.partition("-")[0])
            if family is None or "Sliced" in relative or not self._game(relative).get("solvable"):
                continue
            task_id = "/".join(path.parts[-3:-1])
            found.append(Task(task_id, family, split, number, {"game": relative}))
        if not found:
            raise ZooError(f"{self.root / split} holds no games <task>/<trial>/game.tw-pddl.")
        return found

    def _game(self, relative: str) -> dict[str, Any]:
        path = self.root / relative
        try:
            game = json.loads(path.read_text(encoding="utf-8"))
            if not {"pddl_domain", "grammar", "pddl_problem"} <= set(game):
                raise ValueError("it lacks domain, grammar or problem")
        except (OSError, ValueError, TypeError) as error:
            raise ZooError(f"{path} is no ALFWorld game: {error}.") from None
        return dict(game)

    def _start(self, task: Task) -> Any:
        engine = _pddl_engine(self._game(task.payload["game"]))
        try:
            from alfworld.agents.utils.misc import Demangler
        except ImportError:
            raise missing_extra("alfworld", "envs") from None
        names = Demangler(game_infos=engine._entity_infos)
        for info in engine._entity_infos.values():
            info.name = names.demangle_alfred_name(info.id)
        return engine


# ------------------------------------------------------------------------------------ TextWorld
def textworld_tasks(
    split: str, n: int, rooms: int = 3, objects: int = 6, quest_length: int = 4, offset: int = 0
) -> list[Task]:
    """Generated TextWorld games of a split (Côté et al., 2018, https://arxiv.org/abs/1806.11532).

    Args:
        split: ``train``, ``val``, ``test`` or ``probe``.
        n: How many.
        rooms: Of each world.
        objects: In it.
        quest_length: Actions of the shortest way to win.
        offset: Seeds of the split to pass over.
    """
    options = {"rooms": rooms, "objects": objects, "quest_length": quest_length}
    return [
        Task(f"textworld-{seed}", f"quest_{quest_length}", split, seed, {**options, "seed": seed})
        for seed in split_seeds(split, n, offset)
    ]


class TextWorldEnv(_EngineEnv):
    """TextWorld's games, made by its generator and Inform 7.

    A game takes seconds to compile and is kept: call ``prepare`` before training, in
    ``prepare_data``.

    Args:
        cache_dir: Where compiled games are kept.
        max_steps: After which an episode ends.
    """

    def __init__(self, cache_dir: str | os.PathLike[str], max_steps: int = MAX_STEPS) -> None:
        self.cache_dir, self.max_steps = Path(cache_dir), max_steps

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Compiles the games that are not kept yet."""
        for task in tasks:
            self._compiled(task)

    def _compiled(self, task: Task) -> Path:
        try:
            import textworld
        except ImportError:
            raise missing_extra("textworld", "envs") from None
        payload = dict(task.payload)
        key = json.dumps([payload, textworld.__version__], sort_keys=True)
        path = self.cache_dir / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.z8"
        ready = path.with_suffix(".ready")
        if not ready.exists():
            self.cache_dir.mkdir(parents=True, exist_ok=True)
            options = textworld.GameOptions()
            options.nb_rooms, options.nb_objects = payload["rooms"], payload["objects"]
            options.chaining.max_depth = payload["quest_length"]
            options.chaining.min_length = options.chaining.max_length = payload["quest_length"]
            options.seeds = payload["seed"]
            options.path, options.force_recompile = str(path), True
            textworld.make(options)
            write_text(ready, key)  # the game lies in several files: this one says they are whole
        return path

    def _start(self, task: Task) -> Any:
        import textworld

        path = self._compiled(task)
        infos = textworld.EnvInfos(won=True, admissible_commands=True, score=True)
        with warnings.catch_warnings():
            # The interpreter knows no score of a game made here; TextWorld counts it itself.
            warnings.filterwarnings("ignore", message=".*not fully supported")
            return textworld.start(str(path), infos)
