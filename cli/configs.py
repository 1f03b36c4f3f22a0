"""Finds configs in the working folder or in the package, and imports the classes they name.

Class names in a config may be short (``DegBins``): they are looked up in the public names of
``zoo``, ``zoo.datamodules`` and ``zoo.callbacks``, so that only what a run needs is imported.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from zoo.errors import ZooError, did_you_mean

CLASS_OPTION = re.compile(r"--(model|data|optimizer|lr_scheduler)(?:\.class_path)?(?:=(.+))?")
PUBLIC = ("zoo", "zoo.datamodules", "zoo.callbacks")


def packaged_configs() -> dict[str, Path]:
    """The configs in the package by name: ``degbins``, ``degbins/full`` ..."""
    root = Path(str(files("zoo")))
    paths = [*root.glob("*.yaml"), *root.glob("*/*.yaml")]
    return {str(p.relative_to(root).with_suffix("")): p for p in sorted(paths)}


def find_config(name: str) -> str:
    """Returns the path of a config: an existing file, else one of the package.

    Raises:
        ZooError: If there is neither; it names the nearest packaged one.
    """
    if Path(name).expanduser().is_file():
        return str(Path(name).expanduser())
    packaged = packaged_configs()
    key = name.removeprefix("zoo/").removesuffix(".yaml")
    if key in packaged:
        return str(packaged[key])
    hint = did_you_mean(key, packaged)
    raise ZooError(f"No config '{name}' here or in the package.{hint} See 'zoo list'.")


def resolve_config_paths(args: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Replaces each ``--config`` by the path of an existing file.

    Returns:
        The arguments, and the config files among them in their order.
    """
    resolved, found = [], []
    value_follows = False
    for arg in args:
        if value_follows or arg.startswith(("--config=", "-c=")):
            option, _, value = ("", "", arg) if value_follows else arg.partition("=")
            path = find_config(value)
            found.append(Path(path))
            resolved.append(f"{option}={path}" if option else path)
            value_follows = False
        else:
            value_follows = arg in ("--config", "-c")
            resolved.append(arg)
    return resolved, found


def import_classes(args: Sequence[str], configs: Sequence[Path]) -> None:
    """Imports the public classes that the arguments and configs name, and checks their options.

    jsonargparse answers a misspelt key with a list of every type it tried; here the answer is the
    key and its nearest neighbour.

    Raises:
        ZooError: If a ``class_path`` without a dot is nearly a public name but not quite, or if
            an ``init_args`` key is not an argument of its class.
    """
    classes: dict[str, type] = {}
    for path in configs:
        for where, node in _class_nodes(_read(path)):
            cls = _resolve(node["class_path"], f"{path}, {where or 'top'}")
            if cls is not None:
                classes[where] = cls
                _check_keys(cls, node.get("init_args") or {}, f"{path}, {where}")
    options = [arg for arg in args if arg.startswith("--")]
    for option, following in zip(args, [*args[1:], ""], strict=True):
        match = CLASS_OPTION.fullmatch(option)
        if match:
            cls = _resolve(match[2] or following, option)
            if cls is not None:
                classes[match[1]] = cls
    for option in options:
        match = re.match(r"--(model|data)\.(?:init_args\.)?([A-Za-z_]\w*)", option)
        if match and match[2] not in ("class_path", "init_args", "help") and match[1] in classes:
            _check_keys(classes[match[1]], {match[2]: None}, option.partition("=")[0])


def _read(path: Path) -> Any:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ZooError(f"{path} is no valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ZooError(f"{path} holds a {type(content).__name__}; a config is a mapping.")
    return content


def _class_nodes(node: Any, where: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields each mapping with a ``class_path``, and the dotted key where it stands."""
    if isinstance(node, Mapping):
        if isinstance(node.get("class_path"), str):
            yield where, node
        for key, value in node.items():
            yield from _class_nodes(value, f"{where}.{key}" if where else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _class_nodes(value, f"{where}.{index}")


def _resolve(class_path: str, where: str) -> type | None:
    """The class, if it is a public one of the zoo or can be imported; else jsonargparse looks."""
    if "." not in class_path:
        names = {n: m for m in PUBLIC for n in import_module(m).__all__}
        if class_path in names:
            return getattr(import_module(names[class_path]), class_path)  # type: ignore[no-any-return]
        if where.endswith(("model", "data")) or "--" in where:
            hint = did_you_mean(class_path, names)
            if hint:
                raise ZooError(f"{where}: unknown class '{class_path}'.{hint}")
        return None
    module, _, name = class_path.rpartition(".")
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


def _check_keys(cls: type, init_args: Mapping[str, Any], where: str) -> None:
    parameters = inspect.signature(cls).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for key in init_args:
        if key.rstrip("+") not in parameters:
            hint = did_you_mean(key, parameters)
            raise ZooError(f"{where}: {cls.__name__} has no argument '{key}'.{hint}")
