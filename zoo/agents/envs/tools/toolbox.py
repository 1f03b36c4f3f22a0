"""Thirty tools over a state of plain values: files, calendar, bank, flights, e-mail, arithmetic.

A tool is a function of the state and of typed arguments. Its schema is read from its signature, the
state changes in place, and what can't be done raises :class:`ToolError`, whose text is the answer.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

State = dict[str, Any]
Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday"]
DAYS = typing.get_args(Day)
Folder = Literal["inbox", "archive", "sent", "trash"]
Minute = Annotated[int, {"minimum": 0, "maximum": 1440}]
Amount = Annotated[int, {"minimum": 1, "maximum": 1_000_000}]
Numbers = Annotated[list[float], {"minItems": 2, "maxItems": 20}]
OPENING, CLOSING = 540, 1020  # minutes of the day: 9:00 and 17:00
MAX_TEXT = 10_000  # characters of a file


class ToolError(Exception):
    """A call that is well-formed and can't be carried out."""


@dataclass(frozen=True)
class Tool:
    """A function that an agent may call.

    Attributes:
        name: Of the function.
        group: One of ``GROUPS``.
        description: One sentence.
        parameters: JSON schema of the arguments.
        call: Carries it out: state and arguments to a plain value.
    """

    name: str
    group: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[..., Any]

    def signature(self) -> str:
        """``transfer(source: string, target: string, amount: integer)``."""
        found = (f"{name}: {s['type']}" for name, s in self.parameters["properties"].items())
        return f"{self.name}({', '.join(found)})"

    def schema(self) -> dict[str, Any]:
        """As chat models are told of a function."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }


TOOLS: dict[str, Tool] = {}
SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _schema(kind: Any) -> dict[str, Any]:
    if typing.get_origin(kind) is Annotated:
        base, *extra = typing.get_args(kind)
        found = _schema(base)
        for more in extra:
            found.update(more)
        return found
    if typing.get_origin(kind) is Literal:
        return {"type": "string", "enum": list(typing.get_args(kind))}
    if typing.get_origin(kind) is list:
        return {"type": "array", "items": _schema(typing.get_args(kind)[0])}
    return {"type": SIMPLE[kind]} | ({"maxLength": MAX_TEXT} if kind is str else {})


def _tool(function: Callable[..., Any], group: str) -> Callable[..., Any]:
    hints = typing.get_type_hints(function, include_extras=True)
    properties = {n: _schema(k) for n, k in hints.items() if n not in ("state", "return")}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    name = function.__name__
    TOOLS[name] = Tool(name, group, (function.__doc__ or "").strip(), parameters, function)
    return function


def _group(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return functools.partial(_tool, group=name)


def _get(table: Mapping[str, Any], key: str, what: str) -> Any:
    if key not in table:
        raise ToolError(f"there is no {what} '{key}'")
    return table[key]


def _next_id(state: State, kind: str) -> str:
    state["counters"][kind] = number = state["counters"].get(kind, 0) + 1
    return f"{kind}{number}"


files, calendar, bank = _group("files"), _group("calendar"), _group("bank")
flights, email, math = _group("flights"), _group("email"), _group("math")


# --------------------------------------------------------------------------------------- files
@files
def list_files(state: State) -> list[str]:
    """Lists the paths of all files."""
    return sorted(state["files"])


@files
def read_file(state: State, path: str) -> str:
    """Gives the text of a file."""
    return str(_get(state["files"], path, "file"))


@files
def write_file(state: State, path: str, text: str) -> str:
    """Writes a text to a file, in place of what it held."""
    state["files"][path] = text
    return "written"


@files
def append_file(state: State, path: str, text: str) -> str:
    """Adds a line at the end of a file."""
    old = _get(state["files"], path, "file")
    if len(old) + len(text) > MAX_TEXT:
        raise ToolError(f"a file has at most {MAX_TEXT} characters")
    state["files"][path] = f"{old}\n{text}" if old else text
    return "written"


@files
def move_file(state: State, source: str, target: str) -> str:
    """Gives a file another path, at which there is none yet."""
    text = _get(state["files"], source, "file")
    if target in state["files"]:
        raise ToolError(f"there is a file '{target}' already")
    del state["files"][source]
    state["files"][target] = text
    return "moved"


@files
def delete_file(state: State, path: str) -> str:
    """Deletes a file."""
    _get(state["files"], path, "file")
    del state["files"][path]
    return "deleted"


# ------------------------------------------------------------------------------------ calendar
def _check_free(state: State, day: str, start: int, end: int, but: str = "") -> None:
    if not start < end:
        raise ToolError("an event ends after it starts")
    for name, event in state["events"].items():
        overlaps = event["day"] == day and start < event["end"] and event["start"] < end
        if name != but and overlaps:
            raise ToolError(f"it overlaps with {name}, '{event['title']}'")


@calendar
def list_events(state: State, day: Day) -> dict[str, Any]:
    """Lists the events of a day; times are minutes since midnight."""
    return {name: event for name, event in state["events"].items() if event["day"] == day}


@calendar
def add_event(state: State, title: str, day: Day, start: Minute, end: Minute) -> str:
    """Adds an event, from start to end in minutes since midnight."""
    _check_free(state, day, start, end)
    name = _next_id(state, "event")
    state["events"][name] = {"title": title, "day": day, "start": start, "end": end}
    return name


@calendar
def move_event(state: State, event: str, day: Day, start: Minute) -> str:
    """Moves an event to another day and start; it stays as long."""
    found = _get(state["events"], event, "event")
    end = start + found["end"] - found["start"]
    if end > 1440:
        raise ToolError("an event ends on the day it starts")
    _check_free(state, day, start, end, but=event)
    found.update(day=day, start=start, end=end)
    return "moved"


@calendar
def cancel_event(state: State, event: str) -> str:
    """Removes an event."""
    _get(state["events"], event, "event")
    del state["events"][event]
    return "cancelled"


@calendar
def find_free_slot(state: State, day: Day, minutes: Minute) -> int:
    """Gives the first start of so many free minutes between 9:00 and 17:00."""
    start = OPENING
    for event in sorted(list_events(state, day).values(), key=lambda e: e["start"]):
        if event["start"] - start >= minutes:
            break
        start = max(start, event["end"])
    if start + minutes > CLOSING:
        raise ToolError(f"{day} has no {minutes} free minutes")
    return start


# ---------------------------------------------------------------------------------------- bank
@bank
def list_accounts(state: State) -> list[str]:
    """Lists the accounts."""
    return sorted(state["accounts"])


@bank
def get_balance(state: State, account: str) -> int:
    """Gives an account's balance."""
    return int(_get(state["accounts"], account, "account"))


