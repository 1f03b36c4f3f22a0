"""Generated tasks for the tools: a state, an instruction, and calls that carry it out."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

from zoo.agents.envs.base import Task, draw_tasks
from zoo.agents.envs.tools.calls import Call
from zoo.agents.envs.tools.toolbox import DAYS, GROUPS, OPENING, TOOLS, State
from zoo.errors import check_choice

PEOPLE = ("anna", "ben", "carla", "david", "elif", "farid", "greta", "hugo")
CITIES = ("berlin", "lisbon", "oslo", "prague", "rome", "vienna")
TITLES = ("review", "lunch", "planning", "call", "training", "interview")
PATHS = ("notes.txt", "todo.txt", "report.txt", "plans/trip.txt", "plans/garden.txt", "old.txt")
WORDS = ("milk", "paper", "tickets", "bread", "stamps", "paint", "seeds", "rope")
ACCOUNTS = ("checking", "savings", "holiday", "house")
PAYEES = ("power", "water", "phone", "rent")
SUBJECTS = ("invoice", "offer", "minutes", "question", "reminder")


def initial_state(rng: random.Random) -> State:
    """A small world in which something is in every drawer."""
    state: State = {"counters": {}, "transactions": []}
    state["files"] = {path: rng.choice(WORDS) for path in rng.sample(PATHS, 4)}
    state["accounts"] = {name: rng.randint(2, 20) * 50 for name in rng.sample(ACCOUNTS, 3)}
    state["events"] = {}
    for i, title in enumerate(rng.sample(TITLES, 3)):
        start = OPENING + 60 * rng.randint(0, 6)
        event = {"title": title, "day": DAYS[i], "start": start, "end": start + 60}
        state["events"][f"event{i + 1}"] = event
    state["flights"], state["bookings"] = {}, {}
    for i in range(6):
        origin, destination = rng.sample(CITIES, 2)
        state["flights"][f"F{100 + 7 * i}"] = {
            "origin": origin,
            "destination": destination,
            "day": rng.choice(DAYS),
            "price": 40 + 10 * rng.randint(0, 30),
            "seats": rng.randint(1, 9),
        }
    state["emails"] = {
        f"mail{i + 1}": {
            "from": person,
            "to": "me",
            "subject": subject,
            "text": rng.choice(WORDS),
            "folder": "inbox",
        }
        for i, (person, subject) in enumerate(
            zip(rng.sample(PEOPLE, 3), rng.sample(SUBJECTS, 3), strict=True)
        )
    }
    state["counters"] = {"event": 3, "mail": 3}
    return state


Made = tuple[str, list[Call]]


def _files(state: State, rng: random.Random) -> Made:
    path, word = rng.choice(sorted(state["files"])), rng.choice(WORDS)
    free = rng.choice([p for p in PATHS if p not in state["files"]])
    kind = rng.randrange(4)
    if kind == 0:
        return f"Write {word} to {free}.", [Call("write_file", {"path": free, "text": word})]
    if kind == 1:
        return f"Add {word} to {path}.", [Call("append_file", {"path": path, "text": word})]
    move = Call("move_file", {"source": path, "target": free})
    if kind == 2:
        return f"Move {path} to {free}.", [move]
    other = rng.choice([p for p in sorted(state["files"]) if p != path])
    delete = Call("delete_file", {"path": other})
    return f"Move {path} to {free}, and delete {other}.", [move, delete]


def _calendar(state: State, rng: random.Random) -> Made:
    name, event = rng.choice(sorted(state["events"].items()))
    day, minutes = rng.choice(DAYS[3:]), rng.choice((30, 60, 90))
    start = OPENING + 30 * rng.randint(0, 10)
    show = Call("list_events", {"day": event["day"]})
    kind = rng.randrange(4)
    if kind == 0:
        title, person = rng.choice(TITLES), rng.choice(PEOPLE)
        arguments = {"title": f"{title} with {person}", "day": day, "start": start}
        call = Call("add_event", {**arguments, "end": start + minutes})
        return (
            f"Enter {title} with {person} on {day} from minute {start} to {start + minutes}.",
            [call],
        )
    if kind == 1:
        text = f"Cancel the {event['title']} on {event['day']}."
        return text, [show, Call("cancel_event", {"event": name})]
    if kind == 2:
        text = f"Move the {event['title']} on {event['day']} to {day} at minute {start}."
        return text, [show, Call("move_event", {"event": name, "day": day, "start": start})]
    title = rng.choice(TITLES)
    find = Call("find_free_slot", {"day": event["day"], "minutes": minutes})
    first = TOOLS["find_free_slot"].call(state, **find.arguments)
    arguments = {"title": title, "day": event["day"], "start": first, "end": first + minutes}
    text = f"Enter {title} for {minutes} minutes at the first free time on {event['day']}."
    return text, [find, Call("add_event", arguments)]


def _bank(state: State, rng: random.Random) -> Made:
    source, target = rng.sample(sorted(state["accounts"]), 2)
    amount = 5 * rng.randint(1, 10)
    move = Call("transfer", {"source": source, "target": target, "amount": amount})
    kind = rng.randrange(3)
    if kind == 0:
        return f"Transfer {amount} from {source} to {target}.", [move]
    payee = rng.choice(PAYEES)
    if kind == 1:
        pay = Call("pay_bill", {"account": source, "payee": payee, "amount": amount})
        return f"Pay {amount} for {payee} from {source}.", [pay]
    balance = state["accounts"][source]
    look = Call("get_balance", {"account": source})
    everything = Call("transfer", {"source": source, "target": target, "amount": balance})
    return f"Transfer all that {source} holds to {target}.", [look, everything]


def _flights(state: State, rng: random.Random) -> Made:
    flight = rng.choice(sorted(state["flights"]))
    found, person = state["flights"][flight], rng.choice(PEOPLE)
    where = {key: found[key] for key in ("origin", "destination", "day")}
    matches = TOOLS["search_flights"].call(state, **where)
    cheapest = min(matches, key=lambda f: (matches[f]["price"], f))
    calls = [
        Call("search_flights", where),
        Call("book_flight", {"flight": cheapest, "passenger": person}),
    ]
    text = (
        f"Book the cheapest flight from {found['origin']} to {found['destination']} on "
        f"{found['day']} for {person}"
    )
    if rng.random() < 0.5:
        return f"{text}.", calls
    seat = f"{rng.randint(1, 30)}{rng.choice('ABCDEF')}"
    calls.append(Call("choose_seat", {"booking": "booking1", "seat": seat}))
    return f"{text}, in seat {seat}.", calls


def _email(state: State, rng: random.Random) -> Made:
    name, mail = rng.choice(sorted(state["emails"].items()))
    show = Call("list_emails", {"folder": "inbox"})
    kind = rng.randrange(3)
    if kind == 0:
        move = Call("move_email", {"message": name, "folder": "archive"})
        return f"Archive the e-mail from {mail['from']}.", [show, move]
    if kind == 1:
        text = f"Delete the e-mail about the {mail['subject']}."
        return text, [show, Call("delete_email", {"message": name})]
    person, subject, word = rng.choice(PEOPLE), rng.choice(SUBJECTS), rng.choice(WORDS)
    send = Call("send_email", {"to": person, "subject": subject, "text": word})
    return f"Send {person} an e-mail about the {subject} that says {word}.", [send]


def _math(state: State, rng: random.Random) -> Made:
    numbers = [rng.randint(2, 99) for _ in range(rng.choice((2, 3)))]
    name, sign = rng.choice((("add", "sum"), ("multiply", "product")))
    result = TOOLS[name].call(state, numbers=numbers)
    free = rng.choice([p for p in PATHS if p not in state["files"]])
    write = Call("write_file", {"path": free, "text": str(result)})
    listed = " and ".join(map(str, numbers))
    return f"Write the {sign} of {listed} to {free}.", [Call(name, {"numbers": numbers}), write]


MAKERS: dict[str, Callable[[State, random.Random], Made]] = {
    "files": _files,
    "calendar": _calendar,
    "bank": _bank,
    "flights": _flights,
    "email": _email,
    "math": _math,
}


def tool_tasks(split: str, n: int, families: Sequence[str] = GROUPS, offset: int = 0) -> list[Task]:
    """Tasks of a split, the families in turn.

    Args:
        split: ``train``, ``val``, ``test`` or ``probe``.
        n: How many, all families together.
        families: Groups of tools that the tasks are about.
        offset: Seeds of the split to pass over.

    Raises:
        ZooError: If a family or a split is unknown, or there are not as many tasks.
    """
    for family in families:
        check_choice("family", family, GROUPS)
    return draw_tasks(
        lambda seed: tool_task(families[seed % len(families)], seed, split), split, n, offset
    )


def tool_task(family: str, seed: int, split: str = "train") -> Task:
    """The task of a family and a seed; its payload has the calls that carry it out."""
    check_choice("family", family, GROUPS)
    rng = random.Random(f"tools {family} {seed}")
    state = initial_state(rng)
    instruction, calls = MAKERS[family](copy.deepcopy(state), rng)
    groups = {TOOLS[call.name].group for call in calls} | {family, rng.choice(GROUPS)}
    payload: dict[str, Any] = {
        "instruction": instruction,
        "state": state,
        "tools": [name for name, tool in TOOLS.items() if tool.group in groups],
        "calls": [call.to_dict() for call in calls],
    }
    return Task(f"tools-{family}-{seed}", family, split, seed, payload)
