"""The one list of methods, read from the front matter of the model cards. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from zoo.errors import ZooError, did_you_mean


@dataclass(frozen=True)
class Method:
    """What a card says about its method.

    Attributes:
        name: Of the folder, the config and the card.
        cls: Name of the LightningModule in ``zoo``.
        also: Further classes of the method that can be published and loaded.
        data: Name of its data module in ``zoo.datamodules``.
        title: Of the paper.
        task: In the field's words.
        summary: One sentence.
        pipeline_tag: The hub's word for the task.
        tags: For the hub.
        extras: Extras to install for it.
        result: Its default config's figures: metric, value, baseline, run_time, peak_memory.
        card: The whole front matter.
    """

    name: str
    cls: str
    data: str
    title: str
    task: str
    summary: str
    pipeline_tag: str
    tags: list[str] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)
    also: list[str] = field(default_factory=list)
    result: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def config(self) -> str:
        """Its default config, as ``--config`` takes it."""
        return f"zoo/{self.name}.yaml"


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """Splits a card into front matter and prose.

    Raises:
        ZooError: If there is no front matter between two lines of ``---``.
    """
    parts = text.split("---\n", 2)
    if len(parts) != 3 or parts[0].strip():
        raise ZooError("A card begins with its front matter between two lines of '---'.")
    return yaml.safe_load(parts[1]), parts[2].lstrip("\n")


@cache
def _methods() -> dict[str, Method]:
    found = {}
    names = {f.name for f in fields(Method)} - {"name", "card"}
    folder = files("zoo.model_cards")
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        if path.name.endswith(".md") and not path.name.startswith("_"):
            front, _ = split_card(path.read_text(encoding="utf-8"))
            name = path.name.removesuffix(".md")
            known = {key: value for key, value in front.items() if key in names}
            found[name] = Method(name=name, card=front, **known)
    return found


def list_methods(pattern: str = "*", task: str | None = None) -> list[Method]:
    """The methods whose name or class matches, sorted by name.

    Args:
        pattern: Shell pattern, or part of a name; case does not matter.
        task: Part of the task's name.
    """
    pattern = pattern.lower() if any(c in pattern for c in "*?[") else f"*{pattern.lower()}*"
    return [
        method
        for method in _methods().values()
        if any(fnmatch(text.lower(), pattern) for text in (method.name, method.cls))
        and (task is None or task.lower() in f"{method.task} {method.pipeline_tag}".lower())
    ]


def get_method(name: str) -> Method:
    """The method of that name, or that has a class of that name.

    Raises:
        ZooError: If there is none; it names the nearest.
    """
    for method in _methods().values():
        if name in (method.name, method.cls, *method.also):
            return method
    known = [n for m in _methods().values() for n in (m.name, m.cls, *m.also)]
    raise ZooError(f"Unknown method '{name}'.{did_you_mean(name, known)} See 'zoo list'.")


def method_class(name: str) -> type[Any]:
    """Imports the class of a method: nothing outside the catalogue is ever imported by name."""
    import zoo

    method = get_method(name)
    return getattr(zoo, name if name in method.also else method.cls)  # type: ignore[no-any-return]


def card_prose(name: str) -> str:
    """The card of a method without its front matter."""
    text = files("zoo.model_cards").joinpath(f"{get_method(name).name}.md")
    return split_card(text.read_text(encoding="utf-8"))[1]
