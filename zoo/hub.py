"""From a trained module to a hub folder, and back.

A hub folder holds ``model.safetensors``, ``config.json`` (the class's name and its init arguments),
``reference.safetensors`` (a tiny input and the output that these weights gave for it) and
``README.md``, the card. Nothing in it is ever unpickled or run: the config may only name a class
of the catalogue, whose arguments are plain values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub
import torch
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from zoo._version import __version__
from zoo.atomic import atomic_path, write_json, write_text
from zoo.card import render_card
from zoo.catalog import method_class
from zoo.errors import ZooError, did_you_mean

if TYPE_CHECKING:
    from zoo.base import ZooModule

WEIGHTS, CONFIG, REFERENCE, CARD = (
    "model.safetensors",
    "config.json",
    "reference.safetensors",
    "README.md",
)
MAX_CONFIG_BYTES = 2**20  # a config is a page of text; more is not worth parsing


def from_pretrained(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    map_location: str = "cpu",
) -> ZooModule:
    """Loads a published model of any method; its config says which, among the catalogue only.

    The arguments are those of :meth:`zoo.base.ZooModule.from_pretrained`.

    Raises:
        ZooError: If the files are missing, foreign or incomplete.
    """
    folder = locate(
        name_or_path,
        revision=revision,
        token=token,
        cache_dir=cache_dir,
        local_files_only=local_files_only,
    )
    return load(folder).to(map_location)


def write_folder(
    model: ZooModule,
    folder: Path,
    *,
    license: str | None = None,
    repo_id: str | None = None,
    metrics: Mapping[str, Any] | None = None,
    figures: Sequence[str] = (),
) -> None:
    """Writes weights, config, reference output and card of a model.

    Args:
        model: Any method's; it is left as it was.
        folder: Created if need be. Each file is replaced whole or not at all.
        license: Of the weights, as an SPDX identifier; the card says "unknown" without one.
        repo_id: Where the card says that the weights are to be found.
        metrics: The content of a run's ``metrics.json``.
        figures: Pictures to show, as paths relative to the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "_class_name": type(model).__name__,
        "_zoo_version": __version__,
        **model.init_args(),
    }
    write_json(folder / CONFIG, config)
    _save_tensors(model.state_dict(), folder / WEIGHTS)
    inputs = model.example_inputs()
    outputs = {f"output.{k}": v for k, v in flatten(reference_output(model, inputs))}
    _save_tensors({f"input.{k}": v for k, v in inputs.items()} | outputs, folder / REFERENCE)
    card = render_card(
        type(model).__name__, license=license, repo_id=repo_id, metrics=metrics, figures=figures
    )
    write_text(folder / CARD, card)


def load(folder: Path, expected: type[ZooModule] | None = None) -> ZooModule:
    """Builds the model of a hub folder and loads its weights strictly; it is in eval mode.

    Args:
        folder: Local.
        expected: The class to load, which the config must name; ``None`` for the catalogue's.

    Raises:
        ZooError: If a file is missing or broken, the class is another one or none of the
            catalogue, or keys or shapes differ; it names them.
    """
    from zoo.base import weights_follow

    config = read_config(folder)
    named = config["_class_name"]
    if expected is not None and named != expected.__name__:
        raise ZooError(f"{folder} holds a {named}, not a {expected.__name__}.")
    cls: type[ZooModule] = expected or method_class(named)
    with weights_follow():
        model = cls.from_init_args({k: v for k, v in config.items() if not k.startswith("_")})
    state = _load_tensors(folder / WEIGHTS)
    _compare_keys(state, model.state_dict(), folder / WEIGHTS)
    model.load_state_dict(state)
    return model.eval()


def read_config(folder: Path) -> dict[str, Any]:
    """Reads ``config.json`` of a hub folder.

    Raises:
        ZooError: If it is missing, too large, no JSON object, or names no class.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise ZooError(f"{folder} is no hub folder: it has no {CONFIG}.")
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise ZooError(f"{path} has {path.stat().st_size} bytes; a config has at most a MiB.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ZooError(f"{path} is no valid JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("_class_name"), str):
        raise ZooError(f"{path} names no class: '_class_name' is missing.")
    return config


def locate(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
) -> Path:
    """The local folder of a published model, after fetching what is not in the cache.

    Args:
        name_or_path: A folder, or ``org/name`` or ``org/name@revision``.
        revision: Branch, tag or commit.
        token: Of the hub, for private repositories.
        cache_dir: Instead of the hub's own cache.
        local_files_only: Never ask the network.
        force_download: Fetch again what is in the cache.

    Raises:
        ZooError: If there is no such folder, repository or revision, or no way to it.
    """
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    repo_id, _, at = str(name_or_path).partition("@")
    revision = revision or at or None
    what = f"{repo_id}@{revision}" if revision else repo_id
    try:
        return Path(
            huggingface_hub.snapshot_download(
                repo_id,
                revision=revision,
                token=token,
                cache_dir=cache_dir,
                local_files_only=local_files_only,
                force_download=force_download,
                allow_patterns=[WEIGHTS, CONFIG, REFERENCE, CARD],
            )
        )
    except HFValidationError as error:
        raise ZooError(f"{name_or_path} is neither a folder nor 'org/name'.") from error
    except GatedRepoError as error:
        raise ZooError(f"{repo_id} is gated: ask for access there, and give a token.") from error
    except RepositoryNotFoundError as error:
        raise ZooError(f"No repository {repo_id}, or it is private: give a token.") from error
    except RevisionNotFoundError as error:
        raise ZooError(f"{repo_id} has no revision '{revision}'.") from error
    except LocalEntryNotFoundError as error:
        raise ZooError(f"{what} is not in the cache, and the hub cannot be reached.") from error
    except (HfHubHTTPError, OSError) as error:
        raise ZooError(f"{what} could not be fetched: {str(error).splitlines()[0]}") from error


def reference_output(model: ZooModule, inputs: Mapping[str, Tensor]) -> Any:
    """``forward`` of the inputs on the CPU in eval mode; the model is left as it was."""
    device, training = model.device, model.training
    try:
        with torch.inference_mode():
            return model.cpu().eval()(**inputs)
    finally:
        model.to(device).train(training)


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a nested output with a dotted name each."""
    if isinstance(value, Tensor):
        yield prefix or "value", value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from flatten(item, f"{prefix}.{index}" if prefix else str(index))


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    # A clone each: safetensors refuses tensors that share memory, as tied weights do.
    whole = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(whole, temporary, metadata={"format": "pt"})


def _load_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ZooError(f"{path.parent} has no {path.name}.")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ZooError(f"{path} is no valid safetensors file: {error}") from error


def _compare_keys(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path) -> None:
    for key in found:
        if key not in expected:
            raise ZooError(f"{path} has a foreign key '{key}'.{did_you_mean(key, expected)}")
    for key, tensor in expected.items():
        if key not in found:
            raise ZooError(f"{path} lacks the key '{key}'.{did_you_mean(key, found)}")
        if found[key].shape != tensor.shape:
            raise ZooError(
                f"{path}: '{key}' has shape {tuple(found[key].shape)}, "
                f"but its config makes {tuple(tensor.shape)}."
            )