@bank
def transfer(state: State, source: str, target: str, amount: Amount) -> str:
    """Moves money from one account to another."""
    balance = _get(state["accounts"], source, "account")
    _get(state["accounts"], target, "account")
    if source == target:
        raise ToolError("source and target are one account")
    if balance < amount:
        raise ToolError(f"'{source}' holds only {balance}")
    state["accounts"][source] -= amount
    state["accounts"][target] += amount
    state["transactions"].append({"from": source, "to": target, "amount": amount})
    return "transferred"


@bank
def pay_bill(state: State, account: str, payee: str, amount: Amount) -> str:
    """Pays an amount to somebody outside."""
    balance = _get(state["accounts"], account, "account")
    if balance < amount:
        raise ToolError(f"'{account}' holds only {balance}")
    state["accounts"][account] -= amount
    state["transactions"].append({"from": account, "to": payee, "amount": amount})
    return "paid"


@bank
def list_transactions(state: State, account: str) -> list[Any]:
    """Lists what went from and to an account, oldest first."""
    _get(state["accounts"], account, "account")
    return [t for t in state["transactions"] if account in (t["from"], t["to"])]


# ------------------------------------------------------------------------------------- flights
@flights
def search_flights(state: State, origin: str, destination: str, day: Day) -> dict[str, Any]:
    """Finds the flights from one city to another on a day, with price and free seats."""
    wanted = (origin, destination, day)
    return {
        number: {"price": f["price"], "seats": f["seats"]}
        for number, f in state["flights"].items()
        if (f["origin"], f["destination"], f["day"]) == wanted
    }


