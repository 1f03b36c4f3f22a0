"""``zoo list`` and ``zoo info``: plain text, no torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from zoo.catalog import get_method, list_methods
from zoo.errors import ZooError


def run(args: Sequence[str]) -> None:
    """Prints the methods that match, or what the card says of one."""
    parser = argparse.ArgumentParser(prog="zoo", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="list the methods")
    listing.add_argument("pattern", nargs="?", default="*", help="shell pattern, or part of a name")
    listing.add_argument("--task", help="part of the task's name")
    info = commands.add_parser("info", help="show one method")
    info.add_argument("name", help="of a method or its class")
    options = parser.parse_args(list(args))
    if options.command == "list":
        sys.stdout.write(_table(options.pattern, options.task))
    else:
        sys.stdout.write(_info(options.name))


def _table(pattern: str, task: str | None) -> str:
    methods = list_methods(pattern, task)
    if not methods:
        raise ZooError(f"No method matches {pattern!r}{f' with task {task!r}' if task else ''}.")
    rows = [("name", "class", "task"), *((m.name, m.cls, m.task) for m in methods)]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    return "".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}\n" for a, b, c in rows)


def _info(name: str) -> str:
    method = get_method(name)
    extras = f"[{','.join(method.extras)}]" if method.extras else ""
    lines = [
        f"{method.cls}: {method.title}",
        "",
        method.summary,
        "",
        f"task      {method.task} ({method.pipeline_tag})",
        f"data      zoo.datamodules.{method.data}",
        f'install   pip install "lightning-zoo{extras}"',
        f"train     zoo fit --config {method.config}",
    ]
    lines += [f"{key:<10}{value}".replace("_", " ", 1) for key, value in method.result.items()]
    return "\n".join(lines) + "\n"
