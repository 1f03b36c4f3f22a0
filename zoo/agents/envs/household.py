"""A household in text: find an object, change it, put it somewhere.

The six families of tasks, the action grammar and the rules are those of ALFWorld (Shridhar et al.,
"ALFWorld: Aligning Text and Embodied Environments for Interactive Learning", 2021,
https://arxiv.org/abs/2010.03768), as its planning domain states them; ``AlfworldPddlEnv`` plays the
same tasks on its engine, and a test compares the two. Rooms are generated, and a step takes
microseconds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from zoo.agents.envs.base import Obs, State, Step, Task, draw_tasks
from zoo.errors import ZooError, check_choice

FAMILIES = ("pick", "look", "clean", "heat", "cool", "pick_two")
MAX_STEPS = 50
HELP = (
    "You can look, inventory, go to, open, close, take from, move to, examine, use, heat with, "
    "clean with, cool with."
)

FOOD = ("apple", "bread", "egg", "potato", "tomato")
DISHES = ("bowl", "cup", "fork", "mug", "plate", "spoon")
THINGS = ("book", "cellphone")
OBJECTS = (*FOOD, *DISHES, *THINGS, "desklamp")
CLEANABLE = frozenset((*DISHES, "apple", "potato", "tomato", "egg"))
HEATABLE = frozenset((*FOOD, "cup", "mug", "plate"))
COOLABLE = frozenset((*FOOD, "bowl", "cup", "mug", "plate"))

# Receptacle type: whether it opens, how many a room has at most, and what it can hold.
RECEPTACLES: dict[str, tuple[bool, int, tuple[str, ...]]] = {
    "cabinet": (True, 3, DISHES),
    "countertop": (False, 2, (*FOOD, *DISHES, *THINGS)),
    "desk": (False, 1, ("bowl", "cup", "mug", *THINGS, "desklamp")),
    "diningtable": (False, 1, (*FOOD, *DISHES, *THINGS)),
    "drawer": (True, 3, ("fork", "spoon", *THINGS)),
    "fridge": (True, 1, (*FOOD, "bowl", "cup", "mug", "plate")),
    "garbagecan": (False, 1, FOOD),
    "microwave": (True, 1, ("apple", "bread", "cup", "egg", "mug", "plate", "potato", "tomato")),
    "shelf": (False, 2, (*DISHES, *THINGS)),
    "sidetable": (False, 2, ("bowl", "cup", "mug", "plate", *THINGS, "desklamp")),
    "sinkbasin": (False, 1, (*DISHES, "apple", "potato", "tomato", "egg")),
    "sofa": (False, 1, THINGS),
}
APPLIANCE = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
SUITED = {"clean": CLEANABLE, "heat": HEATABLE, "cool": COOLABLE}
GOALS = {
    "pick": "put a {o} in {r}",
    "look": "look at {o} under the desklamp",
    "clean": "put a clean {o} in {r}",
    "heat": "put a hot {o} in {r}",
    "cool": "put a cool {o} in {r}",
    "pick_two": "put two {o} in {r}",
}

# Kinds of operations that a line of text stands for.
LOOK, INVENTORY, ASK, EXAMINE_R, EXAMINE_O, GO, OPEN, CLOSE = range(8)
TAKE, MOVE, CLEAN, HEAT, COOL, USE = range(8, 14)
CHANGES = {"clean": CLEAN, "heat": HEAT, "cool": COOL}


# -------------------------------------------------------------------------------------- tasks
def household_tasks(
    split: str,
    n: int,
    families: Sequence[str] = FAMILIES,
    rooms: Sequence[int] | None = None,
    offset: int = 0,
) -> list[Task]:
    """Tasks of a split, the families in turn.

    Args:
        split: ``train``, ``val``, ``test`` or ``probe``.
        n: How many, all families together.
        families: Of ``FAMILIES``.
        rooms: Seeds of rooms to use in turn, so that splits can share layouts; each task has a room
            of its own if not given.
        offset: Seeds of the split to pass over.

    Raises:
        ZooError: If a family or a split is unknown, or there are not as many tasks.
    """
    for family in families:
        check_choice("family", family, FAMILIES)

    def make(seed: int) -> Task:
        family = families[seed % len(families)]
        room = None if rooms is None else rooms[seed // len(families) % len(rooms)]
        return household_task(family, seed, split, room)

    return draw_tasks(make, split, n, offset)


def household_task(family: str, seed: int, split: str = "train", room: int | None = None) -> Task:
    """The task of a family and a seed, solvable and not solved at the start.

    Args:
        family: Of ``FAMILIES``.
        seed: Of objects and goal.
        split: A word for the task.
        room: Seed of the receptacles; the task's own if not given.
    """
    check_choice("family", family, FAMILIES)
    kinds = _furnish(random.Random(f"room {seed if room is None else room}"), family)
    rng = random.Random(f"task {family} {seed}")
    receptacles = _number(kinds)
    suited = SUITED.get(family, frozenset(OBJECTS) - {"desklamp"})
    goals = [
        (target, place)
        for target in sorted(suited)
        for place in ([""] if family == "look" else sorted(set(kinds)))
        if (not place or target in RECEPTACLES[place][2])
        and any(k != place and target in RECEPTACLES[k][2] for k in kinds)
    ]
    target, place = rng.choice(goals)
    wanted = [target] * (2 if family == "pick_two" else 1)
    if family == "look":
        wanted.append("desklamp")
    others = [o for o in OBJECTS if o not in ("desklamp", target)]
    wanted += rng.sample(others, rng.randint(max(0, 2 - len(wanted)), 6 - len(wanted)))
    objects = []
    for name, number in _number(wanted):
        allowed = [
            i
            for i, kind in enumerate(kinds)
            if name in RECEPTACLES[kind][2] and not (name == target and kind == place)
        ]
        if allowed:  # a room may have no place for something that the goal doesn't need
            objects.append([name, number, rng.choice(allowed)])
    payload = {
        "receptacles": [list(pair) for pair in receptacles],
        "objects": objects,
        "goal": {"family": family, "object": target, "receptacle": place},
    }
    return Task(f"household-{family}-{seed}", family, split, seed, payload)


def _furnish(rng: random.Random, family: str) -> list[str]:
    """4 to 8 receptacles, with those that the family needs, sorted."""
    kinds = [rng.choice(("countertop", "diningtable"))]
    kinds += [APPLIANCE[family]] if family in APPLIANCE else []
    kinds += [rng.choice(("desk", "sidetable"))] if family == "look" else []
    size = rng.randint(4, 8)
    while len(kinds) < size:
        kind = rng.choice(list(RECEPTACLES))
        if kinds.count(kind) < RECEPTACLES[kind][1]:
            kinds.append(kind)
    return sorted(kinds)


def _number(kinds: Sequence[str]) -> list[tuple[str, int]]:
    return [(kind, list(kinds[: i + 1]).count(kind)) for i, kind in enumerate(kinds)]


# ---------------------------------------------------------------------------------------- room
class Room:
    """What does not change during a task.

    Attributes:
        receptacles: Kind of each.
        places: Name of each, such as ``cabinet 2``.
        objects: Kind of each.
        things: Name of each, such as ``apple 1``.
        starts: Index of the receptacle in which each object begins.
        goal: ``family``, ``object`` and ``receptacle``.

    Raises:
        ZooError: If the payload is not that of a household task.
    """

    def __init__(self, task: Task) -> None:
        try:
            payload, self.goal = task.payload, dict(task.payload["goal"])
            self.receptacles = [kind for kind, _ in payload["receptacles"]]
            self.places = [f"{kind} {number}" for kind, number in payload["receptacles"]]
            self.objects = [kind for kind, _, _ in payload["objects"]]
            self.things = [f"{kind} {number}" for kind, number, _ in payload["objects"]]
            self.starts = [int(start) for _, _, start in payload["objects"]]
            self.goal_text = GOALS[self.goal["family"]].format(
                o=self.goal["object"], r=self.goal["receptacle"]
            )
            self.opens = [RECEPTACLES[kind][0] for kind in self.receptacles]
            self.holds = [frozenset(RECEPTACLES[kind][2]) for kind in self.receptacles]
            self.go = {f"go to {place}": (GO, i, 0) for i, place in enumerate(self.places)}
        except (KeyError, TypeError, ValueError) as error:
            raise ZooError(f"Task '{task.task_id}' is no household task: {error!r}.") from None
        self.family = self.goal["family"]
        self.targets = [i for i, k in enumerate(self.objects) if k == self.goal["object"]]
        self.goals = [i for i, k in enumerate(self.receptacles) if k == self.goal["receptacle"]]
        self.lamps = [i for i, kind in enumerate(self.objects) if kind == "desklamp"]

    def operations(
        self, at: int, held: int, opened: bool, inside: Sequence[int]
    ) -> dict[str, tuple[int, int, int]]:
        """Each line of text that is understood here, and the operation that it stands for.

        Args:
            at: Receptacle before which the agent stands, -1 in the middle of the room.
            held: Object in its hand, or -1.
            opened: Whether that receptacle is open.
            inside: Objects in it.
        """
        found = dict(self.go)
        found["look"] = (LOOK, 0, 0)
        found["inventory"] = (INVENTORY, 0, 0)
        found["help"] = (ASK, 0, 0)
        if held >= 0:
            # The domain would let things be examined where they lie as well; ALFWorld's engine
            # offers it for what is held alone, and a test compares the two.
            found[f"examine {self.things[held]}"] = (EXAMINE_O, held, 0)
        if at < 0:
            return found
        place, kind = self.places[at], self.receptacles[at]
        del found[f"go to {place}"]
        found[f"examine {place}"] = (EXAMINE_R, at, 0)
        if self.opens[at]:
            found[f"close {place}" if opened else f"open {place}"] = (
                CLOSE if opened else OPEN,
                at,
                0,
            )
        visible = opened or not self.opens[at]
        for o in inside:
            thing = self.things[o]
            if self.objects[o] == "desklamp":
                found[f"use {thing}"] = (USE, o, 0)
            elif visible and held < 0:
                found[f"take {thing} from {place}"] = (TAKE, o, at)
        if held >= 0:
            thing, what = self.things[held], self.objects[held]
            if visible and what in self.holds[at]:
                found[f"move {thing} to {place}"] = (MOVE, held, at)
            for verb, appliance in APPLIANCE.items():
                if kind == appliance and what in SUITED[verb]:
                    found[f"{verb} {thing} with {place}"] = (CHANGES[verb], held, at)
        return found


def listing(names: Sequence[str]) -> str:
    """``a apple 1, a cup 1, and a mug 2``, as ALFWorld writes it."""
    if not names:
        return "nothing"
    if len(names) == 1:
        return f"a {names[0]}"
    return ", ".join(f"a {name}" for name in names[:-1]) + f", and a {names[-1]}"


# ----------------------------------------------------------------------------------------- env
class HouseholdEnv:
    """Household tasks; reward 1 when the goal is reached, which ends the episode.

    Args:
        max_steps: After which an episode ends.
    """

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self.max_steps = max_steps
        self.room: Room | None = None

    def reset(self, task: Task) -> Obs:
        """Begins in the middle of the room, with empty hands and everything closed."""
        room = self.room = Room(task)
        self._known: dict[tuple[Any, ...], tuple[dict[str, tuple[int, int, int]], list[str]]] = {}
        self.at, self.held, self.steps, self.done = -1, -1, 0, False
        self.inside: list[list[int]] = [[] for _ in room.places]
        for o, start in enumerate(room.starts):
            self.inside[start].append(o)
        # One bit for each receptacle or object.
        self.opened = self.seen = self.clean = self.hot = self.cool = self.toggled = 0
        text = (
            "You are in the middle of a room. Looking quickly around you, you see "
            f"{listing(room.places)}.\nYour task is to: {room.goal_text}."
        )
        return Obs(text, self._admissible())

    def _admissible(self) -> list[str]:
        at = self.at
        key = (
            (at, self.held) if at < 0 else (at, self.held, self.opened >> at & 1, *self.inside[at])
        )
        known = self._known.get(key)
        if known is None:
            opened, inside = (False, ()) if at < 0 else (bool(key[2]), self.inside[at])
            operations = self.room.operations(at, self.held, opened, inside)  # type: ignore[union-attr]
            known = self._known[key] = (operations, sorted(operations))
        self._operations = known[0]
        return known[1].copy()

    def step(self, action: str) -> Step:
        """Takes one action; ``Nothing happens.`` if it is not admissible.

        Raises:
            ZooError: If there is no task, or it is over.
        """
        if self.room is None or self.done:
            raise ZooError("A household episode begins with reset, and ends when done is true.")
        self.steps += 1
        operation = self._operations.get(action)
        if operation is None:
            operation = self._operations.get(" ".join(action.lower().split()))
        success = False
        if operation is None:
            text = "Nothing happens."
        else:
            text = self._perform(*operation)
            success = operation[0] >= GO and self._solved()
        self.done = success or self.steps >= self.max_steps
        info = {"success": success, "valid": operation is not None}
        return Step(Obs(text, self._admissible()), float(success), self.done, info)

    def _contents(self, at: int) -> str:
        room, place = self.room, self.room.places[at]  # type: ignore[union-attr]
        if room.opens[at]:  # type: ignore[union-attr]
            if not self.opened >> at & 1:
                return f"The {place} is closed."
            where = f"The {place} is open. In it"
        else:
            where = f"On the {place}"
        self.seen |= 1 << at
        return f"{where}, you see {listing([room.things[o] for o in self.inside[at]])}."  # type: ignore[union-attr]

    def _perform(self, kind: int, a: int, b: int) -> str:
        """Changes the state, and says what happened."""
        room = self.room
        assert room is not None
        if kind == GO:
            self.at = a
            return f"You arrive at {room.places[a]}. {self._contents(a)}"
        if kind == TAKE:
            self.inside[b].remove(a)
            self.held = a
            return f"You pick up the {room.things[a]} from the {room.places[b]}."
        if kind == MOVE:
            self.inside[b] = sorted([*self.inside[b], a])
            self.held = -1
            return f"You move the {room.things[a]} to the {room.places[b]}."
        if kind == OPEN:
            self.opened |= 1 << a
            return f"You open the {room.places[a]}. {self._contents(a)}"
        if kind == CLOSE:
            self.opened &= ~(1 << a)
            return f"You close the {room.places[a]}."
        if kind == CLEAN:
            self.clean |= 1 << a
            return f"You clean the {room.things[a]} using the {room.places[b]}."
        if kind == HEAT:
            self.hot |= 1 << a
            self.cool &= ~(1 << a)
            return f"You heat the {room.things[a]} using the {room.places[b]}."
        if kind == COOL:
            self.cool |= 1 << a
            self.hot &= ~(1 << a)
            return f"You cool the {room.things[a]} using the {room.places[b]}."
        if kind == USE:
            self.toggled |= 1 << a
            return f"You turn on the {room.things[a]}."
        if kind == EXAMINE_R:
            return self._contents(a)
        if kind == EXAMINE_O:
            return self._condition(a)
        if kind == INVENTORY:
            carried = f"a {room.things[self.held]}" if self.held >= 0 else "nothing"
            return f"You are carrying: {carried}."
        if kind == LOOK:
            if self.at >= 0:
                return f"You are facing the {room.places[self.at]}. Next to it, you see nothing."
            return (
                "You are in the middle of a room. Looking quickly around you, you see "
                f"{listing(room.places)}."
            )
        return HELP

    def _condition(self, o: int) -> str:
        thing = self.room.things[o]  # type: ignore[union-attr]
        words = [
            word
            for word, bits in (("clean", self.clean), ("hot", self.hot), ("cool", self.cool))
            if bits >> o & 1
        ]
        return f"This is a {' and '.join(words) or 'normal'} {thing}."

    def _solved(self) -> bool:
        room = self.room
        assert room is not None
        if room.family == "look":
            return (
                self.at >= 0
                and self.held in room.targets
                and any(self.toggled >> o & 1 and o in self.inside[self.at] for o in room.lamps)
            )
        bits = {"clean": self.clean, "heat": self.hot, "cool": self.cool}.get(room.family, -1)
        needed = 2 if room.family == "pick_two" else 1  # both in one receptacle
        return any(
            sum(bits >> o & 1 for o in self.inside[r] if o in room.targets) >= needed
            for r in room.goals
        )

    def close(self) -> None:
        """Nothing to free."""

    def vocabulary(self) -> list[str]:
        """Words and punctuation marks of all observations, goals and actions."""
        sentences = (
            "You are in the middle of a room. Looking quickly around you, you see nothing, and a "
            "Your task is to: put two hot clean cool look at under the take from move inventory "
            "You arrive at. The is open closed. In it On use open close examine go to Nothing "
            "happens You pick up heat using turn on off This normal carrying facing Next with help "
        )
        marks = sentences + HELP
        for mark in ".,:":
            marks = marks.replace(mark, f" {mark} ")
        numbers = [str(i) for i in range(1, 10)]
        return sorted({*marks.split(), *OBJECTS, *RECEPTACLES, *numbers})

    def verify(self, task: Task, state: State) -> bool:
        """Whether the goal holds in a state."""
        judge = HouseholdEnv()
        judge.reset(task)
        judge.load_state_dict(state)
        return judge._solved()

    FIELDS = (
        *("at", "held", "steps", "done", "opened", "seen"),
        *("clean", "hot", "cool", "toggled"),
    )

    def state_dict(self) -> State:
        """Where agent and objects are, and what was done to them; bits are numbered as in Room."""
        state: State = {name: getattr(self, name) for name in self.FIELDS}
        return {**state, "inside": [list(objects) for objects in self.inside]}

    def load_state_dict(self, state: State) -> None:
        """Goes back to a state of the present task.

        Raises:
            ZooError: If it is a state of another task.
        """
        if self.room is None or len(state["inside"]) != len(self.room.places):
            raise ZooError("The state is of another household task than the present one.")
        for name in self.FIELDS:
            setattr(self, name, state[name])
        self.inside = [list(objects) for objects in state["inside"]]
        self._admissible()


# -------------------------------------------------------------------------------------- expert
def expert_action(env: HouseholdEnv, explore: bool = False) -> str:
    """The next action of a short way to the goal from the present state.

    It follows from the state alone, so it also recovers from actions that others took.

    Args:
        env: In the middle of an episode.
        explore: Looks for objects as an agent has to that has not seen them; otherwise it knows
            where all are.
    """
    room = env.room
    assert room is not None
    bits = {"clean": env.clean, "heat": env.hot, "cool": env.cool}.get(room.family, -1)
    held = env.held
    if held >= 0 and held not in room.targets:
        return _put_away(env)
    if room.family == "look" and held >= 0:
        return _seek(env, room.lamps, explore) or f"use {room.things[room.lamps[0]]}"
    if held >= 0 and not bits >> held & 1:
        appliance = room.receptacles.index(APPLIANCE[room.family])
        verb = f"{room.family} {room.things[held]} with {room.places[appliance]}"
        return verb if env.at == appliance else f"go to {room.places[appliance]}"
    if held >= 0:
        goal = _goal_place(env)
        return _reach(env, goal) or f"move {room.things[held]} to {room.places[goal]}"
    placed = {o for o in env.inside[_goal_place(env)] if bits >> o & 1} if room.goals else ()
    wanted = [o for o in room.targets if o not in placed]
    go = _seek(env, wanted, explore)
    if go:
        return go
    o = next(o for o in env.inside[env.at] if o in wanted)
    return f"take {room.things[o]} from {room.places[env.at]}"


def _reach(env: HouseholdEnv, place: int) -> str | None:
    """The action that brings the agent before an open receptacle; None if it is there."""
    room = env.room
    assert room is not None
    if env.at != place:
        return f"go to {room.places[place]}"
    if room.opens[place] and not env.opened >> place & 1:
        return f"open {room.places[place]}"
    return None


def _seek(env: HouseholdEnv, wanted: Sequence[int], explore: bool) -> str | None:
    """The action that leads to one of the objects; None if one is at hand."""
    places = [r for r, inside in enumerate(env.inside) if any(o in wanted for o in inside)]
    known = [r for r in places if not explore or env.seen >> r & 1]
    if env.at in known:
        return _reach(env, env.at)
    if known:
        return _reach(env, known[0])
    unseen = [r for r in range(len(env.inside)) if not env.seen >> r & 1]
    return _reach(env, env.at if env.at in unseen else unseen[0])


def _goal_place(env: HouseholdEnv) -> int:
    """Where to put things: where the first of two lies already, or else near by."""
    room = env.room
    assert room is not None
    counts = [sum(o in room.targets for o in env.inside[r]) for r in room.goals]
    if room.family == "pick_two" and any(counts):
        return room.goals[counts.index(max(counts))]
    return env.at if env.at in room.goals else room.goals[0]


def _put_away(env: HouseholdEnv) -> str:
    """The action that frees the hand, at the nearest place that takes what is in it."""
    room = env.room
    assert room is not None
    fits = [r for r, holds in enumerate(room.holds) if room.objects[env.held] in holds]
    place = env.at if env.at in fits else fits[0]
    return _reach(env, place) or f"move {room.things[env.held]} to {room.places[place]}"


def expert_plan(env: HouseholdEnv, explore: bool = False) -> list[str]:
    """All actions from the present state to the goal; the environment stays as it is."""
    copy = HouseholdEnv(max_steps=10_000)
    copy.room, copy._known = env.room, env._known
    copy.load_state_dict({**env.state_dict(), "steps": 0, "done": False})
    plan: list[str] = []
    while not copy._solved():
        plan.append(expert_action(copy, explore))
        if len(plan) > 200:
            raise ZooError(f"The expert does not get there: {plan[-4:]}.")
        copy.step(plan[-1])
    return plan
