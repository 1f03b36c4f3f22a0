"""Turns jsonargparse's reports into one sentence with the nearest valid name.

jsonargparse lists every type that it tried; the reader needs the key, what came, and what is
allowed. The patterns below follow its wording, so its version is bounded in ``pyproject.toml``
and the tests of this module tell when it changes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from importlib import import_module

from zoo.cli.configs import public_names
from zoo.errors import did_you_mean

LIBRARIES = (  # where the class names that a config may use come from, beside the zoo's own
    "torch.optim",
    "torch.optim.lr_scheduler",
    "lightning.pytorch.callbacks",
    "lightning.pytorch.loggers",
)


def explain(message: str, options: Sequence[str]) -> str:
    """One sentence for an error of the parser.

    Args:
        message: Of jsonargparse.
        options: The valid ones, without dashes.
    """
    if found := re.search(r"unrecognized arguments: -*([\w.]+)", message):
        return f"unknown option --{found[1]}.{did_you_mean(found[1], options)}"
    if found := re.search(r"does not accept (?:option|key) '([\w.]+)'", message):
        return f"unknown key '{found[1]}' in the config.{did_you_mean(found[1], options)}"
    if found := re.search(r"required: (.+)", message):
        return f"{found[1].split('.', 1)[-1]} is missing: give --config NAME; 'zoo list' has them."
    key = re.search(r'Parser key "([^"]+)"', message)
    if key is None:
        return " ".join(message.split())
    problem = re.search(r"Problem with given class_path '([^']+)':(.*)", message, re.DOTALL)
    if problem:
        return _class_problem(key[1], problem[1], problem[2])
    if found := re.search(r"dot import path string: (\S+)", message):
        return f"{key[1]}: unknown class '{found[1]}'.{did_you_mean(found[1], _class_names())}"
    return f"{key[1]}: {_expectation(message)}"


def _class_problem(key: str, class_path: str, report: str) -> str:
    module, _, name = class_path.rpartition(".")
    if found := re.search(
        r"(?:Option|Key|Group key) '([\w.]+)' is not (?:accepted|expected)", report
    ):
        parameters = inspect.signature(getattr(import_module(module), name)).parameters
        return f"{key}: {name} has no argument '{found[1]}'.{did_you_mean(found[1], parameters)}"
    if re.search(r"has no attribute|No module named", report):
        return f"{key}: no class '{class_path}'.{did_you_mean(name, _class_names())}"
    inner = re.search(r'Parser key "([^"]+)"', report)
    where = f"{key}.{inner[1]}" if inner else f"{key} ({name})"
    return f"{where}: {_expectation(report)}"


def _expectation(report: str) -> str:
    """What is allowed and what came, from a report that lists the types tried."""
    expected = [
        re.sub(r"<class '([\w.]+)'>|typing\.", lambda m: m[1] or "", text)
        for text in re.findall(r"Expected an? (.+?)(?:\. Got|\n|$)", report)
    ]
    allowed = " or ".join(dict.fromkeys(text for text in expected if text != "NoneType"))
    value = re.search(r"(?:Given value|Got value): (.*)", report)
    if not allowed:
        return " ".join(report.split())
    return f"expected {allowed}" + (f", got '{value[1].strip()}'." if value else ".")


def _class_names() -> list[str]:
    names = list(public_names())
    for library in LIBRARIES:
        names += [n for n, _ in inspect.getmembers(import_module(library), inspect.isclass)]
    return names
