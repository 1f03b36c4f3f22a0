"""Finds configs in the working folder or in the package, and imports the classes they name.

Class names in a config may be short (``DegBins``): they are looked up in the public names of
``zoo``, ``zoo.datamodules``, ``zoo.callbacks`` and ``zoo.optim``, so that only what a run needs is
imported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import yaml

from zoo.errors import ZooError, did_you_mean

PUBLIC = ("zoo", "zoo.datamodules", "zoo.callbacks", "zoo.optim")


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
    """Imports the public classes that the arguments and configs name, so that short names work.

    Raises:
        ZooError: If a config is no YAML; it names the file.
    """
    words = set(re.findall(r"\w+", " ".join(args)))
    for path in configs:
        try:
            text = path.read_text(encoding="utf-8")
            yaml.safe_load(text)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ZooError(f"{path} is no valid YAML: {' '.join(str(error).split())}") from error
        words.update(re.findall(r"\w+", text))
    for name, module in public_names().items():
        if name in words:
            getattr(import_module(module), name)


def public_names() -> dict[str, str]:
    """The short names, and the package that each belongs to."""
    return {name: package for package in PUBLIC for name in import_module(package).__all__}
