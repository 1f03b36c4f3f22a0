"""Demonstrations for the household: the next action of a short way to the goal, from any state."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.agents.envs.household import APPLIANCE, HouseholdEnv
from zoo.errors import ZooError


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
