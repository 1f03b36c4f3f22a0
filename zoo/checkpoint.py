"""Reads Lightning checkpoints as plain data: tensors, numbers, strings; never code."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from zoo.errors import ZooError


def read_checkpoint(path: str | Path, expected_class: str | None = None) -> dict[str, Any]:
    """Reads a ``.ckpt`` file on the CPU with ``weights_only=True``.

    Args:
        path: File that Lightning wrote during ``zoo fit``.
        expected_class: Name of the method's class; another one in the file is refused.

    Returns:
        The checkpoint: ``state_dict``, ``hyper_parameters``, ``zoo`` and Lightning's own entries.

    Raises:
        ZooError: If the file is missing, broken, holds pickled objects, or is another method's.
    """
    path = Path(path)
    if not path.is_file():
        raise ZooError(f"No checkpoint at {path}.")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # refused just below
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ZooError(
            f"{path} is refused: it holds pickled Python objects, which could run code when read; "
            "a checkpoint may hold tensors, numbers, strings, lists and dicts only."
        ) from error
    except (RuntimeError, EOFError, OSError) as error:
        raise ZooError(f"{path} is no readable checkpoint: {error}".splitlines()[0]) from error
    missing = {"state_dict", "hyper_parameters"} - set(checkpoint)
    if missing:
        raise ZooError(f"{path} is no checkpoint of the zoo: no {', '.join(sorted(missing))}.")
    found = checkpoint.get("zoo", {}).get("class")
    if expected_class is not None and found is not None and found != expected_class:
        raise ZooError(f"{path} is a checkpoint of {found}, not of {expected_class}.")
    # A Lightning file may name a function to build the module with: never follow it.
    checkpoint["hyper_parameters"].pop("_instantiator", None)
    return dict(checkpoint)
