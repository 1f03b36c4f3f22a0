"""Stage 0 on disk: the small encoder, the judge and the editor, which many runs may share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from zoo._version import __version__
from zoo.atomic import atomic_path
from zoo.errors import ZooError


def cache_path(folder: str, settings: Mapping[str, Any]) -> Path:
    """The file for these settings: everything that stage 0 depends on."""
    text = json.dumps({**settings, "version": __version__}, sort_keys=True, default=str)
    return Path(folder) / f"stage0-{hashlib.sha256(text.encode()).hexdigest()[:16]}.safetensors"


def save(parts: Mapping[str, nn.Module], path: Path) -> None:
    """Writes the weights of the parts into one file."""
    tensors = {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, part in parts.items()
        for key, value in part.state_dict().items()
    }
    with atomic_path(path) as temporary:
        save_file(tensors, temporary)


def load(parts: Mapping[str, nn.Module], path: Path) -> None:
    """Reads what :func:`save` wrote.

    Raises:
        ZooError: If the file is damaged or of other sizes.
    """
    try:
        tensors = load_file(path)
        for name, part in parts.items():
            mine = {k.removeprefix(f"{name}."): v for k, v in tensors.items()}
            part.load_state_dict({k: mine[k] for k in part.state_dict()})
    except Exception as error:  # of safetensors, or a key or shape that is not there
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ZooError(f"{path} holds no stage 0 of this model, delete it: {reason}") from error