@flights
def book_flight(state: State, flight: str, passenger: str) -> str:
    """Books a seat on a flight for a passenger."""
    found = _get(state["flights"], flight, "flight")
    if not found["seats"]:
        raise ToolError(f"flight '{flight}' is full")
    found["seats"] -= 1
    name = _next_id(state, "booking")
    state["bookings"][name] = {"flight": flight, "passenger": passenger, "seat": ""}
    return name


@flights
def cancel_booking(state: State, booking: str) -> str:
    """Cancels a booking and frees its seat."""
    found = _get(state["bookings"], booking, "booking")
    state["flights"][found["flight"]]["seats"] += 1
    del state["bookings"][booking]
    return "cancelled"


@flights
def list_bookings(state: State, passenger: str) -> dict[str, Any]:
    """Lists the bookings of a passenger."""
    return {n: b for n, b in state["bookings"].items() if b["passenger"] == passenger}


@flights
def choose_seat(
    state: State, booking: str, seat: Annotated[str, {"pattern": "^[1-9][0-9]?[A-F]$"}]
) -> str:
    """Chooses a seat such as 12A for a booking."""
    found = _get(state["bookings"], booking, "booking")
    for name, other in state["bookings"].items():
        if name != booking and (other["flight"], other["seat"]) == (found["flight"], seat):
            raise ToolError(f"seat {seat} is taken")
    found["seat"] = seat
    return "chosen"


# ---------------------------------------------------------------------------------------- email
@email
def list_emails(state: State, folder: Folder) -> dict[str, Any]:
    """Lists the e-mails of a folder with sender and subject."""
    return {
        name: {"from": mail["from"], "subject": mail["subject"]}
        for name, mail in state["emails"].items()
        if mail["folder"] == folder
    }


@email
def read_email(state: State, message: str) -> dict[str, Any]:
    """Gives an e-mail with its text."""
    return dict(_get(state["emails"], message, "e-mail"))


@email
def send_email(state: State, to: str, subject: str, text: str) -> str:
    """Sends an e-mail."""
    name = _next_id(state, "mail")
    mail = {"from": "me", "to": to, "subject": subject, "text": text, "folder": "sent"}
    state["emails"][name] = mail
    return name


@email
def move_email(state: State, message: str, folder: Folder) -> str:
    """Moves an e-mail to a folder."""
    _get(state["emails"], message, "e-mail")["folder"] = folder
    return "moved"


@email
def delete_email(state: State, message: str) -> str:
    """Deletes an e-mail for good."""
    _get(state["emails"], message, "e-mail")
    del state["emails"][message]
    return "deleted"


# ----------------------------------------------------------------------------------- arithmetic
def _plain(value: float) -> float:
    """A whole number as int, others rounded to what a float holds exactly enough."""
    return int(value) if value == int(value) else round(value, 10)


@math
def add(state: State, numbers: Numbers) -> float:
    """Adds numbers."""
    return _plain(sum(numbers))


@math
def multiply(state: State, numbers: Numbers) -> float:
    """Multiplies numbers."""
    product = 1.0
    for number in numbers:
        product *= number
    if abs(product) > 1e300:
        raise ToolError("the product is too large")
    return _plain(product)


@math
def divide(state: State, dividend: float, divisor: float) -> float:
    """Divides one number by another."""
    if divisor == 0:
        raise ToolError("division by zero")
    return _plain(dividend / divisor)


@math
def round_number(
    state: State, number: float, digits: Annotated[int, {"minimum": 0, "maximum": 9}]
) -> float:
    """Rounds a number to so many digits after the point."""
    return _plain(round(number, digits))


GROUPS = tuple(dict.fromkeys(tool.group for tool in TOOLS.values()))
